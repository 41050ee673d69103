//! Cached responses on their way to the key-value store, behind the answers they belong to.
//!
//! A write costs about as much as a payment, so it must not stand in the way of one: repairs, which
//! somebody has asked for twice already, are written one at a time with a pause between them, first
//! answers only while the instance has nothing else to do. What piles up is shed, oldest first; the
//! journal answers in its place.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spin_sdk::wasip3;

use super::claims::Claims;
use super::pace::Pace;
use super::record::Record;
use crate::store::Cache;

/// The least pause before each write, milliseconds.
const PAUSE_MS: u64 = 10;

/// How many entries of either kind may wait.
const LIMIT: usize = 8;

/// Entries to write, by their names.
pub(super) struct Backlog {
    cache: Arc<Cache>,
    claims: Arc<Claims>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    repairs: VecDeque<(String, Record)>,
    first_answers: VecDeque<(String, Record)>,
    /// Whether a task writes them.
    drained: bool,
}

impl Backlog {
    pub fn new(cache: Arc<Cache>, claims: Arc<Claims>) -> Self {
        Self {
            cache,
            claims,
            waiting: Mutex::default(),
        }
    }

    /// Caches a first answer.
    pub fn remember(self: &Arc<Self>, record_key: String, record: Record) {
        self.add(|waiting| &mut waiting.first_answers, (record_key, record));
    }

    /// Caches an answer that was found in the journal only.
    pub fn repair(self: &Arc<Self>, record_key: String, record: Record) {
        self.add(|waiting| &mut waiting.repairs, (record_key, record));
    }

    fn add(
        self: &Arc<Self>,
        queue: impl FnOnce(&mut Waiting) -> &mut VecDeque<(String, Record)>,
        entry: (String, Record),
    ) {
        let drain = {
            let mut waiting = self.waiting();
            let queue = queue(&mut waiting);
            if queue.iter().any(|(name, _)| *name == entry.0) {
                return;
            }
            if queue.len() >= LIMIT {
                queue.pop_front();
            }
            queue.push_back(entry);
            !std::mem::replace(&mut waiting.drained, true)
        };
        if drain {
            let drain = Drain(Arc::clone(self));
            wasip3::spawn(async move { drain.run().await });
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What to do next, newest first.
    fn next(&self) -> Next {
        let mut waiting = self.waiting();
        if let Some((record_key, record)) = waiting.repairs.pop_back() {
            return Next::Write { record_key, record };
        }
        if !waiting.first_answers.is_empty() && !self.claims.is_quiet() {
            return Next::Wait;
        }
        match waiting.first_answers.pop_back() {
            Some((record_key, record)) => Next::Write { record_key, record },
            None => {
                waiting.drained = false;
                Next::Rest
            }
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
                    let entry = record.to_bytes();
                    pace.work(self.0.cache.set(&record_key, &entry)).await;
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
