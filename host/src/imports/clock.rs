//! The waits of `wasi:clocks`, which an embedder may own: Wasmtime's use tokio's timer.

use std::time::Duration;

use wasmtime::component::{Accessor, Linker};
use wasmtime_wasi::clocks::WasiClocksView as _;
use wasmtime_wasi::p3::bindings::clocks::monotonic_clock;

use crate::instances::State;

const MONOTONIC_CLOCK: &str = "wasi:clocks/monotonic-clock@0.3.0";

/// Replaces the two waits.
pub(super) fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut clock = linker.instance(MONOTONIC_CLOCK)?;
    clock.func_wrap_concurrent("wait-for", |accessor, (nanos,): (u64,)| {
        Box::pin(wait(accessor, nanos))
    })?;
    clock.func_wrap_concurrent("wait-until", |accessor, (mark,): (u64,)| {
        Box::pin(async move {
            let now = accessor
                .with(|mut access| monotonic_clock::Host::now(&mut access.data_mut().clocks()))?;
            wait(accessor, mark.saturating_sub(now)).await
        })
    })?;
    linker.allow_shadowing(false);
    Ok(())
}

async fn wait(accessor: &Accessor<State>, nanos: u64) -> wasmtime::Result<()> {
    if nanos > 0 {
        let nanos = Duration::from_nanos(nanos);
        match accessor.with(|mut access| access.get().services.sleep.clone()) {
            Some(sleep) => sleep(nanos).await,
            None => tokio::time::sleep(nanos).await,
        }
    }
    Ok(())
}
