//! The outbox: events to deliver at least once (invariant 12), and who is delivering them.
//!
//! An event is claimed by a fresh owner for the time of a lease. Every write is guarded: whoever lost
//! the event to another dispatcher changes nothing any more.

use std::collections::BTreeSet;

use serde::Serialize;
use spin_sdk::sqlite::Value;
use uuid::Uuid;

use super::database::json_array;
use super::row::Row;
use super::{Database, DatabaseError};
use crate::domain::{Horizon, Timestamp};

/// Who gets an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Destination {
    /// The merchants' own systems.
    Notify,
    /// The gateway that sends messages to customers.
    Sms,
}

impl Destination {
    const fn name(self) -> &'static str {
        match self {
            Self::Notify => "notify",
            Self::Sms => "sms",
        }
    }
}

/// An event that may be tried now.
#[derive(Clone, Debug)]
pub struct Event {
    pub event_id: String,
    pub merchant_id: String,
    /// `order.paid`
    pub event_type: String,
    /// The number of the order, or the user.
    pub subject: String,
    /// The version of the order after the event.
    pub version: Option<i64>,
    /// JSON.
    pub data: String,
    pub created_at: Timestamp,
    pub destination: Destination,
    /// How often it was tried before.
    pub attempts: i64,
}

/// What became of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum Attempt {
    /// The receiver has it.
    Sent,
    /// To try again at `due_at`, milliseconds since the Unix epoch.
    Pending { due_at: i64, last_error: String },
    /// Given up.
    Dead { last_error: String },
}

/// How many events are not delivered.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Left {
    /// Those that may be tried now.
    pub due: i64,
    /// Those that wait for the end of a pause, or that a dispatcher holds.
    pub waiting: i64,
    /// Those that were given up.
    pub dead: i64,
}

/// Which events to send again.
#[derive(Clone, Copy, Debug)]
pub enum Revive<'a> {
    /// All that were given up.
    Dead,
    /// This one, if it was given up or waits for its next attempt.
    Event(&'a str),
}

/// Events for `destination` that are due, the longest waiting first.
pub async fn due(
    database: &Database,
    destination: Destination,
    horizon: Horizon,
    limit: u32,
) -> Result<Vec<Event>, DatabaseError> {
    let parameters = [
        destination.name().into(),
        horizon.now.as_millis().into(),
        limit.into(),
        horizon.end.as_millis().into(),
    ];
    let rows = database.execute(DUE, parameters).await?;
    rows.iter()
        .map(|row| {
            let row = &mut Row::new(row);
            Ok(Event {
                event_id: row.text()?,
                merchant_id: row.text()?,
                event_type: row.text()?,
                subject: row.text()?,
                version: row.optional_integer()?,
                data: row.text()?,
                created_at: row.time()?,
                attempts: row.integer()?,
                destination,
            })
        })
        .collect()
}

/// Claims those of `events` that nobody claimed since they were read, until `lease_until`. An attempt
/// counts from here on, so one that kills its dispatcher counts too.
pub async fn claim(
    database: &Database,
    events: &[Event],
    owner: Uuid,
    horizon: Horizon,
    lease_until: Timestamp,
) -> Result<BTreeSet<String>, DatabaseError> {
    #[derive(Serialize)]
    struct Seen<'a> {
        event_id: &'a str,
        attempts: i64,
    }
    let seen = events.iter().map(|event| Seen {
        event_id: &event.event_id,
        attempts: event.attempts,
    });
    let parameters = [
        json_array(seen),
        Value::Text(owner.to_string()),
        horizon.now.as_millis().into(),
        lease_until.as_millis().into(),
        horizon.end.as_millis().into(),
    ];
    event_ids(database, CLAIM, parameters).await
}

/// Records what became of attempts, for those events that `owner` still holds; returns these.
pub async fn settle(
    database: &Database,
    attempts: &[(String, Attempt)],
    owner: Uuid,
    now: Timestamp,
) -> Result<BTreeSet<String>, DatabaseError> {
    #[derive(Serialize)]
    struct Settled<'a> {
        event_id: &'a str,
        #[serde(flatten)]
        attempt: &'a Attempt,
    }
    let settled = attempts
        .iter()
        .map(|(event_id, attempt)| Settled { event_id, attempt });
    let parameters = [
        json_array(settled),
        Value::Text(owner.to_string()),
        now.as_millis().into(),
    ];
    event_ids(database, SETTLE, parameters).await
}

