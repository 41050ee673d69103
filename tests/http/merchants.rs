//! Merchants do not see, replay or change anything of each other (invariant 10).

use serde_json::json;

use crate::support::client::pay_path;
use crate::support::names::fresh;
use crate::target::{other_shop, shop};

/// R9: two merchants use the same key with equal bodies: two operations, two answers.
#[tokio::test]
async fn one_key_of_two_merchants_is_two_operations() {
    let (shop, other) = (shop(), other_shop());
    let (user_id, key) = (fresh("user"), fresh("k"));
    let ours = shop.deposit_call(&user_id, &key, 10).send().await;
    let theirs = other.deposit_call(&user_id, &key, 10).send().await;
    assert_ne!(
        ours.first(201)["deposit_id"],
        theirs.first(201)["deposit_id"]
    );
    shop.deposit_call(&user_id, &key, 10)
        .send()
        .await
        .replays(&ours);
    // Their key with another body is their affair.
    let again = other.deposit_call(&user_id, &key, 10).send().await;
    again.replays(&theirs);
    assert_eq!(shop.balance(&user_id).await, 10);
    assert_eq!(other.balance(&user_id).await, 10);
}

/// R9, the other way round in time: keys that one merchant has long used and replayed.
#[tokio::test]
async fn keys_that_another_merchant_has_replayed_are_free() {
    let (shop, other) = (shop(), other_shop());
    let user_id = fresh("user");
    let keys: Vec<String> = (0..10).map(|_| fresh("k")).collect();
    let mut ours = Vec::new();
    for key in &keys {
        let call = shop.deposit_call(&user_id, key, 10);
        let answer = call.clone().send().await;
        answer.first(201);
        call.send().await.replays(&answer);
        ours.push(answer);
    }
    for (key, ours) in keys.iter().zip(&ours) {
        let theirs = other.deposit_call(&user_id, key, 10).send().await;
        assert_ne!(theirs.first(201)["deposit_id"], ours.json()["deposit_id"]);
    }
    assert_eq!(other.balance(&user_id).await, 100);
}

/// Invariant 10: order numbers, users and request numbers are names within one merchant.
#[tokio::test]
async fn equal_names_of_two_merchants_are_different_things() {
    let (shop, other) = (shop(), other_shop());
    let (order_no, request_no) = (fresh("order"), fresh("request"));
    let user_id = fresh("user");
    for (merchant, amount) in [(&shop, 10), (&other, 20)] {
        merchant.deposit(&user_id, amount).await;
        let body = crate::support::client::order_body(&order_no, &user_id, amount);
        let created = merchant.command("/v1/orders", &fresh("k"), &body);
        created.send().await.first(201);
    }
    for (merchant, amount) in [(&shop, 10), (&other, 20)] {
        let body = json!({"amount": amount, "request_no": request_no});
        let paid = merchant.post(&pay_path(&order_no)).json(&body);
        assert_eq!(paid.send().await.first(200)["amount"], amount);
        assert_eq!(merchant.balance(&user_id).await, 0);
        let path = format!("/v1/payments?request_no={request_no}");
        let found = merchant.get(&path).send().await.ok(200);
        assert_eq!(found["amount"], amount);
        assert_eq!(merchant.payments(&order_no).await, [found]);
    }
}

/// Contract, Error codes: 404 also for what belongs to another merchant.
#[tokio::test]
async fn nothing_of_another_merchant_can_be_read() {
    let (shop, other) = (shop(), other_shop());
    let user_id = fresh("user");
    shop.deposit(&user_id, 10).await;
    let order_no = shop.order_of(&user_id, 10).await;
    let payment = shop.pay(&order_no, &fresh("k"), 10).await.first(200);
    let payment_id = payment["payment_id"].as_str().unwrap();
    let request_no = payment["request_no"].as_str().unwrap();
    for (path, code) in [
        (format!("/v1/orders/{order_no}"), "order_not_found"),
        (format!("/v1/orders/{order_no}/payments"), "order_not_found"),
        (format!("/v1/orders/{order_no}/refunds"), "order_not_found"),
        (format!("/v1/orders/{order_no}/events"), "order_not_found"),
        (format!("/v1/payments/{payment_id}"), "payment_not_found"),
        (
            format!("/v1/payments?request_no={request_no}"),
            "payment_not_found",
        ),
        (format!("/v1/accounts/{user_id}"), "account_not_found"),
    ] {
        assert_eq!(shop.get(&path).send().await.status, 200, "{path}");
        other.get(&path).send().await.problem(404, code);
    }
}

/// Invariant 10: an order of another merchant cannot be paid, and the attempt looks like one on an
/// order that does not exist.
#[tokio::test]
async fn an_order_of_another_merchant_cannot_be_paid() {
    let (shop, other) = (shop(), other_shop());
    let order_no = shop.payable(10).await;
    let before = shop.order(&order_no).await;
    let nowhere = other.pay(&fresh("nowhere"), &fresh("k"), 10).await;
    let foreign = other.pay(&order_no, &fresh("k"), 10).await;
    let nowhere = nowhere.problem(404, "order_not_found");
    let foreign = foreign.problem(404, "order_not_found");
    assert_eq!(nowhere["title"], foreign["title"]);
    assert_eq!(shop.order(&order_no).await, before);
    let body = json!({"order_no": order_no, "request_no": fresh("r"), "amount": 10});
    let short = other.post("/v1/pay").json(&body).send().await;
    short.problem(404, "order_not_found");
    shop.pay(&order_no, &fresh("k"), 10).await.first(200);
}
