//! Messages: queued once, answered at once.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::client::Call;
use crate::support::names::fresh;
use crate::support::shapes;
use crate::target::{other_shop, shop};

fn sms(text: &str) -> Value {
    json!({"kind": "sms", "to": "+4915112345678", "text": text})
}

/// Contract, Routes and Objects: 202 with the complete message, and the retry repeats it: one message.
#[tokio::test]
async fn a_message_is_queued_and_the_retry_replays() {
    let shop = shop();
    let mail = json!({"kind": "email", "to": "jörg@example.org", "text": "Grüße\nvon uns"});
    for body in [sms("Your parcel is on its way"), mail] {
        let call = shop.command("/v1/messages", &fresh("k"), &body);
        let answer = call.clone().send().await;
        let message = answer.first(202);
        shapes::message(&message);
        assert_eq!(message["kind"], body["kind"]);
        assert_eq!(message["to"], body["to"]);
        call.send().await.replays(&answer);
    }
}

/// Two keys are two messages, even if they say the same.
#[tokio::test]
async fn two_keys_are_two_messages() {
    let shop = shop();
    let send = || shop.command("/v1/messages", &fresh("k"), &sms("x")).send();
    let (first, second) = (send().await.first(202), send().await.first(202));
    assert_ne!(first["message_id"], second["message_id"]);
}

/// Contract, Conventions: wrong fields are refused and named, and burn no key.
#[tokio::test]
async fn a_wrong_field_is_refused_and_named() {
    let shop = shop();
    let key = fresh("k");
    for (field, value) in [
        ("kind", json!("fax")),
        ("kind", json!(null)),
        ("to", json!("")),
        ("to", json!("a b")),
        ("to", json!("a@b.c\r\nBcc: d@e.f")),
        ("to", json!(15112345678_u64)),
        ("text", json!("")),
        ("text", json!("a\u{0}b")),
        ("text", json!("x".repeat(10_001))),
        ("from", json!("me")),
    ] {
        let mut body = sms("x");
        body[field] = value;
        let answer = shop.command("/v1/messages", &key, &body).send().await;
        answer.body_invalid(field);
    }
    for field in ["kind", "to", "text"] {
        let mut body = sms("x");
        body.as_object_mut().unwrap().remove(field);
        let answer = shop.command("/v1/messages", &key, &body).send().await;
        answer.body_invalid(field);
    }
    let call = shop.command("/v1/messages", &key, &sms(&"x".repeat(10_000)));
    call.send().await.first(202);
}

/// Invariants 3 and 10: a key names one message of one merchant.
#[tokio::test]
async fn a_key_names_one_message_of_one_merchant() {
    let key = fresh("k");
    let call = shop().command("/v1/messages", &key, &sms("x"));
    let ours = call.send().await.first(202);
    let other = shop().command("/v1/messages", &key, &sms("y"));
    let refused = other.send().await;
    refused.problem(422, "idempotency_key_reused");
    let theirs = other_shop().command("/v1/messages", &key, &sms("x"));
    assert_ne!(
        theirs.send().await.first(202)["message_id"],
        ours["message_id"]
    );
}

/// R8: identical messages at once are one message.
#[tokio::test]
async fn identical_messages_at_once_are_one() {
    let call = shop().command("/v1/messages", &fresh("k"), &sms("x"));
    let calls = vec![call.clone(); 20];
    let answers = join_all(calls.iter().map(Call::settled)).await;
    let first = call.send().await;
    for answer in &answers {
        answer.equals(&first);
    }
    let originals = answers.iter().filter(|answer| !answer.replayed());
    assert_eq!(originals.count(), 1, "exactly one first answer");
}
