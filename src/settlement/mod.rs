//! Bringing payments and refunds through a channel to their end, whatever got lost on the way.
//!
//! Each is a row of the journal that is under way, and a call of the channel that somebody owns for the time
//! of a lease. Whoever finds the lease over takes the call over, **looks it up first**, and asks again under
//! the same number only if the channel has no trace of it. What the channel says is appended to the journal
//! under the key `settle <id>`, so it takes effect once, whoever brings it: the request that began it, a
//! retry, a webhook or the reconcile sweep (invariants 1, 2, 8 and 9).

mod news;
mod reconcile;

use std::sync::Arc;

pub use reconcile::Reconciled;

use crate::channel::{self, Channel, Outcome, Unknown};
use crate::config::Config;
use crate::domain::commands::{ReturnPayment, SettlePayment, SettleRefund};
use crate::domain::{
    CallKind, ChannelCall, ChannelTerms, Code, Command, Given, Horizon, PaymentStatus, Problem,
    Settlement, Timestamp,
};
use crate::runtime;
use crate::store::{Database, Entry, Journal, Verdict, channel_calls, queries};

/// Asks the channel, and settles what it answers.
pub struct Settler {
    channel: Option<Box<dyn Channel>>,
    terms: Option<ChannelTerms>,
    journal: Arc<Journal>,
    /// For the calls: their leases are written here.
    database: Database,
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It is settled, by this or by somebody else.
    Settled(Ending),
    /// The channel did not say; somebody has to look it up later.
    Open,
    /// Somebody is at work on it, until then.
    Owned { lease_until: Timestamp },
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Succeeded,
    Declined,
    /// Money came for a payment that had failed: it is booked, and its refund is queued.
    Returned,
    /// It had ended before.
    Before,
}

/// What to do about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Approach {
    /// Nobody has asked yet, because this request began it.
    Ask,
    /// Somebody may have.
    LookUpFirst,
}

impl Settler {
    /// With the channel of `config`, appending to `journal`.
    pub fn new(config: &Config, journal: Arc<Journal>) -> Self {
        Self {
            channel: channel::adapter(&config.channel),
            terms: config.channel.terms(),
            journal,
            database: Database::default(),
        }
    }

    /// Time and randomness for a decision, and the channel.
    pub fn given(&self) -> Given {
        Given {
            channel: self.terms,
            ..runtime::given()
        }
    }

    /// Makes the call that this request began, and owns since.
    ///
    /// # Errors
    ///
    /// A 503 where the database cannot answer: the retry finds out.
    pub async fn begin(&self, call: &ChannelCall) -> Result<Progress, Problem> {
        // Its row may have been there for long, where the answer to the write was lost.
        let owned = call.owner.as_ref() == Some(&call.subject_id);
        if owned && !call.settled {
            self.work(call, &call.subject_id, Approach::Ask).await
        } else {
            self.go_on(call).await
        }
    }

    /// Goes on with a call that another request began, if its lease is over.
    ///
    /// # Errors
    ///
    /// A 503 where the database cannot answer.
    pub async fn go_on(&self, call: &ChannelCall) -> Result<Progress, Problem> {
        if call.settled {
            return Ok(Progress::Settled(Ending::Before));
        }
        let horizon = self.horizon();
        let owned = Progress::Owned {
            lease_until: call.lease_until,
        };
        if !horizon.is_over(call.lease_until) {
            return Ok(owned);
        }
        let owner = runtime::uuid(horizon.now);
        let lease_until = horizon.now.plus_millis(self.lease_ms());
        if channel_calls::take_over(&self.database, call, owner, horizon, lease_until).await? {
            let owner = owner.to_string();
            self.work(call, &owner, Approach::LookUpFirst).await
        } else {
            Ok(owned)
        }
    }

    /// By which leases that are over are told.
    pub fn horizon(&self) -> Horizon {
        Horizon::new(runtime::now(), self.lease_ms())
    }

    fn lease_ms(&self) -> i64 {
        self.terms.map_or(1_000, |terms| terms.lease_ms)
    }

