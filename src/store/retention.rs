//! What is past its retention, in batches small enough to keep no writer waiting.

use serde::Serialize;
use spin_sdk::sqlite::Value;

use super::row::Row;
use super::{Database, DatabaseError};
use crate::domain::Timestamp;

/// Up to how many rows are counted.
const MOST_COUNTED: u32 = 10_000;

/// How many rows are past their retention, counted up to 10,000.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Expired {
    pub journal_rows: i64,
    pub events: i64,
}

/// The first `?2` rows of the journal whose answers can be past their retention, which ends at `?1`. What is under
/// way (102) has no answer to forget yet, what a channel has ended since then has a young one, and what is dated
/// later than now, `?3`, was so by a clock that was wrong.
///
/// Rows lie in the order in which they were appended, which is that of their times but for the difference of
/// clocks. So this needs no index, which every operation would have to pay for.
const FIRST_ANSWERED: &str = "SELECT rowid, created_at FROM operations AS o \
     WHERE response_status <> 102 AND created_at <= ?3 \
     AND NOT EXISTS (SELECT 1 FROM channel_calls AS c \
       WHERE c.subject_id = o.subject_id AND c.settled_at >= ?1) \
     ORDER BY rowid LIMIT ?2";

/// Retires up to `limit` rows of the journal that are older than `before`; returns how many. Their keys
/// stay used (invariant 2).
pub async fn retire_operations(
    database: &Database,
    now: Timestamp,
    before: Timestamp,
    limit: u32,
) -> Result<u32, DatabaseError> {
    let statement = format!(
        "DELETE FROM operations WHERE rowid IN ( \
           SELECT rowid FROM ({FIRST_ANSWERED}) WHERE created_at < ?1) \
         RETURNING 1"
    );
    let parameters = [
        before.as_millis().into(),
        limit.into(),
        now.as_millis().into(),
    ];
    let rows = database.execute(statement.as_str(), parameters).await?;
    Ok(u32::try_from(rows.len()).unwrap_or(u32::MAX))
}

/// Keeps the time before which rows may be gone, before the first of them goes: whoever misses one later
/// knows why.
pub async fn keep_retired_before(
    database: &Database,
    before: Timestamp,
) -> Result<(), DatabaseError> {
    let statement = "INSERT INTO sweep_positions (store, position) VALUES ('database', ?1) \
                     ON CONFLICT (store) DO UPDATE SET position = max(position, excluded.position)";
    let parameters = [before.as_millis().into()];
    database.execute(statement, parameters).await.map(drop)
}

/// Deletes up to `limit` events that were delivered before `before`; returns how many.
pub async fn forget_events(
    database: &Database,
    before: Timestamp,
    limit: u32,
) -> Result<u32, DatabaseError> {
    // The second condition on `state` is that of the index.
    let statement = "DELETE FROM outbox WHERE event_id IN ( \
           SELECT event_id FROM deliveries \
           WHERE state = 'sent' AND state <> 'pending' AND settled_at < ?1 ORDER BY settled_at LIMIT ?2) \
         RETURNING 1";
    count_of(database, statement, before, limit).await
}

/// Deletes up to `limit` notes of events that channels sent before `before`; returns how many.
pub async fn forget_heard(
    database: &Database,
    before: Timestamp,
    limit: u32,
) -> Result<u32, DatabaseError> {
    let statement = "DELETE FROM channel_events WHERE (channel, event_id) IN ( \
           SELECT channel, event_id FROM channel_events \
           WHERE received_at < ?1 ORDER BY received_at LIMIT ?2) \
         RETURNING 1";
    count_of(database, statement, before, limit).await
}

/// Counts what is older than `before`.
pub async fn expired(
    database: &Database,
    now: Timestamp,
    before: Timestamp,
) -> Result<Expired, DatabaseError> {
    let statement = format!(
        "SELECT \
         (SELECT count(*) FROM ({FIRST_ANSWERED}) WHERE created_at < ?1), \
         (SELECT count(*) FROM (SELECT 1 FROM deliveries \
          WHERE state = 'sent' AND state <> 'pending' AND settled_at < ?1 LIMIT ?2))"
    );
    let parameters = [
        before.as_millis().into(),
        MOST_COUNTED.into(),
        now.as_millis().into(),
    ];
    let rows = database.execute(statement.as_str(), parameters).await?;
    let row = &mut Row::only(&rows)?;
    Ok(Expired {
        journal_rows: row.integer()?,
        events: row.integer()?,
    })
}

/// The name up to which the key-value store was swept, empty at the beginning of a round.
pub async fn position(database: &Database) -> Result<String, DatabaseError> {
    let statement = "SELECT position FROM sweep_positions WHERE store = 'key_value'";
    let rows = database.execute(statement, []).await?;
    rows.first()
        .map_or(Ok(String::new()), |row| Row::new(row).text())
}

/// Keeps the name up to which the key-value store was swept.
pub async fn keep_position(database: &Database, position: &str) -> Result<(), DatabaseError> {
    let statement = "INSERT INTO sweep_positions (store, position) VALUES ('key_value', ?1) \
                     ON CONFLICT (store) DO UPDATE SET position = excluded.position";
    let parameters = [Value::from(position)];
    database.execute(statement, parameters).await.map(drop)
}

async fn count_of(
    database: &Database,
    statement: &str,
    before: Timestamp,
    limit: u32,
) -> Result<u32, DatabaseError> {
    let parameters = [before.as_millis().into(), limit.into()];
    let rows = database.execute(statement, parameters).await?;
    Ok(u32::try_from(rows.len()).unwrap_or(u32::MAX))
}
