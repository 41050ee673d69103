//! The OpenAPI document: served, complete, and true. That answers are as it says is asserted for every
//! answer of this suite, where the client receives it.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::document::{DOCUMENT, TEXT, escaped, faults, followed};
use crate::target::stranger;

/// Contract, Routes: open to all.
#[tokio::test]
async fn the_document_is_served_to_anybody() {
    let served = stranger().get("/openapi.json").send().await;
    assert_eq!(served.ok(200)["openapi"], "3.1.1");
    assert!(served.text() == TEXT, "another document is served");
}

/// RFC 9110, section 13.1.2: who has the document does not get it again.
#[tokio::test]
async fn the_document_is_not_sent_to_those_who_have_it() {
    let call = stranger().get("/openapi.json");
    let first = call.clone().send().await;
    let tag = first.header("etag").expect("ETag");
    let again = call.clone().header("if-none-match", tag).send().await;
    assert!(again.status(304).body.is_empty());
    assert_eq!(again.header("etag"), Some(tag));
    let other = call.header("if-none-match", "\"other\"").send().await;
    assert_eq!(other.status(200).text(), first.text());
}

/// Every example is one of what it is an example of.
#[test]
fn examples_fit_their_schemas() {
    let mut seen = 0;
    let mut check = |schema: &str, example: &Value| {
        let faults = faults(schema, example);
        assert!(faults.is_empty(), "{schema}: {faults:?} in {example}");
        seen += 1;
    };
    each(&DOCUMENT, String::new(), &mut |pointer, value| {
        // Media types, parameters and headers have a schema, with examples beside it or in it.
        if let Some(example) = value.get("example") {
            check(&format!("{pointer}/schema"), example);
        }
        match value.get("examples") {
            Some(Value::Object(named)) if value.get("schema").is_some() => {
                for name in named.keys() {
                    let example = followed(&format!("{pointer}/examples/{name}"));
                    let example = format!("{}/value", example.expect("an example"));
                    let example = DOCUMENT.pointer(&example).expect("its value");
                    check(&format!("{pointer}/schema"), example);
                }
            }
            Some(Value::Array(of_schema)) => {
                for example in of_schema {
                    check(pointer, example);
                }
            }
            _ => {}
        }
    });
    assert!(seen > 100, "only {seen} examples were found");
}

/// A schema that says what there is says that there is no more: a member that nobody documented, or that
/// is missing, would be noticed.
#[test]
fn schemas_notice_what_is_not_documented() {
    let schemas = DOCUMENT["components"]["schemas"].as_object();
    for (name, schema) in schemas.expect("schemas") {
        let pointer = format!("/components/schemas/{name}");
        let example = &schema["examples"][0];
        if schema["additionalProperties"] != false || !example.is_object() {
            continue;
        }
        let mut more = example.clone();
        more["undocumented"] = Value::Null;
        assert!(!faults(&pointer, &more).is_empty(), "{name}");
        for required in schema["required"].as_array().into_iter().flatten() {
            let mut less = example.clone();
            let members = less.as_object_mut().expect("an object");
            members.remove(required.as_str().expect("a name"));
            assert!(!faults(&pointer, &less).is_empty(), "{name}: {required}");
        }
    }
}

/// Every reference leads somewhere, and every component is referred to.
#[test]
fn references_lead_to_components_and_components_are_used() {
    let mut used = BTreeSet::from([
        // Of methods that no path documents.
        "/components/responses/MethodNotAllowed".to_owned(),
    ]);
    each(&DOCUMENT, String::new(), &mut |pointer, value| {
        if let Some(Value::String(reference)) = value.get("$ref") {
            let target = reference.trim_start_matches('#');
            assert!(DOCUMENT.pointer(target).is_some(), "{pointer}: {reference}");
            used.insert(target.to_owned());
        }
        if let Some(Value::Array(alternatives)) = value.get("security") {
            let names = alternatives.iter().filter_map(Value::as_object);
            for name in names.flat_map(|alternative| alternative.keys()) {
                used.insert(format!("/components/securitySchemes/{name}"));
            }
        }
    });
    let components = DOCUMENT["components"].as_object().expect("components");
    for (kind, components) in components {
        for name in components.as_object().expect("components").keys() {
            let pointer = format!("/components/{kind}/{}", escaped(name));
            assert!(used.contains(&pointer), "{pointer} is not used");
        }
    }
}

/// An operation is complete: it has a name of its own, says who may call it, and has each parameter of
/// its path.
#[test]
fn operations_are_complete() {
    let mut names = BTreeSet::new();
    for (template, operations) in DOCUMENT["paths"].as_object().expect("paths") {
        for (method, operation) in operations.as_object().expect("operations") {
            let called = format!("{method} {template}");
            let name = operation["operationId"].as_str().expect(&called);
            assert!(names.insert(name), "{called}: {name} is taken");
            let scheme = match template.split('/').nth(1) {
                // The signature is over the body, which no scheme of OpenAPI can say.
                _ if template.starts_with("/v1/webhooks/") => None,
                Some("v1") => Some("merchant"),
                Some("admin") => Some("admin"),
                _ => None,
            };
            let security = operation["security"].as_array().expect(&called);
            let named = security
                .iter()
                .flat_map(|one| one.as_object().expect(&called).keys());
            assert!(named.eq(scheme), "{called}");
            let parameters = operation["parameters"].as_array().map_or(0, Vec::len);
            let in_path = (0..parameters).filter_map(|number| {
                let pointer = format!("/paths/{}/{method}/parameters/{number}", escaped(template));
                let parameter = DOCUMENT.pointer(&followed(&pointer)?)?;
                (parameter["in"] == "path").then(|| parameter["name"].as_str().expect(&called))
            });
            let segments = template.split('/');
            let wanted =
                segments.filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
            assert!(in_path.eq(wanted), "{called}");
        }
    }
}

/// Calls `visit` with every object of a document and the pointer to it.
fn each(value: &Value, pointer: String, visit: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(members) => {
            visit(&pointer, value);
            for (name, member) in members {
                // What stands in an example or a default is no part of the document.
                if !matches!(name.as_str(), "example" | "default" | "value") {
                    each(member, format!("{pointer}/{}", escaped(name)), visit);
                }
            }
        }
        Value::Array(items) if !pointer.ends_with("/examples") => {
            for (number, item) in items.iter().enumerate() {
                each(item, format!("{pointer}/{number}"), visit);
            }
        }
        _ => {}
    }
}
