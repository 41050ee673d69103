//! Refunds: whole and in parts, never more than was paid (invariant 7).

use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::client::{Call, refunds_path};
use crate::support::names::fresh;
use crate::support::shapes;
use crate::target::{other_shop, shop};

/// The sum of the amounts of these refunds.
fn sum(refunds: &[Value]) -> u64 {
    let amounts = refunds.iter().map(|refund| &refund["amount"]);
    amounts.map(|amount| amount.as_u64().unwrap()).sum()
}

/// Contract, Routes and Objects: 201 with the complete refund; without `amount` it is the rest, and the
/// money is back in the wallet.
#[tokio::test]
async fn a_whole_refund_is_answered_complete_and_the_money_is_back() {
    let shop = shop();
    let order_no = shop.paid(700).await;
    let paid = shop.order(&order_no).await;
    let user_id = paid["user_id"].as_str().unwrap();
    let refund_no = fresh("refund");
    let body = json!({"refund_no": refund_no, "reason": "too small, or zu klein: größer!"});
    let call = shop.command(&refunds_path(&order_no), &fresh("k"), &body);
    let answer = call.clone().send().await;
    let refund = answer.first(201);
    shapes::refund(&refund);
    assert_eq!(refund["order_no"], order_no);
    assert_eq!(refund["refund_no"], refund_no);
    assert_eq!(refund["amount"], 700);
    assert_eq!(refund["currency"], "EUR");
    assert_eq!(refund["reason"], body["reason"]);
    let payments = shop.payments(&order_no).await;
    assert_eq!(refund["payment_id"], payments[0]["payment_id"]);
    assert_eq!(payments[0]["status"], "succeeded");

    let order = shop.order(&order_no).await;
    assert_eq!(order["status"], "refunded");
    assert_eq!(order["refunded_amount"], 700);
    assert_eq!(order["version"], paid["version"].as_u64().unwrap() + 1);
    assert_eq!(shop.balance(user_id).await, 700);
    assert_eq!(shop.refunds(&order_no).await, [refund]);
    call.send().await.replays(&answer);
    assert_eq!(shop.balance(user_id).await, 700);
}

/// Contract, State machine: parts leave the status alone, the rest makes the order refunded.
#[tokio::test]
async fn parts_add_up_and_the_last_one_refunds_the_order() {
    let shop = shop();
    for verbs in [&[][..], &["ship"], &["ship", "complete"]] {
        let order_no = shop.paid(100).await;
        for verb in verbs {
            let call = shop.move_call(&order_no, verb, &fresh("k"));
            call.send().await.first(200);
        }
        let status = shop.order(&order_no).await["status"].clone();
        for (amount, refunded) in [(30, 30), (30, 60), (39, 99)] {
            let call = shop.refund_call(&order_no, &fresh("k"), amount);
            shapes::refund(&call.send().await.first(201));
            let order = shop.order(&order_no).await;
            assert_eq!(order["refunded_amount"], refunded);
            assert_eq!(order["status"], status);
        }
        let rest = shop.post(&refunds_path(&order_no)).key(&fresh("k"));
        assert_eq!(rest.send().await.first(201)["amount"], 1);
        assert_eq!(shop.order(&order_no).await["status"], "refunded");
        let refunds = shop.refunds(&order_no).await;
        assert_eq!((refunds.len(), sum(&refunds)), (4, 100));
    }
}

/// Contract, Error codes: 422 is not recorded, so the corrected amount runs under the same key.
#[tokio::test]
async fn more_than_is_left_is_refused_and_burns_no_key() {
    let shop = shop();
    let order_no = shop.paid(100).await;
    let call = shop.refund_call(&order_no, &fresh("k"), 60);
    call.send().await.first(201);
    let key = fresh("k");
    for amount in [41, 100, 9_007_199_254_740_991] {
        let answer = shop.refund_call(&order_no, &key, amount).send().await;
        let problem = answer.problem(422, "refund_exceeds_payment");
        assert!(shapes::names_field(&problem, "amount"), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("40"));
    }
    assert_eq!(shop.order(&order_no).await["refunded_amount"], 60);
    let call = shop.refund_call(&order_no, &key, 40);
    call.send().await.first(201);
}

