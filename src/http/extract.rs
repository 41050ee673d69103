//! Requests, parsed: who asks, what for, and under which key.

use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::response::IntoResponse;
use futures::future;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;

use super::App;
use super::respond::Result;
use super::strict_json::StrictJson;
use super::trace::Trace;
use crate::domain::{Code, Command, Identifier, Problem};
use crate::idempotency::{self, IdempotencyKey, Peek, SubmitToken, fingerprint};
use crate::runtime;

/// The most bytes of a request body.
const BODY_LIMIT: usize = 64 * 1024;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const IDEMPOTENCY_KEY_ALIAS: HeaderName = HeaderName::from_static("x-idempotency-key");
const SUBMIT_TOKEN: HeaderName = HeaderName::from_static("submit-token");
const PREFER: HeaderName = HeaderName::from_static("prefer");

/// The merchant whose API key the request carries (RFC 6750).
pub(super) struct Merchant(pub Identifier);

impl FromRequestParts<Arc<App>> for Merchant {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self> {
        let config = &app.config;
        config.check_merchants()?;
        let key = bearer(&parts.headers);
        let merchant = key.and_then(|key| config.merchant(key));
        let merchant = merchant
            .ok_or_else(|| Problem::new(Code::Unauthorized, "the API key is missing or wrong"))?;
        trace(parts).facts().merchant = Some(merchant.as_str().to_owned());
        Ok(Self(merchant.clone()))
    }
}

/// Proof that the request carries the admin key.
pub(super) struct Admin;

impl FromRequestParts<Arc<App>> for Admin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self> {
        let config = &app.config;
        config.check_admin()?;
        let key = bearer(&parts.headers);
        if key.is_some_and(|key| config.is_admin(key)) {
            return Ok(Self);
        }
        Err(match key.and_then(|key| config.merchant(key)) {
            Some(_) => Problem::new(Code::Forbidden, "a merchant's API key is no admin key"),
            None => Problem::new(Code::Unauthorized, "the admin key is missing or wrong"),
        })
    }
}

/// The body of an admin request. It takes no idempotency key: what it asks for can be repeated.
pub(super) struct Instruction<T>(pub T);

impl<T: DeserializeOwned + Default> FromRequest<Arc<App>> for Instruction<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self> {
        let (mut parts, body) = request.into_parts();
        Admin::from_request_parts(&mut parts, app).await?;
        match read_body(&parts.headers, body).await? {
            Value::Null => Ok(Self(T::default())),
            body => serde_path_to_error::deserialize(&body)
                .map(Self)
                .map_err(|error| body_fault(&error)),
        }
    }
}

/// The one bearer token of the request (RFC 6750).
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = single(headers, &AUTHORIZATION).ok()??;
    let (scheme, token) = str::from_utf8(value).ok()?.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some(token.trim())
}

fn trace(parts: &Parts) -> Trace {
    parts.extensions.get().cloned().unwrap_or_default()
}

/// A parameter of the path. What is no identifier names nothing.
pub(super) struct PathId(pub String);

impl FromRequestParts<Arc<App>> for PathId {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self> {
        let path = Path::<String>::from_request_parts(parts, app).await;
        path.map(|Path(text)| Self(text))
            .map_err(|_| Problem::new(Code::NotFound, "the path is not UTF-8"))
    }
}

impl PathId {
    /// The identifier, or `code` where it cannot be one.
    pub fn or(self, code: Code) -> Result<Identifier> {
        Identifier::try_from(self.0).map_err(|detail| Problem::new(code, detail))
    }
}

/// The query string.
pub(super) struct QueryOf<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<Arc<App>> for QueryOf<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self> {
        let query = Query::<T>::from_request_parts(parts, app).await;
        query
            .map(|Query(query)| Self(query))
            .map_err(|error| Problem::new(Code::QueryInvalid, error.body_text()))
    }
}

