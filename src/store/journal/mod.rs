//! The operations journal: one row is one operation, appended by one statement.
//!
//! Group commit: requests that arrive in this instance while a round is under way share the next one.
//! A round reads what all of them need with one `SELECT`, decides each, and appends all rows with one
//! `INSERT`, where each row stands or falls by its own guard. The queue is no state that an outcome
//! depends on: who is lost with it has had no effect, or finds it in the journal (invariants 2 and 4).

mod statements;

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spin_sdk::wasip3;

use super::{Database, DatabaseError};
use crate::domain::{Answer, Code, Command, Decision, Given, Identifier, Problem};
use crate::runtime::{self, Signal};

/// How often an operation is decided before the client is told to come back.
const MAX_ATTEMPTS: u32 = 5;

/// How long an operation waits for the database's lock, as long as a statement in Spin.
const PATIENCE_NANOS: u64 = 5_000_000_000;

/// The size of a batch up to which an instance has too little to do to stand in the way of others.
const SPARSE_BATCH: usize = 4;

/// For how long it steps aside, milliseconds.
const ASIDE_MS: u64 = 250;

/// How many writes there are between two that look at the length of the log, on average and over all instances.
const WRITES_BETWEEN_CHECKPOINTS: u64 = 128;

/// The most operations in one statement.
const MAX_BATCH: usize = 64;

/// An operation to append.
pub struct Entry {
    pub merchant: Identifier,
    pub key: String,
    /// Hexadecimal SHA-256.
    pub fingerprint: String,
    pub command: Box<dyn Command>,
    pub given: Given,
}

/// A merchant and a key.
type Id = (String, String);

impl Entry {
    /// The primary key.
    fn id(&self) -> Id {
        (self.merchant.as_str().to_owned(), self.key.clone())
    }
}

/// What the journal holds for a key.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    pub fingerprint: String,
    /// See [`Operation::mark`].
    pub mark: Option<String>,
    pub answer: Answer,
}

/// How an operation got into the journal.
#[derive(Debug)]
pub enum Verdict {
    /// This request put it there.
    Appended(Answer),
    /// It was there: this request is a duplicate, or uses the key of another.
    Recorded(Recorded),
}

type Reply = Result<Verdict, Problem>;

struct Job {
    entry: Entry,
    /// When it came, on the monotonic clock.
    since: u64,
    attempts: u32,
    /// Rows whose fate is unknown, because the statement failed: it may have taken effect all the same, and
    /// the next read tells.
    unsure: Vec<Recorded>,
    reply: Arc<Mutex<Option<Reply>>>,
    /// Wakes the request, unless it is the one that leads.
    _signal: Option<Signal>,
}

impl Job {
    fn reply(self, reply: Reply) {
        *lock(&self.reply) = Some(reply);
    }

    /// Whether it may be decided next to those in `taken`: one for each key and each subject, since the
    /// first of them changes what the next has to see.
    fn takes(&self, taken: &mut BTreeSet<(String, String)>) -> bool {
        let merchant = self.entry.merchant.as_str();
        let subject = self.entry.command.subject();
        let names = [Some(format!("key/{}", self.entry.key)), subject];
        let names: Vec<_> = names
            .into_iter()
            .flatten()
            .map(|name| (merchant.to_owned(), name))
            .collect();
        let free = names.iter().all(|name| !taken.contains(name));
        if free {
            taken.extend(names);
        }
        free
    }

    /// The job after an attempt that came to nothing, or gives up on it with `problem`.
    fn after_attempt(mut self, problem: &Problem) -> Option<Self> {
        // A statement that fails twice will fail again; the read in between told whether the first
        // took effect.
        self.attempts = self.attempts.saturating_add(1);
        if self.attempts < MAX_ATTEMPTS && self.unsure.len() < 2 {
            return Some(self);
        }
        self.reply(Err(problem.clone()));
        None
    }
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Job>,
    /// Whether a task works on the queue.
    led: bool,
}

