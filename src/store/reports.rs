//! What the operator is shown: counts, work that is stuck, and the check of the ledger.
//!
//! These read whole tables or indexes: once a minute, not once a second.

use std::collections::BTreeMap;

use serde::Serialize;
use spin_sdk::sqlite::{RowResult, Value};

use super::channel_calls::Open;
use super::outbox::Left;
use super::row::Row;
use super::{Database, DatabaseError};
use crate::domain::{OrderStatus, PaymentStatus, Timestamp};

/// How many of the things that are wrong are listed.
const LISTED: u32 = 100;

/// The state of the service.
#[derive(Debug, Serialize)]
pub struct Stats {
    /// By status.
    pub orders: BTreeMap<&'static str, i64>,
    /// By status.
    pub payments: BTreeMap<&'static str, i64>,
    pub outbox: Outbox,
    /// The first that were given up.
    pub dead_events: Vec<DeadEvent>,
    pub journal: JournalSize,
    pub channel: ChannelWork,
    pub stuck: Stuck,
    /// Always null: a replay is one read of the key-value store and leaves nothing to count. The log has
    /// them, as `replayed`.
    pub replays: Option<i64>,
}

#[derive(Debug, Serialize)]
pub struct Outbox {
    pub sent: i64,
    #[serde(flatten)]
    pub left: Left,
    pub oldest_undelivered_at: Option<Timestamp>,
}

#[derive(Debug, Serialize)]
pub struct DeadEvent {
    pub event_id: String,
    #[serde(rename = "type")]
    pub event_type: String,
    pub merchant_id: String,
    pub subject: String,
    pub attempts: i64,
    pub last_error: Option<String>,
    pub dead_since: Timestamp,
}

/// What channels were asked for.
#[derive(Debug, Serialize)]
pub struct ChannelWork {
    pub open: Open,
    /// The first that have been open for longer than `channel_stuck_after_seconds`.
    pub stuck: Vec<StuckCall>,
    /// Money that came for payments that had failed, and has not gone back yet.
    pub unclaimed: Vec<Unclaimed>,
}

#[derive(Debug, Serialize)]
pub struct StuckCall {
    /// The payment or refund.
    pub id: String,
    pub merchant_id: String,
    pub order_no: String,
    pub channel: String,
    /// What the channel knows it by.
    pub number: String,
    pub attempts: i64,
    pub last_error: Option<String>,
    pub since: Timestamp,
}

#[derive(Debug, Serialize)]
pub struct Unclaimed {
    pub payment_id: String,
    pub merchant_id: String,
    pub order_no: String,
    pub amount: i64,
    pub currency: String,
    /// `failed` where the channel refused to take it back: the operator has to.
    pub refund_status: String,
    pub since: Timestamp,
}

#[derive(Debug, Serialize)]
pub struct JournalSize {
    /// With their answers.
    pub rows: i64,
    /// Past their retention.
    pub retired: i64,
    /// The time of the oldest with an answer.
    pub oldest_at: Option<Timestamp>,
}

/// Since when the oldest work waits.
#[derive(Debug, Serialize)]
pub struct Stuck {
    /// For the answer of its channel.
    pub payment_processing_since: Option<Timestamp>,
    /// For a dispatcher, although it is due.
    pub event_due_since: Option<Timestamp>,
}

/// The check of the ledger (invariant 5).
#[derive(Debug, Serialize)]
pub struct Ledger {
    pub ok: bool,
    pub books: Vec<Book>,
    /// Wallets whose balance is not the sum of their entries, or is negative; the first 100.
    pub differences: Vec<Difference>,
    /// What was booked and does not sum to zero; the first 100.
    pub unbalanced: Vec<String>,
}

/// A merchant's entries in one currency.
#[derive(Debug, Serialize)]
pub struct Book {
    pub merchant_id: String,
    pub currency: String,
    pub entries: i64,
    /// Zero in good books, in minor units as all of these.
    pub sum: i64,
    pub wallets: i64,
}