/// A request that wants something done.
pub(super) struct Submission {
    app: Arc<App>,
    pub merchant: Identifier,
    headers: HeaderMap,
    /// The key in the headers, and what the key-value store knows of it.
    key: Result<Option<(IdempotencyKey, Peek)>>,
    /// `null` where there is none.
    body: Value,
    token_in_body: Option<String>,
    trace: Trace,
}

impl FromRequest<Arc<App>> for Submission {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self> {
        let (mut parts, body) = request.into_parts();
        let Merchant(merchant) = Merchant::from_request_parts(&mut parts, app).await?;
        let trace = trace(&parts);
        // The store is asked while the body is read, and not after. Spin's server leaves Nagle's algorithm
        // on, and an answer right after a key-value call, which blocks in place, often leaves in two
        // segments, the second of which waits 40 ms for the acknowledgement of the first.
        let peek = async {
            let key = key_in_headers(app, &merchant, &parts.headers)?;
            let Some(key) = key else { return Ok(None) };
            let peek = app.idempotency.peek(&merchant, &key).await;
            Ok(Some((key, peek)))
        };
        let (key, body) = future::join(peek, read_body(&parts.headers, body)).await;
        let body = body?;
        Ok(Self {
            app: Arc::clone(app),
            merchant,
            headers: parts.headers,
            key,
            body,
            token_in_body: None,
            trace,
        })
    }
}

impl Submission {
    /// The body as a `T`; unknown fields are the business of `T`.
    pub fn body<T: DeserializeOwned>(&self) -> Result<T> {
        serde_path_to_error::deserialize(&self.body).map_err(|error| {
            if self.body.is_null() {
                Problem::at(
                    Code::BodyInvalid,
                    "",
                    "a JSON object is required as the body",
                )
            } else {
                body_fault(&error)
            }
        })
    }

    /// Takes a submit token out of the body: it is no part of the fingerprint.
    pub fn take_token(&mut self) {
        let token = self
            .body
            .as_object_mut()
            .and_then(|body| body.remove("token"));
        self.token_in_body = token.and_then(|token| token.as_str().map(str::to_owned));
    }

    /// Executes `command` at most once. `path` are the parameters of the path; `default_key` is the key
    /// of a request that names none.
    pub async fn perform(
        self,
        command: impl Command + 'static,
        path: &[&str],
        default_key: Option<IdempotencyKey>,
    ) -> Result {
        let operation = command.operation();
        self.trace.facts().operation = Some(operation);
        let late = matches!(self.key, Ok(None));
        let (key, peek) = match (self.key?, &self.token_in_body) {
            (Some((key, peek)), None) => (key, peek),
            (Some(_), Some(_)) => return Err(two_keys()),
            (None, token) => {
                let token = token
                    .as_deref()
                    .map(|token| key_of_token(&self.app, &self.merchant, token));
                let key = token.transpose()?.or(default_key).ok_or_else(|| {
                    Problem::new(
                        Code::IdempotencyKeyMissing,
                        "send an Idempotency-Key header",
                    )
                })?;
                let peek = self.app.idempotency.peek(&self.merchant, &key).await;
                (key, peek)
            }
        };
        let fingerprint = fingerprint(operation, path, &self.body)
            .map_err(|error| Problem::new(Code::BodyInvalid, error.to_string()))?;
        let config = &self.app.config;
        let wait_ms = preferred_wait_ms(&self.headers)
            .unwrap_or(config.default_wait_ms)
            .min(config.max_wait_ms);
        let command = Box::new(command);
        let request = idempotency::Request {
            merchant: self.merchant,
            key,
            peek,
            fingerprint,
            command,
            wait_ms,
        };

        let mut waited = false;
        let result = self.app.idempotency.perform(request, &mut waited).await;
        let replayed = result.as_ref().is_ok_and(|reply| reply.replayed);
        if result.is_ok() && !replayed {
            self.app.delivery.wake();
        }
        if late && replayed {
            // See above: here the body had to come first.
            runtime::yield_to_host().await;
        }
        let mut facts = self.trace.facts();
        facts.waited = waited;
        facts.replayed = replayed;
        drop(facts);
        result.map(IntoResponse::into_response)
    }
}