/// The writing side of the database.
pub struct Journal {
    database: Database,
    queue: Mutex<Queue>,
    aside: AtomicBool,
}

impl Default for Journal {
    fn default() -> Self {
        Self {
            database: Database::impatient(),
            queue: Mutex::default(),
            aside: AtomicBool::default(),
        }
    }
}

impl Journal {
    /// Decides and appends an operation, together with others that arrive meanwhile.
    ///
    /// # Errors
    ///
    /// The refusal that the command decided, `busy` after [`MAX_ATTEMPTS`] lost guards or a locked
    /// database, `storage_unavailable` where the database cannot answer. In all of them the retry with
    /// the same key is safe.
    pub async fn append(self: &Arc<Self>, entry: Entry) -> Reply {
        let reply = Arc::new(Mutex::new(None));
        let mut job = Job {
            entry,
            since: runtime::monotonic_nanos(),
            attempts: 0,
            unsure: Vec::new(),
            reply: Arc::clone(&reply),
            _signal: None,
        };
        let wait = {
            let mut queue = lock(&self.queue);
            let wait = if std::mem::replace(&mut queue.led, true) {
                let (signal, wait) = runtime::signal();
                job._signal = Some(signal);
                Some(wait)
            } else {
                None
            };
            queue.waiting.push_back(job);
            wait
        };
        if let Some(wait) = wait {
            wait.wait().await;
        } else {
            let leader = Leader(Arc::clone(self));
            while lock(&reply).is_none() && leader.round().await {}
            // Others came meanwhile; this request need not wait for them.
            wasip3::spawn(async move { while leader.round().await {} });
        }
        let reply = lock(&reply).take();
        reply.unwrap_or_else(|| Err(Problem::new(Code::Busy, "the write was abandoned")))
    }

    /// The jobs of the next round. After a failed statement a job goes alone, so that it can take no
    /// others along.
    fn next_batch(&self) -> Vec<Job> {
        let mut queue = lock(&self.queue);
        let alone = |job: &Job| !job.unsure.is_empty();
        let size = match queue.waiting.iter().position(alone) {
            Some(0) => 1,
            Some(others) => others,
            None => queue.waiting.len(),
        };
        let size = size.min(MAX_BATCH);
        queue.waiting.drain(..size).collect()
    }

    async fn round(self: &Arc<Self>, batch: Vec<Job>) {
        let entries: Vec<_> = batch.iter().map(|job| &job.entry).collect();
        let seen = match statements::read(&self.database, &entries).await {
            Ok(seen) => seen,
            Err(error) => return self.after_error(batch, error).await,
        };
        let mut jobs = Vec::with_capacity(batch.len());
        let mut operations = Vec::with_capacity(batch.len());
        let mut again = Vec::new();
        let mut taken = BTreeSet::new();
        for (job, (recorded, snapshot)) in batch.into_iter().zip(seen) {
            if let Some(recorded) = recorded {
                let own = job.unsure.contains(&recorded);
                job.reply(Ok(if own {
                    Verdict::Appended(recorded.answer)
                } else {
                    Verdict::Recorded(recorded)
                }));
            } else if !job.takes(&mut taken) {
                again.push(job);
            } else {
                match job.entry.command.decide(&snapshot, &job.entry.given) {
                    Decision::Refuse(problem) => job.reply(Err(problem)),
                    Decision::Append(operation) => {
                        jobs.push(job);
                        operations.push(operation);
                    }
                }
            }
        }
        if !jobs.is_empty() {
            let rows: Vec<_> = jobs
                .iter()
                .map(|job| &job.entry)
                .zip(operations.iter().map(AsRef::as_ref))
                .collect();
            match statements::write(&self.database, &rows).await {
                Ok(appended) => {
                    let mut skipped = Vec::new();
                    for (job, operation) in jobs.into_iter().zip(operations) {
                        if appended.contains(&job.entry.id()) {
                            job.reply(Ok(Verdict::Appended(operation.answer)));
                        } else {
                            skipped.push(job);
                        }
                    }
                    again.extend(self.after_skip(skipped).await);
                    if runtime::one_in(WRITES_BETWEEN_CHECKPOINTS) {
                        self.database.checkpoint().await;
                    }
                }
                Err(error) if error.is_busy() => self.after_error(jobs, error).await,
                Err(error) => {
                    let problem = error.into();
                    for (mut job, operation) in jobs.into_iter().zip(operations) {
                        job.unsure.push(Recorded {
                            fingerprint: job.entry.fingerprint.clone(),
                            mark: operation.mark().map(str::to_owned),
                            answer: operation.answer,
                        });
                        again.extend(job.after_attempt(&problem));
                    }
                }
            }
        }
        self.put_back(again);
    }

