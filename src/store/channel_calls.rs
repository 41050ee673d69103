//! What channels are asked for: who is at work on it, and what is left of it. How a call ends is the
//! journal's business.
//!
//! A call is taken over by a fresh owner for the time of a lease, by one guarded `UPDATE`: of several who try
//! one wins. The lease keeps two from asking at once; that asking twice does no harm is the number's merit.

use serde::Serialize;
use spin_sdk::sqlite::Value;
use uuid::Uuid;

use super::row::Row;
use super::{Database, DatabaseError};
use crate::domain::{CallKind, ChannelCall, Horizon, Identifier, Timestamp};

const COLUMNS: &str = "subject_id, kind, channel, number, charge_number, merchant_id, order_no, \
     substr(charge_number, length(merchant_id) + 2), idempotency_key, amount, currency, \
     payment_method, channel_ref, owner, lease_until, created_at, settled_at IS NOT NULL";

/// How many calls are open.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Open {
    pub payments: i64,
    pub refunds: i64,
    /// Those whose lease is over.
    pub due: i64,
}

/// The call that the request with this key began.
pub async fn of_key(
    database: &Database,
    merchant: &Identifier,
    key: &str,
) -> Result<Option<ChannelCall>, DatabaseError> {
    let statement = format!(
        "SELECT {COLUMNS} FROM channel_calls WHERE merchant_id = ?1 AND idempotency_key = ?2"
    );
    let parameters = [merchant.as_str().into(), key.into()];
    one(database, &statement, parameters).await
}

/// The call that the channel knows by this number.
pub async fn of_number(
    database: &Database,
    channel: &str,
    kind: CallKind,
    number: &str,
) -> Result<Option<ChannelCall>, DatabaseError> {
    let statement = format!(
        "SELECT {COLUMNS} FROM channel_calls WHERE channel = ?1 AND kind = ?2 AND number = ?3"
    );
    let parameters = [channel.into(), kind.name().into(), number.into()];
    one(database, &statement, parameters).await
}

/// Takes a call over, unless somebody is at work on it, or did since it was read, or it is settled.
pub async fn take_over(
    database: &Database,
    call: &ChannelCall,
    owner: Uuid,
    horizon: Horizon,
    lease_until: Timestamp,
) -> Result<bool, DatabaseError> {
    let parameters = [
        call.subject_id.as_str().into(),
        call.owner.as_deref().map_or(Value::Null, Value::from),
        horizon.now.as_millis().into(),
        Value::Text(owner.to_string()),
        lease_until.as_millis().into(),
        horizon.end.as_millis().into(),
    ];
    let rows = database.execute(TAKE_OVER, parameters).await?;
    Ok(!rows.is_empty())
}

/// Takes over up to `limit` calls whose lease was over at `due`, the longest waiting first.
pub async fn take_over_due(
    database: &Database,
    due: Horizon,
    owner: Uuid,
    lease_until: Timestamp,
    limit: u32,
) -> Result<Vec<ChannelCall>, DatabaseError> {
    let statement = format!("{TAKE_OVER_DUE} RETURNING {COLUMNS}");
    let parameters = [
        due.now.as_millis().into(),
        Value::Text(owner.to_string()),
        lease_until.as_millis().into(),
        limit.into(),
        due.end.as_millis().into(),
    ];
    let rows = database.execute(statement.as_str(), parameters).await?;
    rows.iter().map(|row| call(&mut Row::new(row))).collect()
}

/// Gives a call back that is not settled: it is due at once. Keeps what the channel said.
pub async fn release(
    database: &Database,
    subject_id: &str,
    owner: &str,
    now: Timestamp,
    why: &str,
    client_secret: Option<&str>,
) -> Result<(), DatabaseError> {
    let parameters = [
        subject_id.into(),
        owner.into(),
        now.as_millis().into(),
        why.into(),
        client_secret.map_or(Value::Null, Value::from),
    ];
    database.execute(RELEASE, parameters).await.map(drop)
}

