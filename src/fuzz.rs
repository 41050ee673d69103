//! What is fuzzed: each parser of what strangers send. A target takes any bytes, and panics where they break what
//! it promises.
//!
//! `cargo fuzz run` looks for such bytes (`fuzz/`, docs/security.md). The tests try those that are kept in
//! `fuzz/corpus/`.

pub use crate::channel::{webhook_event, webhook_signature};
pub use crate::http::{cloud_event, cursor, header_field, json_body};
pub use crate::idempotency::{cached_entry, token};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::panic::catch_unwind;
    use std::path::PathBuf;

    use super::*;

    type Target = fn(&[u8]);

    const TARGETS: [(&str, Target); 8] = [
        ("cached_entry", cached_entry),
        ("cloud_event", cloud_event),
        ("cursor", cursor),
        ("header_field", header_field),
        ("json_body", json_body),
        ("token", token),
        ("webhook_event", webhook_event),
        ("webhook_signature", webhook_signature),
    ];

    fn files(folder: &str) -> Vec<PathBuf> {
        // Of run time: one from compile time would be wrong when clones share a target directory.
        let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap());
        let folder = root.join("fuzz").join(folder);
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    #[test]
    fn every_kept_input_passes_its_target() {
        let mut failed = Vec::new();
        for (name, target) in TARGETS {
            let mut inputs = files(&format!("corpus/{name}"));
            // Others come and go while something is fuzzed.
            inputs.retain(|input| input.extension().is_some_and(|kept| kept == "in"));
            assert!(!inputs.is_empty(), "{name} has no inputs");
            failed.extend(inputs.into_iter().filter(|input| {
                let bytes = fs::read(input).unwrap();
                catch_unwind(|| target(&bytes)).is_err()
            }));
        }
        assert!(failed.is_empty(), "{failed:#?}");
    }

    #[test]
    fn every_target_can_be_fuzzed_and_is_tried_here() {
        let names = |folder| -> BTreeSet<String> {
            let stems = files(folder).into_iter().filter_map(|file| {
                let stem = file.file_stem()?.to_str()?;
                Some(stem.to_owned())
            });
            stems.collect()
        };
        let targets = TARGETS.map(|(name, _)| name.to_owned()).into();
        assert_eq!(names("fuzz_targets"), targets);
        assert_eq!(names("corpus"), targets);
    }
}