    /// Asks the channel, as the owner of the call.
    async fn work(
        &self,
        call: &ChannelCall,
        owner: &str,
        approach: Approach,
    ) -> Result<Progress, Problem> {
        let unknown = match self.ask(call, approach).await {
            Outcome::Settled(settlement) => {
                let ending = self.settle(call, settlement).await?;
                return Ok(Progress::Settled(ending));
            }
            Outcome::Unknown(unknown) => unknown,
            // Of what it was just asked for.
            Outcome::NotFound => Unknown {
                why: "the channel does not know what it was asked for".to_owned(),
                client_secret: None,
            },
        };
        let Unknown { why, client_secret } = unknown;
        channel_calls::release(
            &self.database,
            &call.subject_id,
            owner,
            runtime::now(),
            &why,
            client_secret.as_deref(),
        )
        .await?;
        Ok(Progress::Open)
    }

    async fn ask(&self, call: &ChannelCall, approach: Approach) -> Outcome {
        let configured = self.terms.is_some_and(|terms| terms.name == call.channel);
        let Some(channel) = self.channel.as_ref().filter(|_| configured) else {
            return Outcome::Unknown(Unknown {
                why: format!("the channel {} is not configured", call.channel),
                client_secret: None,
            });
        };
        if approach == Approach::LookUpFirst {
            let now = runtime::now();
            let found = match call.kind {
                CallKind::Charge => channel.lookup(call, now).await,
                CallKind::Refund => channel.lookup_refund(call, now).await,
            };
            if found != Outcome::NotFound {
                return found;
            }
        }
        match call.kind {
            CallKind::Charge => channel.charge(call).await,
            CallKind::Refund => channel.refund(call).await,
        }
    }

    /// Appends what the channel said to the journal, where it takes effect once.
    async fn settle(&self, call: &ChannelCall, settlement: Settlement) -> Result<Ending, Problem> {
        let succeeded = matches!(settlement, Settlement::Succeeded { .. });
        let ending = if succeeded {
            Ending::Succeeded
        } else {
            Ending::Declined
        };
        match call.kind {
            CallKind::Refund => {
                let refund = queries::refund(&self.database, &call.merchant, &call.subject_id);
                let refund = refund.await?.ok_or_else(vanished)?;
                let command = SettleRefund {
                    refund,
                    request_no: call.request_no.clone(),
                    settlement,
                };
                let new = self.append(call, "settle", command).await?;
                Ok(if new { ending } else { Ending::Before })
            }
            CallKind::Charge => {
                let command = SettlePayment {
                    order_no: call.order_no.clone(),
                    request_no: call.request_no.clone(),
                    settlement: settlement.clone(),
                };
                if self.append(call, "settle", command).await? {
                    return Ok(ending);
                }
                match settlement {
                    Settlement::Succeeded { channel_ref } => {
                        self.return_late(call, channel_ref).await
                    }
                    Settlement::Declined { .. } => Ok(Ending::Before),
                }
            }
        }
    }

    /// Money has come. If the payment had failed before, it goes back.
    async fn return_late(
        &self,
        call: &ChannelCall,
        channel_ref: Option<String>,
    ) -> Result<Ending, Problem> {
        let payment = queries::payment(&self.database, &call.merchant, &call.subject_id).await?;
        if payment.ok_or_else(vanished)?.status != PaymentStatus::Failed {
            return Ok(Ending::Before);
        }
        let command = ReturnPayment {
            order_no: call.order_no.clone(),
            request_no: call.request_no.clone(),
            channel_ref,
        };
        let new = self.append(call, "late", command).await?;
        Ok(if new {
            Ending::Returned
        } else {
            Ending::Before
        })
    }

    /// Whether this appended the row, or it was there.
    async fn append(
        &self,
        call: &ChannelCall,
        stage: &str,
        command: impl Command + 'static,
    ) -> Result<bool, Problem> {
        let entry = Entry {
            merchant: call.merchant.clone(),
            // With its space, it is no key that a client can send.
            key: format!("{stage} {}", call.subject_id),
            fingerprint: call.number.clone(),
            command: Box::new(command),
            given: self.given(),
        };
        match self.journal.append(entry).await {
            Ok(Verdict::Appended(_)) => Ok(true),
            Ok(Verdict::Recorded(_)) => Ok(false),
            // Its row is past its retention.
            Err(problem)
                if matches!(
                    problem.code,
                    Code::IdempotencyKeyExpired | Code::OrderStateInvalid
                ) =>
            {
                Ok(false)
            }
            Err(problem) => Err(problem),
        }
    }
}

/// A call without what it was made for.
fn vanished() -> Problem {
    let mut problem = Problem::new(Code::StorageUnavailable, "the database did not answer");
    problem.cause = Some("a call of a channel belongs to nothing".to_owned());
    problem
}
