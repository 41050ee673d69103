//! The key-value store, as the cache that it is: every fault reads as "nothing here".
//!
//! A store that hangs is worse than one that is gone, since calls queue up behind each other in the host.
//! So a slow call shuts the cache for a while, and calls that come while one is slow do without.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spin_sdk::key_value::{Error, Store};

use crate::runtime;

/// From when on a call is slow, nanoseconds.
const SLOW: u64 = 500_000_000;

/// For how long a slow call shuts the cache, nanoseconds.
const SHUT: u64 = 10_000_000_000;

/// How often a listing tries to begin while calls are under way, and the pause between two in milliseconds.
const LISTING_ATTEMPTS: u32 = 100;
const LISTING_PAUSE_MS: u64 = 10;

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
    /// Whether the names of entries are being read. Spin's local store deadlocks if another call comes
    /// while they are, so all others do without.
    listing: bool,
}

/// A call under way.
struct Call<'a> {
    cache: &'a Cache,
    number: u64,
}

/// A listing under way.
struct Listing<'a>(&'a Cache);

impl Drop for Listing<'_> {
    fn drop(&mut self) {
        self.0.state().listing = false;
    }
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

    /// The first names after `after` that begin with `prefix`, in their order and at most `most`, and how
    /// many follow them. All names are read for that, as the store has no other way, but no more are kept.
    pub async fn names(
        &self,
        prefix: &str,
        after: &str,
        most: usize,
    ) -> Option<(BTreeSet<String>, usize)> {
        let _listing = self.begin_listing().await?;
        let store = self.store().await?;
        let mut keys = store.get_keys().await;
        let (mut names, mut more) = (BTreeSet::new(), 0_usize);
        while let Some(name) = keys.next().await {
            if name.starts_with(prefix) && name.as_str() > after {
                names.insert(name);
                if names.len() > most {
                    names.pop_last();
                    more = more.saturating_add(1);
                }
            }
        }
        self.check(keys.result().await)?;
        Some((names, more))
    }

    /// Begins a listing when no call is under way, unless the store is slow.
    async fn begin_listing(&self) -> Option<Listing<'_>> {
        for _ in 0..LISTING_ATTEMPTS {
            {
                let mut state = self.state();
                let now = runtime::monotonic_nanos();
                let shut = state.shut_until.is_some_and(|until| now < until);
                if !shut && !state.listing && state.calls.is_empty() {
                    state.listing = true;
                    return Some(Listing(self));
                }
            }
            runtime::sleep_millis(LISTING_PAUSE_MS).await;
        }
        None
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
        if hangs || !open || state.listing {
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
