//! The entries of the key-value store as records: what is not sealed is none.

use std::collections::BTreeSet;

use super::record::{Expiry, PREFIX, Record};
use super::seal::Seal;
use crate::config::Config;
use crate::domain::Timestamp;
use crate::store::Cache;

pub(super) struct Entries {
    cache: Cache,
    seal: Seal,
}

impl Entries {
    pub fn new(config: &Config) -> Self {
        Self {
            cache: Cache::default(),
            seal: Seal::new(config.token_secrets().unwrap_or_default()),
        }
    }

    /// The record under a name.
    pub async fn get(&self, name: &str) -> Option<Record> {
        let entry = self.cache.get(name).await?;
        self.open(name, &entry)
    }

    /// Puts a record under a name.
    pub async fn set(&self, name: &str, record: &Record) {
        if let Some(entry) = self.seal.close(name, &record.to_bytes()) {
            self.cache.set(name, &entry).await;
        }
    }

    pub async fn delete(&self, name: &str) {
        self.cache.delete(name).await;
    }

    /// Why the entry under a name may go, if there is one and it may.
    pub async fn expiry(&self, name: &str, now: Timestamp, retention_ms: i64) -> Option<Expiry> {
        let entry = self.cache.get(name).await?;
        match self.open(name, &entry) {
            Some(record) => record.expiry(now, retention_ms),
            None => Some(Expiry::Unreadable),
        }
    }

    /// The first names after `after`, in their order and at most `most`, and how many follow them.
    pub async fn names(&self, after: &str, most: usize) -> Option<(BTreeSet<String>, usize)> {
        self.cache.names(PREFIX, after, most).await
    }

    fn open(&self, name: &str, entry: &[u8]) -> Option<Record> {
        Record::parse(self.seal.open(name, entry)?)
    }
}

#[cfg(any(test, fuzzing))]
pub mod fuzz {
    use super::super::{record, seal};

    /// Any bytes are no entry unless they were sealed, and sealed no record unless it can be answered.
    pub fn cached_entry(bytes: &[u8]) {
        seal::fuzz::sealed_or_none(bytes);
        record::fuzz::plausible_or_none(bytes);
    }
}