/// Whether an event of a channel was dealt with.
pub async fn is_known_event(
    database: &Database,
    channel: &str,
    event_id: &str,
) -> Result<bool, DatabaseError> {
    let statement = "SELECT received_at FROM channel_events WHERE channel = ?1 AND event_id = ?2";
    let rows = database
        .execute(statement, [channel.into(), event_id.into()])
        .await?;
    Ok(!rows.is_empty())
}

/// Keeps that an event of a channel was dealt with.
pub async fn keep_event(
    database: &Database,
    channel: &str,
    event_id: &str,
    now: Timestamp,
) -> Result<(), DatabaseError> {
    let statement = "INSERT INTO channel_events (channel, event_id, received_at) VALUES (?1, ?2, ?3) \
                     ON CONFLICT DO NOTHING";
    let parameters = [channel.into(), event_id.into(), now.as_millis().into()];
    database.execute(statement, parameters).await.map(drop)
}

/// Counts what is open.
pub async fn open(database: &Database, horizon: Horizon) -> Result<Open, DatabaseError> {
    let statement = "SELECT count(*) FILTER (WHERE kind = 'charge'), \
                       count(*) FILTER (WHERE kind = 'refund'), \
                       count(*) FILTER (WHERE lease_until <= ?1 OR lease_until > ?2) \
                     FROM channel_calls WHERE settled_at IS NULL";
    let parameters = [
        horizon.now.as_millis().into(),
        horizon.end.as_millis().into(),
    ];
    let rows = database.execute(statement, parameters).await?;
    let mut row = rows
        .first()
        .map(Row::new)
        .ok_or_else(DatabaseError::unexpected_row)?;
    Ok(Open {
        payments: row.integer()?,
        refunds: row.integer()?,
        due: row.integer()?,
    })
}

async fn one(
    database: &Database,
    statement: &str,
    parameters: impl IntoIterator<Item = Value>,
) -> Result<Option<ChannelCall>, DatabaseError> {
    let rows = database.execute(statement, parameters).await?;
    rows.first().map(|row| call(&mut Row::new(row))).transpose()
}

fn call(row: &mut Row<'_>) -> Result<ChannelCall, DatabaseError> {
    Ok(ChannelCall {
        subject_id: row.text()?,
        kind: CallKind::from_name(&row.text()?).ok_or_else(DatabaseError::unexpected_row)?,
        channel: row.text()?,
        number: row.text()?,
        charge_number: row.text()?,
        merchant: row.identifier()?,
        order_no: row.identifier()?,
        request_no: row.identifier()?,
        idempotency_key: row.optional_text()?,
        amount: row.amount()?,
        currency: row.currency()?,
        payment_method: row.optional_text()?,
        channel_ref: row.optional_text()?,
        owner: row.optional_text()?,
        lease_until: row.time()?,
        created_at: row.time()?,
        settled: row.integer()? != 0,
    })
}

const TAKE_OVER: &str = "UPDATE channel_calls SET owner = ?4, lease_until = ?5, attempts = attempts + 1 \
     WHERE subject_id = ?1 AND owner IS ?2 AND (lease_until <= ?3 OR lease_until > ?6) \
       AND settled_at IS NULL \
     RETURNING subject_id";

/// Two looks at the index, as one with `OR` would go through all that is open.
const TAKE_OVER_DUE: &str = "UPDATE channel_calls SET owner = ?2, lease_until = ?3, attempts = attempts + 1 \
     WHERE settled_at IS NULL AND subject_id IN ( \
       SELECT subject_id FROM ( \
         SELECT * FROM (SELECT subject_id, lease_until, attempts FROM channel_calls \
           WHERE settled_at IS NULL AND lease_until <= ?1 ORDER BY lease_until, attempts LIMIT ?4) \
         UNION ALL \
         SELECT * FROM (SELECT subject_id, lease_until, attempts FROM channel_calls \
           WHERE settled_at IS NULL AND lease_until > ?5 ORDER BY lease_until, attempts LIMIT ?4)) \
       ORDER BY lease_until, attempts LIMIT ?4)";

const RELEASE: &str = "UPDATE channel_calls SET lease_until = ?3, last_error = ?4, \
       client_secret = coalesce(?5, client_secret) \
     WHERE subject_id = ?1 AND owner = ?2 AND settled_at IS NULL";

#[cfg(test)]
mod tests;
