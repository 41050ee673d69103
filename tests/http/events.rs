//! The audit trail of an order.

use serde_json::{Value, json};

use crate::support::client::{order_body, pay_path};
use crate::support::names::fresh;
use crate::support::shapes;
use crate::target::shop;

/// Contract, Objects: events come from the journal; invariant 6: the version grows by one.
#[tokio::test]
async fn the_trail_of_a_paid_order_is_its_creation_and_its_payment() {
    let shop = shop();
    let (order_no, user_id) = (fresh("order"), fresh("user"));
    let (create_key, pay_key) = (fresh("create"), fresh("pay"));
    shop.deposit(&user_id, 10).await;
    let body = order_body(&order_no, &user_id, 10);
    let created = shop.command("/v1/orders", &create_key, &body);
    let order = created.send().await.first(201);
    shop.pay(&order_no, &pay_key, 10).await.first(200);
    // Neither a replay nor a refusal leaves a trace.
    shop.pay(&order_no, &pay_key, 10).await.ok(200);
    let refused = shop.pay(&order_no, &fresh("k"), 10).await;
    refused.problem(409, "order_already_paid");

    let path = format!("/v1/orders/{order_no}/events");
    let page = shop.get(&path).send().await.ok(200);
    shapes::members(&page, &["data"]);
    let mut events = page["data"].as_array().unwrap().clone();
    events.iter().for_each(shapes::event);
    events.sort_by_key(|event| event["version"].as_u64());
    let keys: Vec<&Value> = events
        .iter()
        .map(|event| &event["idempotency_key"])
        .collect();
    assert_eq!(keys, [&json!(create_key), &json!(pay_key)]);
    assert_eq!(events[0]["from_status"], Value::Null);
    assert_eq!(events[0]["to_status"], "pending");
    assert_eq!(events[0]["version"], order["version"]);
    assert_eq!(events[1]["from_status"], "pending");
    assert_eq!(events[1]["to_status"], "paid");
    let version = order["version"].as_u64().unwrap();
    assert_eq!(events[1]["version"], version + 1);
    assert_ne!(events[0]["operation"], events[1]["operation"]);
}

/// Contract, Idempotency: the trail shows the key that was used, also one derived from `request_no`.
#[tokio::test]
async fn the_trail_shows_a_derived_key() {
    let shop = shop();
    let order_no = shop.payable(10).await;
    let request_no = fresh("request");
    let body = json!({"amount": 10, "request_no": request_no});
    let paid = shop.post(&pay_path(&order_no)).json(&body).send().await;
    paid.first(200);
    let path = format!("/v1/orders/{order_no}/events");
    let trail = shop.get(&path).send().await.text();
    assert!(trail.contains(&format!("pay:{request_no}")), "{trail}");
}
