//! Forgetting what is past its retention: journal rows, delivered events, and entries of the key-value
//! store. It can stop anywhere and run beside itself and beside live requests.
//!
//! A key-value entry is read, found old and deleted, in three steps. A request that writes a fresh entry
//! under the same name in between loses it, as the store may lose any write at any time: its replay finds
//! the journal.

use serde::Serialize;

use super::Idempotency;
use super::record::Expiry;
use crate::domain::{Problem, Timestamp};
use crate::runtime;
use crate::store::{Database, DatabaseError, retention};

/// How many rows one statement deletes.
const BATCH: u32 = 200;

/// The pause between two statements, milliseconds: the database is others' meanwhile.
const PAUSE_MS: u64 = 2;

/// How many entries are looked at before others get a turn.
const TURN: usize = 16;

/// How long a sweep goes on.
const BUDGET_NANOS: u64 = 20_000_000_000;

/// What a sweep deleted, and what it left.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Swept {
    pub deleted: Deleted,
    pub left: Left,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Deleted {
    pub journal_rows: u32,
    pub events: u32,
    /// Cached answers.
    pub answers: u32,
    pub claims: u32,
    /// Entries that are nothing of these.
    pub unreadable: u32,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Left {
    /// Rows past their retention, counted up to 10,000.
    pub journal_rows: i64,
    pub events: i64,
    /// Entries of the key-value store that this round has not looked at yet; `None` where the store did
    /// not answer.
    pub entries: Option<usize>,
}

impl Idempotency {
    /// Deletes what is older than `retention_ms`, at most `limit` of each kind.
    ///
    /// # Errors
    ///
    /// A 503 where the database cannot answer. What was deleted by then is deleted.
    pub async fn sweep(
        &self,
        database: &Database,
        retention_ms: i64,
        limit: u32,
    ) -> Result<Swept, Problem> {
        let now = runtime::now();
        let before = now.plus_millis(retention_ms.saturating_neg());
        let budget = Budget {
            started: runtime::monotonic_nanos(),
            now,
            before,
            limit,
        };
        let mut swept = Swept::default();
        retention::keep_retired_before(database, before).await?;
        swept.deleted.journal_rows = budget.delete(database, Rows::Journal).await?;
        swept.deleted.events = budget.delete(database, Rows::Events).await?;
        // Nobody misses them, so they are not counted.
        budget.delete(database, Rows::Heard).await?;
        self.sweep_entries(database, retention_ms, &budget, &mut swept)
            .await?;
        let expired = retention::expired(database, now, before).await?;
        swept.left.journal_rows = expired.journal_rows;
        swept.left.events = expired.events;
        Ok(swept)
    }

    /// The next part of a round through the key-value store, in the order of names. Names are hashes, so
    /// this says nothing about their age: each round looks at all of them.
    async fn sweep_entries(
        &self,
        database: &Database,
        retention_ms: i64,
        budget: &Budget,
        swept: &mut Swept,
    ) -> Result<(), DatabaseError> {
        let position = retention::position(database).await?;
        let most = usize::try_from(budget.limit).unwrap_or(usize::MAX);
        let Some((names, more)) = self.entries.names(&position, most).await else {
            return Ok(());
        };
        let mut left = names.len().saturating_add(more);
        let mut reached = "";
        for (number, name) in names.iter().enumerate() {
            if number.checked_rem(TURN) == Some(0) {
                if budget.is_over() {
                    break;
                }
                runtime::yield_to_host().await;
            }
            if let Some(expiry) = self.entries.expiry(name, budget.now, retention_ms).await {
                self.entries.delete(name).await;
                let count = match expiry {
                    Expiry::Answer => &mut swept.deleted.answers,
                    Expiry::Claim => &mut swept.deleted.claims,
                    Expiry::Unreadable => &mut swept.deleted.unreadable,
                };
                *count = count.saturating_add(1);
            }
            left = left.saturating_sub(1);
            reached = name;
        }
        // The end of a round is the beginning of the next.
        let position = if left == 0 { "" } else { reached };
        retention::keep_position(database, position).await?;
        swept.left.entries = Some(left);
        Ok(())
    }
}

/// What one sweep deletes, and how much of it.
struct Budget {
    started: u64,
    now: Timestamp,
    /// What is older is past its retention.
    before: Timestamp,
    /// Of each kind.
    limit: u32,
}

impl Budget {
    fn is_over(&self) -> bool {
        runtime::monotonic_nanos().saturating_sub(self.started) >= BUDGET_NANOS
    }

    /// Deletes rows, one batch after another; returns how many.
    async fn delete(&self, database: &Database, rows: Rows) -> Result<u32, DatabaseError> {
        let (now, before) = (self.now, self.before);
        let mut deleted = 0_u32;
        while deleted < self.limit && !self.is_over() {
            let size = self.limit.saturating_sub(deleted).min(BATCH);
            let found = match rows {
                Rows::Journal => retention::retire_operations(database, now, before, size).await?,
                Rows::Events => retention::forget_events(database, before, size).await?,
                Rows::Heard => retention::forget_heard(database, before, size).await?,
            };
            if found == 0 {
                break;
            }
            deleted = deleted.saturating_add(found);
            runtime::sleep_millis(PAUSE_MS).await;
        }
        Ok(deleted)
    }
}

/// What a sweep deletes from the database.
#[derive(Clone, Copy)]
enum Rows {
    Journal,
    Events,
    /// The memory of channels' events, which is of use while they may be repeated.
    Heard,
}
