//! payonce: the checkout back end that never charges twice.
//!
//! A Spin HTTP component. The same request once or a hundred times has one effect and one answer,
//! whatever crashes in between. Start reading here:
//!
//! * [`http`] turns requests into commands: routes, extractors, problem details.
//! * [`idempotency`] walks a request from its key to its answer: replay, wait, refuse or execute.
//! * [`domain`] decides, without input or output: orders and their state machine, money, commands.
//! * [`store`] touches Spin's interfaces: the operations journal in SQLite, which arbitrates, and the
//!   key-value store, which is a cache.
//! * [`channel`] speaks to outside payment channels, and [`settlement`] brings what they were asked for to its
//!   end, whatever got lost on the way.
//! * [`delivery`] sends events to those who wait for them, at least once.
//! * [`config`] and [`runtime`] are variables, time and randomness.
//!
//! Everything that must hold is in `migrations/`: one `INSERT` into the journal is one operation, and
//! triggers guard and apply it. Nothing rests on the memory of an instance; a panic would take up to 15
//! other requests along, so nothing here panics.

#![cfg_attr(
    not(any(test, fuzzing)),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

pub mod channel;
pub mod config;
pub mod delivery;
pub mod domain;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
#[cfg(test)]
mod hostile;
pub mod http;
pub mod idempotency;
mod mac;
mod outbound;
mod pace;
pub mod runtime;
pub mod settlement;
pub mod store;

/// The entry point. Native builds, which are for tests, have none: their linkers refuse its name.
#[cfg(target_family = "wasm")]
#[spin_sdk::http_service]
async fn handle(request: spin_sdk::http::Request) -> impl spin_sdk::http::IntoResponse {
    http::serve(request).await
}
