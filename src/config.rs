//! The configuration: Spin variables, parsed once for an instance. What is missing closes the doors that
//! need it.

mod channel;
mod notify;

use sha2::{Digest, Sha256};
use spin_sdk::variables;
use subtle::ConstantTimeEq;

pub use self::channel::{ChannelConfig, ChannelKind};
pub use self::notify::Notify;
use crate::domain::{Code, FieldError, Identifier, Problem};

/// The variables of `spin.toml`, parsed.
pub struct Config {
    api_keys: Vec<(Identifier, [u8; 32])>,
    /// SHA-256 of the admin key, if there is one.
    admin_key: Option<[u8; 32]>,
    token_secrets: Vec<Vec<u8>>,
    pub token_ttl_seconds: i64,
    /// How long a claim holds others off, milliseconds.
    pub claim_lease_ms: i64,
    /// How long an operation lasts before it is claimed, milliseconds.
    pub claim_after_ms: u64,
    /// How long a duplicate waits for the first answer, milliseconds.
    pub default_wait_ms: u64,
    pub max_wait_ms: u64,
    /// How long finished records are kept, milliseconds.
    pub retention_ms: i64,
    /// Where events go.
    pub notify: Notify,
    /// Where payments go that are not from the wallet.
    pub channel: ChannelConfig,
    faults: Vec<FieldError>,
}

/// Variables that only some routes need; a fault in another one closes them all.
const MERCHANTS: &[&str] = &["#api_keys"];
const TOKENS: &[&str] = &["#token_secret"];
const ADMIN: &[&str] = &["#admin_key", "#retention_days"];
const DELIVERY: &[&str] = &[
    "#notify_url",
    "#notify_host",
    "#notify_secret",
    "#sms_gateway_url",
    "#sms_gateway_host",
    "#notify_timeout_ms",
    "#notify_pause_ms",
    "#notify_max_attempts",
];

const CHANNEL: &[&str] = &[
    "#channel",
    "#channel_url",
    "#channel_host",
    "#channel_key",
    "#channel_timeout_ms",
    "#channel_stuck_after_seconds",
];
const WEBHOOKS: &[&str] = &["#webhook_secret"];

const DAY_MS: i64 = 86_400_000;

impl Config {
    /// Reads all variables.
    pub async fn load() -> Self {
        let mut faults = Faults(Vec::new());
        let api_keys = faults.text("api_keys").await;
        let token_secret = faults.text("token_secret").await;
        let admin_key = faults.text("admin_key").await;
        Self {
            api_keys: match parse_api_keys(&api_keys) {
                Ok(keys) => keys,
                Err(detail) if !api_keys.is_empty() => {
                    faults.add("api_keys", detail);
                    Vec::new()
                }
                Err(_) => Vec::new(),
            },
            admin_key: (!admin_key.is_empty()).then(|| Sha256::digest(admin_key).into()),
            token_secrets: match parse_token_secrets(&token_secret) {
                Ok(secrets) => secrets,
                Err(detail) if !token_secret.is_empty() => {
                    faults.add("token_secret", detail);
                    Vec::new()
                }
                Err(_) => Vec::new(),
            },
            token_ttl_seconds: faults.number("token_ttl_seconds", 1, 86_400).await,
            claim_lease_ms: faults.number("claim_lease_ms", 100, 600_000).await,
            claim_after_ms: faults
                .number("claim_after_ms", 0, 60_000)
                .await
                .unsigned_abs(),
            default_wait_ms: faults
                .number("default_wait_ms", 0, 600_000)
                .await
                .unsigned_abs(),
            max_wait_ms: faults
                .number("max_wait_ms", 0, 600_000)
                .await
                .unsigned_abs(),
            // A retry that comes later than a weekend must still find its answer.
            retention_ms: faults
                .number("retention_days", 2, 3650)
                .await
                .saturating_mul(DAY_MS),
            notify: Notify::load(&mut faults).await,
            channel: ChannelConfig::load(&mut faults).await,
            faults: faults.0,
        }
    }

    /// Whether every variable is set and well formed.
    ///
    /// # Errors
    ///
    /// `not_configured`, which names those that are not. The other checks do the same for fewer.
    pub fn check(&self) -> Result<(), Problem> {
        not_configured(self.faults.iter())
    }

    /// Whether all is there that merchants' routes without submit tokens need.
    pub fn check_merchants(&self) -> Result<(), Problem> {
        self.check_without(&[TOKENS, ADMIN, DELIVERY, CHANNEL, WEBHOOKS])
    }

