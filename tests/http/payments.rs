//! Paying an order from the customer's wallet.

use serde_json::{Value, json};

use crate::support::client::pay_path;
use crate::support::names::fresh;
use crate::support::shapes;
use crate::target::shop;

/// Contract, Objects: the complete payment; the order is paid and its version grew by one.
#[tokio::test]
async fn a_wallet_payment_is_answered_complete_and_moves_the_order() {
    let shop = shop();
    let user_id = fresh("user");
    shop.deposit(&user_id, 1000).await;
    let order_no = shop.order_of(&user_id, 700).await;
    let before = shop.order(&order_no).await;
    let request_no = fresh("request");
    let body = json!({
        "amount": 700, "currency": "EUR", "request_no": request_no, "payment_method": "wallet"
    });
    let call = shop.command(&pay_path(&order_no), &fresh("k"), &body);
    let payment = call.send().await.first(200);
    shapes::payment(&payment);
    assert_eq!(payment["order_no"], order_no);
    assert_eq!(payment["request_no"], request_no);
    assert_eq!(payment["channel"], "wallet");
    assert_eq!(payment["amount"], 700);
    assert_eq!(payment["currency"], "EUR");
    assert_eq!(payment["status"], "succeeded");
    assert_eq!(payment["failure_code"], Value::Null);

    let after = shop.order(&order_no).await;
    shapes::order(&after);
    assert_eq!(after["status"], "paid");
    let version = before["version"].as_u64().unwrap();
    assert_eq!(after["version"], version + 1, "invariant 6");
    assert_eq!(after["created_at"], before["created_at"]);
    assert_eq!(shop.balance(&user_id).await, 300);
}

/// Contract, Routes: a payment is found by its id, by its `request_no` and by its order.
#[tokio::test]
async fn a_payment_is_the_same_object_wherever_it_is_read() {
    let shop = shop();
    let order_no = shop.payable(25).await;
    let payment = shop.pay(&order_no, &fresh("k"), 25).await.first(200);
    shapes::payment(&payment);
    let payment_id = payment["payment_id"].as_str().unwrap();
    let request_no = payment["request_no"].as_str().unwrap();
    let by_id = shop.get(&format!("/v1/payments/{payment_id}")).send().await;
    assert_eq!(by_id.ok(200), payment);
    let path = format!("/v1/payments?request_no={request_no}");
    assert_eq!(shop.get(&path).send().await.ok(200), payment);
    let path = format!("/v1/orders/{order_no}/payments");
    let page = shop.get(&path).send().await.ok(200);
    assert_eq!(page, json!({"data": [payment]}));
}

/// Contract, Error codes: `payment_not_found`.
#[tokio::test]
async fn an_unknown_payment_is_not_found() {
    let shop = shop();
    let unknown = [
        "/v1/payments/pay_01890a5d-ac96-774b-bcce-b302099a8057".to_owned(),
        "/v1/payments/nonsense".to_owned(),
        format!("/v1/payments?request_no={}", fresh("nowhere")),
    ];
    for path in unknown {
        let answer = shop.get(&path).send().await;
        answer.problem(404, "payment_not_found");
    }
}

/// Contract, Error codes: `query_invalid`.
#[tokio::test]
async fn a_search_for_payments_needs_a_request_number() {
    let shop = shop();
    for query in ["", "?", "?request_no=", "?request_no=a%20b", "?order_no=x"] {
        let path = format!("/v1/payments{query}");
        let answer = shop.get(&path).send().await;
        answer.problem(400, "query_invalid");
    }
}

/// Contract, Error codes: `order_already_paid` carries the existing payment; invariant 1.
#[tokio::test]
async fn a_paid_order_refuses_every_further_key_and_shows_its_payment() {
    let shop = shop();
    let user_id = fresh("user");
    shop.deposit(&user_id, 1000).await;
    let order_no = shop.order_of(&user_id, 100).await;
    let payment = shop.pay(&order_no, &fresh("k"), 100).await.first(200);
    for _ in 0..3 {
        let again = shop.pay(&order_no, &fresh("k"), 100).await;
        let problem = again.problem(409, "order_already_paid");
        assert_eq!(problem["payment"], payment);
    }
    assert_eq!(shop.balance(&user_id).await, 900);
    assert_eq!(shop.payments(&order_no).await, [payment]);
}