#[derive(Debug, Serialize)]
pub struct Difference {
    pub merchant_id: String,
    pub user_id: String,
    pub currency: String,
    /// `None` where there is no account.
    pub balance: Option<i64>,
    pub entries: i64,
}

/// Counts everything else than what is `left` of events and `open` at the channel.
pub async fn stats(
    database: &Database,
    now: Timestamp,
    left: Left,
    open: Open,
    stuck_after_ms: i64,
) -> Result<Stats, DatabaseError> {
    let orders = OrderStatus::ALL.map(OrderStatus::name);
    let orders = by_status(database, "orders", &orders).await?;
    let payments = PaymentStatus::ALL.map(PaymentStatus::name);
    let payments = by_status(database, "payments", &payments).await?;
    // A second condition on a state is that of an index.
    let statement = "SELECT \
         (SELECT count(*) FROM deliveries WHERE state = 'sent' AND state <> 'pending'), \
         (SELECT min(created_at) FROM outbox WHERE event_id IN ( \
            SELECT event_id FROM deliveries WHERE state = 'pending' UNION ALL \
            SELECT event_id FROM deliveries WHERE state = 'dead' AND state <> 'pending')), \
         (SELECT count(*) FROM operations), \
         (SELECT count(*) FROM retired_operations), \
         (SELECT created_at FROM operations WHERE response_status <> 102 AND created_at <= ?1 \
            ORDER BY rowid LIMIT 1), \
         (SELECT min(updated_at) FROM payments WHERE status = 'processing'), \
         (SELECT min(due_at) FROM deliveries WHERE state = 'pending' AND due_at <= ?1)";
    let rows = database
        .execute(statement, [now.as_millis().into()])
        .await?;
    let row = &mut Row::only(&rows)?;
    Ok(Stats {
        orders,
        payments,
        outbox: Outbox {
            sent: row.integer()?,
            left,
            oldest_undelivered_at: row.optional_time()?,
        },
        dead_events: dead_events(database).await?,
        journal: JournalSize {
            rows: row.integer()?,
            retired: row.integer()?,
            oldest_at: row.optional_time()?,
        },
        channel: channel_work(database, now, open, stuck_after_ms).await?,
        stuck: Stuck {
            payment_processing_since: row.optional_time()?,
            event_due_since: row.optional_time()?,
        },
        replays: None,
    })
}

async fn by_status(
    database: &Database,
    table: &str,
    all: &[&'static str],
) -> Result<BTreeMap<&'static str, i64>, DatabaseError> {
    let statement = format!("SELECT status, count(*) FROM {table} GROUP BY status");
    let rows = database.execute(statement.as_str(), []).await?;
    let mut counts: BTreeMap<_, _> = all.iter().map(|status| (*status, 0)).collect();
    for row in &rows {
        let row = &mut Row::new(row);
        let count = counts.get_mut(row.text()?.as_str());
        *count.ok_or_else(DatabaseError::unexpected_row)? = row.integer()?;
    }
    Ok(counts)
}

async fn channel_work(
    database: &Database,
    now: Timestamp,
    open: Open,
    stuck_after_ms: i64,
) -> Result<ChannelWork, DatabaseError> {
    let before = now.plus_millis(stuck_after_ms.saturating_neg());
    let statement = "SELECT subject_id, merchant_id, order_no, channel, number, attempts, last_error, created_at \
         FROM channel_calls WHERE settled_at IS NULL AND created_at <= ?2 ORDER BY created_at LIMIT ?1";
    let rows = database
        .execute(statement, [Value::from(LISTED), before.as_millis().into()])
        .await?;
    let stuck = read_all(&rows, |row| {
        Ok(StuckCall {
            id: row.text()?,
            merchant_id: row.text()?,
            order_no: row.text()?,
            channel: row.text()?,
            number: row.text()?,
            attempts: row.integer()?,
            last_error: row.optional_text()?,
            since: row.time()?,
        })
    })?;
    let unclaimed = "SELECT r.payment_id, r.merchant_id, r.order_no, r.amount, r.currency, r.status, r.created_at \
         FROM payments AS p JOIN refunds AS r ON r.payment_id = p.payment_id \
           AND r.merchant_id = p.merchant_id AND r.order_no = p.order_no \
         WHERE p.status = 'failed' AND r.status <> 'succeeded' ORDER BY r.created_at LIMIT ?1";
    Ok(ChannelWork {
        open,
        stuck,
        unclaimed: all(database, unclaimed, |row| {
            Ok(Unclaimed {
                payment_id: row.text()?,
                merchant_id: row.text()?,
                order_no: row.text()?,
                amount: row.integer()?,
                currency: row.text()?,
                refund_status: row.text()?,
                since: row.time()?,
            })
        })
        .await?,
    })
}

