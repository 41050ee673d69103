//! CloudEvents 1.0 over HTTP: structured mode, where the body is the event, and binary mode, where the
//! body is its data and the rest is in headers (CloudEvents, HTTP protocol binding 1.0.2, section 3).

use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;
use serde::Deserialize;

use super::App;
use super::body::{Body, pointer_to, read_bytes};
use super::extract::{Merchant, Submission};
use super::headers::{Repeated, media_type, single};
use super::respond::Result;
use crate::domain::{Code, Problem};

/// The most bytes of an attribute.
const ATTRIBUTE_LIMIT: usize = 1024;

/// An event, with its data as the body of a request.
pub(super) struct CloudEvent {
    /// Without white space.
    pub source: String,
    pub id: String,
    /// The attribute `type`.
    pub kind: String,
    pub subject: Option<String>,
    pub structured: bool,
    pub submission: Submission,
}

/// The attributes that mean something here. Others, such as `time` and extensions, are for whoever
/// transports the event.
#[derive(Debug, Deserialize, PartialEq, Eq)]
struct Attributes {
    specversion: String,
    id: String,
    source: String,
    #[serde(rename = "type")]
    kind: String,
    subject: Option<String>,
}

/// The members of a structured event that say how its data is written.
#[derive(Debug, Deserialize)]
struct Data {
    datacontenttype: Option<String>,
    data_base64: Option<String>,
}

impl FromRequest<Arc<App>> for CloudEvent {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self> {
        let (mut parts, body) = request.into_parts();
        let Merchant(merchant) = Merchant::from_request_parts(&mut parts, app).await?;
        let media_type = media_type(&parts.headers).unwrap_or_default();
        let structured = media_type.starts_with("application/cloudevents");
        let (attributes, body) = if structured {
            if media_type != "application/cloudevents+json" {
                let detail = "send one event, as application/cloudevents+json in UTF-8";
                return Err(Problem::new(Code::MediaTypeUnsupported, detail));
            }
            structured_event(&read_bytes(&parts.headers, body).await?)?
        } else {
            let attributes = attributes_in_headers(&parts.headers)?;
            (attributes, Body::read(&parts.headers, body).await?)
        };
        let Attributes {
            id,
            source,
            kind,
            subject,
            ..
        } = checked(attributes)?;
        Ok(Self {
            source,
            id,
            kind,
            subject,
            structured,
            submission: Submission::without_key(app, merchant, parts, body)?,
        })
    }
}

/// The event in the body.
fn structured_event(bytes: &[u8]) -> Result<(Attributes, Body)> {
    let mut event = Body::parse(bytes)?;
    let names = event
        .json()
        .as_object()
        .into_iter()
        .flat_map(|event| event.keys());
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    for name in names {
        // A misspelt attribute would pass for an extension.
        if name != "data_base64" && !name.bytes().all(allowed) {
            let detail = format!("{name} is no attribute: they are of a-z and 0-9");
            return Err(Problem::at(Code::BodyInvalid, pointer_to(name), detail));
        }
    }
    // As it was read: `Deserialize` of a `Value` parses the text in an object with a key of `serde_json`'s own.
    let data = event.take("data").filter(|data| !data.is_null());
    let attributes = event.required()?;
    let Data {
        datacontenttype,
        data_base64,
    } = event.required()?;
    if datacontenttype.is_some_and(|data_type| !is_json(&data_type)) {
        let detail = "the datacontenttype is application/json";
        return Err(Problem::new(Code::MediaTypeUnsupported, detail));
    }
    let body = match (data, data_base64) {
        (Some(data), None) => Body::of(data),
        (None, Some(text)) => match STANDARD.decode(text) {
            Ok(bytes) => Body::parse(&bytes),
            Err(error) => {
                let detail = format!("data_base64 is not base64: {error}");
                return Err(Problem::at(Code::BodyInvalid, "/data_base64", detail));
            }
        },
        (None, None) => Ok(Body::none()),
        (Some(_), Some(_)) => {
            let detail = "an event has data or data_base64, and not both";
            return Err(Problem::at(Code::BodyInvalid, "/data_base64", detail));
        }
    };
    Ok((attributes, body.map_err(|problem| problem.below("/data"))?))
}

fn is_json(data_type: &str) -> bool {
    let essence = data_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}

fn attributes_in_headers(headers: &HeaderMap) -> Result<Attributes> {
    let required = |name: &'static str| {
        attribute(headers, name)?.ok_or_else(|| {
            let detail = format!("send an event of CloudEvents 1.0: the header {name} is missing");
            Problem::at(Code::BodyInvalid, format!("#{name}"), detail)
        })
    };
    Ok(Attributes {
        specversion: required("ce-specversion")?,
        id: required("ce-id")?,
        source: required("ce-source")?,
        kind: required("ce-type")?,
        subject: attribute(headers, "ce-subject")?,
    })
}

