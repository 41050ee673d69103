//! `openapi.json`, against which every answer is held that a test receives: status, headers, media type
//! and body have to be documented, and so has the body of every request that was accepted.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use jsonschema::Validator;
use reqwest::Method;
use serde_json::{Value, json};

use super::answer::{Answer, media_type};

/// The document as it is checked in.
pub const TEXT: &str = include_str!("../../openapi.json");

/// The document, read.
pub static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(TEXT).expect("openapi.json is JSON"));

/// Headers that mean something in the contract: none comes where it is not documented.
const HEADERS: [&str; 6] = [
    "allow",
    "etag",
    "idempotent-replayed",
    "location",
    "retry-after",
    "www-authenticate",
];

/// The documented paths that begin so, with a name for each parameter, and their methods.
pub fn routes(beginning: &str) -> Vec<(String, Vec<Method>)> {
    let paths = DOCUMENT["paths"].as_object().expect("paths").iter();
    let paths = paths.filter(|(template, _)| template.starts_with(beginning));
    paths
        .map(|(template, operations)| {
            let segment = |segment: &str| match segment {
                "{code}" => "not_found".to_owned(),
                parameter if parameter.starts_with('{') => "x".to_owned(),
                literal => literal.to_owned(),
            };
            let path: Vec<String> = template.split('/').map(segment).collect();
            let operations = operations.as_object().expect("operations").keys();
            let method = |name: &String| name.to_ascii_uppercase().parse().expect("a method");
            (path.join("/"), operations.map(method).collect())
        })
        .collect()
}

/// Asserts that an answer is documented for its request, of which `sent` is media type and body.
///
/// # Panics
/// When it is not.
pub fn check(method: &Method, path: &str, sent: Option<(&str, &[u8])>, answer: &Answer) {
    let called = format!("{method} {path} -> {} {}", answer.status, answer.text());
    let Some(operation) = operation(method, path) else {
        let response = match answer.status {
            405 => "/components/responses/MethodNotAllowed",
            _ => "/components/responses/NotFound",
        };
        return check_response(response, method, &called, answer);
    };
    let response = followed(&format!("{operation}/responses/{}", answer.status))
        .unwrap_or_else(|| panic!("the status is not documented: {called}"));
    check_response(&response, method, &called, answer);
    if let Some((media_type, body)) = sent
        && (200..300).contains(&answer.status)
        && !body.is_empty()
    {
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        let essence = escaped(&essence.to_ascii_lowercase());
        let content = format!("{operation}/requestBody/content/{essence}");
        let body = serde_json::from_slice(body).expect("JSON was accepted");
        let faults = faults(&format!("{content}/schema"), &body);
        assert!(faults.is_empty(), "accepted {body}: {faults:?} {called}");
    }
}

/// Where the document has an operation, if it has it. `HEAD` is `GET` without the body.
fn operation(method: &Method, path: &str) -> Option<String> {
    let paths = DOCUMENT["paths"].as_object().expect("paths");
    let template = paths.keys().find(|template| fits(template, path))?;
    let method = if method == Method::HEAD {
        "get".to_owned()
    } else {
        method.as_str().to_ascii_lowercase()
    };
    followed(&format!("/paths/{}/{method}", escaped(template)))
}

/// Whether a path is one of a template, in which `{…}` stands for a segment.
fn fits(template: &str, path: &str) -> bool {
    let (mut template, mut path) = (template.split('/'), path.split('/'));
    loop {
        match (template.next(), path.next()) {
            (None, None) => return true,
            (Some(wanted), Some(found))
                if wanted == found || (wanted.starts_with('{') && !found.is_empty()) => {}
            _ => return false,
        }
    }
}

/// Asserts that an answer is the documented response at a pointer.
fn check_response(pointer: &str, method: &Method, called: &str, answer: &Answer) {
    let response = DOCUMENT.pointer(pointer).expect("a response");
    let none = serde_json::Map::new();
    let documented = response["headers"].as_object().unwrap_or(&none);
    for name in HEADERS {
        let documented = documented.keys().any(|key| key.eq_ignore_ascii_case(name));
        let there = answer.headers.contains_key(name);
        assert!(documented || !there, "undocumented {name}: {called}");
    }
    for name in documented.keys() {
        let header = followed(&format!("{pointer}/headers/{name}")).expect("a header");
        match answer.header(name) {
            Some(text) => {
                let value = text
                    .parse::<u64>()
                    .map_or(json!(text), |number| json!(number));
                let faults = faults(&format!("{header}/schema"), &value);
                assert!(faults.is_empty(), "{name}: {faults:?} {called}");
            }
            None => {
                let required = DOCUMENT.pointer(&format!("{header}/required"));
                assert_ne!(required, Some(&Value::Bool(true)), "no {name}: {called}");
            }
        }
    }
    let Some(content) = response.get("content") else {
        return assert!(answer.body.is_empty(), "an undocumented body: {called}");
    };
    let media_type = media_type(answer);
    assert!(
        content.get(&media_type).is_some(),
        "{media_type} is not documented: {called}"
    );
    if media_type.ends_with("json") && method != Method::HEAD {
        let schema = format!("{pointer}/content/{}/schema", escaped(&media_type));
        let faults = faults(&schema, &answer.json());
        assert!(faults.is_empty(), "{faults:?} {called}");
    }
}

/// What is wrong with a value by the schema at a pointer.
pub fn faults(pointer: &str, value: &Value) -> Vec<String> {
    static VALIDATORS: Mutex<Option<HashMap<String, &Validator>>> = Mutex::new(None);
    let validator: &Validator = {
        // A schema that does not compile fails its own test only.
        let mut validators = VALIDATORS.lock().unwrap_or_else(PoisonError::into_inner);
        let validators = validators.get_or_insert_default();
        validators
            .entry(pointer.to_owned())
            .or_insert_with(|| Box::leak(Box::new(compiled(pointer))))
    };
    let faults = validator.iter_errors(value);
    faults
        .map(|fault| format!("{}: {fault}", fault.instance_path()))
        .collect()
}

/// The schema at a pointer. What it refers to stands where it does in the document.
fn compiled(pointer: &str) -> Validator {
    let schema = DOCUMENT.pointer(pointer);
    let schema = schema.unwrap_or_else(|| panic!("there is no {pointer} in openapi.json"));
    let schemas = &DOCUMENT["components"]["schemas"];
    let schema = json!({"allOf": [schema], "components": {"schemas": schemas}});
    let validator = jsonschema::draft202012::new(&schema);
    validator.unwrap_or_else(|error| panic!("{pointer}: {error}"))
}

/// The pointer to what is at a pointer, behind a reference if there is one.
pub fn followed(pointer: &str) -> Option<String> {
    let found = DOCUMENT.pointer(pointer)?;
    Some(match found.get("$ref") {
        Some(reference) => reference.as_str()?.trim_start_matches('#').to_owned(),
        None => pointer.to_owned(),
    })
}

/// A name as a segment of a JSON pointer (RFC 6901).
pub fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}