async fn dead_events(database: &Database) -> Result<Vec<DeadEvent>, DatabaseError> {
    let statement = "SELECT o.event_id, o.type, o.merchant_id, o.subject, d.attempts, d.last_error, d.settled_at \
         FROM deliveries AS d JOIN outbox AS o ON o.event_id = d.event_id \
         WHERE d.state = 'dead' AND d.state <> 'pending' ORDER BY d.settled_at LIMIT ?1";
    all(database, statement, |row| {
        Ok(DeadEvent {
            event_id: row.text()?,
            event_type: row.text()?,
            merchant_id: row.text()?,
            subject: row.text()?,
            attempts: row.integer()?,
            last_error: row.optional_text()?,
            dead_since: row.time()?,
        })
    })
    .await
}

/// Holds the ledger against the accounts.
pub async fn ledger(database: &Database) -> Result<Ledger, DatabaseError> {
    let books = "SELECT merchant_id, currency, count(*), sum(amount), \
                   sum(iif(account LIKE 'wallet:%', amount, 0)) \
                 FROM ledger_entries WHERE ?1 > 0 GROUP BY merchant_id, currency";
    let books = all(database, books, |row| {
        Ok(Book {
            merchant_id: row.text()?,
            currency: row.text()?,
            entries: row.integer()?,
            sum: row.integer()?,
            wallets: row.integer()?,
        })
    })
    .await?;
    let differences = "SELECT coalesce(a.merchant_id, l.merchant_id), coalesce(a.user_id, substr(l.account, 8)), \
           coalesce(a.currency, l.currency), a.balance, coalesce(l.entries, 0) \
         FROM accounts AS a FULL JOIN ( \
           SELECT merchant_id, account, currency, sum(amount) AS entries FROM ledger_entries \
           WHERE account LIKE 'wallet:%' GROUP BY merchant_id, account, currency) AS l \
         ON l.merchant_id = a.merchant_id AND l.account = 'wallet:' || a.user_id AND l.currency = a.currency \
         WHERE a.balance IS NOT coalesce(l.entries, 0) OR a.balance < 0 LIMIT ?1";
    let differences = all(database, differences, |row| {
        Ok(Difference {
            merchant_id: row.text()?,
            user_id: row.text()?,
            currency: row.text()?,
            balance: row.optional_integer()?,
            entries: row.integer()?,
        })
    })
    .await?;
    let unbalanced = "SELECT source_id FROM ledger_entries \
                      GROUP BY source_id, currency HAVING sum(amount) <> 0 LIMIT ?1";
    let unbalanced = all(database, unbalanced, |row| row.text()).await?;
    let ok =
        books.iter().all(|book| book.sum == 0) && differences.is_empty() && unbalanced.is_empty();
    Ok(Ledger {
        ok,
        books,
        differences,
        unbalanced,
    })
}

/// The rows of a statement whose one parameter is how many are listed.
async fn all<T>(
    database: &Database,
    statement: &str,
    read: impl Fn(&mut Row<'_>) -> Result<T, DatabaseError>,
) -> Result<Vec<T>, DatabaseError> {
    let rows = database.execute(statement, [Value::from(LISTED)]).await?;
    read_all(&rows, read)
}

fn read_all<T>(
    rows: &[RowResult],
    read: impl Fn(&mut Row<'_>) -> Result<T, DatabaseError>,
) -> Result<Vec<T>, DatabaseError> {
    rows.iter().map(|row| read(&mut Row::new(row))).collect()
}