fn two_keys() -> Problem {
    let detail = "send an idempotency key or a submit token, and not both";
    Problem::new(Code::IdempotencyKeyInvalid, detail)
}

/// The key that the headers name, as such or by a submit token.
fn key_in_headers(
    app: &App,
    merchant: &Identifier,
    headers: &HeaderMap,
) -> Result<Option<IdempotencyKey>> {
    let token = single(headers, &SUBMIT_TOKEN).map_err(|Repeated| {
        Problem::new(Code::TokenInvalid, "the Submit-Token header occurs twice")
    })?;
    match (one_key(headers)?, token) {
        (Some(_), Some(_)) => Err(two_keys()),
        (None, Some(token)) => {
            let token = String::from_utf8_lossy(token);
            key_of_token(app, merchant, &token).map(Some)
        }
        (key, None) => Ok(key),
    }
}

fn key_of_token(app: &App, merchant: &Identifier, token: &str) -> Result<IdempotencyKey> {
    let secret = app.config.token_secret()?;
    let token = SubmitToken::verify(secret, merchant, token.trim())
        .map_err(|error| Problem::new(Code::TokenInvalid, error.to_string()))?;
    Ok(IdempotencyKey::of_token(&token))
}

struct Repeated;

/// The value of a header that may occur once.
fn single<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> std::result::Result<Option<&'a [u8]>, Repeated> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(Repeated),
        (value, None) => Ok(value.map(|value| value.as_bytes())),
    }
}

/// The key in the header or its alias.
fn one_key(headers: &HeaderMap) -> Result<Option<IdempotencyKey>> {
    let invalid = |detail: String| Problem::new(Code::IdempotencyKeyInvalid, detail);
    let parse = |name: &HeaderName| match single(headers, name) {
        Err(Repeated) => Err(invalid(format!("the header {name} occurs twice"))),
        Ok(None) => Ok(None),
        Ok(Some(value)) => IdempotencyKey::parse(value)
            .map(Some)
            .map_err(|error| invalid(error.to_string())),
    };
    match (parse(&IDEMPOTENCY_KEY)?, parse(&IDEMPOTENCY_KEY_ALIAS)?) {
        (Some(key), Some(alias)) if key != alias => Err(invalid(format!(
            "{IDEMPOTENCY_KEY} and {IDEMPOTENCY_KEY_ALIAS} differ"
        ))),
        (key, alias) => Ok(key.or(alias)),
    }
}

/// `Prefer: wait=SECONDS` (RFC 7240, section 4.3) in milliseconds. The first one counts; what cannot be
/// understood is ignored.
fn preferred_wait_ms(headers: &HeaderMap) -> Option<u64> {
    let values = headers
        .get_all(PREFER)
        .iter()
        .filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .find_map(|preference| {
            let preference = preference.split(';').next()?;
            let (name, seconds) = preference.split_once('=')?;
            let seconds = seconds.trim().trim_matches('"');
            (name.trim().eq_ignore_ascii_case("wait")).then_some(())?;
            seconds
                .parse::<u32>()
                .ok()
                .map(|seconds| u64::from(seconds).saturating_mul(1000))
        })
}

