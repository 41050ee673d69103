//! What the key-value store holds for a key: a claim, then a cached response, in one entry so that one
//! read finds either.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::IdempotencyKey;
use crate::domain::{Answer, Identifier, Timestamp};

/// A claim: a request with this key is running, and after `lease_until` it is taken for dead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claim {
    pub owner: Uuid,
    pub fingerprint: String,
    /// Milliseconds since the Unix epoch.
    pub lease_until: i64,
}

/// What the names of all entries begin with.
pub(super) const PREFIX: &str = "payonce:1:";

/// How long a claim is kept after its lease, milliseconds.
const CLAIM_GRACE_MS: i64 = 60_000;

/// How far in the future a time may lie, milliseconds.
const AHEAD_MS: i64 = 86_400_000;

/// What a sweep deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expiry {
    /// A cached response past its retention.
    Answer,
    /// A claim whose lease is over.
    Claim,
    /// What counts as no entry.
    Unreadable,
}

/// What an entry of the key-value store says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Record {
    Claim(Claim),
    Response {
        fingerprint: String,
        answer: Answer,
        /// When the entry was written, milliseconds since the Unix epoch.
        stored_at: i64,
    },
}

impl Record {
    /// A cached response, written now.
    pub fn response(fingerprint: String, answer: Answer, now: Timestamp) -> Self {
        Self::Response {
            fingerprint,
            answer,
            stored_at: now.as_millis(),
        }
    }

    /// Reads a record; one that holds an answer that is never recorded is none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let record = serde_json::from_slice(bytes).ok()?;
        match &record {
            Self::Response { answer, .. } => {
                let location = answer.location.as_deref().unwrap_or("/");
                let plausible = matches!(answer.status, 200..=299 | 402)
                    && location.starts_with('/')
                    && location.bytes().all(|b| b.is_ascii_graphic());
                plausible.then_some(record)
            }
            Self::Claim(_) => Some(record),
        }
    }

    /// Why it may go, if it may: nobody would believe it any more.
    pub fn expiry(&self, now: Timestamp, retention_ms: i64) -> Option<Expiry> {
        // A clock that was wrong left times behind that never pass.
        let latest = now.plus_millis(AHEAD_MS).as_millis();
        let (time, lifetime_ms, expiry) = match self {
            Self::Response { stored_at, .. } => (*stored_at, retention_ms, Expiry::Answer),
            Self::Claim(claim) => (claim.lease_until, CLAIM_GRACE_MS, Expiry::Claim),
        };
        let earliest = now.plus_millis(lifetime_ms.saturating_neg()).as_millis();
        (time < earliest || time > latest).then_some(expiry)
    }

    /// The record as JSON.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Texts and numbers only: this cannot fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// The name of a key's entry. Stores limit length and alphabet, and clients choose their keys, so it is
/// a hash; the merchant is part of it (invariant 10).
pub(super) fn record_key(merchant: &Identifier, key: &IdempotencyKey) -> String {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    let mut hash = Sha256::new();
    hash.update(merchant.as_str());
    hash.update([0]);
    hash.update(key.as_str());
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(hash.finalize()))
}

#[cfg(any(test, fuzzing))]
pub(super) mod fuzz {
    use super::*;

