//! The seal of an entry: what tells those that this service wrote from all others, be they forged, damaged,
//! moved to another name or in another format.
//!
//! An entry is `2.<base64url>.<record>`: the version of the format, an HMAC-SHA-256 and the record as JSON. The
//! MAC is over version, name and record, and the name stands for one merchant and key. Its own key is derived
//! from the token secret. Without a secret nothing is sealed and nothing believed: the journal answers.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::mac::mac;

const VERSION: &str = "2";

pub(super) struct Seal {
    /// A MAC for each secret; the first one seals.
    macs: Vec<Hmac<Sha256>>,
}

impl Seal {
    pub fn new(secrets: &[Vec<u8>]) -> Self {
        let derived = |secret: &Vec<u8>| {
            let mut key = mac(secret);
            key.update(b"payonce key of the seal 1");
            mac(&key.finalize().into_bytes())
        };
        Self {
            macs: secrets.iter().map(derived).collect(),
        }
    }

    /// The entry that holds `record` under `name`.
    pub fn close(&self, name: &str, record: &[u8]) -> Option<Vec<u8>> {
        let tag = over(self.macs.first()?, name, record).finalize();
        let tag = URL_SAFE_NO_PAD.encode(tag.into_bytes());
        let mut entry = format!("{VERSION}.{tag}.").into_bytes();
        entry.extend_from_slice(record);
        Some(entry)
    }

    /// The record of an entry that was found under `name`.
    pub fn open<'a>(&self, name: &str, entry: &'a [u8]) -> Option<&'a [u8]> {
        let mut parts = entry.splitn(3, |byte| *byte == b'.');
        let (version, tag, record) = (parts.next()?, parts.next()?, parts.next()?);
        let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
        let sealed = |mac: &Hmac<Sha256>| over(mac, name, record).verify_slice(&tag).is_ok();
        (version == VERSION.as_bytes() && self.macs.iter().any(sealed)).then_some(record)
    }
}

fn over(mac: &Hmac<Sha256>, name: &str, record: &[u8]) -> Hmac<Sha256> {
    let mut mac = mac.clone();
    for part in [VERSION, name] {
        mac.update(part.as_bytes());
        mac.update(b"\0");
    }
    mac.update(record);
    mac
}

#[cfg(any(test, fuzzing))]
pub(super) mod fuzz {
    use super::*;

    /// Any bytes are an entry as it was sealed, or none; and as a record they come out as they went in, under their
    /// name only.
    pub fn sealed_or_none(bytes: &[u8]) {
        let name = "payonce:1:a";
        let seal = Seal::new(&[b"secret".to_vec()]);
        if let Some(record) = seal.open(name, bytes) {
            assert_eq!(seal.close(name, record).as_deref(), Some(bytes));
        }
        let entry = seal.close(name, bytes).expect("a secret");
        assert_eq!(seal.open(name, &entry), Some(bytes));
        assert_eq!(seal.open("payonce:1:b", &entry), None);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::hostile::{damaged, text};

    const NAME: &str = "payonce:1:a";
    const RECORD: &[u8] = br#"{"answer":"a.b"}"#;

    fn seal(secrets: &[&str]) -> Seal {
        let secrets: Vec<_> = secrets
            .iter()
            .map(|text| text.as_bytes().to_vec())
            .collect();
        Seal::new(&secrets)
    }

    #[test]
    fn an_entry_opens_under_its_name_only() {
        let seal = seal(&["secret"]);
        let entry = seal.close(NAME, RECORD).unwrap();
        assert_eq!(seal.open(NAME, &entry), Some(RECORD));
        assert_eq!(seal.open("payonce:1:b", &entry), None);
    }

    #[test]
    fn a_forged_entry_is_none() {
        let seal = seal(&["secret"]);
        let entry = self::seal(&["guess"]).close(NAME, RECORD).unwrap();
        assert_eq!(seal.open(NAME, &entry), None);
        for tag in ["", "AAAA", &"A".repeat(43)] {
            let entry = [format!("2.{tag}.").as_bytes(), RECORD].concat();
            assert_eq!(seal.open(NAME, &entry), None, "{tag}");
        }
    }

    #[test]
    fn an_entry_of_another_version_is_none() {
        let seal = seal(&["secret"]);
        let entry = seal.close(NAME, RECORD).unwrap();
        for version in ["", "1", "3", "02", "2 "] {
            let other = [version.as_bytes(), &entry[1..]].concat();
            assert_eq!(seal.open(NAME, &other), None, "{version}");
        }
        assert_eq!(seal.open(NAME, RECORD), None);
    }

    #[test]
    fn an_entry_of_either_secret_opens_while_they_change() {
        let (old, both, new) = (seal(&["old"]), seal(&["new", "old"]), seal(&["new"]));
        let of_old = old.close(NAME, RECORD).unwrap();
        let of_both = both.close(NAME, RECORD).unwrap();
        assert_eq!(both.open(NAME, &of_old), Some(RECORD));
        assert_eq!(new.open(NAME, &of_both), Some(RECORD));
        assert_eq!(new.open(NAME, &of_old), None);
        assert_eq!(old.open(NAME, &of_both), None);
    }

    #[test]
    fn without_a_secret_nothing_is_sealed_or_believed() {
        let none = seal(&[]);
        assert_eq!(none.close(NAME, RECORD), None);
        let entry = seal(&[""]).close(NAME, RECORD).unwrap();
        assert_eq!(none.open(NAME, &entry), None);
    }

    proptest! {
        #[test]
        fn any_record_comes_out_as_it_went_in(
            secret in vec(any::<u8>(), 0..100), name in text(), record in vec(any::<u8>(), 0..300),
        ) {
            let seal = Seal::new(&[secret]);
            let entry = seal.close(&name, &record).unwrap();
            prop_assert_eq!(seal.open(&name, &entry), Some(record.as_slice()));
        }

        #[test]
        fn a_damaged_entry_is_none((entry, damaged) in damaged(entry())) {
            let opened = seal(&["secret"]).open(NAME, &damaged).is_some();
            prop_assert_eq!(opened, damaged == entry);
        }

        #[test]
        fn a_hostile_entry_is_none(entry in vec(any::<u8>(), 0..300), record in vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(seal(&["secret"]).open(NAME, &entry), None);
            let tag = URL_SAFE_NO_PAD.encode(&entry);
            let entry = [format!("2.{tag}.").as_bytes(), record.as_slice()].concat();
            prop_assert_eq!(seal(&["secret"]).open(NAME, &entry), None);
        }
    }

    fn entry() -> impl Strategy<Value = Vec<u8>> {
        let record = vec(any::<u8>(), 0..100);
        record.prop_map(|record| seal(&["secret"]).close(NAME, &record).unwrap())
    }
}
