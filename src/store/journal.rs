//! The operations journal: one row is one operation, appended by one statement.
//!
//! Group commit: requests that arrive in this instance while a round is under way share the next one.
//! A round reads what all of them need with one `SELECT`, decides each, and appends all rows with one
//! `INSERT`, where each row stands or falls by its own guard. The queue is no state that an outcome
//! depends on: who is lost with it has had no effect, or finds it in the journal (invariants 2 and 4).

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::channel::oneshot;
use serde::Serialize;
use spin_sdk::sqlite::Value;
use spin_sdk::wasip3;

use super::row::{ORDER_COLUMNS, Row, payment_columns};
use super::{Database, DatabaseError};
use crate::domain::{
    Answer, Code, Command, Decision, Given, Identifier, Lookup, Operation, Problem, Snapshot,
};

/// How often an operation is decided before the client is told to come back.
const MAX_ATTEMPTS: u32 = 5;

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

/// What the journal holds for a key.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub fingerprint: String,
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
    attempts: u32,
    /// Answers of rows whose fate is unknown, because the statement failed.
    unsure: Vec<Answer>,
    reply: oneshot::Sender<Reply>,
}

impl Job {
    fn reply(self, reply: Reply) {
        // The request may be gone; the operation stands.
        _ = self.reply.send(reply);
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
    read: String,
}

impl Default for Journal {
    fn default() -> Self {
        Self { database: Database::default(), queue: Mutex::default(), read: read_statement() }
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
        let (reply, answer) = oneshot::channel();
        let lead = {
            let mut queue = self.queue();
            queue.waiting.push_back(Job { entry, attempts: 0, unsure: Vec::new(), reply });
            !std::mem::replace(&mut queue.led, true)
        };
        if lead {
            let leader = Leader(Arc::clone(self));
            wasip3::spawn(async move { leader.run().await });
        }
        answer.await.unwrap_or_else(|_| Err(Problem::new(Code::Busy, "the write was abandoned")))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next jobs that can be decided side by side: one for each key and each subject. After a
    /// failed statement a job goes alone, so that it can take no others along.
    fn next_batch(&self) -> Vec<Job> {
        let mut queue = self.queue();
        let mut batch: Vec<Job> = Vec::new();
        let mut taken = BTreeSet::new();
        let mut later = VecDeque::new();
        while let Some(job) = queue.waiting.pop_front() {
            let merchant = job.entry.merchant.as_str();
            let key = format!("{merchant}/key/{}", job.entry.key);
            let subject = job.entry.command.subject().map(|subject| format!("{merchant}/{subject}"));
            let fits = batch.len() < MAX_BATCH
                && (batch.is_empty() || job.unsure.is_empty())
                && batch.first().is_none_or(|first| first.unsure.is_empty())
                && !taken.contains(&key)
                && subject.as_ref().is_none_or(|subject| !taken.contains(subject));
            if fits {
                taken.insert(key);
                taken.extend(subject);
                batch.push(job);
            } else {
                later.push_back(job);
            }
        }
        queue.waiting = later;
        queue.led = !batch.is_empty();
        batch
    }

    async fn round(&self, batch: Vec<Job>) {
        let seen = match self.read(&batch).await {
            Ok(seen) => seen,
            Err(error) => return refuse_all(batch, &error.into()),
        };
        let mut jobs = Vec::with_capacity(batch.len());
        let mut operations = Vec::with_capacity(batch.len());
        for (job, (recorded, snapshot)) in batch.into_iter().zip(seen) {
            if let Some(recorded) = recorded {
                let own = job.unsure.contains(&recorded.answer);
                job.reply(Ok(if own { Verdict::Appended(recorded.answer) } else { Verdict::Recorded(recorded) }));
                continue;
            }
            match job.entry.command.decide(&snapshot, &job.entry.given) {
                Decision::Refuse(problem) => job.reply(Err(problem)),
                Decision::Append(operation) => {
                    jobs.push(job);
                    operations.push(operation);
                }
            }
        }
        if jobs.is_empty() {
            return;
        }
        match self.write(&jobs, &operations).await {
            Ok(appended) => {
                for (mut job, operation) in jobs.into_iter().zip(operations) {
                    if appended.contains(&(job.entry.merchant.as_str().to_owned(), job.entry.key.clone())) {
                        job.reply(Ok(Verdict::Appended(operation.answer)));
                    } else {
                        job.attempts = job.attempts.saturating_add(1);
                        self.again(job, &Problem::new(Code::Busy, "others keep changing the same thing"));
                    }
                }
            }
            Err(error) if error.is_busy() => refuse_all(jobs, &error.into()),
            Err(error) => {
                // The statement may have taken effect all the same: the next read tells.
                let problem = Problem::from(error);
                for (mut job, operation) in jobs.into_iter().zip(operations) {
                    job.attempts = job.attempts.saturating_add(if job.unsure.is_empty() { 1 } else { MAX_ATTEMPTS });
                    job.unsure.push(operation.answer);
                    self.again(job, &problem);
                }
            }
        }
    }

    /// Puts a job back, or gives up on it with `problem`.
    fn again(&self, job: Job, problem: &Problem) {
        if job.attempts < MAX_ATTEMPTS {
            self.queue().waiting.push_front(job);
        } else {
            job.reply(Err(problem.clone()));
        }
    }

    async fn read(&self, batch: &[Job]) -> Result<Vec<(Option<Recorded>, Snapshot)>, DatabaseError> {
        #[derive(Serialize)]
        struct Wanted<'a> {
            merchant_id: &'a Identifier,
            idempotency_key: &'a str,
            #[serde(flatten)]
            lookup: Lookup<'a>,
        }
        let wanted = batch.iter().map(|job| Wanted {
            merchant_id: &job.entry.merchant,
            idempotency_key: &job.entry.key,
            lookup: job.entry.command.lookup(),
        });
        let rows = self.database.execute(&self.read, [json(wanted)]).await?;
        if rows.len() != batch.len() {
            return Err(DatabaseError::unexpected_row());
        }
        rows.iter()
            .map(|row| {
                let row = &mut Row::new(row);
                let recorded = row.recorded()?;
                let snapshot = Snapshot {
                    order: row.order()?,
                    balance: row.optional_integer()?,
                    live_payment: row.payment()?,
                    request_no_payment: row.payment()?,
                };
                Ok((recorded, snapshot))
            })
            .collect()
    }

