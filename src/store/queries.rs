//! What the `GET` routes read: one `SELECT` each, always within one merchant (invariant 10).

use serde::Serialize;
use spin_sdk::sqlite::Value;

use super::row::{ORDER_COLUMNS, RECORDED_COLUMNS, REFUND_COLUMNS, Row, payment_columns};
use super::{Database, DatabaseError, Recorded};
use crate::domain::{Identifier, Order, OrderStatus, Payment, Refund, Timestamp};

/// One event of the audit trail of an order.
#[derive(Debug, Serialize)]
pub struct Event {
    pub operation: String,
    pub idempotency_key: String,
    pub from_status: Option<String>,
    pub to_status: Option<String>,
    pub version: i64,
    pub at: Timestamp,
}

/// A customer's balance in one currency, in minor units.
#[derive(Debug, Serialize)]
pub struct Balance {
    pub currency: String,
    pub balance: i64,
}

/// Which orders to list.
#[derive(Clone, Copy, Debug)]
pub struct OrderFilter<'a> {
    pub status: Option<OrderStatus>,
    pub user_id: Option<&'a Identifier>,
    /// Only orders older than this one.
    pub before: Option<&'a Identifier>,
    pub limit: u32,
}

/// What the journal holds for a key.
pub async fn recorded(
    database: &Database,
    merchant: &Identifier,
    key: &str,
) -> Result<Option<Recorded>, DatabaseError> {
    let statement = format!(
        "SELECT {RECORDED_COLUMNS} FROM operations AS op \
         WHERE op.merchant_id = ?1 AND op.idempotency_key = ?2"
    );
    let rows = database
        .execute(statement.as_str(), [text(merchant), key.into()])
        .await?;
    rows.first()
        .map_or(Ok(None), |row| Row::new(row).recorded())
}

/// The order of that number.
pub async fn order(
    database: &Database,
    merchant: &Identifier,
    order_no: &Identifier,
) -> Result<Option<Order>, DatabaseError> {
    let statement = format!(
        "SELECT {ORDER_COLUMNS} FROM orders AS o WHERE o.merchant_id = ?1 AND o.order_no = ?2"
    );
    let rows = database
        .execute(statement.as_str(), [text(merchant), text(order_no)])
        .await?;
    rows.first().map_or(Ok(None), |row| Row::new(row).order())
}

/// Orders, newest first.
pub async fn orders(
    database: &Database,
    merchant: &Identifier,
    filter: OrderFilter<'_>,
) -> Result<Vec<Order>, DatabaseError> {
    let mut statement = format!("SELECT {ORDER_COLUMNS} FROM orders AS o WHERE o.merchant_id = ?");
    let mut parameters = vec![text(merchant)];
    if let Some(status) = filter.status {
        statement.push_str(" AND o.status = ?");
        parameters.push(status.name().into());
    }
    if let Some(user_id) = filter.user_id {
        statement.push_str(" AND o.user_id = ?");
        parameters.push(text(user_id));
    }
    if let Some(before) = filter.before {
        statement.push_str(
            " AND o.seq < (SELECT seq FROM orders WHERE merchant_id = ? AND order_no = ?)",
        );
        parameters.extend([text(merchant), text(before)]);
    }
    statement.push_str(" ORDER BY o.seq DESC LIMIT ?");
    parameters.push(filter.limit.into());
    let rows = database.execute(statement.as_str(), parameters).await?;
    rows.iter()
        .filter_map(|row| Row::new(row).order().transpose())
        .collect()
}

/// The payments of an order, oldest first.
pub async fn payments_of_order(
    database: &Database,
    merchant: &Identifier,
    order_no: &Identifier,
) -> Result<Vec<Payment>, DatabaseError> {
    // One condition for each of the two indexes.
    let live = "p.order_no = ?2 AND p.status IN ('processing', 'succeeded')";
    let failed = "p.order_no = ?2 AND p.status = 'failed'";
    let mut found = payments(database, failed, merchant, order_no.as_str()).await?;
    found.extend(payments(database, live, merchant, order_no.as_str()).await?);
    found.sort_by_key(|payment| payment.created_at);
    Ok(found)
}

