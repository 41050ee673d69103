//! JSON that means one thing: no key twice in an object.
//!
//! Parsers disagree on which of two equal keys counts (RFC 8259, section 4), so a proxy could check one
//! amount and this service charge the other.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A JSON value whose objects have distinct keys.
pub(super) struct StrictJson(pub Value);

impl<'de> Deserialize<'de> for StrictJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(StrictJson)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(StrictJson(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(array.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format_args!("duplicate key `{key}`")));
            }
            let StrictJson(value) = entries.next_value()?;
            object.insert(key, value);
        }
        Ok(object.into())
    }
}

#[cfg(any(test, fuzzing))]
pub(super) mod fuzz {
    use super::*;

    /// Any bytes are read as others read them, or refused; and refused is what others refuse, or has a key twice.
    pub fn as_others_or_refused(bytes: &[u8]) {
        // Where a `Value` is read, an object with a key of `serde_json`'s own is taken for the text in it.
        if bytes.windows(8).any(|part| part == b"RawValue") {
            return;
        }
        let others: Option<Value> = serde_json::from_slice(bytes).ok();
        match serde_json::from_slice(bytes) {
            Ok(StrictJson(value)) => {
                assert_eq!(members_of(&value), members_in(bytes));
                assert_eq!(Some(value), others);
            }
            Err(_) => assert!(others.is_none_or(|value| members_of(&value) < members_in(bytes))),
        }
    }

    fn members_of(value: &Value) -> usize {
        match value {
            Value::Array(items) => items.iter().map(members_of).sum(),
            Value::Object(object) => object.values().map(|value| 1 + members_of(value)).sum(),
            _ => 0,
        }
    }

    /// The colons outside texts.
    fn members_in(json: &[u8]) -> usize {
        let (mut quoted, mut escaped, mut members) = (false, false, 0);
        for byte in json {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = !quoted,
                b':' if !quoted => members += 1,
                _ => {}
            }
        }
        members
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::hostile::{hostile, json};

    #[test]
    fn duplicate_keys_are_refused_at_any_depth() {
        for bad in [
            r#"{"a":1,"a":1}"#,
            r#"{"b":[{"a":1,"a":2}]}"#,
            r#"{"a":1,"\u0061":2}"#,
        ] {
            assert!(serde_json::from_str::<StrictJson>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn everything_else_is_read_as_json() {
        let text = r#"{"a":[1,-2,1.5,"x",true,null,{"b":{}}],"c":18446744073709551615}"#;
        let StrictJson(value) = serde_json::from_str(text).unwrap();
        assert_eq!(value, serde_json::from_str::<Value>(text).unwrap());
    }

    fn read(text: &[u8]) -> Option<Value> {
        let read = serde_json::from_slice(text).ok();
        read.map(|StrictJson(value)| value)
    }

    proptest! {
        #[test]
        fn any_json_is_read_as_others_read_it(value in json()) {
            let text = value.to_string();
            prop_assert_eq!(read(text.as_bytes()), serde_json::from_str(&text).ok());
        }

        #[test]
        fn a_hostile_text_is_read_as_others_read_it_or_refused(
            text in hostile(json().prop_map(|value| value.to_string())),
        ) {
            fuzz::as_others_or_refused(&text);
        }

        #[test]
        fn a_duplicate_key_is_refused_wherever_it_is(
            name in "[a-z]{1,5}", escaped in any::<bool>(), first in json(), second in json(), depth in 0usize..60,
        ) {
            let again = if escaped {
                name.bytes().map(|byte| format!("\\u{byte:04x}")).collect()
            } else {
                name.clone()
            };
            let object = format!(r#"{{"{name}":{first},"x0":[],"{again}":{second}}}"#);
            let text = format!("{}{object}{}", r#"[{"a":"#.repeat(depth), "}]".repeat(depth));
            prop_assert!(serde_json::from_str::<Value>(&text).is_ok());
            prop_assert_eq!(read(text.as_bytes()), None);
        }

        #[test]
        fn nesting_is_refused_before_it_costs_the_stack(
            depth in prop_oneof![1usize..300, 1usize..65_536],
            (open, close) in select(vec![("[", "]"), (r#"{"a":"#, "}")]),
        ) {
            let unclosed = open.repeat(depth);
            prop_assert_eq!(read(unclosed.as_bytes()), None);
            let text = format!("{unclosed}1{}", close.repeat(depth));
            prop_assert_eq!(read(text.as_bytes()).is_some(), depth < 128);
        }

        #[test]
        fn a_huge_number_is_finite_or_refused(
            number in "-?(0|[1-9][0-9]{0,400})(\\.[0-9]{1,400})?([eE][+-]?[0-9]{1,20})?",
        ) {
            if let Some(value) = read(number.as_bytes()) {
                prop_assert!(value.as_f64().is_some_and(f64::is_finite), "{}", value);
            }
        }

        #[test]
        fn a_lone_surrogate_is_refused(unit in 0xd800u16..0xe000, before in "[a-z]{0,3}", after in "[a-z]{0,3}") {
            for text in [
                format!(r#"{{"a":"{before}\u{unit:04x}{after}"}}"#),
                format!(r#"{{"{before}\u{unit:04X}{after}":1}}"#),
            ] {
                prop_assert_eq!(read(text.as_bytes()), None);
            }
        }
    }
}
