//! The key-value store, as the cache that it is: every fault reads as "nothing here".

use std::sync::{Arc, Mutex, PoisonError};

use spin_sdk::key_value::{Error, Store};

/// An instance's handle to the store, opened at the first use and again after an error.
#[derive(Default)]
pub struct Cache {
    store: Mutex<Option<Arc<Store>>>,
}

impl Cache {
    /// The value of `key`, if the store can be asked and has one.
    pub async fn get(&self, key: &str) -> Option<Vec<u8>> {
        let store = self.store().await?;
        self.check(store.get(key).await).flatten()
    }

    /// Sets `key`, if the store lets us.
    pub async fn set(&self, key: &str, value: &[u8]) {
        if let Some(store) = self.store().await {
            self.check(store.set(key, value).await);
        }
    }

    /// Deletes `key`, if the store lets us.
    pub async fn delete(&self, key: &str) {
        if let Some(store) = self.store().await {
            self.check(store.delete(key).await);
        }
    }

    async fn store(&self) -> Option<Arc<Store>> {
        let kept = self
            .store
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if kept.is_some() {
            return kept;
        }
        let store = self.check(Store::open_default().await).map(Arc::new)?;
        self.keep(Some(Arc::clone(&store)));
        Some(store)
    }

    fn check<T>(&self, result: Result<T, Error>) -> Option<T> {
        if result.is_err() {
            self.keep(None);
        }
        result.ok()
    }

    fn keep(&self, store: Option<Arc<Store>>) {
        *self.store.lock().unwrap_or_else(PoisonError::into_inner) = store;
    }
}
