//! `/v1/tokens`: submit tokens for clients that cannot make up keys.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use http::StatusCode;
use serde::Serialize;

use super::{Nothing, Shared};
use crate::domain::Timestamp;
use crate::http::extract::Submission;
use crate::http::respond::Result;
use crate::idempotency::SubmitToken;
use crate::runtime;

#[derive(Serialize)]
struct Token {
    token: String,
    expires_at: Timestamp,
}

/// `POST /v1/tokens`: 201 with a token. Writes nothing, so it needs no key.
pub(crate) async fn issue(State(app): Shared, submission: Submission) -> Result {
    submission.body.optional::<Nothing>()?;
    let config = &app.config;
    let secret = config.token_secret()?;
    let now = runtime::now();
    let expires_at = now.plus_millis(config.token_ttl_seconds.saturating_mul(1000));
    // The token holds whole seconds.
    let expires_at =
        Timestamp::from_millis(expires_at.as_millis().div_euclid(1000).saturating_mul(1000));
    let token = SubmitToken::issue(secret, &submission.merchant, runtime::uuid(now), expires_at);
    Ok((StatusCode::CREATED, Json(Token { token, expires_at })).into_response())
}
