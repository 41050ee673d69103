//! One key, one operation: replays, and keys used for something else.

use serde_json::json;

use crate::support::client::{order_body, pay_path};
use crate::support::names::fresh;
use crate::target::shop;

/// Invariant 2: every later request of the key gets the first answer, byte for byte, also after the
/// world has moved on.
#[tokio::test]
async fn a_replay_repeats_the_first_answer_byte_for_byte() {
    let shop = shop();
    let (order_no, user_id) = (fresh("order"), fresh("user"));
    let create = shop.command(
        "/v1/orders",
        &fresh("k"),
        &order_body(&order_no, &user_id, 10),
    );
    let created = create.clone().send().await;
    assert_eq!(created.first(201)["status"], "pending");
    assert!(created.header("location").is_some());
    shop.deposit(&user_id, 10).await;
    let pay = shop.pay_call(&order_no, &fresh("k"), 10);
    let paid = pay.clone().send().await;
    paid.first(200);
    for _ in 0..3 {
        create.clone().send().await.replays(&created);
        pay.clone().send().await.replays(&paid);
    }
    assert_eq!(shop.order(&order_no).await["status"], "paid");
    assert_eq!(shop.balance(&user_id).await, 0);
}

/// Invariant 3: same key, other body: refused, nothing executed, nothing revealed.
#[tokio::test]
async fn a_key_with_another_body_is_refused() {
    let shop = shop();
    let user_id = fresh("user");
    let key = fresh("k");
    let first = shop.deposit_call(&user_id, &key, 100).send().await;
    let deposit_id = first.first(201)["deposit_id"].clone();
    let other = shop.deposit_call(&user_id, &key, 200).send().await;
    other.problem(422, "idempotency_key_reused");
    assert!(!other.text().contains(deposit_id.as_str().unwrap()));
    assert_eq!(shop.balance(&user_id).await, 100);
    let again = shop.deposit_call(&user_id, &key, 100).send().await;
    again.replays(&first);
}

/// Invariant 3: an optional field that is given is another body than one that is left out.
#[tokio::test]
async fn a_key_with_an_added_field_is_refused() {
    let shop = shop();
    let order_no = shop.payable(10).await;
    let key = fresh("k");
    shop.pay(&order_no, &key, 10).await.first(200);
    let body = json!({"amount": 10, "currency": "EUR"});
    let call = shop.command(&pay_path(&order_no), &key, &body);
    call.send().await.problem(422, "idempotency_key_reused");
}

/// R7: a key used on one route and then on others; nothing of the first answer shows.
#[tokio::test]
async fn a_key_on_another_route_is_refused() {
    let shop = shop();
    let user_id = fresh("user");
    shop.deposit(&user_id, 100).await;
    let order_no = shop.order_of(&user_id, 50).await;
    let key = fresh("k");
    let payment = shop.pay(&order_no, &key, 50).await.first(200);
    let payment_id = payment["payment_id"].as_str().unwrap();
    let deposit = shop.deposit_call(&user_id, &key, 50).send().await;
    let order = order_body(&fresh("order"), &user_id, 50);
    let order = shop.command("/v1/orders", &key, &order).send().await;
    for refused in [deposit, order] {
        refused.problem(422, "idempotency_key_reused");
        assert!(!refused.text().contains(payment_id));
        assert!(!refused.text().contains(&order_no));
        assert!(refused.header("location").is_none());
    }
    assert_eq!(shop.balance(&user_id).await, 50);
}

/// R7: the same route with another path parameter is another request.
#[tokio::test]
async fn a_key_on_another_path_is_refused() {
    let shop = shop();
    let (first, second) = (shop.payable(10).await, shop.payable(10).await);
    let key = fresh("k");
    shop.pay(&first, &key, 10).await.first(200);
    let reused = shop.pay(&second, &key, 10).await;
    reused.problem(422, "idempotency_key_reused");
    assert_eq!(shop.order(&second).await["status"], "pending");
    let (first, second) = (fresh("user"), fresh("user"));
    let key = fresh("k");
    shop.deposit_call(&first, &key, 1).send().await.first(201);
    let reused = shop.deposit_call(&second, &key, 1).send().await;
    reused.problem(422, "idempotency_key_reused");
}

/// Invariant 3: the key is compared with what it did before the request's own fate is decided.
#[tokio::test]
async fn a_reused_key_is_refused_before_the_order_is_looked_up() {
    let shop = shop();
    let order_no = shop.payable(10).await;
    let key = fresh("k");
    shop.pay(&order_no, &key, 10).await.first(200);
    let nowhere = shop.pay(&fresh("nowhere"), &key, 10).await;
    nowhere.problem(422, "idempotency_key_reused");
    let wrong = shop.pay(&order_no, &key, 11).await;
    wrong.problem(422, "idempotency_key_reused");
}

/// Invariant 2: a path is what it means, not how its characters are escaped.
#[tokio::test]
async fn an_escaped_path_is_the_same_request() {
    let shop = shop();
    let order_no = shop.payable(10).await;
    let key = fresh("k");
    let answer = shop.pay(&order_no, &key, 10).await;
    answer.first(200);
    let escaped: String = order_no
        .bytes()
        .map(|byte| format!("%{byte:02x}"))
        .collect();
    let again = shop.pay(&escaped, &key, 10).await;
    again.replays(&answer);
    assert_eq!(shop.order(&escaped).await["order_no"], order_no);
}

/// Contract, Idempotency: what a client prefers about waiting does not matter to a first request or
/// a replay.
#[tokio::test]
async fn any_prefer_header_is_harmless() {
    let shop = shop();
    for prefer in [
        "wait=0",
        "wait=1",
        "wait=99999999999999999999",
        "wait=-1",
        "wait=soon",
        "wait",
        "",
        "respond-async, wait=1",
        "wait=\"1\"",
        ";;;",
    ] {
        let call = shop.deposit_call(&fresh("user"), &fresh("k"), 1);
        let call = call.header("prefer", prefer);
        let answer = call.clone().send().await;
        answer.first(201);
        call.send().await.replays(&answer);
    }
}

/// Invariant 2: the headers around a request do not make it another one.
#[tokio::test]
async fn a_retry_with_other_headers_is_a_replay() {
    let shop = shop();
    let call = shop.deposit_call(&fresh("user"), &fresh("k"), 1);
    let answer = call.clone().send().await;
    answer.first(201);
    let retry = call
        .header("user-agent", "another/2")
        .header("x-request-id", &fresh("id"))
        .header("accept", "text/html");
    retry.send().await.replays(&answer);
}