    /// Jobs whose rows were skipped: those to decide anew. Others changed what they are about, or their
    /// keys were used by operations that are past their retention.
    async fn after_skip(&self, jobs: Vec<Job>) -> Vec<Job> {
        if jobs.is_empty() {
            return jobs;
        }
        let entries: Vec<_> = jobs.iter().map(|job| &job.entry).collect();
        // Without an answer the jobs come back here, or give up.
        let retired = statements::retired(&self.database, &entries).await;
        let retired = retired.unwrap_or_default();
        let busy = Problem::new(Code::Busy, "others keep changing the same thing");
        let mut again = Vec::new();
        for job in jobs {
            if retired.contains(&job.entry.id()) {
                let detail = "a request with this key was answered before its retention was over";
                job.reply(Err(Problem::new(Code::IdempotencyKeyExpired, detail)));
            } else {
                again.extend(job.after_attempt(&busy));
            }
        }
        again
    }

    /// Jobs that had no effect: a lock is worth waiting for, together with what arrives meanwhile.
    async fn after_error(self: &Arc<Self>, jobs: Vec<Job>, error: DatabaseError) {
        let waits = error.is_busy();
        if waits && jobs.len() <= SPARSE_BATCH {
            self.make_room();
        }
        if waits {
            // SQLite has waited already, unless it saw no use in that.
            runtime::sleep_millis(1).await;
        }
        let now = runtime::monotonic_nanos();
        let problem = Problem::from(error);
        let mut again = Vec::new();
        for job in jobs {
            if waits && now.saturating_sub(job.since) < PATIENCE_NANOS {
                again.push(job);
            } else {
                job.reply(Err(problem.clone()));
            }
        }
        self.put_back(again);
    }

    /// A burst makes the host start an instance for nearly every request, and each writes alone. Where
    /// such writers get into each other's way, half of them step aside after another: the rest gets their
    /// requests, and shares commits.
    fn make_room(self: &Arc<Self>) {
        if runtime::one_in(2) && !self.aside.swap(true, Ordering::Relaxed) {
            let journal = Arc::clone(self);
            wasip3::spawn(async move {
                runtime::step_aside(ASIDE_MS).await;
                journal.aside.store(false, Ordering::Relaxed);
            });
        }
    }

    fn put_back(&self, jobs: Vec<Job>) {
        let mut queue = lock(&self.queue);
        for job in jobs.into_iter().rev() {
            queue.waiting.push_front(job);
        }
    }
}

/// Whoever works on the queue, until it is dropped. If its work is undone then, because the host cancelled
/// the request that it runs in, the waiting ones are told. The next request leads.
struct Leader(Arc<Journal>);

impl Leader {
    /// Does one round; whether there was anything to do.
    async fn round(&self) -> bool {
        let batch = self.0.next_batch();
        let work = !batch.is_empty();
        if work {
            self.0.round(batch).await;
        }
        work
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let mut queue = lock(&self.0.queue);
        queue.waiting.clear();
        queue.led = false;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
