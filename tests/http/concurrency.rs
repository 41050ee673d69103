//! Many at once. How requests meet differs from run to run; what must hold in the end does not.

use std::collections::BTreeSet;

use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::answer::Answer;
use crate::support::client::{Call, order_body, pay_path};
use crate::support::names::fresh;
use crate::target::shop;

/// Sends all calls at once and returns the answers in their order.
async fn at_once(calls: Vec<Call>) -> Vec<Answer> {
    join_all(calls.into_iter().map(Call::send)).await
}

fn count(answers: &[Answer], status: u16) -> usize {
    let same = answers.iter().filter(|answer| answer.status == status);
    same.count()
}

/// R8: 50 identical requests at once: one effect, equal answers, no 500.
#[tokio::test]
async fn fifty_identical_payments_at_once_charge_once() {
    let shop = shop();
    let user_id = fresh("user");
    shop.deposit(&user_id, 100).await;
    let order_no = shop.order_of(&user_id, 10).await;
    let call = shop.pay_call(&order_no, &fresh("k"), 10);
    let answers = at_once(vec![call.clone(); 50]).await;
    let firsts: Vec<&Answer> = answers
        .iter()
        .filter(|answer| answer.status == 200 && !answer.replayed())
        .collect();
    assert_eq!(firsts.len(), 1, "exactly one first answer");
    for answer in &answers {
        if answer.status == 200 {
            answer.equals(firsts[0]);
        } else {
            answer.problem(409, "idempotency_in_progress");
        }
    }
    call.send().await.replays(firsts[0]);
    assert_eq!(shop.payments(&order_no).await.len(), 1);
    assert_eq!(shop.balance(&user_id).await, 90);
}

/// R8, for other commands: orders and deposits.
#[tokio::test]
async fn fifty_identical_orders_or_deposits_at_once_happen_once() {
    let shop = shop();
    let user_id = fresh("user");
    let body = json!({"user_id": user_id, "amount": 1, "currency": "EUR"});
    let order = shop.command("/v1/orders", &fresh("k"), &body);
    let deposit = shop.deposit_call(&user_id, &fresh("k"), 7);
    for call in [order, deposit] {
        let answers = at_once(vec![call.clone(); 50]).await;
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
    }
    assert_eq!(shop.balance(&user_id).await, 7);
    let path = format!("/v1/orders?user_id={user_id}");
    let page = shop.get(&path).send().await.ok(200);
    assert_eq!(page["data"].as_array().unwrap().len(), 1);
}

/// Invariant 1: two keys for one order: one pays, the other is shown the payment.
#[tokio::test]
async fn two_keys_for_one_order_pay_once() {
    let shop = shop();
    for _ in 0..10 {
        let user_id = fresh("user");
        shop.deposit(&user_id, 100).await;
        let order_no = shop.order_of(&user_id, 10).await;
        let calls: Vec<Call> = (0..2)
            .map(|_| shop.pay_call(&order_no, &fresh("k"), 10))
            .collect();
        let answers = at_once(calls).await;
        assert_eq!(count(&answers, 200), 1, "{answers:?}");
        assert_eq!(count(&answers, 409), 1, "{answers:?}");
        let paid = answers.iter().find(|answer| answer.status == 200).unwrap();
        let refused = answers.iter().find(|answer| answer.status == 409).unwrap();
        let problem = refused.problem(409, "order_already_paid");
        assert_eq!(problem["payment"], paid.first(200));
        assert_eq!(shop.balance(&user_id).await, 90);
    }
}

/// Invariant 1, with a crowd.
#[tokio::test]
async fn thirty_keys_for_one_order_pay_once() {
    let shop = shop();
    let user_id = fresh("user");
    shop.deposit(&user_id, 1000).await;
    let order_no = shop.order_of(&user_id, 10).await;
    let calls: Vec<Call> = (0..30)
        .map(|_| shop.pay_call(&order_no, &fresh("k"), 10))
        .collect();
    at_once(calls.clone()).await;
    let mut paid = 0;
    for call in &calls {
        let answer = call.settled().await;
        match answer.status {
            200 => paid += 1,
            _ => drop(answer.problem(409, "order_already_paid")),
        }
    }
    assert_eq!(paid, 1);
    assert_eq!(shop.balance(&user_id).await, 990);
    assert_eq!(shop.payments(&order_no).await.len(), 1);
}

/// Invariant 3: one key with two bodies at once: one runs, the other is refused.
#[tokio::test]
async fn one_key_with_two_bodies_at_once_runs_one() {
    let shop = shop();
    for _ in 0..10 {
        let (user_id, key) = (fresh("user"), fresh("k"));
        let calls = [1, 2].map(|amount| shop.deposit_call(&user_id, &key, amount));
        let answers = at_once(calls.to_vec()).await;
        assert_eq!(count(&answers, 201), 1, "{answers:?}");
        let refused = answers.iter().find(|answer| answer.status != 201).unwrap();
        refused.problem(422, "idempotency_key_reused");
        let winner = answers.iter().find(|answer| answer.status == 201).unwrap();
        let amount = winner.first(201)["amount"].as_i64().unwrap();
        assert_eq!(shop.balance(&user_id).await, amount);
    }
}