/// Makes events due now, with all their attempts before them, unless a dispatcher is at it.
pub async fn revive(
    database: &Database,
    which: Revive<'_>,
    now: Timestamp,
    limit: u32,
) -> Result<BTreeSet<String>, DatabaseError> {
    const SET: &str =
        "UPDATE deliveries SET state = 'pending', owner = NULL, attempts = 0, settled_at = NULL, ";
    match which {
        Revive::Dead => {
            let statement = format!(
                "{SET} due_at = ?1 WHERE event_id IN (SELECT event_id FROM deliveries WHERE state = 'dead' AND state <> 'pending' \
                   ORDER BY settled_at LIMIT ?2) RETURNING event_id"
            );
            event_ids(database, &statement, [now.as_millis().into(), limit.into()]).await
        }
        Revive::Event(event_id) => {
            let statement = format!(
                "{SET} due_at = (SELECT created_at FROM outbox WHERE event_id = ?2) \
                 WHERE event_id = ?2 AND state <> 'sent' AND (owner IS NULL OR due_at <= ?1) \
                 RETURNING event_id"
            );
            let parameters = [now.as_millis().into(), event_id.into()];
            event_ids(database, &statement, parameters).await
        }
    }
}

/// Counts what is not delivered.
pub async fn left(database: &Database, horizon: Horizon) -> Result<Left, DatabaseError> {
    // The second condition on `state` is that of the index.
    let statement = "SELECT \
         (SELECT count(*) FROM deliveries WHERE state = 'pending' AND (due_at <= ?1 OR due_at > ?2)), \
         (SELECT count(*) FROM deliveries WHERE state = 'pending' AND due_at > ?1 AND due_at <= ?2), \
         (SELECT count(*) FROM deliveries WHERE state = 'dead' AND state <> 'pending')";
    let parameters = [
        horizon.now.as_millis().into(),
        horizon.end.as_millis().into(),
    ];
    let rows = database.execute(statement, parameters).await?;
    let mut row = Row::only(&rows)?;
    Ok(Left {
        due: row.integer()?,
        waiting: row.integer()?,
        dead: row.integer()?,
    })
}

/// Whether there is an event of that identifier.
pub async fn exists(database: &Database, event_id: &str) -> Result<bool, DatabaseError> {
    let statement = "SELECT event_id FROM outbox WHERE event_id = ?1";
    let rows = database.execute(statement, [event_id.into()]).await?;
    Ok(!rows.is_empty())
}

async fn event_ids(
    database: &Database,
    statement: &str,
    parameters: impl IntoIterator<Item = Value>,
) -> Result<BTreeSet<String>, DatabaseError> {
    let rows = database.execute(statement, parameters).await?;
    rows.iter().map(|row| Row::new(row).text()).collect()
}

/// Two looks at the index, each with its own limit: one look with `OR` would sort all that is due.
const DUE: &str = "SELECT o.event_id, o.merchant_id, o.type, o.subject, o.version, o.data, o.created_at, d.attempts \
         FROM ( \
           SELECT * FROM (SELECT event_id, attempts, due_at FROM deliveries \
             WHERE state = 'pending' AND destination = ?1 AND due_at <= ?2 ORDER BY due_at LIMIT ?3) \
           UNION ALL \
           SELECT * FROM (SELECT event_id, attempts, due_at FROM deliveries \
             WHERE state = 'pending' AND destination = ?1 AND due_at > ?4 ORDER BY due_at LIMIT ?3) \
         ) AS d JOIN outbox AS o ON o.event_id = d.event_id \
         ORDER BY d.due_at LIMIT ?3";

const CLAIM: &str = "UPDATE deliveries SET owner = ?2, due_at = ?4, attempts = deliveries.attempts + 1 \
         FROM json_each(?1) AS seen \
         WHERE deliveries.event_id = seen.value ->> '$.event_id' AND deliveries.state = 'pending' \
           AND deliveries.attempts = seen.value ->> '$.attempts' \
           AND (deliveries.due_at <= ?3 OR deliveries.due_at > ?5) \
         RETURNING event_id";

const SETTLE: &str = "UPDATE deliveries SET state = settled.value ->> '$.state', owner = NULL, \
           due_at = coalesce(settled.value ->> '$.due_at', ?3), \
           last_error = settled.value ->> '$.last_error', \
           settled_at = iif(settled.value ->> '$.state' = 'pending', NULL, ?3) \
         FROM json_each(?1) AS settled \
         WHERE deliveries.event_id = settled.value ->> '$.event_id' \
           AND deliveries.owner = ?2 AND deliveries.state = 'pending' \
         RETURNING event_id";

#[cfg(test)]
mod tests;
