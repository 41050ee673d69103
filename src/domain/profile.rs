//! Profiles: what a merchant keeps about a customer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Identifier, Metadata, PlainText, Timestamp};

/// A profile, complete as clients see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Profile {
    pub user_id: Identifier,
    /// Bounded as the metadata of an order.
    pub fields: Metadata,
    /// How often it was updated.
    #[serde(skip)]
    pub version: i64,
    pub updated_at: Timestamp,
}

/// Fields to set, and fields to remove, which are null (RFC 7396).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ProfilePatch(BTreeMap<String, Option<PlainText>>);

impl ProfilePatch {
    /// The fields with the patch applied.
    ///
    /// # Errors
    ///
    /// What is wrong with the result.
    pub fn apply(&self, fields: &Metadata) -> Result<Metadata, &'static str> {
        let mut fields = fields.entries().clone();
        for (name, value) in &self.0 {
            match value {
                Some(value) => fields.insert(name.clone(), value.clone()),
                None => fields.remove(name),
            };
        }
        Metadata::try_from(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(json: &str) -> Metadata {
        serde_json::from_str(json).unwrap()
    }

    fn apply(patch: &str, to: &str) -> Result<Metadata, &'static str> {
        let patch: ProfilePatch = serde_json::from_str(patch).unwrap();
        patch.apply(&fields(to))
    }

    #[test]
    fn a_patch_sets_replaces_and_removes() {
        let before = r#"{"a":"1","b":"2"}"#;
        assert_eq!(apply("{}", before), Ok(fields(before)));
        let patch = r#"{"a":null,"b":"3","c":"","d":null}"#;
        assert_eq!(apply(patch, before), Ok(fields(r#"{"b":"3","c":""}"#)));
    }

    #[test]
    fn what_a_patch_makes_is_bounded() {
        let full: BTreeMap<String, String> =
            (0..20).map(|n| (format!("k{n}"), "v".into())).collect();
        let full = serde_json::to_string(&full).unwrap();
        assert!(apply(&full, "{}").is_ok());
        assert!(apply(r#"{"new":"x"}"#, &full).is_err());
        assert!(apply(r#"{"new":"x","k0":null}"#, &full).is_ok());
        assert!(apply(r#"{"":"x"}"#, "{}").is_err());
    }
}
