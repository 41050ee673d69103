//! How answers look.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};
use serde::Serialize;

use super::trace::Failure;
use crate::domain::{Answer, Code, Problem};
use crate::idempotency::Reply;
use crate::runtime;

const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// What a handler answers.
pub(super) type Result<T = Response> = std::result::Result<T, Problem>;

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let content_type = self.content_type();
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, self.body).into_response();
        response
            .headers_mut()
            .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        if let Some(location) = self
            .location
            .and_then(|location| HeaderValue::try_from(location).ok())
        {
            response.headers_mut().insert(LOCATION, location);
        }
        response
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let mut response = self.answer.into_response();
        if self.replayed {
            response
                .headers_mut()
                .insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
        }
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.answer(runtime::uuid(runtime::now())).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        if self.code == Code::Unauthorized {
            let challenge = HeaderValue::from_static("Bearer realm=\"payonce\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        response.extensions_mut().insert(Failure {
            code: self.code.name(),
            cause: self.cause,
        });
        response
    }
}

/// 200 with a list.
pub(super) fn list<T: Serialize>(data: Vec<T>) -> Response {
    #[derive(Serialize)]
    struct List<T> {
        data: Vec<T>,
    }
    Json(List { data }).into_response()
}
