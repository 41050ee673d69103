//! The key-value store, as the cache that it is: every fault reads as "nothing here".
//!
//! A store that hangs is worse than one that is gone, since calls queue up behind each other in the host.
//! So a slow call shuts the cache for a while, and calls that come while one is slow do without.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spin_sdk::key_value::{Error, Store};

use crate::runtime;

/// From when on a call is slow, nanoseconds.
const SLOW: u64 = 500_000_000;

/// For how long a slow call shuts the cache, nanoseconds.
const SHUT: u64 = 10_000_000_000;

/// An instance's handle to the store, opened at the first use and again after an error.
#[derive(Default)]
pub struct Cache {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    store: Option<Arc<Store>>,
    /// When the calls under way began, on the monotonic clock, by their numbers.
    calls: BTreeMap<u64, u64>,
    last_call: u64,
    /// Until when the cache is shut; after that one call at a time probes it until one is quick.
    shut_until: Option<u64>,
}

/// A call under way.
struct Call<'a> {
    cache: &'a Cache,
    number: u64,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let now = runtime::monotonic_nanos();
        let mut state = self.cache.state();
        if let Some(began) = state.calls.remove(&self.number) {
            let slow = now.saturating_sub(began) >= SLOW;
            state.shut_until = slow.then(|| now.saturating_add(SHUT));
        }
    }
}

impl Cache {
    /// The value of `key`, if the store can be asked and has one.
    pub async fn get(&self, key: &str) -> Option<Vec<u8>> {
        let _call = self.call()?;
        let store = self.store().await?;
        self.check(store.get(key).await).flatten()
    }

    /// Sets `key`, if the store lets us.
    pub async fn set(&self, key: &str, value: &[u8]) {
        let Some(_call) = self.call() else { return };
        if let Some(store) = self.store().await {
            self.check(store.set(key, value).await);
        }
    }

    /// Deletes `key`, if the store lets us.
    pub async fn delete(&self, key: &str) {
        let Some(_call) = self.call() else { return };
        if let Some(store) = self.store().await {
            self.check(store.delete(key).await);
        }
    }

    /// Begins a call, unless the store is slow.
    fn call(&self) -> Option<Call<'_>> {
        let now = runtime::monotonic_nanos();
        let mut state = self.state();
        let hangs = state
            .calls
            .values()
            .any(|began| now.saturating_sub(*began) >= SLOW);
        let open = match state.shut_until {
            Some(until) => now >= until && state.calls.is_empty(),
            None => true,
        };
        if hangs || !open {
            return None;
        }
        state.last_call = state.last_call.wrapping_add(1);
        let number = state.last_call;
        state.calls.insert(number, now);
        Some(Call {
            cache: self,
            number,
        })
    }

    async fn store(&self) -> Option<Arc<Store>> {
        let kept = self.state().store.clone();
        if kept.is_some() {
            return kept;
        }
        let store = self.check(Store::open_default().await).map(Arc::new)?;
        self.state().store = Some(Arc::clone(&store));
        Some(store)
    }

    fn check<T>(&self, result: Result<T, Error>) -> Option<T> {
        if result.is_err() {
            self.state().store = None;
        }
        result.ok()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
