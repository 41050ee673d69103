//! The fault suite: what payonce does when the world around it fails.
//!
//! Every test has a data directory and host processes of its own, and damages them: it kills, locks,
//! deletes and overwrites. Where it can, it ends with an audit of the database file
//! (`support/oracle.rs`). Tests cite the invariants of the exactly-once protocol by number and the
//! faults that users reported of similar systems (R1 to R16).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that fails panics"
)]

#[path = "../support/mod.rs"]
mod support;

mod auditor;
mod channels;
mod clients;
mod clocks;
mod configuration;
mod contests;
mod crash;
mod dispatch;
mod full;
mod indeterminate;
mod interrupted;
mod key_value;
mod leases;
mod locked;
mod logs;
mod migrations;
mod processes;
mod reports;
mod restart;
mod scene;
mod strangers;
mod sweep;
mod tokens;
mod unreadable;
mod upgrades;