/// The payment of that identifier.
pub async fn payment(
    database: &Database,
    merchant: &Identifier,
    payment_id: &str,
) -> Result<Option<Payment>, DatabaseError> {
    Ok(
        payments(database, "p.payment_id = ?2", merchant, payment_id)
            .await?
            .pop(),
    )
}

/// The payment of that request number.
pub async fn payment_by_request_no(
    database: &Database,
    merchant: &Identifier,
    request_no: &Identifier,
) -> Result<Option<Payment>, DatabaseError> {
    Ok(
        payments(database, "p.request_no = ?2", merchant, request_no.as_str())
            .await?
            .pop(),
    )
}

async fn payments(
    database: &Database,
    condition: &str,
    merchant: &Identifier,
    value: &str,
) -> Result<Vec<Payment>, DatabaseError> {
    let columns = payment_columns("p");
    let statement =
        format!("SELECT {columns} FROM payments AS p WHERE p.merchant_id = ?1 AND {condition}");
    let rows = database
        .execute(statement.as_str(), [text(merchant), value.into()])
        .await?;
    rows.iter()
        .filter_map(|row| Row::new(row).payment().transpose())
        .collect()
}

/// The refunds of an order, oldest first.
pub async fn refunds_of_order(
    database: &Database,
    merchant: &Identifier,
    order_no: &Identifier,
) -> Result<Vec<Refund>, DatabaseError> {
    let statement = format!(
        "SELECT {REFUND_COLUMNS} FROM refunds AS r WHERE r.merchant_id = ?1 AND r.order_no = ?2 \
         ORDER BY r.created_at, r.refund_id"
    );
    let rows = database
        .execute(statement.as_str(), [text(merchant), text(order_no)])
        .await?;
    rows.iter().map(|row| Row::new(row).refund()).collect()
}

/// The refund of that identifier.
pub async fn refund(
    database: &Database,
    merchant: &Identifier,
    refund_id: &str,
) -> Result<Option<Refund>, DatabaseError> {
    let statement = format!(
        "SELECT {REFUND_COLUMNS} FROM refunds AS r WHERE r.merchant_id = ?1 AND r.refund_id = ?2"
    );
    let rows = database
        .execute(statement.as_str(), [text(merchant), refund_id.into()])
        .await?;
    rows.first().map(|row| Row::new(row).refund()).transpose()
}

/// The audit trail of an order from the journal, oldest first, whether or not its rows are retired.
pub async fn events(
    database: &Database,
    merchant: &Identifier,
    order_no: &Identifier,
) -> Result<Vec<Event>, DatabaseError> {
    let statement = "SELECT operation, idempotency_key, from_status, to_status, version, created_at \
                     FROM journal WHERE merchant_id = ?1 AND order_no = ?2 \
                     ORDER BY version, outcome = 'declined', created_at";
    let rows = database
        .execute(statement, [text(merchant), text(order_no)])
        .await?;
    rows.iter()
        .map(|row| {
            let row = &mut Row::new(row);
            Ok(Event {
                operation: row.text()?,
                idempotency_key: row.text()?,
                from_status: row.optional_text()?,
                to_status: row.optional_text()?,
                version: row.integer()?,
                at: row.time()?,
            })
        })
        .collect()
}

/// The balances of a customer; none where there never was a deposit.
pub async fn balances(
    database: &Database,
    merchant: &Identifier,
    user_id: &Identifier,
) -> Result<Vec<Balance>, DatabaseError> {
    let statement = "SELECT currency, balance FROM accounts WHERE merchant_id = ?1 AND user_id = ?2 ORDER BY currency";
    let rows = database
        .execute(statement, [text(merchant), text(user_id)])
        .await?;
    rows.iter()
        .map(|row| {
            let row = &mut Row::new(row);
            Ok(Balance {
                currency: row.text()?,
                balance: row.integer()?,
            })
        })
        .collect()
}

/// Whether the database answers, with its schema in place.
pub async fn ping(database: &Database) -> Result<(), DatabaseError> {
    database.execute("SELECT 1", []).await.map(drop)
}

fn text(identifier: &Identifier) -> Value {
    Value::Text(identifier.as_str().to_owned())
}
