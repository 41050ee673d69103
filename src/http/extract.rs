//! Requests, parsed: who asks, what for, and under which key.

use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::response::IntoResponse;
use futures::future;
use http::header::AUTHORIZATION;
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use serde::de::DeserializeOwned;

use super::App;
use super::body::Body;
use super::headers::{Repeated, single};
use super::intent::Intent;
use super::respond::Result;
use super::trace::Trace;
use crate::domain::{Code, Identifier, Problem};
use crate::idempotency::{self, IdempotencyKey, Peek, SubmitToken, fingerprint};
use crate::runtime;

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

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Instruction<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self> {
        let (mut parts, body) = request.into_parts();
        Admin::from_request_parts(&mut parts, app).await?;
        Body::read(&parts.headers, body).await?.optional().map(Self)
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
    pub body: Body,
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
        let (key, body) = future::join(peek, Body::read(&parts.headers, body)).await;
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
    /// A request whose intent brings the key, and whose body was read elsewhere.
    ///
    /// # Errors
    ///
    /// `idempotency_key_invalid` where the headers name a key or a token all the same.
    pub fn without_key(
        app: &Arc<App>,
        merchant: Identifier,
        parts: Parts,
        body: Body,
    ) -> Result<Self> {
        let names = [IDEMPOTENCY_KEY, IDEMPOTENCY_KEY_ALIAS, SUBMIT_TOKEN];
        if let Some(name) = names.iter().find(|name| parts.headers.contains_key(*name)) {
            let detail = format!("this request brings its own key: leave out the header {name}");
            return Err(Problem::new(Code::IdempotencyKeyInvalid, detail));
        }
        Ok(Self {
            app: Arc::clone(app),
            merchant,
            trace: trace(&parts),
            headers: parts.headers,
            key: Ok(None),
            body,
            token_in_body: None,
        })
    }

    /// Takes a submit token out of the body: it is no part of the fingerprint.
    pub fn take_token(&mut self) {
        let token = self.body.take("token");
        self.token_in_body = token.and_then(|token| token.as_str().map(str::to_owned));
    }

    /// Does what is intended, at most once.
    pub async fn perform(self, intent: Intent) -> Result {
        let operation = intent.command.operation();
        self.trace.facts().operation = Some(operation);
        let late = matches!(self.key, Ok(None));
        let (key, peek) = match (self.key?, &self.token_in_body) {
            (Some((key, peek)), None) => (key, peek),
            (Some(_), Some(_)) => return Err(two_keys()),
            (None, token) => {
                let token = token
                    .as_deref()
                    .map(|token| key_of_token(&self.app, &self.merchant, token));
                let key = token.transpose()?.or(intent.default_key).ok_or_else(|| {
                    Problem::new(
                        Code::IdempotencyKeyMissing,
                        "send an Idempotency-Key header",
                    )
                })?;
                let peek = self.app.idempotency.peek(&self.merchant, &key).await;
                (key, peek)
            }
        };
        let path = intent.path.as_ref().map(Identifier::as_str);
        let fingerprint = fingerprint(operation, path.as_slice(), self.body.json())
            .map_err(|error| Problem::new(Code::BodyInvalid, error.to_string()))?;
        let config = &self.app.config;
        let wait_ms = preferred_wait_ms(&self.headers)
            .unwrap_or(config.default_wait_ms)
            .min(config.max_wait_ms);
        let request = idempotency::Request {
            merchant: self.merchant,
            key,
            peek,
            fingerprint,
            command: intent.command,
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
    let secrets = app.config.token_secrets()?;
    let token = SubmitToken::verify(secrets, merchant, token.trim())
        .map_err(|error| Problem::new(Code::TokenInvalid, error.to_string()))?;
    Ok(IdempotencyKey::of_token(&token))
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

#[cfg(any(test, fuzzing))]
pub mod fuzz {
    use http::HeaderValue;
    use http::header::CONTENT_TYPE;

    use super::*;
    use crate::http::headers::media_type;

    /// Any bytes in a header are read, ignored or refused: those of `Idempotency-Key` and its alias, `Prefer`,
    /// `Authorization` and `Content-Type`. What is read is read again as the same.
    pub fn header_field(value: &[u8]) {
        idempotency::key_or_refused(value);
        let Ok(value) = HeaderValue::from_bytes(value) else {
            return;
        };
        let in_header =
            |name: HeaderName, value: &HeaderValue| HeaderMap::from_iter([(name, value.clone())]);
        let again = |text: String| HeaderValue::from_maybe_shared(text).expect("a value");

        let key = IdempotencyKey::parse(value.as_bytes()).ok();
        for name in [IDEMPOTENCY_KEY, IDEMPOTENCY_KEY_ALIAS] {
            assert_eq!(one_key(&in_header(name, &value)).ok().flatten(), key);
        }

        if let Some(wait_ms) = preferred_wait_ms(&in_header(PREFER, &value)) {
            let seconds = again(format!("wait={}", wait_ms / 1000));
            assert_eq!(
                preferred_wait_ms(&in_header(PREFER, &seconds)),
                Some(wait_ms)
            );
        }
        if let Some(token) = bearer(&in_header(AUTHORIZATION, &value)) {
            let credentials = again(format!("Bearer {token}"));
            assert_eq!(bearer(&in_header(AUTHORIZATION, &credentials)), Some(token));
        }
        if let Some(essence) = media_type(&in_header(CONTENT_TYPE, &value)) {
            let plain = again(essence.clone());
            assert_eq!(media_type(&in_header(CONTENT_TYPE, &plain)), Some(essence));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hostile::hostile;
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

    proptest! {
        #[test]
        fn a_hostile_header_is_read_ignored_or_refused(
            value in hostile(prop_oneof![
                r#"(wait|Wait)( ?= ?"?[0-9]{1,11}"?)?([,;][ -~]{0,9})?"#,
                "[Bb]earer [!-~]{0,20}",
                r#"application/json(;[ -~]{0,9}|; charset="?[Uu]tf-8"?)?"#,
            ]),
        ) {
            fuzz::header_field(&value);
        }
    }
}
