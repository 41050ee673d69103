//! One JSON line on stderr for each request. It never holds a key, a token, a secret or a body.

use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use serde::Serialize;
use spin_sdk::wasip3;

use crate::runtime;

/// What handlers learn about a request, for its line.
#[derive(Clone, Debug, Default)]
pub(super) struct Trace(Arc<Mutex<Facts>>);

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Facts {
    pub merchant: Option<String>,
    pub operation: Option<&'static str>,
    pub replayed: bool,
    pub waited: bool,
}

/// The code of the problem that a response carries, and what caused it.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub code: &'static str,
    pub cause: Option<String>,
}

impl Trace {
    pub fn facts(&self) -> MutexGuard<'_, Facts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Serialize)]
struct Line<'a> {
    method: &'a str,
    /// The pattern of the route, without the identifiers in the path.
    route: Option<&'a str>,
    status: u16,
    #[serde(flatten)]
    facts: Facts,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'a str>,
    milliseconds: f64,
}

/// Passes the request on and logs it, behind the answer.
pub(super) async fn log(mut request: Request, next: Next) -> Response {
    let started = runtime::monotonic_nanos();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let trace = Trace::default();
    request.extensions_mut().insert(trace.clone());

    let response = next.run(request).await;

    let status = response.status().as_u16();
    let failure = response.extensions().get::<Failure>().cloned();
    let microseconds = runtime::monotonic_nanos().saturating_sub(started) / 1000;
    wasip3::spawn(async move {
        let line = Line {
            method: method.as_str(),
            route: route.as_ref().map(MatchedPath::as_str),
            status,
            facts: trace.facts().clone(),
            code: failure.as_ref().map(|failure| failure.code),
            cause: failure
                .as_ref()
                .and_then(|failure| failure.cause.as_deref()),
            milliseconds: f64::from(u32::try_from(microseconds).unwrap_or(u32::MAX)) / 1000.0,
        };
        if let Ok(line) = serde_json::to_string(&line) {
            // Not `eprintln!`, which panics where stderr is full or gone.
            _ = writeln!(std::io::stderr(), "{line}");
        }
    });
    response
}
