//! A request that was read to its end, and the answer to it.

use std::collections::BTreeMap;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::Value;

/// A request with its whole body.
pub(crate) struct Asked {
    pub method: Method,
    /// The path without its slashes, unescaped.
    pub segments: Vec<String>,
    pub query: BTreeMap<String, String>,
    headers: HeaderMap,
    body: Bytes,
}

impl Asked {
    pub async fn read(request: Request<Incoming>) -> hyper::Result<Self> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Self::from(Request::from_parts(parts, body)))
    }

    /// Method and path, to be matched.
    pub fn target(&self) -> (&str, Vec<&str>) {
        let segments = self.segments.iter().map(String::as_str).collect();
        (self.method.as_str(), segments)
    }

    pub fn header(&self, name: &str) -> Option<String> {
        let value = self.headers.get(name)?;
        value.to_str().ok().map(str::to_owned)
    }

    /// The idempotency key, without the quotes that the IETF draft puts around it.
    pub fn key(&self) -> Option<String> {
        let value = self.header("idempotency-key")?;
        Some(value.trim_matches('"').to_owned())
    }

    pub fn bears(&self, key: &str) -> bool {
        let bearer = self.header(AUTHORIZATION.as_str());
        bearer.as_deref() == Some(&format!("Bearer {key}"))
    }

    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, String> {
        serde_json::from_slice(&self.body).map_err(|error| error.to_string())
    }

    /// The fields of a form.
    pub fn form(&self) -> BTreeMap<String, String> {
        fields(&self.body)
    }

    /// What has to be the same when an idempotency key is: the path and the body.
    pub fn fingerprint(&self) -> String {
        let path = self.segments.join("/");
        format!("{path} {}", String::from_utf8_lossy(&self.body))
    }
}

impl From<Request<Bytes>> for Asked {
    fn from(request: Request<Bytes>) -> Self {
        let (parts, body) = request.into_parts();
        let segments = parts.uri.path().split('/').filter(|part| !part.is_empty());
        Self {
            segments: segments.map(unescaped).collect(),
            query: fields(parts.uri.query().unwrap_or_default().as_bytes()),
            method: parts.method,
            headers: parts.headers,
            body,
        }
    }
}

fn fields(encoded: &[u8]) -> BTreeMap<String, String> {
    form_urlencoded::parse(encoded).into_owned().collect()
}

/// A path segment; a plus sign is itself there.
fn unescaped(segment: &str) -> String {
    let pairs = segment.replace('+', "%2B");
    let mut parsed = form_urlencoded::parse(pairs.as_bytes());
    parsed
        .next()
        .map(|(name, _)| name.into_owned())
        .unwrap_or_default()
}

/// Status and JSON body of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub status: u16,
    pub body: Value,
}

impl Reply {
    pub fn new(status: u16, body: Value) -> Self {
        Self { status, body }
    }

    pub fn response(&self) -> Response<Full<Bytes>> {
        answer(self.status, "application/json", self.body.to_string())
    }
}

pub(crate) fn answer(
    status: u16,
    content_type: &'static str,
    body: String,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let content_type = hyper::header::HeaderValue::from_static(content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
