//! The configuration: Spin variables, parsed once for an instance. What is missing closes the doors that
//! need it.

use sha2::{Digest, Sha256};
use spin_sdk::variables;
use subtle::ConstantTimeEq;

use crate::domain::{Code, FieldError, Identifier, Problem};

/// The variables of `spin.toml`, parsed.
pub struct Config {
    api_keys: Vec<(Identifier, [u8; 32])>,
    token_secret: Vec<u8>,
    pub token_ttl_seconds: i64,
    /// How long a claim holds others off, milliseconds.
    pub claim_lease_ms: i64,
    /// How long an operation lasts before it is claimed, milliseconds.
    pub claim_after_ms: u64,
    /// How long a duplicate waits for the first answer, milliseconds.
    pub default_wait_ms: u64,
    pub max_wait_ms: u64,
    faults: Vec<FieldError>,
}

/// The one variable that routes without tokens do without.
const TOKEN_SECRET: &str = "#token_secret";

impl Config {
    /// Reads all variables.
    pub async fn load() -> Self {
        let mut faults = Faults(Vec::new());
        let api_keys = faults.text("api_keys").await;
        let token_secret = faults.text("token_secret").await;
        Self {
            api_keys: match parse_api_keys(&api_keys) {
                Ok(keys) => keys,
                Err(detail) if !api_keys.is_empty() => {
                    faults.add("api_keys", detail);
                    Vec::new()
                }
                Err(_) => Vec::new(),
            },
            token_secret: token_secret.into_bytes(),
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

    /// Whether all is there that a route without submit tokens needs.
    pub fn check_without_tokens(&self) -> Result<(), Problem> {
        not_configured(
            self.faults
                .iter()
                .filter(|fault| fault.pointer != TOKEN_SECRET),
        )
    }

    /// The key of the submit tokens' MAC.
    pub fn token_secret(&self) -> Result<&[u8], Problem> {
        not_configured(
            self.faults
                .iter()
                .filter(|fault| fault.pointer == TOKEN_SECRET),
        )?;
        Ok(&self.token_secret)
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

struct Faults(Vec<FieldError>);

impl Faults {
    fn add(&mut self, variable: &str, detail: impl Into<String>) {
        self.0.push(FieldError {
            pointer: format!("#{variable}"),
            detail: detail.into(),
        });
    }

    async fn text(&mut self, variable: &str) -> String {
        match variables::get(variable).await {
            Ok(value) if !value.is_empty() => return value,
            Ok(_) | Err(variables::Error::Undefined(_)) => self.add(variable, "is not set"),
            // The provider's message may hold what was asked for.
            Err(_) => self.add(variable, "cannot be read"),
        }
        String::new()
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
    fn a_key_finds_its_merchant_and_nothing_else() {
        let config = Config {
            api_keys: parse_api_keys("a=one,b=two").unwrap(),
            token_secret: Vec::new(),
            token_ttl_seconds: 600,
            claim_lease_ms: 10_000,
            claim_after_ms: 20,
            default_wait_ms: 2_000,
            max_wait_ms: 25_000,
            faults: Vec::new(),
        };
        assert_eq!(config.merchant("two").map(Identifier::as_str), Some("b"));
        for wrong in ["", "on", "one ", "a=one", "three"] {
            assert!(config.merchant(wrong).is_none(), "{wrong}");
        }
    }
}
