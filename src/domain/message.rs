//! Messages to customers: short messages and mail, sent by a gateway.

use serde::{Deserialize, Serialize};

use super::Timestamp;

/// How a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageKind {
    Sms,
    Email,
}

/// A telephone number or mail address: 1 to 254 characters without white space and control characters.
/// Whether it exists is the gateway's business.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Recipient(String);

impl TryFrom<String> for Recipient {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bad = |c: char| c.is_whitespace() || c.is_control();
        if (1..=254).contains(&text.chars().count()) && !text.contains(bad) {
            Ok(Self(text))
        } else {
            Err("a recipient is 1 to 254 characters without white space")
        }
    }
}

/// What a message says: 1 to 10000 bytes of UTF-8 without NUL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct MessageText(String);

impl TryFrom<String> for MessageText {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if (1..=10_000).contains(&text.len()) && !text.contains('\0') {
            Ok(Self(text))
        } else {
            Err("a message is 1 to 10000 bytes, without NUL")
        }
    }
}

/// Whether a message was sent. The outbox knows what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageStatus {
    Queued,
}

/// A message, complete as clients see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    pub message_id: String,
    pub kind: MessageKind,
    pub to: Recipient,
    pub status: MessageStatus,
    pub created_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recipients_and_texts_are_bounded() {
        for good in [
            "+4915112345678",
            "13800138000",
            "jörg@example.org",
            &"x".repeat(254),
        ] {
            assert!(Recipient::try_from(good.to_owned()).is_ok(), "{good}");
        }
        for bad in ["", "a b", "a\r\nBcc:b", "\0", &"x".repeat(255)] {
            assert!(Recipient::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
        for good in ["x", "Zwei\nZeilen", &"x".repeat(10_000)] {
            assert!(MessageText::try_from(good.to_owned()).is_ok(), "{good}");
        }
        for bad in ["", "a\0b", &"x".repeat(10_001)] {
            assert!(MessageText::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
    }
}