    /// Whether all is there that admin routes need.
    pub fn check_admin(&self) -> Result<(), Problem> {
        self.check_without(&[MERCHANTS, TOKENS, DELIVERY, CHANNEL, WEBHOOKS])
    }

    /// Whether all is there that delivering events needs. Where no receiver is configured, that is nothing.
    pub fn check_delivery(&self) -> Result<(), Problem> {
        self.check_only(DELIVERY)
    }

    /// Whether all is there that asking the payment channel needs. Without a channel, that is nothing.
    pub fn check_channel(&self) -> Result<(), Problem> {
        self.check_only(CHANNEL)
    }

    /// Whether all is there that taking the channel's webhooks needs.
    pub fn check_webhooks(&self) -> Result<(), Problem> {
        self.check_channel()?;
        self.check_only(WEBHOOKS)
    }

    /// The secrets that submit tokens and cached entries may be of: several while they change, and the first is
    /// that of new ones.
    pub fn token_secrets(&self) -> Result<&[Vec<u8>], Problem> {
        self.check_only(TOKENS)?;
        Ok(&self.token_secrets)
    }

    /// The secret of new submit tokens.
    pub fn token_secret(&self) -> Result<&[u8], Problem> {
        let first = self.token_secrets()?.first();
        first
            .map(Vec::as_slice)
            .ok_or_else(|| Problem::new(Code::NotConfigured, "variables to set: token_secret"))
    }

    fn check_only(&self, group: &[&str]) -> Result<(), Problem> {
        let faults = self.faults.iter();
        not_configured(faults.filter(|fault| group.contains(&fault.pointer.as_str())))
    }

    fn check_without(&self, groups: &[&[&str]]) -> Result<(), Problem> {
        let faults = self.faults.iter();
        not_configured(faults.filter(|fault| {
            let pointer = fault.pointer.as_str();
            !groups.iter().any(|group| group.contains(&pointer))
        }))
    }

    /// Whether this is the admin key, compared in constant time.
    pub fn is_admin(&self, key: &str) -> bool {
        let presented: [u8; 32] = Sha256::digest(key).into();
        let admin_key = self.admin_key.as_ref();
        admin_key.is_some_and(|admin_key| admin_key.ct_eq(&presented).into())
    }

    /// The merchant of an API key. Every key is compared, in constant time.
    pub fn merchant(&self, api_key: &str) -> Option<&Identifier> {
        let presented: [u8; 32] = Sha256::digest(api_key).into();
        let mut found = None;
        for (merchant, key) in &self.api_keys {
            if bool::from(key.ct_eq(&presented)) {
                found = Some(merchant);
            }
        }
        found
    }
}

/// `merchant=key` pairs, separated by commas; a merchant may have several keys, to change them.
fn parse_api_keys(text: &str) -> Result<Vec<(Identifier, [u8; 32])>, &'static str> {
    text.split(',')
        .map(|pair| {
            let (merchant, key) = pair
                .trim()
                .split_once('=')
                .ok_or("expected merchant=key pairs")?;
            if key.is_empty() || !key.bytes().all(|b| b.is_ascii_graphic()) {
                return Err("a key is visible ASCII and not empty");
            }
            Ok((
                Identifier::try_from(merchant.to_owned())?,
                Sha256::digest(key).into(),
            ))
        })
        .collect()
}

/// The secrets in one variable, separated by commas or white space: each as it is read, and at least one.
fn parse_secrets(text: &str, read: impl Fn(&str) -> Option<Vec<u8>>) -> Option<Vec<Vec<u8>>> {
    let separators = [',', ' ', '\t', '\n'];
    let secrets = text.split(separators).filter(|secret| !secret.is_empty());
    let secrets: Option<Vec<_>> = secrets.map(read).collect();
    secrets.filter(|secrets| !secrets.is_empty())
}

fn parse_token_secrets(text: &str) -> Result<Vec<Vec<u8>>, &'static str> {
    let read = |secret: &str| (secret.len() >= 16).then(|| secret.as_bytes().to_vec());
    parse_secrets(text, read).ok_or("a secret has 16 bytes or more")
}

struct Faults(Vec<FieldError>);

impl Faults {
    fn add(&mut self, variable: &str, detail: impl Into<String>) {
        self.0.push(FieldError {
            pointer: format!("#{variable}"),
            detail: detail.into(),
        });
    }

    async fn text(&mut self, variable: &str) -> String {
        let value = self.optional(variable).await;
        if value.as_deref() == Some("") {
            self.add(variable, "is not set");
        }
        value.unwrap_or_default()
    }

