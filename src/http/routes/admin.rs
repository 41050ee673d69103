//! `/admin`: what the operator's timers call. All of it can be repeated, by several callers at once.

use axum::Json;
use axum::extract::State;
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};

use super::Shared;
use crate::delivery::Dispatched;
use crate::domain::{Code, Problem};
use crate::http::extract::{Admin, Instruction};
use crate::http::respond::Result;
use crate::runtime;
use crate::settlement::Reconciled;
use crate::store::channel_calls::{self, Open};
use crate::store::outbox::{self, Left, Revive};
use crate::store::reports;

/// How much one call does where the caller does not say, and at most.
const DEFAULT_LIMIT: u32 = 1_000;
const MOST: u32 = 10_000;

fn limit(limit: Option<u32>) -> Result<u32> {
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    if (1..=MOST).contains(&limit) {
        return Ok(limit);
    }
    let detail = format!("the limit is 1 to {MOST}");
    Err(Problem::at(Code::BodyInvalid, "/limit", detail))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DispatchBody {
    limit: Option<u32>,
    /// Try this event now, also one that was given up.
    event_id: Option<String>,
    /// Try all that were given up.
    #[serde(default)]
    dead: bool,
}

#[derive(Serialize)]
struct DispatchAnswer {
    revived: usize,
    #[serde(flatten)]
    dispatched: Dispatched,
    left: Left,
}

/// `POST /admin/dispatch`: 200 with what became of the events that were due.
pub(crate) async fn dispatch(
    State(app): Shared,
    Instruction(body): Instruction<DispatchBody>,
) -> Result {
    app.config.check_delivery()?;
    let limit = limit(body.limit)?;
    let mut revived = 0_usize;
    if let Some(event_id) = &body.event_id {
        if !outbox::exists(&app.maintenance, event_id).await? {
            return Err(Problem::new(Code::NotFound, "there is no such event"));
        }
        revived = app.delivery.revive(Revive::Event(event_id), limit).await?;
    }
    if body.dead {
        let dead = app.delivery.revive(Revive::Dead, limit).await?;
        revived = revived.saturating_add(dead);
    }
    let dispatched = app.delivery.dispatch(limit).await?;
    let left = outbox::left(&app.maintenance, app.delivery.horizon()).await?;
    Ok(Json(DispatchAnswer {
        revived,
        dispatched,
        left,
    })
    .into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SweepBody {
    limit: Option<u32>,
}

/// `POST /admin/sweep`: 200 with what was deleted and what is left past its retention.
pub(crate) async fn sweep(State(app): Shared, Instruction(body): Instruction<SweepBody>) -> Result {
    let limit = limit(body.limit)?;
    let retention_ms = app.config.retention_ms;
    let swept = app
        .idempotency
        .sweep(&app.maintenance, retention_ms, limit)
        .await?;
    Ok(Json(swept).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReconcileBody {
    limit: Option<u32>,
}

#[derive(Serialize)]
struct ReconcileAnswer {
    #[serde(flatten)]
    reconciled: Reconciled,
    left: Open,
}

/// `POST /admin/reconcile`: 200 with what became of the payments and refunds that nobody was at work on.
pub(crate) async fn reconcile(
    State(app): Shared,
    Instruction(body): Instruction<ReconcileBody>,
) -> Result {
    app.config.check_channel()?;
    let reconciled = app
        .idempotency
        .settler
        .reconcile(limit(body.limit)?)
        .await?;
    if reconciled.settled() {
        app.delivery.wake();
    }
    let left = channel_calls::open(&app.maintenance, app.idempotency.settler.horizon()).await?;
    Ok(Json(ReconcileAnswer { reconciled, left }).into_response())
}

/// `GET /admin/stats`: 200 with counts by state, and what is stuck.
pub(crate) async fn stats(State(app): Shared, _: Admin) -> Result {
    let database = &app.maintenance;
    let left = outbox::left(database, app.delivery.horizon()).await?;
    let open = channel_calls::open(database, app.idempotency.settler.horizon()).await?;
    let stuck_after_ms = app.config.channel.stuck_after_ms;
    let stats = reports::stats(database, runtime::now(), left, open, stuck_after_ms).await?;
    Ok(Json(stats).into_response())
}

/// `GET /admin/ledger`: 200 with the check of invariant 5, whether or not it holds.
pub(crate) async fn ledger(State(app): Shared, _: Admin) -> Result {
    Ok(Json(reports::ledger(&app.maintenance).await?).into_response())
}