async fn read_body(headers: &HeaderMap, body: axum::body::Body) -> Result<Value> {
    let too_large = || {
        Problem::new(
            Code::BodyTooLarge,
            format!("a body has at most {BODY_LIMIT} bytes"),
        )
    };
    let announced = match headers.get(CONTENT_LENGTH).map(|length| length.to_str()) {
        // What is too large for a number is too large.
        Some(Ok(length)) => Some(length.parse().unwrap_or(usize::MAX)),
        _ => None,
    };
    if announced.is_some_and(|length| length > BODY_LIMIT) {
        return Err(too_large());
    }
    let mut body = Limited::new(body, BODY_LIMIT);
    let mut bytes = Vec::with_capacity(announced.unwrap_or(0));
    // Reading on to see the end of what is complete would cost a turn of the host.
    while announced != Some(bytes.len()) {
        match body.frame().await.transpose() {
            Ok(Some(frame)) => bytes.extend_from_slice(frame.data_ref().map_or(&[], AsRef::as_ref)),
            Ok(None) => break,
            Err(error) if error.is::<LengthLimitError>() => return Err(too_large()),
            Err(_) => return Err(Problem::new(Code::BodyInvalid, "the body ended early")),
        }
    }
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    if !is_json(headers) {
        let detail = "send the body as application/json in UTF-8";
        return Err(Problem::new(Code::MediaTypeUnsupported, detail));
    }
    let invalid = |detail| Problem::at(Code::BodyInvalid, "", detail);
    match serde_json::from_slice(&bytes) {
        // Structs would be read from arrays too.
        Ok(StrictJson(body)) if body.is_object() => Ok(body),
        Ok(_) => Err(invalid("the body is not a JSON object".to_owned())),
        Err(error) => Err(invalid(format!("the body is not valid JSON: {error}"))),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let Ok(Some(value)) = single(headers, &CONTENT_TYPE) else {
        return false;
    };
    let Ok(value) = str::from_utf8(value) else {
        return false;
    };
    let mut parts = value.split(';').map(str::trim);
    let is_json = parts
        .next()
        .is_some_and(|essence| essence.eq_ignore_ascii_case("application/json"));
    is_json
        && parts.all(|parameter| match parameter.split_once('=') {
            Some((name, charset)) if name.eq_ignore_ascii_case("charset") => {
                charset.trim_matches('"').eq_ignore_ascii_case("utf-8")
            }
            _ => true,
        })
}

/// A fault in the body, with a JSON pointer (RFC 6901) to it.
fn body_fault(error: &serde_path_to_error::Error<serde_json::Error>) -> Problem {
    let mut pointer = String::new();
    for segment in error.path() {
        match segment {
            Segment::Map { key } => {
                pointer.extend(["/", &key.replace('~', "~0").replace('/', "~1")])
            }
            Segment::Seq { index } => pointer.extend(["/", &index.to_string()]),
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    let detail = error.inner().to_string();
    // A field that is not there has no path of its own.
    if let Some(field) = detail
        .strip_prefix("missing field `")
        .and_then(|rest| rest.split('`').next())
    {
        pointer.extend(["/", field]);
    }
    Problem::at(Code::BodyInvalid, pointer, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect()
    }

    #[test]
    fn prefer_wait_is_read_among_other_preferences() {
        let wait = |pairs: &[(&'static str, &'static str)]| preferred_wait_ms(&headers(pairs));
        assert_eq!(wait(&[("prefer", "wait=5")]), Some(5000));
        assert_eq!(
            wait(&[("prefer", "respond-async, Wait = \"0\"; x=1")]),
            Some(0)
        );
        for ignored in ["wait", "wait=-1", "wait=x", "waiting=3", "handling=strict"] {
            assert_eq!(wait(&[("prefer", ignored)]), None, "{ignored}");
        }
        assert_eq!(wait(&[]), None);
    }

    #[test]
    fn only_json_in_utf_8_is_a_body() {
        let is = |value| is_json(&headers(&[("content-type", value)]));
        assert!(
            is("application/json")
                && is("Application/JSON; charset=UTF-8")
                && is("application/json;v=1")
        );
        assert!(
            !is("text/plain")
                && !is("application/json; charset=latin1")
                && !is("application/jsonx")
        );
        assert!(!is_json(&HeaderMap::new()));
    }
}
