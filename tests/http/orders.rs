//! Orders: created once, read back as they were answered.

use serde_json::{Value, json};

use crate::support::client::order_body;
use crate::support::names::fresh;
use crate::support::shapes;
use crate::target::shop;

/// Contract, Objects: the complete order; `POST /v1/orders` answers 201 with `Location`.
#[tokio::test]
async fn a_created_order_is_answered_complete_and_found_at_its_location() {
    let shop = shop();
    let order_no = fresh("order");
    let user_id = fresh("user");
    let mut body = order_body(&order_no, &user_id, 4999);
    body["metadata"] = json!({"basket": "b-7", "note": "Grüße 🎁 \"quoted\" \\ /"});
    let answer = shop.command("/v1/orders", &fresh("k"), &body).send().await;
    let order = answer.first(201);
    shapes::order(&order);
    assert_eq!(order["order_no"], order_no);
    assert_eq!(order["user_id"], user_id);
    assert_eq!(order["amount"], 4999);
    assert_eq!(order["currency"], "EUR");
    assert_eq!(order["status"], "pending");
    assert_eq!(order["refunded_amount"], 0);
    assert_eq!(order["metadata"], body["metadata"]);
    assert_eq!(order["created_at"], order["updated_at"]);

    let location = answer.header("location").expect("Location");
    assert_eq!(location, format!("/v1/orders/{order_no}"));
    let found = shop.get(location).send().await;
    assert_eq!(found.ok(200), order);
    assert!(!found.replayed());
}

/// Contract, Routes: `order_no` and `metadata` are optional.
#[tokio::test]
async fn an_order_without_number_gets_one_and_a_retry_gets_the_same() {
    let shop = shop();
    let body = json!({"user_id": fresh("user"), "amount": 1, "currency": "EUR"});
    let call = shop.command("/v1/orders", &fresh("k"), &body);
    let answer = call.clone().send().await;
    let order = answer.first(201);
    shapes::order(&order);
    assert_eq!(order["metadata"], json!({}));
    call.send().await.replays(&answer);
    let order_no = order["order_no"].as_str().unwrap();
    assert_eq!(shop.order(order_no).await, order);
}

/// Contract, Error codes: `order_exists`; the business key outlives the idempotency key.
#[tokio::test]
async fn an_order_number_is_taken_once_whatever_the_key() {
    let shop = shop();
    let order_no = shop.order_of(&fresh("user"), 100).await;
    let before = shop.order(&order_no).await;
    for amount in [100, 200] {
        let body = order_body(&order_no, &fresh("user"), amount);
        let answer = shop.command("/v1/orders", &fresh("k"), &body).send().await;
        answer.problem(409, "order_exists");
    }
    assert_eq!(shop.order(&order_no).await, before);
}

/// Recording: 409 is not recorded, so the key of a refused order is free for a corrected one.
#[tokio::test]
async fn a_refused_order_number_does_not_burn_the_key() {
    let shop = shop();
    let taken = shop.order_of(&fresh("user"), 100).await;
    let key = fresh("k");
    let user_id = fresh("user");
    let body = order_body(&taken, &user_id, 100);
    let refused = shop.command("/v1/orders", &key, &body).send().await;
    refused.problem(409, "order_exists");
    let body = order_body(&fresh("order"), &user_id, 100);
    let corrected = shop.command("/v1/orders", &key, &body).send().await;
    shapes::order(&corrected.first(201));
}

/// Contract, Error codes: `order_not_found`, on every route that names an order.
#[tokio::test]
async fn an_unknown_order_is_not_found_on_any_route() {
    let shop = shop();
    let order_no = fresh("nowhere");
    for tail in ["", "/payments", "/refunds", "/events"] {
        let path = format!("/v1/orders/{order_no}{tail}");
        shop.get(&path).send().await.problem(404, "order_not_found");
    }
    for tail in ["pay", "ship", "complete", "cancel", "refunds"] {
        let path = format!("/v1/orders/{order_no}/{tail}");
        let body = match tail {
            "pay" => json!({"amount": 1}),
            _ => json!({}),
        };
        let answer = shop.command(&path, &fresh("k"), &body).send().await;
        answer.problem(404, "order_not_found");
    }
}

