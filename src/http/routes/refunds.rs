//! Refunding orders.

use axum::extract::State;
use serde::Deserialize;

use super::{Shared, orders};
use crate::domain::commands::RefundOrder;
use crate::domain::{Amount, Code, Identifier, PlainText};
use crate::http::body::Body;
use crate::http::extract::{Merchant, PathId, Submission};
use crate::http::intent::Intent;
use crate::http::respond::{Result, list};
use crate::store::queries;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RefundBody {
    amount: Option<Amount>,
    refund_no: Option<Identifier>,
    reason: Option<PlainText>,
}

/// Reads `order.refund`.
pub(in crate::http) fn refund_intent(order_no: PathId, body: &Body) -> Result<Intent> {
    let order_no = order_no.or(Code::OrderNotFound)?;
    let RefundBody {
        amount,
        refund_no,
        reason,
    } = body.optional()?;
    let command = RefundOrder {
        order_no: order_no.clone(),
        amount,
        refund_no,
        reason,
    };
    Ok(Intent::about(order_no, command))
}

/// `POST /v1/orders/{order_no}/refunds`: 201 with the refund.
pub(crate) async fn refund(order_no: PathId, submission: Submission) -> Result {
    let intent = refund_intent(order_no, &submission.body)?;
    submission.perform(intent).await
}

/// `GET /v1/orders/{order_no}/refunds`: 200 with the refunds of an order.
pub(crate) async fn of_order(
    State(app): Shared,
    Merchant(merchant): Merchant,
    order_no: PathId,
) -> Result {
    let database = &app.idempotency.database;
    let order = orders::existing(database, &merchant, order_no).await?;
    Ok(list(
        queries::refunds_of_order(database, &merchant, &order.order_no).await?,
    ))
}
