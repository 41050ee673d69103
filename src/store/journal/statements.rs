//! The two statements of a round: what a batch needs to know, and the operations it decided on.
//!
//! A batch goes in as one JSON array, so there is one statement text, prepared once, for any number of
//! rows.

use std::collections::BTreeSet;

use serde::Serialize;
use spin_sdk::sqlite::{RowResult, Value};

use super::{Entry, Id, Recorded};
use crate::domain::{Identifier, Lookup, Operation, Snapshot};
use crate::store::database::json_array;
use crate::store::row::{
    ACTIVITY_COLUMNS, GRANT_COLUMNS, ORDER_COLUMNS, PROFILE_COLUMNS, RECORDED_COLUMNS, Row,
    payment_columns,
};
use crate::store::{Database, DatabaseError};

/// What the journal holds for a key, and what the rest of the database holds for the command.
pub(super) type Seen = (Option<Recorded>, Snapshot);

/// Reads what each entry is decided on.
pub(super) async fn read(
    database: &Database,
    entries: &[&Entry],
) -> Result<Vec<Seen>, DatabaseError> {
    let rows = database
        .execute(read_statement().as_str(), [wanted(entries)])
        .await?;
    if rows.len() != entries.len() {
        return Err(DatabaseError::unexpected_row());
    }
    rows.iter().map(seen).collect()
}

/// Appends the operations whose key is new and whose guard holds; returns their keys.
pub(super) async fn write(
    database: &Database,
    operations: &[(&Entry, &Operation)],
) -> Result<BTreeSet<Id>, DatabaseError> {
    let rows = database.execute(WRITE, [new_rows(operations)]).await?;
    rows.iter().map(key_of).collect()
}

/// Those of the keys that were used by operations past their retention.
pub(super) async fn retired(
    database: &Database,
    entries: &[&Entry],
) -> Result<BTreeSet<Id>, DatabaseError> {
    let rows = database.execute(RETIRED, [wanted(entries)]).await?;
    rows.iter().map(key_of).collect()
}

fn wanted(entries: &[&Entry]) -> Value {
    #[derive(Serialize)]
    struct Wanted<'a> {
        merchant_id: &'a Identifier,
        idempotency_key: &'a str,
        #[serde(flatten)]
        lookup: Lookup<'a>,
    }
    json_array(entries.iter().map(|entry| Wanted {
        merchant_id: &entry.merchant,
        idempotency_key: &entry.key,
        lookup: entry.command.lookup(),
    }))
}

fn seen(row: &RowResult) -> Result<Seen, DatabaseError> {
    let row = &mut Row::new(row);
    let recorded = row.recorded()?;
    let snapshot = Snapshot {
        order: row.order()?,
        balance: row.optional_integer()?,
        live_payment: row.payment()?,
        request_no_payment: row.payment()?,
        refund_no_used: row.optional_text()?.is_some(),
        refunding: row.integer()?,
        activity: row.activity()?,
        grant: row.grant()?,
        profile: row.profile()?,
    };
    Ok((recorded, snapshot))
}

fn new_rows(operations: &[(&Entry, &Operation)]) -> Value {
    #[derive(Serialize)]
    struct New<'a> {
        merchant_id: &'a Identifier,
        idempotency_key: &'a str,
        fingerprint: &'a str,
        row: &'a Operation,
    }
    json_array(operations.iter().map(|(entry, row)| New {
        merchant_id: &entry.merchant,
        idempotency_key: &entry.key,
        fingerprint: &entry.fingerprint,
        row,
    }))
}

fn key_of(row: &RowResult) -> Result<Id, DatabaseError> {
    let row = &mut Row::new(row);
    Ok((row.text()?, row.text()?))
}

/// Each member of the parameter is taken out once, and then looked up wherever it is wanted.
fn read_statement() -> String {
    format!(
        "WITH wanted AS MATERIALIZED ( \
           SELECT key, value ->> '$.merchant_id' AS merchant_id, \
             value ->> '$.idempotency_key' AS idempotency_key, value ->> '$.order_no' AS order_no, \
             value ->> '$.request_no' AS request_no, value ->> '$.refund_no' AS refund_no, \
             value ->> '$.user_id' AS user_id, value ->> '$.currency' AS currency, \
             value ->> '$.activity_id' AS activity_id, value ->> '$.profile_of' AS profile_of \
           FROM json_each(?1)) \
         SELECT {RECORDED_COLUMNS}, \
           {ORDER_COLUMNS}, a.balance, {live}, {used}, r.refund_no, \
           (SELECT coalesce(sum(amount), 0) FROM refunds \
            WHERE payment_id = live.payment_id AND status = 'processing'), \
           {ACTIVITY_COLUMNS}, {GRANT_COLUMNS}, {PROFILE_COLUMNS} \
         FROM wanted AS w \
         LEFT JOIN operations AS op ON op.merchant_id = w.merchant_id \
           AND op.idempotency_key = w.idempotency_key \
         LEFT JOIN orders AS o ON o.merchant_id = w.merchant_id AND o.order_no = w.order_no \
         LEFT JOIN accounts AS a ON a.merchant_id = w.merchant_id \
           AND a.user_id = coalesce(o.user_id, w.user_id) \
           AND a.currency = coalesce(o.currency, w.currency) \
         LEFT JOIN payments AS live ON live.merchant_id = o.merchant_id \
           AND live.order_no = o.order_no AND live.status IN ('processing', 'succeeded') \
         LEFT JOIN payments AS used ON used.merchant_id = w.merchant_id \
           AND used.request_no = w.request_no \
         LEFT JOIN refunds AS r ON r.merchant_id = w.merchant_id AND r.refund_no = w.refund_no \
         LEFT JOIN activities AS c ON c.merchant_id = w.merchant_id \
           AND c.activity_id = w.activity_id \
         LEFT JOIN grants AS g ON g.merchant_id = w.merchant_id \
           AND g.activity_id = w.activity_id AND g.user_id = w.user_id \
         LEFT JOIN profiles AS p ON p.merchant_id = w.merchant_id AND p.user_id = w.profile_of \
         ORDER BY w.key",
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

const RETIRED: &str = "SELECT merchant_id, idempotency_key FROM json_each(?1) AS wanted \
     JOIN retired_operations ON merchant_id = wanted.value ->> '$.merchant_id' \
       AND idempotency_key = wanted.value ->> '$.idempotency_key'";

#[cfg(test)]
mod tests;
