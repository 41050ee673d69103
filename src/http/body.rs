//! Request bodies: read within their limit, strict JSON, and faults that are pointed at.

use axum::body::Body as Incoming;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use serde_path_to_error::Segment;

use super::headers::media_type;
use super::respond::Result;
use super::strict_json::StrictJson;
use crate::domain::{Code, Problem};

/// The most bytes of a request body.
const BODY_LIMIT: usize = 64 * 1024;

/// The JSON object in the body of a request.
#[derive(Clone, Debug)]
pub(super) struct Body {
    /// An object, and the empty one where there is no body.
    json: Value,
    present: bool,
}

impl Body {
    /// No body.
    pub fn none() -> Self {
        Self {
            json: Value::Object(Map::new()),
            present: false,
        }
    }

    /// Reads the body of a request, which is a JSON object or empty.
    pub async fn read(headers: &HeaderMap, body: Incoming) -> Result<Self> {
        let bytes = read_bytes(headers, body).await?;
        if !bytes.is_empty() && media_type(headers).as_deref() != Some("application/json") {
            let detail = "send the body as application/json in UTF-8";
            return Err(Problem::new(Code::MediaTypeUnsupported, detail));
        }
        Self::parse(&bytes)
    }

    /// The body in these bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        if bytes.is_empty() {
            return Ok(Self::none());
        }
        let StrictJson(json) = serde_json::from_slice(bytes).map_err(|error| {
            let detail = format!("the body is not valid JSON: {error}");
            Problem::at(Code::BodyInvalid, "", detail)
        })?;
        Self::of(json)
    }

    /// A body of this value.
    pub fn of(json: Value) -> Result<Self> {
        // Structs would be read from arrays too.
        if json.is_object() {
            let present = true;
            Ok(Self { json, present })
        } else {
            let detail = "the body is not a JSON object";
            Err(Problem::at(Code::BodyInvalid, "", detail))
        }
    }

    /// The body as a `T`; unknown fields are the business of `T`.
    pub fn required<T: DeserializeOwned>(&self) -> Result<T> {
        if self.present {
            return self.optional();
        }
        let detail = "a JSON object is required as the body";
        Err(Problem::at(Code::BodyInvalid, "", detail))
    }

    /// The body as a `T`, where no body and the empty object mean the same.
    pub fn optional<T: DeserializeOwned>(&self) -> Result<T> {
        serde_path_to_error::deserialize(&self.json).map_err(|error| body_fault(&error))
    }

    /// The body as it was sent.
    pub fn json(&self) -> &Value {
        &self.json
    }

    /// Adds a text field unless it has one of that name.
    pub fn add(&mut self, field: &str, text: &str) {
        if let Some(fields) = self.json.as_object_mut() {
            fields.entry(field).or_insert_with(|| text.into());
            self.present = true;
        }
    }

    /// Takes a field out of it.
    pub fn take(&mut self, field: &str) -> Option<Value> {
        self.json.as_object_mut()?.remove(field)
    }
}

/// Reads a body within its limit. One that is encoded is not read: its limit would say nothing, and a body that
/// only claims to be encoded is another one to whoever decodes it.
pub(super) async fn read_bytes(headers: &HeaderMap, body: Incoming) -> Result<Vec<u8>> {
    let mut encodings = headers.get_all(CONTENT_ENCODING).iter();
    if encodings.any(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        let detail = "a body is taken as it is, without Content-Encoding";
        return Err(Problem::new(Code::MediaTypeUnsupported, detail));
    }
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
    Ok(bytes)
}

/// The JSON pointer (RFC 6901) to a member of the body.
pub(super) fn pointer_to(member: &str) -> String {
    format!("/{}", member.replace('~', "~0").replace('/', "~1"))
}

/// A fault in the body, with a JSON pointer (RFC 6901) to it.
fn body_fault(error: &serde_path_to_error::Error<serde_json::Error>) -> Problem {
    let mut pointer = String::new();
    for segment in error.path() {
        match segment {
            Segment::Map { key } => pointer.push_str(&pointer_to(key)),
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

#[cfg(any(test, fuzzing))]
pub(super) mod fuzz {
    use super::*;

    /// Any bytes are an object, which is returned, or refused.
    pub fn object_or_refused(bytes: &[u8]) -> Option<Body> {
        match Body::parse(bytes) {
            Ok(body) => {
                assert!(body.json().is_object());
                Some(body)
            }
            Err(problem) => {
                assert_eq!(problem.code, Code::BodyInvalid);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hostile::{hostile, json};

    proptest! {
        #[test]
        fn a_hostile_text_is_an_object_or_refused(
            text in hostile(json().prop_map(|value| value.to_string())),
        ) {
            fuzz::object_or_refused(&text);
        }
    }
}