    /// The value, empty where it is not set; `None` where it cannot be read, which is a fault.
    async fn optional(&mut self, variable: &str) -> Option<String> {
        match variables::get(variable).await {
            Ok(value) => Some(value),
            Err(variables::Error::Undefined(_)) => Some(String::new()),
            Err(_) => {
                // The provider's message may hold what was asked for.
                self.add(variable, "cannot be read");
                None
            }
        }
    }

    async fn number(&mut self, variable: &str, least: i64, most: i64) -> i64 {
        let text = self.text(variable).await;
        match text.parse() {
            Ok(number) if (least..=most).contains(&number) => return number,
            _ if text.is_empty() => {}
            _ => self.add(
                variable,
                format!("is not a whole number from {least} to {most}"),
            ),
        }
        least
    }
}

fn not_configured<'a>(faults: impl Iterator<Item = &'a FieldError>) -> Result<(), Problem> {
    let faults: Vec<_> = faults.cloned().collect();
    if faults.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = faults
        .iter()
        .map(|fault| fault.pointer.trim_start_matches('#'))
        .collect();
    let mut problem = Problem::new(
        Code::NotConfigured,
        format!("variables to set: {}", names.join(", ")),
    );
    problem.errors = faults;
    Err(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_keys_are_pairs_and_a_merchant_may_have_several() {
        let keys = parse_api_keys("shop=k1, shop=k2,other=a=b").unwrap();
        let merchants: Vec<_> = keys.iter().map(|(merchant, _)| merchant.as_str()).collect();
        assert_eq!(merchants, ["shop", "shop", "other"]);
        for bad in [
            "", "shop", "shop=", "=key", "a b=key", "shop=k,", "shop=k k",
        ] {
            assert!(parse_api_keys(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn token_secrets_are_separated_by_commas_and_none_is_short() {
        let secrets = parse_token_secrets("0123456789abcdef, fedcba9876543210").unwrap();
        assert_eq!(secrets, [b"0123456789abcdef", b"fedcba9876543210"]);
        for bad in ["", " ,", "short", "short,0123456789abcdef"] {
            assert!(parse_token_secrets(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_key_finds_its_merchant_and_nothing_else() {
        let config = config();
        assert_eq!(config.merchant("two").map(Identifier::as_str), Some("b"));
        for wrong in ["", "on", "one ", "a=one", "three"] {
            assert!(config.merchant(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn the_admin_key_is_one_key_and_none_where_it_is_not_set() {
        let mut config = config();
        config.admin_key = Some(Sha256::digest("secret").into());
        assert!(config.is_admin("secret"));
        for wrong in ["", "secre", "secrets", "one"] {
            assert!(!config.is_admin(wrong), "{wrong}");
        }
        config.admin_key = None;
        assert!(!config.is_admin(""));
    }

    #[test]
    fn a_fault_closes_the_routes_that_need_the_variable() {
        let closed = |variable: &str| {
            let mut config = config();
            let mut faults = Faults(Vec::new());
            faults.add(variable, "is wrong");
            config.faults = faults.0;
            assert!(config.check().is_err());
            [
                config.check_merchants().is_err(),
                config.check_admin().is_err(),
                config.check_delivery().is_err(),
                config.token_secrets().is_err(),
                config.check_channel().is_err(),
                config.check_webhooks().is_err(),
            ]
        };
        assert_eq!(
            closed("api_keys"),
            [true, false, false, false, false, false]
        );
        assert_eq!(
            closed("admin_key"),
            [false, true, false, false, false, false]
        );
        assert_eq!(
            closed("retention_days"),
            [false, true, false, false, false, false]
        );
        assert_eq!(
            closed("notify_secret"),
            [false, false, true, false, false, false]
        );
        assert_eq!(
            closed("token_secret"),
            [false, false, false, true, false, false]
        );
        let none = false;
        assert_eq!(closed("channel_key"), [none, none, none, none, true, true]);
        assert_eq!(
            closed("webhook_secret"),
            [none, none, none, none, none, true]
        );
        assert_eq!(
            closed("max_wait_ms"),
            [true, true, false, false, false, false]
        );
    }

    fn config() -> Config {
        Config {
            api_keys: parse_api_keys("a=one,b=two").unwrap(),
            admin_key: None,
            token_secrets: Vec::new(),
            token_ttl_seconds: 600,
            claim_lease_ms: 10_000,
            claim_after_ms: 20,
            default_wait_ms: 2_000,
            max_wait_ms: 25_000,
            retention_ms: 7 * DAY_MS,
            notify: Notify::default(),
            channel: ChannelConfig::default(),
            faults: Vec::new(),
        }
    }
}
