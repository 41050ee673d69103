//! Inputs of the property tests: valid, almost valid, and anything.
//!
//! Every property runs 256 times; `PROPTEST_CASES=100000 cargo test --profile tools --lib` looks further. What has
//! failed is kept in `proptest-regressions/`, and comes first. `crate::fuzz` holds what coverage looks for.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::Value;

use crate::domain::Identifier;

/// What happens to bytes on their way.
#[derive(Clone, Debug)]
enum Damage {
    Flip(Index, u8),
    Insert(Index, u8),
    Remove(Index),
    /// A part of it comes twice.
    Repeat(Index, Index),
    Cut(Index),
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let length = bytes.len();
        match self {
            Self::Insert(at, byte) => bytes.insert(at.index(length + 1), *byte),
            _ if length == 0 => {}
            Self::Flip(at, mask) => bytes[at.index(length)] ^= mask,
            Self::Remove(at) => drop(bytes.remove(at.index(length))),
            Self::Repeat(from, to) => {
                let (from, to) = (from.index(length), to.index(length));
                bytes.extend_from_within(from.min(to)..from.max(to));
            }
            Self::Cut(at) => bytes.truncate(at.index(length)),
        }
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    let index = any::<Index>;
    // What formats are made of.
    let byte = || {
        prop_oneof![
            any::<u8>(),
            proptest::sample::select(b" \0\",;:=\\%{}[].-0A\n".as_slice())
        ]
    };
    prop_oneof![
        4 => (index(), 1u8..).prop_map(|(at, mask)| Damage::Flip(at, mask)),
        4 => (index(), byte()).prop_map(|(at, byte)| Damage::Insert(at, byte)),
        4 => index().prop_map(Damage::Remove),
        1 => (index(), index()).prop_map(|(from, to)| Damage::Repeat(from, to)),
        1 => index().prop_map(Damage::Cut),
    ]
}

/// Valid bytes, and the same with a few places damaged; now and then they are equal.
pub(crate) fn damaged<V: AsRef<[u8]> + std::fmt::Debug>(
    valid: impl Strategy<Value = V>,
) -> impl Strategy<Value = (V, Vec<u8>)> {
    (valid, vec(damage(), 1..5)).prop_map(|(valid, damages)| {
        let mut bytes = valid.as_ref().to_vec();
        damages.iter().for_each(|damage| damage.apply(&mut bytes));
        (valid, bytes)
    })
}

/// Damaged bytes, or any.
pub(crate) fn hostile<V: AsRef<[u8]> + std::fmt::Debug>(
    valid: impl Strategy<Value = V>,
) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => damaged(valid).prop_map(|(_, bytes)| bytes),
        1 => vec(any::<u8>(), 0..300),
    ]
}

/// Any text.
pub(crate) fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z_0-9]{1,8}",
        any::<String>(),
        Just("é\u{0}\u{10ffff}\"\\".to_owned())
    ]
}

/// Any JSON value.
pub(crate) fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            btree_map(text(), inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// A client's identifier.
pub(crate) fn identifier() -> impl Strategy<Value = Identifier> {
    "[A-Za-z0-9._:-]{1,64}".prop_map(|text| Identifier::try_from(text).expect("an identifier"))
}
