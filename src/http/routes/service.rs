//! The service itself: health, readiness, and the pages that explain errors.

use axum::Json;
use axum::extract::State;
use axum::response::{Html, IntoResponse, Response};
use serde::Serialize;

use super::Shared;
use crate::domain::{Code, Problem};
use crate::http::extract::PathId;
use crate::http::respond::Result;
use crate::store::queries;

#[derive(Serialize)]
struct Status {
    status: &'static str,
}

/// `GET /healthz`: 200 while the component runs at all.
pub(crate) async fn health() -> Response {
    Json(Status { status: "ok" }).into_response()
}

/// `GET /readyz`: 200 when it can take payments, otherwise 503 that names what is missing. The key-value
/// store may be down: payments need it for speed only.
pub(crate) async fn ready(State(app): Shared) -> Result {
    app.config.check()?;
    queries::ping(&app.idempotency.database).await?;
    Ok(Json(Status { status: "ready" }).into_response())
}

/// `GET /problems/{code}`: what an error means and what to do.
pub(crate) async fn problem_page(PathId(name): PathId) -> Result {
    let code = Code::from_name(&name)
        .ok_or_else(|| Problem::new(Code::NotFound, "there is no such error code"))?;
    let remedy = code.remedy().replace('&', "&amp;").replace('<', "&lt;");
    let (name, title, status) = (code.name(), code.title(), code.status());
    let page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>{name} · payonce</title>\n\
         <h1>{title}</h1>\n<p><code>{name}</code>, HTTP status {status}</p>\n<p>{remedy}</p>\n</html>\n"
    );
    Ok(Html(page).into_response())
}
