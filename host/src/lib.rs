//! A small Spin-compatible host on Wasmtime, for a first try and for tests.
//!
//! It runs the one HTTP component of a `spin.toml` the way Spin 4.1 does: the same interfaces, the
//! same reuse of instances, the same files below `.spin`. It is **not for production**, and what it
//! does not know it refuses instead of ignoring.
//!
//! Where to look:
//!
//! - [`setup`]: from a manifest and flags to everything a component may use ([`Services`]); uses
//!   [`manifest`], [`runtime_config`], [`variables`] and [`allowed_hosts`].
//! - [`app`]: the compiled component with its services ([`App`]).
//! - [`key_value`] and [`sqlite`]: the two kinds of storage, each behind a trait that an embedder may
//!   implement or wrap.
//! - [`imports`]: the interfaces the component imports, on top of those traits.
//! - [`handler`]: requests in, answers out, without a socket ([`Handler`]); [`instances`] says how
//!   long an instance lives.
//! - [`faults`]: what a test may do to the database.
//! - [`solo`]: one instance whose embedder decides when it runs and dies.
//! - [`server`]: the HTTP/1.1 server around the handler ([`serve`]).
//!
//! A simulation embeds it like this: [`Setup::load`], [`App::new`], then for each instance a
//! [`Services`] with what it wants to control replaced, and [`App::solo`].

#![forbid(unsafe_code)]

pub mod allowed_hosts;
pub mod app;
pub mod faults;
pub mod handler;
pub mod imports;
pub mod instances;
pub mod key_value;
pub mod manifest;
mod outbound;
pub mod routes;
pub mod runtime_config;
pub mod server;
pub mod setup;
pub mod solo;
pub mod sqlite;
pub mod variables;

pub use app::{App, Services};
pub use handler::Handler;
pub use instances::Limits;
pub use server::serve;
pub use setup::{Options, Setup};

/// The most bytes that one answer of a store may hold in the host's memory; Spin's number.
pub const MAX_BUFFERED_BYTES: usize = 128 << 20;
