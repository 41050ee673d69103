//! Paying orders, and `/v1/payments`.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde::Deserialize;

use super::{Shared, orders};
use crate::domain::commands::PayOrder;
use crate::domain::{Amount, Code, Currency, Identifier, Payment, PaymentMethod, Problem};
use crate::http::body::Body;
use crate::http::extract::{Merchant, PathId, QueryOf, Submission};
use crate::http::intent::Intent;
use crate::http::respond::{Result, list};
use crate::idempotency::IdempotencyKey;
use crate::store::queries;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PayOrderBody {
    amount: Amount,
    request_no: Option<Identifier>,
    currency: Option<Currency>,
    payment_method: Option<PaymentMethod>,
}

/// Reads `order.pay`.
pub(in crate::http) fn pay_intent(order_no: PathId, body: &Body) -> Result<Intent> {
    let order_no = order_no.or(Code::OrderNotFound)?;
    let PayOrderBody {
        amount,
        request_no,
        currency,
        payment_method,
    } = body.required()?;
    let default_key = request_no.as_ref().map(IdempotencyKey::of_request_no);
    let command = PayOrder {
        order_no: order_no.clone(),
        amount,
        currency,
        request_no,
        payment_method,
    };
    Ok(Intent::about(order_no, command).or_key(default_key))
}

/// `POST /v1/orders/{order_no}/pay`: 200 with the payment, 202 while its channel works on it.
pub(crate) async fn pay_order(order_no: PathId, submission: Submission) -> Result {
    let intent = pay_intent(order_no, &submission.body)?;
    submission.perform(intent).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PayBody {
    #[serde(rename = "token")]
    _token: Option<String>,
    order_no: Identifier,
    request_no: Identifier,
    amount: Amount,
    payment_method: Option<PaymentMethod>,
}

/// `POST /v1/pay`: the same operation, with order number and submit token in the body.
pub(crate) async fn pay(mut submission: Submission) -> Result {
    let PayBody {
        order_no,
        request_no,
        amount,
        payment_method,
        ..
    } = submission.body.required()?;
    submission.take_token();
    let default_key = Some(IdempotencyKey::of_request_no(&request_no));
    let command = PayOrder {
        order_no,
        amount,
        currency: None,
        request_no: Some(request_no),
        payment_method,
    };
    let intent = Intent::new(command).or_key(default_key);
    submission.perform(intent).await
}

/// `GET /v1/orders/{order_no}/payments`: 200 with the payments of an order.
pub(crate) async fn of_order(
    State(app): Shared,
    Merchant(merchant): Merchant,
    order_no: PathId,
) -> Result {
    let database = &app.idempotency.database;
    let order = orders::existing(database, &merchant, order_no).await?;
    Ok(list(
        queries::payments_of_order(database, &merchant, &order.order_no).await?,
    ))
}

/// `GET /v1/payments/{payment_id}`: 200 with the payment.
pub(crate) async fn show(
    State(app): Shared,
    Merchant(merchant): Merchant,
    payment_id: PathId,
) -> Result {
    let payment_id = payment_id.or(Code::PaymentNotFound)?;
    found(queries::payment(&app.idempotency.database, &merchant, payment_id.as_str()).await?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FindQuery {
    request_no: Identifier,
}

/// `GET /v1/payments?request_no=`: 200 with the payment of that request number.
pub(crate) async fn find(
    State(app): Shared,
    Merchant(merchant): Merchant,
    QueryOf(query): QueryOf<FindQuery>,
) -> Result {
    found(
        queries::payment_by_request_no(&app.idempotency.database, &merchant, &query.request_no)
            .await?,
    )
}

fn found(payment: Option<Payment>) -> Result {
    let payment =
        payment.ok_or_else(|| Problem::new(Code::PaymentNotFound, "there is no such payment"))?;
    Ok(Json(payment).into_response())
}
