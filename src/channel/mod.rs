//! Outside payment channels behind one trait. Everything is asked for under a number of ours that never
//! changes, so asking again is safe; an answer that is not clear is no answer (invariant 8).
//!
//! Nothing here knows orders or the database: `settlement` makes use of what a channel says.

mod client;
mod http;
mod signature;
mod stripe;

use ::http::HeaderMap;
use futures::future::BoxFuture;

use self::client::Client;
use self::http::HttpChannel;
use self::stripe::StripeChannel;
use crate::config::{ChannelConfig, ChannelKind};
use crate::domain::{Amount, CallKind, ChannelCall, Currency, Problem, Settlement, Timestamp};

#[cfg(any(test, fuzzing))]
pub use self::{fuzz::webhook_event, signature::fuzz::webhook_signature};

/// What a channel says about a charge or a refund.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is over, one way or the other.
    Settled(Settlement),
    /// Nobody knows: it may have happened, or may still. It is looked up later, and never guessed.
    Unknown(Unknown),
    /// The channel has no trace of the number: asking for it is safe.
    NotFound,
}

/// Why the outcome is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unknown {
    /// For the operator.
    pub why: String,
    /// What the customer's browser needs to go on, where the channel waits for the customer.
    pub client_secret: Option<String>,
}

/// What a channel says, if it is a code. Any other text could be about anybody, and stays away from clients.
fn code(text: &str) -> Option<&str> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.[]".contains(&byte);
    ((1..=64).contains(&text.len()) && text.bytes().all(fits)).then_some(text)
}

impl Outcome {
    fn unknown(why: impl Into<String>) -> Self {
        Self::Unknown(Unknown {
            why: why.into(),
            client_secret: None,
        })
    }
}

/// What a channel reports by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelEvent {
    /// The channel's identifier, the same in every repetition.
    pub id: String,
    /// `None` where it is about something else.
    pub news: Option<News>,
}

/// What a channel says about a charge or a refund, by itself or as an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    pub kind: CallKind,
    /// Our number.
    pub number: String,
    /// How much it is, as we count; `None` where that is not said, or is no amount.
    pub money: Option<(Amount, Currency)>,
    /// `None` while it is not over.
    pub settlement: Option<Settlement>,
}

impl News {
    /// How the call ended, if it has.
    ///
    /// # Errors
    ///
    /// Why this is not about the call, for the operator.
    pub fn of(self, call: &ChannelCall) -> Result<Option<Settlement>, String> {
        if (self.kind, &self.number) != (call.kind, &call.number) {
            return Err("the channel speaks of another number".to_owned());
        }
        let (amount, currency) = (call.amount.get(), call.currency.code());
        match self.money {
            Some(money) if money == (call.amount, call.currency) => Ok(self.settlement),
            Some((other, of)) => Err(format!(
                "the channel speaks of {} {}, and not of {amount} {currency}",
                other.get(),
                of.code()
            )),
            None => Err(format!("the channel does not speak of {amount} {currency}")),
        }
    }
}

/// A payment channel. An adapter implements these five; none of them tries again by itself.
pub trait Channel: Send + Sync {
    /// Asks for a charge. Under a number that the channel knows, it answers what became of it.
    fn charge<'a>(&'a self, call: &'a ChannelCall) -> BoxFuture<'a, Outcome>;

    /// Looks a charge up by its number.
    fn lookup<'a>(&'a self, call: &'a ChannelCall, now: Timestamp) -> BoxFuture<'a, Outcome>;

    /// Asks for a refund.
    fn refund<'a>(&'a self, call: &'a ChannelCall) -> BoxFuture<'a, Outcome>;

    /// Looks a refund up by its number.
    fn lookup_refund<'a>(&'a self, call: &'a ChannelCall, now: Timestamp)
    -> BoxFuture<'a, Outcome>;

    /// Reads a webhook.
    ///
    /// # Errors
    ///
    /// `signature_invalid`, and `body_invalid` for what was signed and cannot be read.
    fn event(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: Timestamp,
    ) -> Result<ChannelEvent, Problem>;
}

/// The adapter that the configuration names; `None` without a channel, or with one that is not complete.
pub fn adapter(config: &ChannelConfig) -> Option<Box<dyn Channel>> {
    let client = Client::new(config)?;
    let secrets = config.webhook_secrets.clone();
    Some(match config.kind {
        ChannelKind::Wallet => return None,
        ChannelKind::Http => Box::new(HttpChannel::new(client, secrets)),
        ChannelKind::Stripe => Box::new(StripeChannel::new(client, secrets, config.stuck_after_ms)),
    })
}

#[cfg(any(test, fuzzing))]
mod fuzz {
    use super::{ChannelEvent, http, stripe};
    use crate::domain::{Code, Problem, Settlement};

    /// Any body whose signature was right is an event of either channel, or refused.
    pub fn webhook_event(bytes: &[u8]) {
        read_or_refused(http::event("evt_1", bytes));
        read_or_refused(stripe::event(bytes));
    }

    /// Of what the channel says, only codes reach clients.
    pub(super) fn read_or_refused(event: Result<ChannelEvent, Problem>) {
        match event.map(|event| event.news.and_then(|news| news.settlement)) {
            Ok(Some(Settlement::Declined { detail, .. })) => {
                let said = detail.strip_prefix("the channel says ").expect("a reason");
                assert!(
                    said.split(" about ")
                        .all(|said| said == "no reason" || super::code(said).is_some())
                );
            }
            Ok(_) => {}
            Err(problem) => assert_eq!(problem.code, Code::BodyInvalid),
        }
    }
}
