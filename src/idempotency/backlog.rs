//! Cached responses on their way to the key-value store, behind the answers they belong to.
//!
//! A write costs about as much as a payment, so it must not stand in the way of one. Repairs, which
//! somebody has asked for twice already, are written one at a time with pauses; a first answer only when
//! the instance has had nothing else to do for a while, so of a burst only the last. What piles up is
//! shed, oldest first: the journal answers in its place, and the first replay repairs the cache.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spin_sdk::wasip3;

use super::claims::Claims;
use super::entries::Entries;
use super::record::Record;
use crate::pace::Pace;

/// The least pause before each write, milliseconds.
const PAUSE_MS: u64 = 10;

/// How long an instance must have been quiet before it writes a first answer.
const QUIET_NANOS: u64 = 50_000_000;

/// How many repairs may wait.
const MOST_REPAIRS: usize = 4;

/// Entries to write, by their names.
pub(super) struct Backlog {
    entries: Arc<Entries>,
    claims: Arc<Claims>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    repairs: VecDeque<(String, Record)>,
    first_answer: Option<(String, Record)>,
    /// Whether a task writes them.
    drained: bool,
}

impl Backlog {
    pub fn new(entries: Arc<Entries>, claims: Arc<Claims>) -> Self {
        Self {
            entries,
            claims,
            waiting: Mutex::default(),
        }
    }

    /// Caches a first answer.
    pub fn remember(self: &Arc<Self>, record_key: String, record: Record) {
        self.waiting().first_answer = Some((record_key, record));
        self.drain();
    }

    /// Caches an answer that was found in the journal only.
    pub fn repair(self: &Arc<Self>, record_key: String, record: Record) {
        {
            let repairs = &mut self.waiting().repairs;
            if repairs.iter().any(|(waiting, _)| *waiting == record_key) {
                return;
            }
            if repairs.len() >= MOST_REPAIRS {
                repairs.pop_front();
            }
            repairs.push_back((record_key, record));
        }
        self.drain();
    }

    fn drain(self: &Arc<Self>) {
        if !std::mem::replace(&mut self.waiting().drained, true) {
            let drain = Drain(Arc::clone(self));
            wasip3::spawn(async move { drain.run().await });
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What to do next.
    fn next(&self) -> Next {
        let mut waiting = self.waiting();
        if let Some((record_key, record)) = waiting.repairs.pop_back() {
            return Next::Write { record_key, record };
        }
        let quiet = || {
            self.claims
                .quiet_nanos()
                .is_some_and(|nanos| nanos >= QUIET_NANOS)
        };
        if waiting.first_answer.is_some() && !quiet() {
            return Next::Wait;
        }
        match waiting.first_answer.take() {
            Some((record_key, record)) => Next::Write { record_key, record },
            None => Next::Rest,
        }
    }
}

enum Next {
    Write {
        record_key: String,
        record: Record,
    },
    /// The instance has better things to do.
    Wait,
    /// Nothing waits.
    Rest,
}

/// The task that writes what waits.
struct Drain(Arc<Backlog>);

impl Drain {
    async fn run(&self) {
        let mut pace = Pace::new(PAUSE_MS);
        loop {
            pace.pause().await;
            match self.0.next() {
                Next::Write { record_key, record } => {
                    pace.work(self.0.entries.set(&record_key, &record)).await;
                }
                Next::Wait => {}
                Next::Rest => return,
            }
        }
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        self.0.waiting().drained = false;
    }
}
