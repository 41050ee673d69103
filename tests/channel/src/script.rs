//! What a test, or an operator with `curl`, can tell the channel to do with its next calls.

use serde::{Deserialize, Serialize};

use crate::book::Outcome;

/// The calls of a payment channel.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    Charge,
    Lookup,
    /// Of a charge that waits for its customer; only Stripe has it.
    Cancel,
    Refund,
    LookupRefund,
}

/// What goes wrong with one call.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Nothing is done, and the connection ends without an answer.
    Refuse,
    /// Nothing is done, and no answer ever comes.
    Hang,
    /// Done at once, answered after the next release only: when the caller has given up.
    Late,
    /// Done, and answered, after the next release only: when the caller has given up and asked again.
    LateAct,
    /// Done, and the connection ends without an answer.
    Drop,
    /// 503 from in front of the channel: nothing is done.
    FailBefore,
    /// Done, answered with 500.
    FailAfter,
    /// 429: nothing is done.
    RateLimit,
    /// Done, answered with 200 and the page of some proxy.
    Garble,
    /// Done, answered with another amount.
    Misstate,
    /// Done, answered after so many milliseconds.
    Slow(u64),
    /// Done, and the webhook is delivered before the answer.
    WebhookFirst,
    /// Done, and webhook and answer are sent at the same moment.
    WebhookMeanwhile,
}

impl Fault {
    /// Every fault, for tests that hold for all of them.
    pub const ALL: [Self; 13] = [
        Self::Refuse,
        Self::Hang,
        Self::Late,
        Self::LateAct,
        Self::Drop,
        Self::FailBefore,
        Self::FailAfter,
        Self::RateLimit,
        Self::Garble,
        Self::Misstate,
        Self::Slow(50),
        Self::WebhookFirst,
        Self::WebhookMeanwhile,
    ];

    /// Whether the channel does what it is asked for, at once.
    pub fn acts(self) -> bool {
        let undone = [
            Self::Refuse,
            Self::Hang,
            Self::LateAct,
            Self::FailBefore,
            Self::RateLimit,
        ];
        !undone.contains(&self)
    }
}

/// What becomes of one call.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Step {
    /// Of what is new: a call that repeats another gets what that one got.
    pub outcome: Outcome,
    pub fault: Option<Fault>,
}

impl From<Fault> for Step {
    fn from(fault: Fault) -> Self {
        Self {
            fault: Some(fault),
            ..Self::default()
        }
    }
}

impl From<Outcome> for Step {
    fn from(outcome: Outcome) -> Self {
        Self {
            outcome,
            fault: None,
        }
    }
}

/// How a webhook is delivered.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Manner {
    #[default]
    Proper,
    /// Signed ten minutes ago.
    Stale,
    /// Signed ten minutes ahead.
    Early,
    /// Signed with another secret.
    Forged,
    /// Another body than the one that was signed.
    Altered,
    /// Without any signature.
    Unsigned,
}
