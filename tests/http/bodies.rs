//! Bodies that are no JSON object of the right kind, and bodies of odd but valid form.

use serde_json::json;

use crate::support::client::order_body;
use crate::support::names::fresh;
use crate::support::shapes;
use crate::target::shop;

const LIMIT: usize = 64 * 1024;

/// Contract, Conventions: JSON in UTF-8; anything else is `body_invalid`.
#[tokio::test]
async fn a_body_that_is_no_json_object_is_refused() {
    let shop = shop();
    let valid = order_body(&fresh("order"), "u", 1).to_string();
    let deep = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
    let deep_member = format!(r#"{{"user_id":"u","amount":1,"currency":"EUR","metadata":{deep}}}"#);
    for body in [
        "",
        " ",
        "null",
        "true",
        "1",
        "\"text\"",
        "[]",
        "[[]]",
        // The fields of an order in their order, as some parsers read an object.
        "[null,\"u\",1,\"EUR\",null]",
        "{",
        "{}}",
        "{'user_id':'u'}",
        "user_id=u&amount=1",
        "{\"user_id\":\"\\ud800\",\"amount\":1,\"currency\":\"EUR\"}",
        "{\"user_id\":\"u\",\"amount\":01,\"currency\":\"EUR\"}",
        "{\"user_id\":\"u\",\"amount\":+1,\"currency\":\"EUR\"}",
        "{\"user_id\":\"u\",\"amount\":NaN,\"currency\":\"EUR\"}",
        "{\"user_id\":\"u\",\"amount\":1,\"currency\":\"EUR\",}",
        "{\"user_id\":\"u\",\"amount\":1,\"currency\":\"EUR\"} x",
        "{\"user_id\":\"u\",\"amount\":1,\"currency\":\"EUR\"}{}",
        "/* */{\"user_id\":\"u\",\"amount\":1,\"currency\":\"EUR\"}",
        &valid[..valid.len() - 1],
        &deep,
        &deep_member,
    ] {
        let answer = shop
            .post("/v1/orders")
            .key(&fresh("k"))
            .text(body)
            .send()
            .await;
        let shown = body.get(..60).unwrap_or(body);
        assert_eq!(answer.status, 400, "{shown}: {}", answer.text());
        answer.problem(400, "body_invalid");
    }
}

/// Contract, Conventions: UTF-8, and nothing that is almost UTF-8.
#[tokio::test]
async fn invalid_utf8_is_refused_wherever_it_stands() {
    let shop = shop();
    let tails: [&[u8]; 6] = [
        b"\xff",
        b"\xc3",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"caf\xe9",
    ];
    for bad in tails {
        let order_no = fresh("order");
        let mut body = format!(
            r#"{{"order_no":"{order_no}","user_id":"u","amount":1,"currency":"EUR","metadata":{{"a":""#
        )
        .into_bytes();
        body.extend_from_slice(bad);
        body.extend_from_slice(b"\"}}");
        let call = shop.post("/v1/orders").key(&fresh("k"));
        let answer = call.bytes("application/json", &body).send().await;
        answer.problem(400, "body_invalid");
        let path = format!("/v1/orders/{order_no}");
        shop.get(&path).send().await.problem(404, "order_not_found");
    }
}

/// Contract, Conventions: duplicate JSON keys are refused, however they are written and however deep.
#[tokio::test]
async fn a_field_that_occurs_twice_is_refused_even_with_equal_values() {
    let shop = shop();
    for (field, body) in [
        (
            "amount",
            r#"{"user_id":"u","amount":1,"amount":100,"currency":"EUR"}"#,
        ),
        (
            "amount",
            r#"{"user_id":"u","amount":1,"amount":1,"currency":"EUR"}"#,
        ),
        (
            "amount",
            r#"{"user_id":"u","amount":1,"currency":"EUR","\u0061mount":1}"#,
        ),
        (
            "note",
            r#"{"user_id":"u","amount":1,"currency":"EUR","metadata":{"note":"a","note":"a"}}"#,
        ),
        (
            "note",
            r#"{"user_id":"u","amount":1,"currency":"EUR","metadata":{"note":"a","n\u006fte":"b"}}"#,
        ),
        (
            "metadata",
            r#"{"user_id":"u","amount":1,"currency":"EUR","metadata":{},"metadata":{}}"#,
        ),
    ] {
        let call = shop.post("/v1/orders").key(&fresh("k")).text(body);
        let answer = call.send().await;
        assert_eq!(answer.status, 400, "{body}: {}", answer.text());
        answer.body_invalid(field);
    }
}

/// Contract, Conventions: other content types are 415.
#[tokio::test]
async fn a_body_of_another_media_type_is_refused() {
    let shop = shop();
    let body = order_body(&fresh("order"), "u", 1).to_string();
    for content_type in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/xml",
        "application/jsonp",
        "text/json2",
        "nonsense",
        "",
    ] {
        let call = shop.post("/v1/orders").key(&fresh("k"));
        let call = call.bytes(content_type, body.as_bytes());
        let answer = call.send().await;
        assert_eq!(answer.status, 415, "{content_type}: {}", answer.text());
        answer.problem(415, "media_type_unsupported");
    }
    let untyped = shop.post("/v1/orders").key(&fresh("k")).text(&body);
    let answer = untyped.untyped().send().await;
    answer.problem(415, "media_type_unsupported");
}

