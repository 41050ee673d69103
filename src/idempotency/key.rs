//! Idempotency keys, parsed: what a request is known by within its merchant.

use sfv::Parser;
use uuid::Uuid;

use super::SubmitToken;
use crate::domain::{Identifier, Timestamp};

/// A key: 1 to 255 visible ASCII characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    text: String,
    /// Where the key is a token's: until when it may redeem.
    token_expires_at: Option<Timestamp>,
}

/// Why a header value is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a key is 1 to 255 visible ASCII characters, in double quotes or bare without quotes, commas, semicolons and white space"
)]
pub struct InvalidKey;

impl IdempotencyKey {
    /// Parses a header value: a structured-field string whose parameters are ignored
    /// (draft-ietf-httpapi-idempotency-key-header-07, RFC 9651), or a bare value, which means the same.
    pub fn parse(value: &[u8]) -> Result<Self, InvalidKey> {
        let value = value.trim_ascii();
        let text = if value.starts_with(b"\"") {
            structured(value).ok_or(InvalidKey)?
        } else {
            if value.iter().any(|b| matches!(b, b'"' | b',' | b';')) {
                return Err(InvalidKey);
            }
            String::from_utf8(value.to_vec()).map_err(|_| InvalidKey)?
        };
        if (1..=255).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()) {
            Ok(Self {
                text,
                token_expires_at: None,
            })
        } else {
            Err(InvalidKey)
        }
    }

    /// The key of a payment request that came with nothing but its number.
    pub fn of_request_no(request_no: &Identifier) -> Self {
        Self {
            text: format!("pay:{}", request_no.as_str()),
            token_expires_at: None,
        }
    }

    /// The key of a submit token: it redeems one operation (invariant 13).
    pub fn of_token(token: &SubmitToken) -> Self {
        Self {
            text: format!("token:{}", token.id),
            token_expires_at: Some(token.expires_at),
        }
    }

    /// The key of an event: no two events of a source have one identifier, says CloudEvents. With its
    /// spaces, which a source has not, it is none that a client can send.
    pub fn of_event(source: &str, id: &str) -> Self {
        Self {
            text: format!("event {source} {id}"),
            token_expires_at: None,
        }
    }

    /// A key for a request that may be repeated by its nature, a `PUT`, and came without one.
    pub fn unnamed(uuid: Uuid) -> Self {
        Self {
            text: format!("put:{uuid}"),
            token_expires_at: None,
        }
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it is that of a token that may not redeem any more.
    pub fn is_expired_token(&self, now: Timestamp) -> bool {
        self.token_expires_at
            .is_some_and(|expires_at| now >= expires_at)
    }
}

fn structured(value: &[u8]) -> Option<String> {
    let item = Parser::new(value).parse_item::<sfv::Item>().ok()?;
    Some(item.bare_item.as_string()?.as_str().to_owned())
}

#[cfg(any(test, fuzzing))]
pub mod fuzz {
    use super::*;

    /// Any bytes in the header are one key, written quoted or bare, or refused.
    pub fn key_or_refused(value: &[u8]) {
        let trimmed = value.trim_ascii();
        let bare = |byte: &u8| byte.is_ascii_graphic() && !b"\",;".contains(byte);
        match IdempotencyKey::parse(value) {
            Ok(key) => {
                assert!((1..=255).contains(&key.text.len()));
                assert!(key.text.bytes().all(|byte| byte.is_ascii_graphic()));
                assert!(!key.is_expired_token(Timestamp::from_millis(i64::MAX)));
                let quoted = quoted(&key.text);
                match trimmed.strip_prefix(quoted.as_bytes()) {
                    Some(parameters) => {
                        assert!(parameters.is_empty() || parameters.starts_with(b";"));
                    }
                    None => assert_eq!(trimmed, key.text.as_bytes()),
                }
                assert_eq!(IdempotencyKey::parse(quoted.as_bytes()), Ok(key));
            }
            Err(InvalidKey) => {
                assert!(!(1..=255).contains(&trimmed.len()) || !trimmed.iter().all(bare));
            }
        }
    }

    /// A key as a structured-field string.
    pub fn quoted(key: &str) -> String {
        format!("\"{}\"", key.replace('\\', r"\\").replace('"', "\\\""))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hostile::hostile;

    fn parsed(value: &str) -> Option<String> {
        IdempotencyKey::parse(value.as_bytes())
            .ok()
            .map(|key| key.text)
    }

    #[test]
    fn quoted_and_bare_values_mean_the_same_key() {
        for value in ["abc", "\"abc\"", " abc ", "\"abc\";v=1", "\"abc\"; a=?0;b"] {
            assert_eq!(parsed(value).as_deref(), Some("abc"), "{value}");
        }
        assert_eq!(parsed(r#""a\"b\\c""#).as_deref(), Some(r#"a"b\c"#));
        assert_eq!(
            parsed("8e03978e-40d5-43e8-bc93-6894a57f9324").map(|key| key.len()),
            Some(36)
        );
        assert_eq!(parsed(&"x".repeat(255)).map(|key| key.len()), Some(255));
    }

    #[test]
    fn everything_else_is_refused() {
        let long = "x".repeat(256);
        let long_quoted = format!("\"{long}\"");
        for value in [
            "",
            " ",
            "\"\"",
            "a b",
            "\"a b\"",
            "a,b",
            "\"a\", \"b\"",
            "a;b",
            "a\"b",
            "\"abc",
            "\"abc\"x",
            "ä",
            "\"ä\"",
            "a\tb",
            "\"a\\x\"",
            &long,
            &long_quoted,
        ] {
            assert_eq!(parsed(value), None, "{value}");
        }
    }

    proptest! {
        #[test]
        fn any_key_is_the_same_quoted_and_bare(text in "[!-~]{1,255}") {
            prop_assert_eq!(parsed(&fuzz::quoted(&text)), Some(text.clone()));
            if !text.contains(['"', ',', ';']) {
                prop_assert_eq!(parsed(&text), Some(text));
            }
        }

        #[test]
        fn a_hostile_field_is_a_key_or_refused(
            value in hostile(prop_oneof!["[!-~]{1,20}", r#""[ -~]{0,20}"(;[a-z]=[0-9.?"a-z]{1,5})?"#]),
        ) {
            fuzz::key_or_refused(&value);
        }
    }
}