/// Contract, State machine: only what was paid and is not refunded is refunded.
#[tokio::test]
async fn an_order_that_is_not_paid_or_is_refunded_is_refused() {
    let shop = shop();
    let pending = shop.payable(10).await;
    let cancelled = shop.payable(10).await;
    let cancel = shop.move_call(&cancelled, "cancel", &fresh("k"));
    cancel.send().await.first(200);
    let refunded = shop.paid(10).await;
    let refund = shop.refund_call(&refunded, &fresh("k"), 10);
    refund.send().await.first(201);
    for (order_no, status) in [
        (pending, "pending"),
        (cancelled, "cancelled"),
        (refunded, "refunded"),
    ] {
        let before = shop.refunds(&order_no).await;
        for body in [json!({}), json!({"amount": 1}), json!({"amount": 11})] {
            let path = refunds_path(&order_no);
            let answer = shop.command(&path, &fresh("k"), &body).send().await;
            let problem = answer.problem(409, "order_state_invalid");
            assert!(problem["detail"].as_str().unwrap().contains(status));
        }
        assert_eq!(shop.refunds(&order_no).await, before);
    }
}

/// Contract, Error codes: `refund_no_used`; a refund number outlives the key.
#[tokio::test]
async fn a_refund_number_refunds_once_whatever_the_key() {
    let shop = shop();
    let (first, second) = (shop.paid(100).await, shop.paid(100).await);
    let body = json!({"amount": 10, "refund_no": fresh("refund")});
    let refund = |order_no: &str, key: &str| shop.command(&refunds_path(order_no), key, &body);
    refund(&first, &fresh("k")).send().await.first(201);
    let key = fresh("k");
    for order_no in [&first, &second] {
        let answer = refund(order_no, &key).send().await;
        answer.problem(409, "refund_no_used");
    }
    assert_eq!(shop.refunds(&first).await.len(), 1);
    assert!(shop.refunds(&second).await.is_empty());
    // The refusal burns no key.
    let call = shop.refund_call(&second, &key, 10);
    call.send().await.first(201);
}

/// Contract, Conventions: fields of the wrong kind and unknown fields are refused and named.
#[tokio::test]
async fn a_wrong_field_is_refused_and_named() {
    let shop = shop();
    let order_no = shop.paid(100).await;
    for (body, field) in [
        (json!({"amount": 0}), "amount"),
        (json!({"amount": -1}), "amount"),
        (json!({"amount": 1.5}), "amount"),
        (json!({"amount": "1"}), "amount"),
        (json!({"refund_no": "a b"}), "refund_no"),
        (json!({"reason": 7}), "reason"),
        (json!({"currency": "EUR"}), "currency"),
        (json!({"Amount": 1}), "Amount"),
    ] {
        let path = refunds_path(&order_no);
        let answer = shop.command(&path, &fresh("k"), &body).send().await;
        answer.body_invalid(field);
    }
    assert!(shop.refunds(&order_no).await.is_empty());
}

/// Invariant 3: a key that refunded is refused for another amount, order or route.
#[tokio::test]
async fn a_key_names_one_refund() {
    let shop = shop();
    let (first, second) = (shop.paid(100).await, shop.paid(100).await);
    let key = fresh("k");
    let call = shop.refund_call(&first, &key, 10);
    call.send().await.first(201);
    for call in [
        shop.refund_call(&first, &key, 11),
        shop.refund_call(&second, &key, 10),
        shop.move_call(&first, "ship", &key),
    ] {
        let answer = call.send().await;
        answer.problem(422, "idempotency_key_reused");
    }
    assert_eq!(sum(&shop.refunds(&first).await), 10);
    assert!(shop.refunds(&second).await.is_empty());
}

/// Invariant 10: refunds of another merchant's order, and refund numbers of two merchants.
#[tokio::test]
async fn merchants_refund_their_own_orders_only() {
    let (shop, other) = (shop(), other_shop());
    let order_no = shop.paid(100).await;
    let foreign = other.refund_call(&order_no, &fresh("k"), 10).send().await;
    foreign.problem(404, "order_not_found");
    let body = json!({"amount": 10, "refund_no": fresh("refund")});
    let theirs = other.paid(100).await;
    let key = fresh("k");
    for (shop, order_no) in [(&shop, &order_no), (&other, &theirs)] {
        let call = shop.command(&refunds_path(order_no), &key, &body);
        call.send().await.first(201);
    }
}

