//! The HTTP suite: what any deployment of payonce answers, seen from outside.
//!
//! It starts one server for itself, or uses the one at `PAYONCE_URL` with the keys of the first two
//! merchants in `PAYONCE_API_KEYS` (`merchant=key,merchant=key`) and the admin key in
//! `PAYONCE_ADMIN_KEY`. It creates data under fresh names only and reads no files, so it may run against
//! a deployment that is in use. Tests cite the invariants of the exactly-once protocol by number
//! (invariant 2) and the faults that users reported of similar systems (R8).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that fails panics"
)]

#[path = "../support/mod.rs"]
mod support;

mod accounts;
mod admin;
mod bodies;
mod cloud_events;
mod concurrency;
mod coupons;
mod declines;
mod events;
mod fields;
mod fulfilment;
mod idempotency;
mod keys;
mod lists;
mod merchants;
mod messages;
mod openapi;
mod orders;
mod payments;
mod problems;
mod profiles;
mod refunds;
mod routing;
mod target;
mod tokens;