/// Contract, Conventions: 1 to 64 of `A-Z a-z 0-9 . _ : -`.
#[tokio::test]
async fn every_allowed_identifier_round_trips() {
    let shop = shop();
    let unique = fresh("");
    let long = format!("{}{unique}", "x".repeat(64 - unique.len()));
    assert_eq!(long.len(), 64);
    for order_no in [format!("A.b_c:d{unique}"), format!("0{unique}"), long] {
        let body = order_body(&order_no, &order_no, 5);
        let call = shop.command("/v1/orders", &fresh("k"), &body);
        let order = call.send().await.first(201);
        assert_eq!(order["order_no"], order_no);
        assert_eq!(order["user_id"], order_no);
        assert_eq!(shop.order(&order_no).await, order);
    }
}

/// Contract, Conventions: an identifier that no order can have finds none, and breaks nothing.
#[tokio::test]
async fn an_impossible_identifier_in_a_path_is_a_plain_refusal() {
    let shop = shop();
    let long = "x".repeat(65);
    for id in ["a%20b", "%C3%A4", "a%00b", "%FF", "%27--", "..%2F..", &long] {
        let path = format!("/v1/orders/{id}");
        let answer = shop.get(&path).send().await;
        assert!(matches!(answer.status, 400 | 404), "{}", answer.text());
        shapes::problem(&answer.json());
        let path = format!("/v1/accounts/{id}/deposits");
        let body = json!({"amount": 1, "currency": "EUR"});
        let answer = shop.command(&path, &fresh("k"), &body).send().await;
        assert!(matches!(answer.status, 400 | 404), "{}", answer.text());
        shapes::problem(&answer.json());
    }
}

/// Contract, Routes: metadata is a flat object of strings, at most 20.
#[tokio::test]
async fn metadata_holds_up_to_twenty_strings_of_any_unicode() {
    let shop = shop();
    let full: serde_json::Map<String, Value> = (0..20)
        .map(|number| (format!("key {number}"), json!("\u{2028}\u{10ffff}é")))
        .collect();
    for metadata in [json!({}), json!({"empty": ""}), Value::Object(full)] {
        let order_no = fresh("order");
        let mut body = order_body(&order_no, "u", 1);
        body["metadata"] = metadata.clone();
        let call = shop.command("/v1/orders", &fresh("k"), &body);
        assert_eq!(call.send().await.first(201)["metadata"], metadata);
        assert_eq!(shop.order(&order_no).await["metadata"], metadata);
    }
}

/// Contract, Routes: metadata values are strings, and a note of two lines is one.
#[tokio::test]
async fn a_metadata_value_may_have_several_lines() {
    let shop = shop();
    let mut body = order_body(&fresh("order"), "u", 1);
    body["metadata"] = json!({"note": "leave it\r\n\tat the door\n"});
    let call = shop.command("/v1/orders", &fresh("k"), &body);
    assert_eq!(call.send().await.first(201)["metadata"], body["metadata"]);
}

/// Contract, Conventions: a NUL is kept as it is or refused, and cuts nothing off.
#[tokio::test]
async fn a_nul_in_a_text_cuts_nothing_off() {
    let shop = shop();
    let order_no = fresh("order");
    let mut body = order_body(&order_no, "u", 1);
    body["metadata"] = json!({"note": "a\u{0}b"});
    let call = shop.command("/v1/orders", &fresh("k"), &body);
    let answer = call.send().await;
    if answer.status == 201 {
        answer.first(201);
        assert_eq!(shop.order(&order_no).await["metadata"], body["metadata"]);
    } else {
        answer.problem(400, "body_invalid");
    }
}

/// Contract, Conventions: `amount` is 1 to 9007199254740991.
#[tokio::test]
async fn the_smallest_and_the_largest_amount_are_orders() {
    let shop = shop();
    for amount in [1, 9_007_199_254_740_991] {
        let order_no = shop.order_of(&fresh("user"), amount).await;
        assert_eq!(shop.order(&order_no).await["amount"], amount);
    }
}