    /// Appends the rows whose key is new and whose guard holds; returns their merchants and keys.
    async fn write(
        &self,
        jobs: &[Job],
        operations: &[Box<Operation>],
    ) -> Result<BTreeSet<(String, String)>, DatabaseError> {
        #[derive(Serialize)]
        struct New<'a> {
            merchant_id: &'a Identifier,
            idempotency_key: &'a str,
            fingerprint: &'a str,
            row: &'a Operation,
        }
        let new = jobs.iter().zip(operations).map(|(job, row)| New {
            merchant_id: &job.entry.merchant,
            idempotency_key: &job.entry.key,
            fingerprint: &job.entry.fingerprint,
            row,
        });
        let rows = self.database.execute(WRITE, [json(new)]).await?;
        rows.iter().map(|row| { let row = &mut Row::new(row); Ok((row.text()?, row.text()?)) }).collect()
    }
}

/// The task that works on the queue. If it is dropped with its work undone, because the host cancelled
/// the request that it runs in, the waiting ones are told and the next request leads.
struct Leader(Arc<Journal>);

impl Leader {
    async fn run(&self) {
        loop {
            let batch = self.0.next_batch();
            if batch.is_empty() {
                return;
            }
            self.0.round(batch).await;
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.waiting.clear();
        queue.led = false;
    }
}

fn refuse_all(jobs: Vec<Job>, problem: &Problem) {
    for job in jobs {
        job.reply(Err(problem.clone()));
    }
}

/// A JSON array as a parameter: one statement text, prepared once, for any number of rows.
fn json<T: Serialize>(items: impl Iterator<Item = T>) -> Value {
    // Plain structs only: this cannot fail.
    Value::Text(serde_json::to_string(&items.collect::<Vec<_>>()).unwrap_or_default())
}

fn read_statement() -> String {
    format!(
        "SELECT op.fingerprint, op.response_status, op.response_location, op.response_body, \
                {ORDER_COLUMNS}, a.balance, {live}, {used} \
         FROM json_each(?1) AS wanted \
         LEFT JOIN operations AS op ON op.merchant_id = wanted.value ->> '$.merchant_id' \
           AND op.idempotency_key = wanted.value ->> '$.idempotency_key' \
         LEFT JOIN orders AS o ON o.merchant_id = wanted.value ->> '$.merchant_id' \
           AND o.order_no = wanted.value ->> '$.order_no' \
         LEFT JOIN accounts AS a ON a.merchant_id = wanted.value ->> '$.merchant_id' \
           AND a.user_id = coalesce(o.user_id, wanted.value ->> '$.user_id') \
           AND a.currency = coalesce(o.currency, wanted.value ->> '$.currency') \
         LEFT JOIN payments AS live ON live.merchant_id = o.merchant_id AND live.order_no = o.order_no \
           AND live.status IN ('processing', 'succeeded') \
         LEFT JOIN payments AS used ON used.merchant_id = wanted.value ->> '$.merchant_id' \
           AND used.request_no = wanted.value ->> '$.request_no' \
         ORDER BY wanted.key",
        live = payment_columns("live"),
        used = payment_columns("used"),
    )
}

const WRITE: &str = "INSERT INTO operations (merchant_id, idempotency_key, fingerprint, operation, \
       outcome, order_no, user_id, from_status, to_status, version, amount, currency, balance, \
       subject_id, reference, details, event_id, event_type, response_status, response_location, \
       response_body, created_at) \
     SELECT value ->> '$.merchant_id', value ->> '$.idempotency_key', value ->> '$.fingerprint', \
       value ->> '$.row.operation', value ->> '$.row.outcome', value ->> '$.row.order_no', \
       value ->> '$.row.user_id', value ->> '$.row.from_status', value ->> '$.row.to_status', \
       value ->> '$.row.version', value ->> '$.row.amount', value ->> '$.row.currency', \
       value ->> '$.row.balance', value ->> '$.row.subject_id', value ->> '$.row.reference', \
       value ->> '$.row.details', value ->> '$.row.event_id', value ->> '$.row.event_type', \
       value ->> '$.row.answer.status', value ->> '$.row.answer.location', \
       value ->> '$.row.answer.body', value ->> '$.row.created_at' \
     FROM json_each(?1) ORDER BY key \
     ON CONFLICT DO NOTHING RETURNING merchant_id, idempotency_key";
