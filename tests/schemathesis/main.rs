//! Requests that schemathesis makes up from `openapi.json`, valid ones and broken ones: none gets a server
//! error, and every answer is as documented.
//!
//! `cargo xtask test` installs schemathesis where this looks for it, `target/schemathesis`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that fails panics"
)]

#[path = "../support/mod.rs"]
mod support;

use std::path::Path;
use std::process::Command;

use support::site::{ADMIN_KEY, KEY_A, Site};

/// Contract, Conventions, and whatever else the document says.
#[test]
fn no_request_gets_a_server_error_or_an_answer_that_is_not_documented() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let here = repository.join("tests/schemathesis");
    let program = repository.join("target/schemathesis/bin/schemathesis");
    let server = Site::new().start();
    // What it keeps from a run goes where nothing is kept.
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let mut schemathesis = Command::new(&program);
    schemathesis
        .current_dir(scratch.path())
        .arg("--config-file")
        .arg(here.join("schemathesis.toml"))
        .arg("run")
        .arg(format!("{}/openapi.json", server.base))
        .arg("--no-color")
        .env("PYTHONPATH", here)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .env("PAYONCE_MERCHANT_KEY", KEY_A)
        .env("PAYONCE_ADMIN_KEY", ADMIN_KEY);
    let output = schemathesis.output().unwrap_or_else(|error| {
        panic!(
            "{}: {error}; `cargo xtask test` installs it",
            program.display()
        )
    });
    let report = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    println!("{report}");
    assert!(output.status.success(), "{}\n{errors}", output.status);
    // Requests were made, and of all kinds.
    for phase in ["Examples", "Coverage", "Fuzzing", "Stateful"] {
        assert!(report.contains(&format!("✅ {phase}\n")), "no {phase}");
    }
}