/// An attribute in a header, which may be quoted and is percent-encoded (section 3.1.3.2).
fn attribute(headers: &HeaderMap, name: &'static str) -> Result<Option<String>> {
    let invalid = |detail: &str| {
        let detail = format!("the header {name} {detail}");
        Problem::at(Code::BodyInvalid, format!("#{name}"), detail)
    };
    let value = single(headers, &HeaderName::from_static(name))
        .map_err(|Repeated| invalid("occurs twice"))?;
    let Some(value) = value else { return Ok(None) };
    let value = str::from_utf8(value).map_err(|_| invalid("is not UTF-8"))?;
    let decoded = percent_decode_str(&unquoted(value))
        .decode_utf8()
        .map_err(|_| invalid("does not encode UTF-8"))?
        .into_owned();
    Ok(Some(decoded))
}

/// The content of a quoted string (RFC 9110, section 5.6.4), or the value as it is.
fn unquoted(value: &str) -> String {
    let Some(quoted) = value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
    else {
        return value.to_owned();
    };
    let mut content = String::with_capacity(quoted.len());
    let mut characters = quoted.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => content.extend(characters.next()),
            other => content.push(other),
        }
    }
    content
}

/// Attributes that this service can work with.
fn checked(attributes: Attributes) -> Result<Attributes> {
    let fault = |name: &str, detail: &str| {
        let detail = format!("the attribute {name} {detail}");
        Err(Problem::new(Code::BodyInvalid, detail))
    };
    if attributes.specversion != "1.0" {
        return fault("specversion", "is 1.0");
    }
    let Attributes {
        id, source, kind, ..
    } = &attributes;
    for (name, text) in [("source", source), ("id", id), ("type", kind)] {
        if !(1..=ATTRIBUTE_LIMIT).contains(&text.len()) || text.contains(char::is_control) {
            return fault(name, "is 1 to 1024 bytes, without control characters");
        }
    }
    // It is a URI reference.
    if attributes.source.contains(char::is_whitespace) {
        return fault("source", "has no white space");
    }
    Ok(attributes)
}

#[cfg(any(test, fuzzing))]
pub mod fuzz {
    use http::HeaderValue;
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
    use serde_json::Value;

    use super::*;

    /// Any bytes are an event that this service can work with, or refused: as the body in structured mode, and as
    /// the lines `ce-id`, `ce-source`, `ce-type` and `ce-subject` in binary mode, where one line more is a second
    /// subject.
    pub fn cloud_event(bytes: &[u8]) {
        structured_or_refused(bytes);
        let names = ["ce-id", "ce-source", "ce-type", "ce-subject", "ce-subject"];
        let mut headers = HeaderMap::new();
        headers.insert("ce-specversion", HeaderValue::from_static("1.0"));
        for (name, line) in names.into_iter().zip(bytes.split(|byte| *byte == b'\n')) {
            if let Ok(value) = HeaderValue::from_bytes(line) {
                headers.append(name, value);
            }
        }
        binary_or_refused(&headers);
    }

    /// Any body is an event whose data is what stands there, or refused.
    pub(super) fn structured_or_refused(bytes: &[u8]) {
        let Ok((attributes, body)) = structured_event(bytes) else {
            return;
        };
        let event = Body::parse(bytes).expect("a body");
        let member = |name| event.json().get(name).filter(|value| !value.is_null());
        match (member("data"), member("data_base64")) {
            (Some(data), None) => assert_eq!(body.json(), data),
            (None, None) => assert_eq!(body.json(), Body::none().json()),
            (_, base64) => assert!(body.json().is_object() && base64.is_some()),
        }
        if let Ok(attributes) = checked(attributes) {
            acceptable(&attributes);
            says_the_same(&attributes, body.json());
        }
    }

    /// Any headers are attributes, or refused.
    pub(super) fn binary_or_refused(headers: &HeaderMap) {
        if let Ok(attributes) = attributes_in_headers(headers).and_then(checked) {
            acceptable(&attributes);
            says_the_same(&attributes, Body::none().json());
        }
    }

    fn acceptable(attributes: &Attributes) {
        let Attributes {
            id, source, kind, ..
        } = attributes;
        for text in [id, source, kind] {
            assert!((1..=ATTRIBUTE_LIMIT).contains(&text.len()));
            assert!(!text.contains(char::is_control));
        }
        assert!(!source.contains(char::is_whitespace));
    }

    /// An event is the same in both modes.
    pub(super) fn says_the_same(attributes: &Attributes, data: &Value) {
        let (read, body) = structured_event(structured(attributes, data).as_bytes())
            .unwrap_or_else(|problem| panic!("{problem:?}"));
        assert_eq!(&read, attributes);
        assert_eq!(body.json(), data);
        assert_eq!(attributes_in_headers(&binary(attributes)), Ok(read));
    }

    pub(super) fn structured(attributes: &Attributes, data: &Value) -> String {
        let Attributes {
            specversion,
            id,
            source,
            kind,
            subject,
        } = attributes;
        let event = serde_json::json!({
            "specversion": specversion, "id": id, "source": source, "type": kind, "subject": subject,
            "data": data,
        });
        event.to_string()
    }