    /// Any bytes are a record that can be answered and written again, or none.
    pub fn plausible_or_none(bytes: &[u8]) {
        let Some(record) = Record::parse(bytes) else {
            return;
        };
        for now in [i64::MIN, -1, 1_796_057_155_120, i64::MAX] {
            for retention_ms in [i64::MIN, 0, 604_800_000, i64::MAX] {
                _ = record.expiry(Timestamp::from_millis(now), retention_ms);
            }
        }
        if let Record::Response { answer, .. } = &record {
            assert!(matches!(answer.status, 200..=299 | 402));
            let location = answer.location.as_deref().unwrap_or_default();
            assert!(http::HeaderValue::from_str(location).is_ok());
        }
        assert_eq!(Record::parse(&record.to_bytes()), Some(record));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hostile::{hostile, text};

    #[test]
    fn a_record_is_read_as_it_was_written_and_garbage_is_none() {
        let answer = Answer {
            status: 201,
            location: Some("/x".to_owned()),
            body: "{}".to_owned(),
        };
        let record = Record::response("f".to_owned(), answer, Timestamp::from_millis(1));
        assert_eq!(Record::parse(&record.to_bytes()), Some(record));
        for garbage in ["", "{}", "null", "{\"claim\":{}}", "\u{0}\u{1}"] {
            assert_eq!(Record::parse(garbage.as_bytes()), None);
        }
        for (status, location) in [
            (0, None),
            (101, None),
            (409, None),
            (503, None),
            (201, Some("/x\r\ny")),
        ] {
            let location = location.map(str::to_owned);
            let answer = Answer {
                status,
                location,
                body: "{}".to_owned(),
            };
            let record = Record::response("f".to_owned(), answer, Timestamp::from_millis(1));
            assert_eq!(Record::parse(&record.to_bytes()), None, "{status}");
        }
    }

    #[test]
    fn a_record_expires_when_nobody_would_believe_it_any_more() {
        const DAY: i64 = 86_400_000;
        let now = Timestamp::from_millis(100 * DAY);
        let at = |millis: i64| Timestamp::from_millis(now.as_millis() + millis);
        let answer = |stored_at| {
            let answer = Answer {
                status: 200,
                location: None,
                body: "{}".to_owned(),
            };
            let record = Record::response("f".to_owned(), answer, stored_at);
            record.expiry(now, 7 * DAY)
        };
        assert_eq!(answer(at(0)), None);
        assert_eq!(answer(at(-7 * DAY)), None);
        assert_eq!(answer(at(-7 * DAY - 1)), Some(Expiry::Answer));
        assert_eq!(answer(at(2 * DAY)), Some(Expiry::Answer));
        let claim = |lease_until: Timestamp| {
            let record = Record::Claim(Claim {
                owner: Uuid::nil(),
                fingerprint: "f".to_owned(),
                lease_until: lease_until.as_millis(),
            });
            record.expiry(now, 7 * DAY)
        };
        assert_eq!(claim(at(10_000)), None);
        assert_eq!(claim(at(-CLAIM_GRACE_MS)), None);
        assert_eq!(claim(at(-CLAIM_GRACE_MS - 1)), Some(Expiry::Claim));
        assert_eq!(claim(at(2 * DAY)), Some(Expiry::Claim));
    }

    #[test]
    fn merchants_do_not_share_entries() {
        let key = |merchant: &str, key: &str| {
            record_key(
                &merchant.to_owned().try_into().unwrap(),
                &IdempotencyKey::parse(key.as_bytes()).unwrap(),
            )
        };
        assert_ne!(key("a", "k"), key("b", "k"));
        assert_ne!(key("a", "bk"), key("ab", "k"));
    }

    proptest! {
        #[test]
        fn any_record_is_read_as_it_was_written(record in record()) {
            prop_assert_eq!(Record::parse(&record.to_bytes()), Some(record));
        }

        #[test]
        fn a_hostile_record_is_plausible_or_none(
            bytes in hostile(record().prop_map(|record| record.to_bytes())),
        ) {
            fuzz::plausible_or_none(&bytes);
        }
    }

    fn record() -> impl Strategy<Value = Record> {
        let status = prop_oneof![200u16..300, Just(402)];
        let location = proptest::option::of("/[!-~]{0,40}");
        let answer = (status, location, text()).prop_map(|(status, location, body)| Answer {
            status,
            location,
            body,
        });
        prop_oneof![
            (text(), answer, any::<i64>()).prop_map(|(fingerprint, answer, stored_at)| {
                Record::response(fingerprint, answer, Timestamp::from_millis(stored_at))
            }),
            (any::<u128>(), text(), any::<i64>()).prop_map(|(owner, fingerprint, lease_until)| {
                Record::Claim(Claim {
                    owner: Uuid::from_u128(owner),
                    fingerprint,
                    lease_until,
                })
            }),
        ]
    }
}