/// Contract, Error codes: `request_no_used` carries the existing payment.
#[tokio::test]
async fn a_request_number_pays_one_order_only() {
    let shop = shop();
    let user_id = fresh("user");
    shop.deposit(&user_id, 1000).await;
    let request_no = fresh("request");
    let body = json!({"amount": 100, "request_no": request_no});
    let first = shop.order_of(&user_id, 100).await;
    let call = shop.command(&pay_path(&first), &fresh("k"), &body);
    let payment = call.send().await.first(200);
    let second = shop.order_of(&user_id, 100).await;
    let call = shop.command(&pay_path(&second), &fresh("k"), &body);
    let problem = call.send().await.problem(409, "request_no_used");
    assert_eq!(problem["payment"], payment);
    assert_eq!(shop.order(&second).await["status"], "pending");
    assert_eq!(shop.balance(&user_id).await, 900);
    shop.pay(&second, &fresh("k"), 100).await.first(200);
}

/// Contract, Idempotency: with neither key nor token the key is `pay:<request_no>`.
#[tokio::test]
async fn without_a_key_the_request_number_is_the_key() {
    let shop = shop();
    let order_no = shop.payable(50).await;
    let request_no = fresh("request");
    let body = json!({"amount": 50, "request_no": request_no});
    let call = shop.post(&pay_path(&order_no)).json(&body);
    let answer = call.clone().send().await;
    assert_eq!(answer.first(200)["request_no"], request_no);
    call.clone().send().await.replays(&answer);
    let explicit = call.key(&format!("pay:{request_no}"));
    explicit.send().await.replays(&answer);
    let other = json!({"amount": 51, "request_no": request_no});
    let reused = shop.post(&pay_path(&order_no)).json(&other).send().await;
    reused.problem(422, "idempotency_key_reused");
}

/// Contract, Idempotency: neither key, nor token, nor `request_no`.
#[tokio::test]
async fn a_payment_without_anything_to_know_it_by_is_refused() {
    let shop = shop();
    let order_no = shop.payable(50).await;
    let call = shop.post(&pay_path(&order_no)).json(&json!({"amount": 50}));
    let answer = call.send().await;
    answer.problem(400, "idempotency_key_missing");
    assert_eq!(shop.order(&order_no).await["status"], "pending");
}

/// Contract, Routes: `POST /v1/pay` is the same operation.
#[tokio::test]
async fn the_short_route_pays_like_the_long_one() {
    let shop = shop();
    let order_no = shop.payable(50).await;
    let request_no = fresh("request");
    let body = json!({"order_no": order_no, "request_no": request_no, "amount": 50});
    let call = shop.post("/v1/pay").json(&body);
    let answer = call.clone().send().await;
    let payment = answer.first(200);
    shapes::payment(&payment);
    assert_eq!(payment["order_no"], order_no);
    assert_eq!(payment["request_no"], request_no);
    call.send().await.replays(&answer);
    assert_eq!(shop.order(&order_no).await["status"], "paid");
    let keyed = shop.command("/v1/pay", &fresh("k"), &body).send().await;
    assert_eq!(keyed.status, 409, "{}", keyed.text());
    assert_eq!(keyed.json()["payment"], payment);
}

/// Contract, Routes: both routes take a means of payment, and the same ones.
#[tokio::test]
async fn both_pay_routes_take_the_same_means_of_payment() {
    let shop = shop();
    for short in [false, true] {
        let order_no = shop.payable(50).await;
        let key = fresh("k");
        let pay = |method: Value| {
            let mut body = json!({"amount": 50, "request_no": key, "payment_method": method});
            if short {
                body["order_no"] = json!(order_no);
                return shop.command("/v1/pay", &key, &body).send();
            }
            shop.command(&pay_path(&order_no), &key, &body).send()
        };
        for wrong in [json!(""), json!("a b"), json!("x".repeat(256)), json!(7)] {
            pay(wrong).await.body_invalid("payment_method");
        }
        let payment = pay(json!("wallet")).await.first(200);
        assert_eq!(payment["channel"], "wallet");
    }
}

