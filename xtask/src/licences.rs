//! Where every dependency comes from, and its licence, against those that `deny.toml` allows.
//!
//! `cargo deny check` says the same and more, but takes minutes to build.

use spdx::{Expression, LicenseReq, Licensee, ParseMode};

use crate::workspace;

/// The licences in `deny.toml`.
fn allowed() -> Vec<Licensee> {
    let text = std::fs::read_to_string(workspace::root().join("deny.toml")).unwrap();
    let deny: toml::Table = text.parse().unwrap();
    let names = deny["licenses"]["allow"].as_array().unwrap();
    let names = names.iter().map(|name| name.as_str().unwrap());
    names.map(|name| Licensee::parse(name).unwrap()).collect()
}

/// Whether an expression offers a choice that is allowed.
fn passes(expression: &str, allowed: &[Licensee]) -> bool {
    let expression = Expression::parse_mode(expression, ParseMode::LAX);
    let satisfied = |wanted: &LicenseReq| allowed.iter().any(|one| one.satisfies(wanted));
    expression.is_ok_and(|expression| expression.evaluate(satisfied))
}

#[test]
fn every_dependency_comes_from_the_registry_with_a_licence_that_is_allowed() {
    let allowed = allowed();
    let mut metadata = workspace::cargo("metadata");
    metadata.args(["--format-version", "1", "--locked"]);
    let metadata = metadata.output().unwrap();
    assert!(metadata.status.success(), "{metadata:?}");
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 100, "{}", packages.len());
    for package in packages {
        let name = &package["name"];
        let licence = package["license"].as_str().unwrap_or_default();
        assert!(passes(licence, &allowed), "{name}: {licence:?}");
        // Ours have no source.
        let source = package["source"].as_str().unwrap_or("registry+");
        assert!(source.starts_with("registry+"), "{name}: {source}");
    }
}

#[test]
fn a_choice_needs_one_licence_and_a_sum_all() {
    let allowed = [Licensee::parse("MIT").unwrap()];
    for (expression, passed) in [
        ("MIT", true),
        ("MIT/GPL-3.0", true),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0", false),
        ("MIT AND GPL-3.0", false),
        ("", false),
    ] {
        assert_eq!(passes(expression, &allowed), passed, "{expression}");
    }
}
