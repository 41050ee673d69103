//! `/v1/orders`: what customers buy.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::{Nothing, Shared};
use crate::domain::commands::{CancelOrder, CompleteOrder, CreateOrder, ShipOrder};
use crate::domain::{
    Amount, Code, Currency, Identifier, Metadata, Order, OrderStatus, PlainText, Problem,
};
use crate::http::body::Body;
use crate::http::extract::{Merchant, PathId, QueryOf, Submission};
use crate::http::intent::Intent;
use crate::http::respond::{Result, list as list_of};
use crate::store::Database;
use crate::store::queries::{self, OrderFilter};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateBody {
    order_no: Option<Identifier>,
    user_id: Identifier,
    amount: Amount,
    currency: Currency,
    metadata: Option<Metadata>,
}

/// Reads `order.create`.
pub(in crate::http) fn create_intent(body: &Body) -> Result<Intent> {
    let CreateBody {
        order_no,
        user_id,
        amount,
        currency,
        metadata,
    } = body.required()?;
    Ok(Intent::new(CreateOrder {
        order_no,
        user_id,
        amount,
        currency,
        metadata: metadata.unwrap_or_default(),
    }))
}

/// `POST /v1/orders`: 201 with the order.
pub(crate) async fn create(submission: Submission) -> Result {
    let intent = create_intent(&submission.body)?;
    submission.perform(intent).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShipBody {
    tracking_no: Option<PlainText>,
}

/// Reads `order.ship`.
pub(in crate::http) fn ship_intent(order_no: PathId, body: &Body) -> Result<Intent> {
    let order_no = order_no.or(Code::OrderNotFound)?;
    let ShipBody { tracking_no } = body.optional()?;
    let command = ShipOrder {
        order_no: order_no.clone(),
        tracking_no,
    };
    Ok(Intent::about(order_no, command))
}

/// `POST /v1/orders/{order_no}/ship`: 200 with the order.
pub(crate) async fn ship(order_no: PathId, submission: Submission) -> Result {
    let intent = ship_intent(order_no, &submission.body)?;
    submission.perform(intent).await
}

/// Reads `order.complete`.
pub(in crate::http) fn complete_intent(order_no: PathId, body: &Body) -> Result<Intent> {
    let order_no = order_no.or(Code::OrderNotFound)?;
    let Nothing {} = body.optional()?;
    let command = CompleteOrder {
        order_no: order_no.clone(),
    };
    Ok(Intent::about(order_no, command))
}

/// `POST /v1/orders/{order_no}/complete`: 200 with the order.
pub(crate) async fn complete(order_no: PathId, submission: Submission) -> Result {
    let intent = complete_intent(order_no, &submission.body)?;
    submission.perform(intent).await
}

/// Reads `order.cancel`.
pub(in crate::http) fn cancel_intent(order_no: PathId, body: &Body) -> Result<Intent> {
    let order_no = order_no.or(Code::OrderNotFound)?;
    let Nothing {} = body.optional()?;
    let command = CancelOrder {
        order_no: order_no.clone(),
    };
    Ok(Intent::about(order_no, command))
}

/// `POST /v1/orders/{order_no}/cancel`: 200 with the order.
pub(crate) async fn cancel(order_no: PathId, submission: Submission) -> Result {
    let intent = cancel_intent(order_no, &submission.body)?;
    submission.perform(intent).await
}

/// `GET /v1/orders/{order_no}`: 200 with the order.
pub(crate) async fn show(
    State(app): Shared,
    Merchant(merchant): Merchant,
    order_no: PathId,
) -> Result {
    let order = existing(&app.idempotency.database, &merchant, order_no).await?;
    Ok(Json(order).into_response())
}

/// The order that a path names.
pub(super) async fn existing(
    database: &Database,
    merchant: &Identifier,
    order_no: PathId,
) -> Result<Order> {
    let order_no = order_no.or(Code::OrderNotFound)?;
    let order = queries::order(database, merchant, &order_no).await?;
    order.ok_or_else(|| {
        Problem::new(
            Code::OrderNotFound,
            format!("there is no order {}", order_no.as_str()),
        )
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    status: Option<OrderStatus>,
    user_id: Option<Identifier>,
    limit: Option<u32>,
    cursor: Option<String>,
}

#[derive(Serialize)]
struct Page {
    data: Vec<Order>,
    next_cursor: Option<String>,
}

/// `GET /v1/orders`: 200 with a page of orders, newest first.
pub(crate) async fn list(
    State(app): Shared,
    Merchant(merchant): Merchant,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result {
    let limit = query.limit.unwrap_or(20);
    if !(1..=100).contains(&limit) {
        return Err(Problem::at(
            Code::QueryInvalid,
            "#limit",
            "the limit is 1 to 100",
        ));
    }
    let before = query.cursor.as_deref().map(parse_cursor).transpose()?;
    let database = &app.idempotency.database;
    if let Some(order_no) = &before
        && queries::order(database, &merchant, order_no)
            .await?
            .is_none()
    {
        return Err(unknown_cursor());
    }
    let filter = OrderFilter {
        status: query.status,
        user_id: query.user_id.as_ref(),
        before: before.as_ref(),
        // One more tells whether there is a next page.
        limit: limit.saturating_add(1),
    };
    let mut data = queries::orders(database, &merchant, filter).await?;
    let shown = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = data.len() > shown;
    data.truncate(shown);
    let next_cursor = data
        .last()
        .filter(|_| more)
        .map(|last| cursor(&last.order_no));
    Ok(Json(Page { data, next_cursor }).into_response())
}

/// A cursor names the last order of the page before it. It says nothing about other merchants' orders.
fn cursor(order_no: &Identifier) -> String {
    URL_SAFE_NO_PAD.encode(order_no.as_str())
}

fn parse_cursor(cursor: &str) -> Result<Identifier> {
    let bytes = URL_SAFE_NO_PAD
        .decode(cursor)
        .map_err(|_| unknown_cursor())?;
    let order_no = String::from_utf8(bytes).map_err(|_| unknown_cursor())?;
    order_no.try_into().map_err(|_| unknown_cursor())
}

fn unknown_cursor() -> Problem {
    Problem::at(
        Code::QueryInvalid,
        "#cursor",
        "the cursor is not from a page of this list",
    )
}

/// `GET /v1/orders/{order_no}/events`: 200 with the audit trail.
pub(crate) async fn events(
    State(app): Shared,
    Merchant(merchant): Merchant,
    order_no: PathId,
) -> Result {
    let database = &app.idempotency.database;
    let order = existing(database, &merchant, order_no).await?;
    Ok(list_of(
        queries::events(database, &merchant, &order.order_no).await?,
    ))
}

#[cfg(any(test, fuzzing))]
pub mod fuzz {
    use super::*;

    /// Any bytes are a cursor as a page had it, or refused; and each identifier has one.
    pub fn cursor(bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        match parse_cursor(&text) {
            Ok(order_no) => assert_eq!(super::cursor(&order_no), text),
            Err(problem) => assert_eq!(problem.code, Code::QueryInvalid),
        }
        let order_no = Identifier::try_from(text.into_owned());
        let named = parse_cursor(&URL_SAFE_NO_PAD.encode(bytes));
        assert_eq!(named.ok(), order_no.ok());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hostile::{hostile, identifier};

    proptest! {
        #[test]
        fn a_cursor_names_the_order_that_it_was_made_of(order_no in identifier()) {
            prop_assert_eq!(parse_cursor(&cursor(&order_no)), Ok(order_no));
        }

        #[test]
        fn a_hostile_cursor_is_one_of_ours_or_refused(
            text in hostile(identifier().prop_map(|order_no| cursor(&order_no))),
        ) {
            fuzz::cursor(&text);
        }
    }
}