/// A body that is encoded, or says so, is not read: others may read it in another way.
#[tokio::test]
async fn a_body_with_a_content_encoding_is_refused() {
    let shop = shop();
    let body = order_body(&fresh("order"), "u", 1);
    let call = shop.command("/v1/orders", &fresh("k"), &body);
    for encoding in ["gzip", "br", "identity, gzip", "nonsense", ""] {
        let encoded = call.clone().header("content-encoding", encoding);
        encoded.send().await.problem(415, "media_type_unsupported");
    }
    let twice = call.clone().header("content-encoding", "identity");
    let twice = twice.header("content-encoding", "gzip").send().await;
    twice.problem(415, "media_type_unsupported");
    let plain = call.header("content-encoding", "Identity");
    plain.send().await.first(201);
}

/// Contract, Conventions: JSON is named as RFC 9110 lets a client name it.
#[tokio::test]
async fn json_with_parameters_or_in_capitals_is_json() {
    let shop = shop();
    for content_type in [
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        "Application/JSON",
    ] {
        let body = order_body(&fresh("order"), "u", 1).to_string();
        let call = shop.post("/v1/orders").key(&fresh("k"));
        let answer = call.bytes(content_type, body.as_bytes()).send().await;
        shapes::order(&answer.first(201));
    }
}

/// Contract, Conventions: the limit is 64 KiB, announced or not.
#[tokio::test]
async fn a_body_of_sixty_four_kib_passes_and_one_byte_more_does_not() {
    let shop = shop();
    let padded = |size: usize| {
        let order_no = fresh("order");
        let body = order_body(&order_no, "u", 1).to_string();
        let call = shop.post("/v1/orders").key(&fresh("k"));
        let padding = " ".repeat(size - body.len());
        (order_no, call.text(&format!("{body}{padding}")))
    };
    let (_, call) = padded(LIMIT);
    call.send().await.first(201);
    let (_, call) = padded(LIMIT);
    call.send_chunked().await.first(201);
    for size in [LIMIT + 1, LIMIT * 3] {
        let (order_no, call) = padded(size);
        call.clone().send().await.problem(413, "body_too_large");
        call.send_chunked().await.problem(413, "body_too_large");
        let path = format!("/v1/orders/{order_no}");
        shop.get(&path).send().await.problem(404, "order_not_found");
    }
}

/// Contract, Routes: the body of `POST /v1/tokens` may be missing or empty, no more.
#[tokio::test]
async fn a_token_needs_no_body() {
    let shop = shop();
    let none = shop.post("/v1/tokens").send().await;
    shapes::token(&none.first(201));
    let empty = shop.post("/v1/tokens").json(&json!({})).send().await;
    shapes::token(&empty.first(201));
    let list = shop.post("/v1/tokens").text("[]").send().await;
    list.problem(400, "body_invalid");
}

/// R11: key order, white space and escapes of the JSON do not make another request.
#[tokio::test]
async fn the_same_json_in_another_form_is_the_same_request() {
    let shop = shop();
    let (order_no, key) = (fresh("order"), fresh("k"));
    let first = format!(
        r#"{{"order_no":"{order_no}","user_id":"u","amount":100,"currency":"EUR","metadata":{{"b":"1","a":"é"}}}}"#
    );
    let call = |body: &str| shop.post("/v1/orders").key(&key).text(body);
    let answer = call(&first).send().await;
    answer.first(201);
    for other in [
        format!(
            r#"{{"metadata":{{"a":"é","b":"1"}},"currency":"EUR","amount":100,"user_id":"u","order_no":"{order_no}"}}"#
        ),
        format!(
            "\r\n{{ \"currency\" : \"E\\u0055R\",\t\"amount\":100, \"user_id\":\"\\u0075\",\n\"order_no\":\"{order_no}\", \"metadata\": {{\"a\":\"\\u00e9\",\"b\":\"1\"}} }}\n"
        ),
    ] {
        call(&other).send().await.replays(&answer);
    }
    // Characters that only look the same are other characters.
    let decomposed = first.replace('é', "e\u{301}");
    let reused = call(&decomposed).send().await;
    reused.problem(422, "idempotency_key_reused");
}