/// R8: 20 identical refunds at once: one effect, equal answers.
#[tokio::test]
async fn identical_refunds_at_once_happen_once() {
    let shop = shop();
    let order_no = shop.paid(100).await;
    let call = shop.refund_call(&order_no, &fresh("k"), 10);
    let answers = join_all((0..20).map(|_| call.clone().send())).await;
    let first = call.settled().await;
    first.ok(201);
    let mut originals = 0;
    for answer in answers {
        if answer.status == 201 {
            answer.equals(&first);
            originals += usize::from(!answer.replayed());
        } else {
            answer.problem(409, "idempotency_in_progress");
        }
    }
    assert_eq!(originals, 1, "exactly one first answer");
    assert_eq!(shop.refunds(&order_no).await.len(), 1);
}

/// R12: two refunds of 60 of a payment of 100 at once, under different keys.
#[tokio::test]
async fn two_refunds_that_exceed_the_payment_together_are_one_refund() {
    let shop = shop();
    for _ in 0..10 {
        let order_no = shop.paid(100).await;
        let calls = [(); 2].map(|()| shop.refund_call(&order_no, &fresh("k"), 60));
        let answers = join_all(calls.iter().map(Call::settled)).await;
        let (made, refused): (Vec<_>, Vec<_>) =
            answers.iter().partition(|answer| answer.status == 201);
        assert_eq!((made.len(), refused.len()), (1, 1), "{answers:?}");
        refused[0].problem(422, "refund_exceeds_payment");
        assert_eq!(shop.order(&order_no).await["refunded_amount"], 60);
    }
}

/// Invariant 7, with a crowd: 20 refunds of 15 of a payment of 100 at once.
#[tokio::test]
async fn twenty_refunds_at_once_never_exceed_the_payment() {
    let shop = shop();
    let order_no = shop.paid(100).await;
    let user_id = shop.order(&order_no).await["user_id"].clone();
    let calls = [(); 20].map(|()| shop.refund_call(&order_no, &fresh("k"), 15));
    let answers = join_all(calls.iter().map(Call::settled)).await;
    let (made, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 201);
    assert_eq!(made.len(), 6);
    for answer in refused {
        answer.problem(422, "refund_exceeds_payment");
    }
    let refunds = shop.refunds(&order_no).await;
    assert_eq!((refunds.len(), sum(&refunds)), (6, 90));
    assert_eq!(shop.order(&order_no).await["refunded_amount"], 90);
    assert_eq!(shop.balance(user_id.as_str().unwrap()).await, 90);
}

/// Invariant 5: what was refunded can be spent again.
#[tokio::test]
async fn a_refund_can_be_spent() {
    let shop = shop();
    let order_no = shop.paid(50).await;
    let user_id = shop.order(&order_no).await["user_id"].clone();
    let user_id = user_id.as_str().unwrap();
    let call = shop.refund_call(&order_no, &fresh("k"), 50);
    call.send().await.first(201);
    let next = shop.order_of(user_id, 50).await;
    shop.pay(&next, &fresh("k"), 50).await.first(200);
    assert_eq!(shop.balance(user_id).await, 0);
}

/// Invariant 5: a wallet that is full takes no refund, until there is room again.
#[tokio::test]
async fn a_refund_into_a_full_wallet_is_refused() {
    let shop = shop();
    let order_no = shop.paid(10).await;
    let user_id = shop.order(&order_no).await["user_id"].clone();
    let user_id = user_id.as_str().unwrap();
    shop.deposit(user_id, 9_007_199_254_740_991).await;
    let call = shop.refund_call(&order_no, &fresh("k"), 10);
    call.clone().send().await.body_invalid("amount");
    let next = shop.order_of(user_id, 10).await;
    shop.pay(&next, &fresh("k"), 10).await.first(200);
    call.send().await.first(201);
}
