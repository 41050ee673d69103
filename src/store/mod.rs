//! The two stores, and the only files that know Spin's interfaces to them.
//!
//! The SQLite database is the arbiter: [`Database`] runs statements, [`Journal`] appends operations to
//! it, [`queries`] reads. The key-value store is courtesy: [`Cache`] may lose, forget or fail at any
//! time (protocol: two stores, two roles).

mod cache;
pub mod channel_calls;
mod database;
mod journal;
mod migrations;
pub mod outbox;
pub mod queries;
pub mod reports;
pub mod retention;
mod row;

pub use cache::Cache;
pub use database::{Database, DatabaseError};
pub use journal::{Entry, Journal, Recorded, Verdict};
