//! Text that clients choose, parsed once: identifiers and short free text.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// An identifier chosen by a client (`order_no`, `request_no`, `user_id`, …): 1 to 64 of
/// `A-Z a-z 0-9 . _ : -`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Identifier(String);

impl Identifier {
    /// A fresh identifier for what the client left unnamed: a prefix and a UUIDv7.
    pub fn generated(prefix: &'static str, uuid: Uuid) -> Self {
        Self(format!("{prefix}_{uuid}"))
    }

    /// The identifier as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Identifier {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-');
        if (1..=64).contains(&text.len()) && text.bytes().all(allowed) {
            Ok(Self(text))
        } else {
            Err("an identifier is 1 to 64 of A-Z a-z 0-9 . _ : -")
        }
    }
}

/// Free text of a client (a reference, a metadata value): at most 500 bytes of UTF-8 without NUL, which
/// SQLite would take for its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct PlainText(String);

impl PlainText {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for PlainText {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text.len() <= 500 && !text.contains('\0') {
            Ok(Self(text))
        } else {
            Err("a text is at most 500 bytes, without NUL")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_1_to_64_of_the_allowed_characters() {
        for good in ["a", "A.b_c:d-9", &"x".repeat(64)] {
            assert!(Identifier::try_from(good.to_owned()).is_ok(), "{good}");
        }
        for bad in ["", "a b", "a/b", "ä", "a\0", &"x".repeat(65)] {
            assert!(Identifier::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }

    #[test]
    fn plain_text_is_short_and_has_no_nul() {
        for good in ["", "Rechnung 7,\n\tfür Jörg", &"x".repeat(500)] {
            assert!(PlainText::try_from(good.to_owned()).is_ok(), "{good}");
        }
        for bad in ["a\0b", &"x".repeat(501)] {
            assert!(PlainText::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
    }
}
