//! Claims: telling duplicates in other instances that a request is running.
//!
//! Most operations are over before a claim would be written, and a claim costs a durable write of the
//! key-value store, so only those that last are claimed, one at a time and with pauses. A claim that is missing
//! costs a duplicate a wasted decision; the journal sends it the first answer all the same.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spin_sdk::wasip3;

use super::entries::Entries;
use super::record::{Claim, Record};
use crate::config::Config;
use crate::domain::{Horizon, Timestamp};
use crate::pace::Pace;
use crate::runtime;

/// The operations that run in this instance.
pub(super) struct Claims {
    entries: Arc<Entries>,
    lease_ms: i64,
    after_ms: u64,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    operations: BTreeMap<u64, Operation>,
    last: u64,
    /// When the last operation ended, on the monotonic clock.
    last_end: u64,
    /// Whether a task looks after them.
    watched: bool,
}

struct Operation {
    record_key: String,
    fingerprint: String,
    /// On the monotonic clock.
    since: u64,
    claimed: bool,
}

/// An operation that runs; dropped when it is over.
pub(super) struct Pending {
    claims: Arc<Claims>,
    number: u64,
}

impl Claims {
    pub fn new(config: &Config, entries: Arc<Entries>) -> Self {
        Self {
            entries,
            lease_ms: config.claim_lease_ms,
            after_ms: config.claim_after_ms,
            running: Mutex::default(),
        }
    }

    /// Whether a claim holds others off.
    pub fn is_live(&self, claim: &Claim) -> bool {
        let horizon = Horizon::new(runtime::now(), self.lease_ms);
        !horizon.is_over(Timestamp::from_millis(claim.lease_until))
    }

    /// For how long no operation has run in this instance, nanoseconds; `None` while one does.
    pub fn quiet_nanos(&self) -> Option<u64> {
        let running = self.running();
        let quiet = running.operations.is_empty();
        quiet.then(|| runtime::monotonic_nanos().saturating_sub(running.last_end))
    }

    /// Registers an operation that begins.
    pub fn register(self: &Arc<Self>, record_key: String, fingerprint: String) -> Pending {
        let since = runtime::monotonic_nanos();
        let (number, watch) = {
            let mut running = self.running();
            running.last = running.last.wrapping_add(1);
            let number = running.last;
            running.operations.insert(
                number,
                Operation {
                    record_key,
                    fingerprint,
                    since,
                    claimed: false,
                },
            );
            (number, !std::mem::replace(&mut running.watched, true))
        };
        if watch {
            let watcher = Watcher(Arc::clone(self));
            wasip3::spawn(async move { watcher.run().await });
        }
        Pending {
            claims: Arc::clone(self),
            number,
        }
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What to do next about the operations that run.
    fn next(&self) -> Next {
        let mut running = self.running();
        if running.operations.is_empty() {
            return Next::Rest;
        }
        let after_nanos = self.after_ms.saturating_mul(1_000_000);
        let begun_before = runtime::monotonic_nanos().checked_sub(after_nanos);
        let due = running
            .operations
            .iter_mut()
            .find(|(_, operation)| !operation.claimed && Some(operation.since) <= begun_before);
        let Some((number, operation)) = due else {
            return Next::Wait;
        };
        operation.claimed = true;
        let now = runtime::now();
        let claim = Record::Claim(Claim {
            owner: runtime::uuid(now),
            fingerprint: operation.fingerprint.clone(),
            lease_until: now.plus_millis(self.lease_ms).as_millis(),
        });
        Next::Claim {
            number: *number,
            record_key: operation.record_key.clone(),
            claim,
        }
    }

    async fn claim(&self, number: u64, record_key: &str, claim: &Record) {
        self.entries.set(record_key, claim).await;
        // Over meanwhile: nothing else would take this claim away.
        if !self.running().operations.contains_key(&number) {
            self.entries.delete(record_key).await;
        }
    }
}

enum Next {
    Claim {
        number: u64,
        record_key: String,
        claim: Record,
    },
    /// Nothing has lasted long enough.
    Wait,
    /// Nothing runs.
    Rest,
}

impl Pending {
    /// Ends an operation that recorded nothing: its claim goes, so that a retry runs at once.
    pub async fn release(self) {
        let operation = self.claims.running().operations.remove(&self.number);
        if let Some(operation) = operation.filter(|operation| operation.claimed) {
            self.claims.entries.delete(&operation.record_key).await;
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut running = self.claims.running();
        running.operations.remove(&self.number);
        running.last_end = runtime::monotonic_nanos();
    }
}

/// The task that claims what lasts.
struct Watcher(Arc<Claims>);

impl Watcher {
    async fn run(&self) {
        let mut pace = Pace::new(self.0.after_ms.max(1));
        loop {
            pace.pause().await;
            match self.0.next() {
                Next::Claim {
                    number,
                    record_key,
                    claim,
                } => {
                    pace.work(self.0.claim(number, &record_key, &claim)).await;
                }
                Next::Wait => {}
                Next::Rest => return,
            }
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.running().watched = false;
    }
}
