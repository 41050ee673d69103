//! `GET /openapi.json`: the contract as an OpenAPI document.
//!
//! It is written by hand, and kept true from both sides: the tests here hold it against the router and
//! the error codes, the black-box tests hold every answer that they get against it.

use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, StatusCode};
use sha2::{Digest, Sha256};

const DOCUMENT: &str = include_str!("../../openapi.json");

/// `GET /openapi.json`: 200 with the document, 304 where the client has it.
pub(crate) async fn document(headers: HeaderMap) -> Response {
    let etag = format!("\"{}\"", URL_SAFE_NO_PAD.encode(Sha256::digest(DOCUMENT)));
    // Asking whether it is still the same is cheap, and an old contract is expensive.
    let caching = [(ETAG, etag.as_str()), (CACHE_CONTROL, "no-cache")];
    if has(&headers, &etag) {
        return (StatusCode::NOT_MODIFIED, caching).into_response();
    }
    (caching, [(CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}

/// Whether the client has the version of this `ETag` (RFC 9110, section 13.1.2).
fn has(headers: &HeaderMap, etag: &str) -> bool {
    let values = headers.get_all(IF_NONE_MATCH).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        // A proxy that compresses makes it a weak one.
        .map(|tag| tag.trim().trim_start_matches("W/"))
        .any(|tag| tag == "*" || tag == etag)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::domain::{Code, Problem};
    use http::HeaderValue;
    use serde_json::{Map, Value};

    fn parsed() -> Value {
        serde_json::from_str(DOCUMENT).unwrap()
    }

    fn members<'a>(document: &'a Value, pointer: &str) -> &'a Map<String, Value> {
        document.pointer(pointer).unwrap().as_object().unwrap()
    }

    /// The methods are compared over HTTP, where a path names its own in `Allow`.
    #[test]
    fn the_document_has_the_paths_of_the_router() {
        let document = parsed();
        let documented: BTreeSet<&str> = members(&document, "/paths")
            .keys()
            .map(String::as_str)
            .collect();
        let routed = super::super::routes().map(|(path, _)| path);
        assert_eq!(documented, BTreeSet::from(routed));
    }

    #[test]
    fn every_error_code_has_an_example_that_is_true() {
        let document = parsed();
        let examples = members(&document, "/components/examples");
        assert_eq!(examples.len(), Code::ALL.len());
        for code in Code::ALL {
            let example = &examples[code.name()]["value"];
            assert_eq!(example["code"], code.name());
            assert_eq!(example["type"], format!("/problems/{}", code.name()));
            assert_eq!(example["title"], code.title());
            assert_eq!(example["status"], code.status());
            let retryable = Problem::new(code, "").retry_after.is_some();
            assert_eq!(example["retryable"], retryable, "{}", code.name());
        }
    }

    #[test]
    fn every_error_code_is_the_answer_to_something() {
        let document = parsed();
        let mut answered = BTreeSet::new();
        for response in members(&document, "/components/responses").values() {
            let content = &response["content"]["application/problem+json"];
            let narrowed = &content["schema"]["allOf"][1]["properties"];
            let codes = narrowed["code"]["enum"].as_array().unwrap();
            let examples: Vec<&String> = content["examples"].as_object().unwrap().keys().collect();
            assert_eq!(examples.len(), codes.len(), "{response}");
            for code in codes {
                let code = Code::from_name(code.as_str().unwrap()).unwrap();
                assert_eq!(narrowed["status"]["const"], code.status(), "{response}");
                answered.insert(code.name());
            }
        }
        assert_eq!(answered, BTreeSet::from(Code::ALL.map(Code::name)));
    }

    #[test]
    fn every_operation_of_a_queue_is_documented() {
        let document = parsed();
        let documented = document.pointer("/components/schemas/CloudEvent/properties/type/enum");
        let documented: BTreeSet<&str> = documented
            .and_then(Value::as_array)
            .unwrap()
            .iter()
            .filter_map(|name| {
                name.as_str()?
                    .strip_prefix(super::super::routes::events::PREFIX)
            })
            .collect();
        let read = super::super::routes::events::READERS.map(|(name, _)| name);
        assert_eq!(documented, BTreeSet::from(read));
    }

    #[test]
    fn the_version_is_that_of_the_component() {
        assert_eq!(parsed()["info"]["version"], env!("CARGO_PKG_VERSION"));
    }

    #[test]
    fn a_copy_is_recognised_by_its_tag() {
        let has = |value: &'static str| {
            let pair = (IF_NONE_MATCH, HeaderValue::from_static(value));
            super::has(&[pair].into_iter().collect(), "\"x\"")
        };
        for good in ["\"x\"", "W/\"x\"", "\"y\", \"x\"", "*"] {
            assert!(has(good), "{good}");
        }
        for bad in ["", "x", "\"y\""] {
            assert!(!has(bad), "{bad}");
        }
    }
}