/// Invariant 13: one token for two orders at once redeems one.
#[tokio::test]
async fn one_token_for_two_orders_at_once_pays_one() {
    let shop = shop();
    for _ in 0..10 {
        let orders = [shop.payable(3).await, shop.payable(3).await];
        let token = shop.token().await;
        let calls = orders.each_ref().map(|order_no| {
            shop.post(&pay_path(order_no))
                .header("submit-token", &token)
                .json(&json!({"amount": 3}))
        });
        let answers = at_once(calls.to_vec()).await;
        assert_eq!(count(&answers, 200), 1, "{answers:?}");
        let refused = answers.iter().find(|answer| answer.status != 200).unwrap();
        refused.problem(422, "idempotency_key_reused");
    }
}

/// Contract, Error codes: one order number under many keys at once is one order.
#[tokio::test]
async fn one_order_number_under_many_keys_is_created_once() {
    let shop = shop();
    let order_no = fresh("order");
    let body = order_body(&order_no, &fresh("user"), 10);
    let calls: Vec<Call> = (0..20)
        .map(|_| shop.command("/v1/orders", &fresh("k"), &body))
        .collect();
    let answers = at_once(calls).await;
    assert_eq!(count(&answers, 201), 1, "{answers:?}");
    for answer in answers.iter().filter(|answer| answer.status != 201) {
        answer.problem(409, "order_exists");
    }
}

/// Contract, Error codes: one request number on two orders at once pays one of them.
#[tokio::test]
async fn one_request_number_on_two_orders_at_once_pays_one() {
    let shop = shop();
    for _ in 0..10 {
        let orders = [shop.payable(3).await, shop.payable(3).await];
        let body = json!({"amount": 3, "request_no": fresh("request")});
        let calls = orders
            .each_ref()
            .map(|order_no| shop.command(&pay_path(order_no), &fresh("k"), &body));
        let answers = at_once(calls.to_vec()).await;
        assert_eq!(count(&answers, 200), 1, "{answers:?}");
        let paid = answers.iter().find(|answer| answer.status == 200).unwrap();
        let refused = answers.iter().find(|answer| answer.status != 200).unwrap();
        let problem = refused.problem(409, "request_no_used");
        assert_eq!(problem["payment"], paid.first(200));
    }
}

/// Invariant 5: every deposit's answer shows the balance that it made, no two the same.
#[tokio::test]
async fn deposits_at_once_add_up_and_each_answer_shows_its_own_balance() {
    let shop = shop();
    let user_id = fresh("user");
    let calls: Vec<Call> = (0..30)
        .map(|_| shop.deposit_call(&user_id, &fresh("k"), 10))
        .collect();
    at_once(calls.clone()).await;
    let mut balances = BTreeSet::new();
    for call in &calls {
        let deposit = call.settled().await.ok(201);
        balances.insert(deposit["balance"].as_u64().unwrap());
    }
    let expected: BTreeSet<u64> = (1..=30).map(|number| number * 10).collect();
    assert_eq!(balances, expected);
    assert_eq!(shop.balance(&user_id).await, 300);
}

/// Invariant 5: deposits and payments that race for one wallet leave what they say.
#[tokio::test]
async fn deposits_racing_with_payments_never_overdraw_the_wallet() {
    let shop = shop();
    let user_id = fresh("user");
    shop.deposit(&user_id, 50).await;
    let mut calls = Vec::new();
    for _ in 0..20 {
        let order_no = shop.order_of(&user_id, 10).await;
        calls.push(shop.pay_call(&order_no, &fresh("k"), 10));
        if calls.len() % 2 == 0 {
            calls.push(shop.deposit_call(&user_id, &fresh("k"), 5));
        }
    }
    at_once(calls.clone()).await;
    let mut expected = 50;
    for call in &calls {
        let answer = call.settled().await;
        match answer.status {
            200 => expected -= 10,
            201 => expected += 5,
            _ => drop(answer.problem(402, "insufficient_funds")),
        }
        assert!(matches!(answer.status, 200..=201 | 402));
    }
    assert!(expected >= 0);
    assert_eq!(shop.balance(&user_id).await, expected);
    let path = format!("/v1/orders?user_id={user_id}&status=paid&limit=100");
    let page = shop.get(&path).send().await.ok(200);
    let paid: &Vec<Value> = page["data"].as_array().unwrap();
    let deposits = calls.len() as i64 - 20;
    assert_eq!(expected, 50 + 5 * deposits - 10 * paid.len() as i64);
}
