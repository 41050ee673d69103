//! `/v1/webhooks/{channel}`: what payment channels report by themselves.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::IntoResponse;
use http::HeaderMap;
use serde::Serialize;

use super::Shared;
use crate::http::body::read_bytes;
use crate::http::extract::PathId;
use crate::http::respond::Result;

#[derive(Serialize)]
struct Heard {
    /// Whether the event told anything new.
    applied: bool,
}

/// `POST /v1/webhooks/{channel}`: 200, also for a repeated or out-of-date event. After anything else but 400
/// the channel is to send it again.
pub(crate) async fn hear(
    State(app): Shared,
    PathId(channel): PathId,
    headers: HeaderMap,
    body: Body,
) -> Result {
    app.config.check_webhooks()?;
    let body = read_bytes(&headers, body).await?;
    let settler = &app.idempotency.settler;
    let applied = settler.hear(&channel, &headers, &body).await?;
    if applied {
        app.delivery.wake();
    }
    Ok(Json(Heard { applied }).into_response())
}
