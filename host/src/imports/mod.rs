//! The interfaces a component imports, from `wit/`, on top of the traits of [`crate::key_value`] and
//! [`crate::sqlite`] and of [`crate::variables`]. WASI comes from Wasmtime's own crates.

mod clock;
mod key_value;
mod sqlite;
mod stream;
mod variables;

use wasmtime::component::{HasSelf, Linker};

use crate::instances::State;

#[expect(missing_docs, reason = "generated code")]
mod generated {
    wasmtime::component::bindgen!({
        path: "wit",
        world: "payonce:host/imports",
        imports: {
            "spin:key-value/key-value.[method]store.get-keys": trappable,
            "spin:sqlite/sqlite.[static]connection.open": async | trappable,
            "spin:sqlite/sqlite.[method]connection.execute": async | trappable,
            default: async | trappable,
        },
        with: {
            "spin:key-value/key-value.store": super::key_value::OpenStore,
            "spin:sqlite/sqlite.connection": super::sqlite::OpenConnection,
        },
    });
}

/// The records and variants of `spin:sqlite`.
pub mod sqlite_types {
    pub use super::generated::spin::sqlite::sqlite::{Error, QueryResult, RowResult, Value};
}

/// Offers everything that a component may import.
pub(crate) fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    wasmtime_wasi::p3::add_to_linker(linker)?;
    wasmtime_wasi_http::p3::add_to_linker(linker)?;
    clock::add_to_linker(linker)?;
    generated::Imports::add_to_linker::<_, HasSelf<State>>(linker, |state| state)
}
