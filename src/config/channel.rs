//! The payment channel, and what its webhooks are signed with.

use http::Uri;

use super::notify::{parse_webhook_secrets, receiver};
use super::{Faults, parse_secrets};
use crate::domain::ChannelTerms;

/// How long after the time of its calls a payment belongs to whoever began it, milliseconds: time to record.
const LEASE_MARGIN_MS: u64 = 1_000;

/// Which channel takes payments that are not from the wallet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChannelKind {
    /// There is none.
    #[default]
    Wallet,
    Http,
    Stripe,
}

/// The payment channel.
#[derive(Clone, Debug, Default)]
pub struct ChannelConfig {
    pub kind: ChannelKind,
    pub url: Option<Uri>,
    pub key: String,
    /// How long the channel may take to answer, milliseconds.
    pub timeout_ms: u64,
    /// Several while they are changed.
    pub webhook_secrets: Vec<Vec<u8>>,
    /// After which time work that waits for its channel is shown as stuck, and a payment that waits for its
    /// customer is given up, milliseconds.
    pub stuck_after_ms: i64,
    /// Whether charging is possible.
    ready: bool,
}

impl ChannelConfig {
    pub(super) async fn load(faults: &mut Faults) -> Self {
        let name = faults.text("channel").await;
        let kind = match name.as_str() {
            "http" => Some(ChannelKind::Http),
            "stripe" => Some(ChannelKind::Stripe),
            "wallet" => Some(ChannelKind::Wallet),
            _ if name.is_empty() => None,
            _ => {
                faults.add("channel", "is none of wallet, http and stripe");
                None
            }
        };
        let timeout_ms = faults.number("channel_timeout_ms", 10, 120_000).await;
        let stuck_after = faults
            .number("channel_stuck_after_seconds", 1, 864_000)
            .await;
        let mut config = Self {
            // Wrong is not none: payments wait for the operator instead of going to the wallet.
            kind: kind.unwrap_or(ChannelKind::Http),
            timeout_ms: timeout_ms.unsigned_abs(),
            stuck_after_ms: stuck_after.saturating_mul(1000),
            ..Self::default()
        };
        if kind.is_none() || kind == Some(ChannelKind::Wallet) {
            return config;
        }
        config.url = receiver(faults, "channel_url", "channel_host").await;
        if config.url.is_none() {
            faults.add("channel_url", "is needed by the channel");
        } else if config.url.as_ref().is_some_and(|url| url.query().is_some()) {
            faults.add("channel_url", "has no query");
            config.url = None;
        }
        config.key = faults.text("channel_key").await;
        if !config.key.bytes().all(|b| b.is_ascii_graphic()) {
            faults.add("channel_key", "is not visible ASCII");
            config.key.clear();
        }
        let secrets = faults.text("webhook_secret").await;
        match webhook_secrets(config.kind, &secrets) {
            Ok(secrets) => config.webhook_secrets = secrets,
            Err(_) if secrets.is_empty() => {}
            Err(detail) => faults.add("webhook_secret", detail),
        }
        config.ready = config.url.is_some() && !config.key.is_empty();
        config
    }

    /// The name in payments and in the path of its webhooks.
    pub const fn name(&self) -> Option<&'static str> {
        match self.kind {
            ChannelKind::Wallet => None,
            ChannelKind::Http => Some("http"),
            ChannelKind::Stripe => Some("stripe"),
        }
    }

    /// What decisions know of it.
    pub fn terms(&self) -> Option<ChannelTerms> {
        Some(ChannelTerms {
            name: self.name()?,
            lease_ms: self.lease_ms(),
            ready: self.ready,
        })
    }

    /// How long whoever takes a call over has it to himself, milliseconds: enough for a look-up and the call.
    /// Nothing goes wrong after that: two would ask under one number.
    pub fn lease_ms(&self) -> i64 {
        let lease = self
            .timeout_ms
            .saturating_mul(2)
            .saturating_add(LEASE_MARGIN_MS);
        i64::try_from(lease).unwrap_or(i64::MAX)
    }
}

/// Stripe signs with the secret as it is shown, the Standard Webhooks specification with what it encodes.
fn webhook_secrets(kind: ChannelKind, text: &str) -> Result<Vec<Vec<u8>>, &'static str> {
    if kind != ChannelKind::Stripe {
        return parse_webhook_secrets(text);
    }
    let read = |secret: &str| Some(secret.as_bytes().to_vec());
    parse_secrets(text, read).ok_or("has no secret")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_separated_by_commas_or_spaces_and_read_as_the_channel_uses_them() {
        let two = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw, whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSx";
        let stripe = webhook_secrets(ChannelKind::Stripe, two).unwrap();
        assert_eq!(stripe.len(), 2);
        assert!(stripe.iter().all(|secret| secret.starts_with(b"whsec_")));
        assert_eq!(webhook_secrets(ChannelKind::Http, two).unwrap().len(), 2);
        assert!(webhook_secrets(ChannelKind::Http, "plain").is_err());
        assert!(webhook_secrets(ChannelKind::Stripe, " , ").is_err());
    }

    #[test]
    fn without_a_channel_there_are_no_terms() {
        let mut config = ChannelConfig::default();
        assert_eq!(config.terms(), None);
        config.kind = ChannelKind::Stripe;
        let terms = config.terms().unwrap();
        assert_eq!((terms.name, terms.ready), ("stripe", false));
    }
}