    pub(super) fn binary(attributes: &Attributes) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut insert = |name, text: &str| {
            let encoded = utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
            headers.insert(HeaderName::from_static(name), encoded.parse().unwrap());
        };
        insert("ce-specversion", &attributes.specversion);
        insert("ce-id", &attributes.id);
        insert("ce-source", &attributes.source);
        insert("ce-type", &attributes.kind);
        if let Some(subject) = &attributes.subject {
            insert("ce-subject", subject);
        }
        headers
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::collection::btree_map;
    use proptest::prelude::*;
    use proptest::sample::select;
    use serde_json::Value;

    use super::fuzz::{binary, structured};
    use super::*;
    use crate::hostile::{hostile, json, text};

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |&(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn attributes_in_headers_are_unquoted_and_percent_decoded() {
        let of = |value| attribute(&headers(&[("ce-id", value)]), "ce-id");
        for (value, id) in [
            ("a-1", "a-1"),
            ("Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro € 😀"),
            ("\"a \\\"b\\\" %25\"", "a \"b\" %"),
            ("100%", "100%"),
        ] {
            assert_eq!(of(value), Ok(Some(id.to_owned())), "{value}");
        }
        assert!(of("%FF").is_err());
        assert_eq!(attribute(&headers(&[]), "ce-id"), Ok(None));
        let twice = headers(&[("ce-id", "a"), ("ce-id", "a")]);
        assert!(attribute(&twice, "ce-id").is_err());
    }

    #[test]
    fn a_structured_event_has_its_data_as_json_or_base64() {
        let event = |members: &str| {
            let head = r#""specversion":"1.0","id":"1","source":"/q","type":"t""#;
            structured_event(format!("{{{head}{members}}}").as_bytes())
        };
        for members in [
            r#","data":{"amount":1}"#,
            r#","data_base64":"eyJhbW91bnQiOjF9""#,
            r#","data":{"amount":1},"datacontenttype":"application/json; charset=utf-8""#,
            r#","data":{"amount":1},"time":"2026-11-30T00:00:00Z","traceparent":"x","partition0":7"#,
        ] {
            let (attributes, body) = event(members).unwrap();
            assert_eq!(attributes.source, "/q");
            assert_eq!(body.json(), &serde_json::json!({"amount": 1}), "{members}");
        }
        for none in ["", r#","data":null"#] {
            let (_, body) = event(none).unwrap();
            assert_eq!(body.json(), &serde_json::json!({}));
        }
        for bad in [
            r#","data":[1]"#,
            r#","data":"{}""#,
            r#","data":{},"data_base64":"e30=""#,
            r#","data_base64":"e30""#,
            r#","data_base64":"WzFd""#,
            r#","data":{},"datacontenttype":"text/plain""#,
            r#","Subject":"o1""#,
            r#","order_no":"o1""#,
            r#","id":"2""#,
        ] {
            assert!(event(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn data_with_a_key_of_the_parser_is_data_as_any_other() {
        for data in [
            r#"{"$serde_json::private::RawValue":"{\"a\":1,\"a\":2}"}"#,
            r#"{"a":[{"$serde_json::private::RawValue":"1"}]}"#,
        ] {
            let event = format!(
                r#"{{"specversion":"1.0","id":"1","source":"/q","type":"t","data":{data}}}"#
            );
            let (_, body) = structured_event(event.as_bytes()).unwrap();
            assert_eq!(body.json().to_string(), data);
        }
    }

    fn attributes() -> impl Strategy<Value = Attributes> {
        let subject = proptest::option::of("[ -~é€😀]{0,20}");
        (
            "[ -~é€😀]{1,20}",
            "[!-~é€😀]{1,20}",
            "[ -~é€😀]{1,20}",
            subject,
        )
            .prop_map(|(id, source, kind, subject)| Attributes {
                specversion: "1.0".to_owned(),
                id,
                source,
                kind,
                subject,
            })
    }

    fn object() -> impl Strategy<Value = Value> {
        let members = btree_map(text(), json(), 0..5);
        members.prop_map(|members| Value::Object(members.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn an_event_says_the_same_structured_and_binary(attributes in attributes(), data in object()) {
            let sent = Body::parse(data.to_string().as_bytes()).unwrap();
            fuzz::says_the_same(&attributes, sent.json());
            prop_assert_eq!(checked(attributes).map(drop), Ok(()));
        }

        #[test]
        fn a_hostile_structured_event_is_acceptable_or_refused(
            event in hostile((attributes(), json()).prop_map(|(attributes, data)| structured(&attributes, &data))),
        ) {
            fuzz::structured_or_refused(&event);
        }

        #[test]
        fn a_hostile_binary_event_is_acceptable_or_refused(
            attributes in attributes(),
            name in select(vec!["ce-specversion", "ce-id", "ce-source", "ce-type", "ce-subject"]),
            value in hostile(prop_oneof!["[!-~]{0,20}", "\"[ -~]{0,20}\"", "(%[0-9A-Fa-f]{2}){1,9}"]),
            twice in any::<bool>(),
        ) {
            let mut headers = binary(&attributes);
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                if twice {
                    headers.append(name, value);
                } else {
                    headers.insert(name, value);
                }
            }
            fuzz::binary_or_refused(&headers);
        }
    }
}