/// Invariant 2: whether a key that paid by one route replays on the other or is refused there, it
/// never pays twice.
#[tokio::test]
async fn one_key_on_both_pay_routes_charges_once() {
    let shop = shop();
    let user_id = fresh("user");
    shop.deposit(&user_id, 1000).await;
    let order_no = shop.order_of(&user_id, 100).await;
    let request_no = fresh("request");
    let key = fresh("k");
    let long = json!({"request_no": request_no, "amount": 100});
    let call = shop.command(&pay_path(&order_no), &key, &long);
    let first = call.send().await;
    first.first(200);
    let short = json!({"order_no": order_no, "request_no": request_no, "amount": 100});
    let second = shop.command("/v1/pay", &key, &short).send().await;
    if second.status == 200 {
        second.replays(&first);
    } else {
        second.problem(422, "idempotency_key_reused");
    }
    assert_eq!(shop.balance(&user_id).await, 900);
}

/// R6, Recording: a wrong amount (422) is not recorded, the right one under the same key runs.
#[tokio::test]
async fn a_mismatched_amount_does_not_burn_the_key() {
    let shop = shop();
    let order_no = shop.payable(100).await;
    let key = fresh("k");
    for wrong in [1, 99, 101, 9_007_199_254_740_991] {
        let answer = shop.pay(&order_no, &key, wrong).await;
        answer.problem(422, "amount_mismatch");
    }
    assert_eq!(shop.order(&order_no).await["status"], "pending");
    assert!(shop.payments(&order_no).await.is_empty());
    let answer = shop.pay(&order_no, &key, 100).await;
    answer.first(200);
    shop.pay(&order_no, &key, 100).await.replays(&answer);
}

/// R6, Recording: a wrong currency (422) is not recorded either.
#[tokio::test]
async fn a_mismatched_currency_does_not_burn_the_key() {
    let shop = shop();
    let order_no = shop.payable(100).await;
    let key = fresh("k");
    let wrong = json!({"amount": 100, "currency": "USD"});
    let call = shop.command(&pay_path(&order_no), &key, &wrong);
    call.send().await.problem(422, "currency_mismatch");
    assert_eq!(shop.order(&order_no).await["status"], "pending");
    let right = json!({"amount": 100, "currency": "EUR"});
    let call = shop.command(&pay_path(&order_no), &key, &right);
    call.send().await.first(200);
}

/// Recording: 404 is not recorded; the order may arrive after its first payment attempt.
#[tokio::test]
async fn a_payment_that_came_before_its_order_runs_after_it() {
    let shop = shop();
    let (order_no, user_id, key) = (fresh("order"), fresh("user"), fresh("k"));
    let early = shop.pay(&order_no, &key, 10).await;
    early.problem(404, "order_not_found");
    shop.deposit(&user_id, 10).await;
    let body = crate::support::client::order_body(&order_no, &user_id, 10);
    let created = shop.command("/v1/orders", &fresh("k"), &body).send().await;
    created.first(201);
    shop.pay(&order_no, &key, 10).await.first(200);
}

/// R16, invariant 9: whatever was refused leaves nothing that a later request has to wait for.
#[tokio::test]
async fn a_refusal_leaves_nothing_in_progress() {
    let shop = shop();
    let order_no = shop.payable(100).await;
    let key = fresh("k");
    let refused = shop.pay(&order_no, &key, 99).await;
    refused.problem(422, "amount_mismatch");
    let at_once = shop.pay_call(&order_no, &key, 100);
    at_once.header("prefer", "wait=0").send().await.first(200);
}
