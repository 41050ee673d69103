//! `/v1/accounts`: the wallets of customers.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};

use super::Shared;
use crate::domain::commands::DepositMoney;
use crate::domain::{Amount, Code, Currency, Identifier, PlainText, Problem};
use crate::http::body::Body;
use crate::http::extract::{Merchant, PathId, Submission};
use crate::http::intent::Intent;
use crate::http::respond::Result;
use crate::store::queries::{self, Balance};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DepositBody {
    amount: Amount,
    currency: Currency,
    reference: Option<PlainText>,
}

/// Reads `account.deposit`.
pub(in crate::http) fn deposit_intent(user_id: PathId, body: &Body) -> Result<Intent> {
    let user_id = user_id.or(Code::AccountNotFound)?;
    let DepositBody {
        amount,
        currency,
        reference,
    } = body.required()?;
    let command = DepositMoney {
        user_id: user_id.clone(),
        amount,
        currency,
        reference,
    };
    Ok(Intent::about(user_id, command))
}

/// `POST /v1/accounts/{user_id}/deposits`: 201 with the deposit.
pub(crate) async fn deposit(user_id: PathId, submission: Submission) -> Result {
    let intent = deposit_intent(user_id, &submission.body)?;
    submission.perform(intent).await
}

#[derive(Serialize)]
struct Account {
    user_id: Identifier,
    balances: Vec<Balance>,
}

/// `GET /v1/accounts/{user_id}`: 200 with the balances.
pub(crate) async fn show(
    State(app): Shared,
    Merchant(merchant): Merchant,
    user_id: PathId,
) -> Result {
    let user_id = user_id.or(Code::AccountNotFound)?;
    let balances = queries::balances(&app.idempotency.database, &merchant, &user_id).await?;
    if balances.is_empty() {
        let detail = format!("there is no account of {}", user_id.as_str());
        return Err(Problem::new(Code::AccountNotFound, detail));
    }
    Ok(Json(Account { user_id, balances }).into_response())
}
