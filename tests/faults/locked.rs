//! The database is there, and somebody else is writing to it.

use std::time::Duration;

use futures::future::{join, join_all};
use serde_json::json;

use crate::scene::{claimed, settled};
use crate::support::client::{order_body, pay_path};
use crate::support::names::fresh;
use crate::support::oracle::{audit, journal_rows};
use crate::support::site::Site;
use crate::support::stores::WriteLock;

/// R5, contract: 503, retryable, nothing done; then the same key runs. A 5xx is never replayed.
#[tokio::test]
async fn a_locked_database_answers_a_retryable_503_and_the_same_key_runs_later() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(100).await;
    let before = shop.order(&order_no).await;
    let pay = shop.pay_call(&order_no, &fresh("k"), 100);
    let user_id = fresh("user");
    let deposit = shop.deposit_call(&user_id, &fresh("k"), 5);
    let new_order = fresh("order");
    let body = order_body(&new_order, &user_id, 5);
    let create = shop.command("/v1/orders", &fresh("k"), &body);
    let calls = [pay, deposit, create];

    let lock = WriteLock::take(&site.database());
    let sent = calls.iter().map(|call| call.clone().send());
    for answer in futures::future::join_all(sent).await {
        let code = answer.json()["code"].as_str().unwrap().to_owned();
        assert!(["storage_unavailable", "busy"].contains(&code.as_str()));
        assert_eq!(answer.problem(503, &code)["retryable"], true);
        assert!(!answer.replayed());
    }
    // Reading goes on, and shows that nothing happened.
    assert_eq!(shop.order(&order_no).await, before);
    let path = format!("/v1/orders/{new_order}");
    shop.get(&path).send().await.problem(404, "order_not_found");
    drop(lock);

    for (call, status) in calls.iter().zip([200, 201, 201]) {
        let answer = call.clone().send().await;
        answer.first(status);
        call.clone().send().await.replays(&answer);
    }
    assert_eq!(shop.balance(&user_id).await, 5);
    assert_eq!(audit(&site).succeeded, 1);
}

/// R1: the fingerprint is checked before the state: another amount under a key in progress is 422,
/// the same request is 409 with `Retry-After`.
#[tokio::test]
async fn a_key_in_progress_refuses_another_body_and_asks_its_own_to_wait() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(100).await;
    let key = fresh("k");
    let lock = WriteLock::take(&site.database());
    let first = claimed(&site, &shop, &order_no, &key, 100).await;

    let other = shop.pay(&order_no, &key, 200).await;
    other.problem(422, "idempotency_key_reused");
    let deposit = shop.deposit_call(&fresh("user"), &key, 100).send().await;
    deposit.problem(422, "idempotency_key_reused");
    let same = shop.pay_call(&order_no, &key, 100);
    let at_once = same.clone().header("prefer", "wait=0").send().await;
    at_once.problem(409, "idempotency_in_progress");
    assert!(!at_once.replayed());
    drop(lock);

    let answer = first.answer.await.unwrap();
    answer.first(200);
    same.send().await.replays(&answer);
    assert_eq!(audit(&site).succeeded, 1);
}

/// Invariant 10: a key that another merchant has in progress is free.
#[tokio::test]
async fn a_key_in_progress_is_in_progress_for_its_merchant_only() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(100).await;
    let key = fresh("k");
    let lock = WriteLock::take(&site.database());
    let first = claimed(&site, &shop, &order_no, &key, 100).await;
    let foreign = server.other_shop().pay_call(&order_no, &key, 100);
    let foreign = foreign.header("prefer", "wait=0").send().await;
    foreign.problem(404, "order_not_found");
    drop(lock);
    // The read of the other merchant may have outlasted the patience of the first writer.
    let _ = first.answer.await.unwrap();
    settled(&shop.pay_call(&order_no, &key, 100)).await.ok(200);
    assert_eq!(audit(&site).succeeded, 1);
}

/// The walk, concurrent duplicates: wait, then answer with the first request's result.
#[tokio::test]
async fn a_duplicate_waits_and_gets_the_first_answer() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(100).await;
    let key = fresh("k");
    let lock = WriteLock::take(&site.database());
    let first = claimed(&site, &shop, &order_no, &key, 100).await;
    let call = shop.pay_call(&order_no, &key, 100);
    let waiting: Vec<_> = ["wait=20", "wait=20", "respond-async, wait=20"]
        .map(|prefer| tokio::spawn(call.clone().header("prefer", prefer).send()))
        .into();
    // Once a later request has been answered, the waiting ones have been read.
    let other = shop.pay(&order_no, &key, 101).await;
    other.problem(422, "idempotency_key_reused");
    assert!(waiting.iter().all(|duplicate| !duplicate.is_finished()));
    drop(lock);
    let answer = first.answer.await.unwrap();
    answer.first(200);
    for duplicate in waiting {
        duplicate.await.unwrap().replays(&answer);
    }
    assert_eq!(audit(&site).succeeded, 1);
}

/// The walk: the wait is capped by `max_wait_ms`, and `default_wait_ms` stands in for the header.
#[tokio::test]
async fn a_wait_ends_at_its_limit_while_the_first_request_goes_on() {
    let site = Site::new()
        .variable("default_wait_ms", 0)
        .variable("max_wait_ms", 50);
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(100).await;
    let key = fresh("k");
    let lock = WriteLock::take(&site.database());
    let first = claimed(&site, &shop, &order_no, &key, 100).await;
    let call = shop.pay_call(&order_no, &key, 100);
    for prefer in [None, Some("wait=3600"), Some("wait=99999999999999999999")] {
        let call = match prefer {
            Some(prefer) => call.clone().header("prefer", prefer),
            None => call.clone(),
        };
        let answer = call.send().await;
        answer.problem(409, "idempotency_in_progress");
        assert!(!first.answer.is_finished());
    }
    drop(lock);
    first.answer.await.unwrap().first(200);
}

/// Recording: a 5xx leaves neither a record nor a claim, so nobody has to wait for it.
#[tokio::test]
async fn a_failed_attempt_leaves_nothing_to_wait_for() {
    let site = Site::new().variable("claim_lease_ms", 600_000);
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(100).await;
    let key = fresh("k");
    let lock = WriteLock::take(&site.database());
    let first = claimed(&site, &shop, &order_no, &key, 100).await;
    first.answer.await.unwrap().status(503);
    drop(lock);
    assert_eq!(journal_rows(&site, &key), 0);
    // The lease of ten minutes would hold up a claim that was left behind.
    let other_amount = shop.pay_call(&order_no, &key, 99);
    settled(&other_amount).await.problem(422, "amount_mismatch");
    let same = shop.pay_call(&order_no, &key, 100);
    settled(&same).await.first(200);
    assert_eq!(audit(&site).succeeded, 1);
}

/// Contract: a lock that goes away in time costs a wait and nothing else.
#[tokio::test]
async fn payments_wait_for_a_lock_that_is_released() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let user_id = fresh("user");
    shop.deposit(&user_id, 150).await;
    let mut calls = Vec::new();
    for _ in 0..20 {
        let order_no = shop.order_of(&user_id, 10).await;
        calls.push(shop.pay_call(&order_no, &fresh("k"), 10));
    }
    let first_order = shop.payable(1).await;
    let lock = WriteLock::take(&site.database());
    let running: Vec<_> = calls
        .iter()
        .map(|call| tokio::spawn(call.clone().send()))
        .collect();
    let first = claimed(&site, &shop, &first_order, &fresh("k"), 1).await;
    drop(lock);
    first.answer.await.unwrap().first(200);
    for answer in running {
        let answer = answer.await.unwrap();
        assert!(matches!(answer.status, 200 | 402), "{}", answer.text());
        assert!(!answer.replayed());
    }
    assert_eq!(shop.balance(&user_id).await, 0);
    assert_eq!(audit(&site).succeeded, 16);
}

/// Invariant 13: a 5xx does not burn a submit token, nor the derived key of `request_no`.
#[tokio::test]
async fn a_failed_attempt_does_not_burn_its_token() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let (first, second) = (shop.payable(1).await, shop.payable(1).await);
    let by_token = shop
        .post(&pay_path(&first))
        .header("submit-token", &shop.token().await)
        .json(&json!({"amount": 1}));
    let by_request = shop
        .post(&pay_path(&second))
        .json(&json!({"amount": 1, "request_no": fresh("request")}));
    let calls = [by_token, by_request];
    let lock = WriteLock::take(&site.database());
    let sent = calls.iter().map(|call| call.clone().send());
    for answer in futures::future::join_all(sent).await {
        answer.status(503);
    }
    drop(lock);
    for call in calls {
        let answer = call.clone().send().await;
        answer.first(200);
        call.send().await.replays(&answer);
    }
    assert_eq!(audit(&site).succeeded, 2);
}

/// Overload: many more requests than can be served within their patience, each with an effect of its own. Every one
/// is served, or told when to come back; then the service recovers by itself, and every one is served once.
#[tokio::test]
async fn a_flood_is_served_or_told_to_come_back_and_passes() {
    const FLOOD: usize = 400;
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    shop.deposit("first", 1).await;
    let users: Vec<_> = (0..FLOOD).map(|_| fresh("user")).collect();
    let deposits = users
        .iter()
        .map(|user| shop.deposit_call(user, &fresh("k"), 1));
    let deposits: Vec<_> = deposits.collect();
    let lock = WriteLock::take(&site.database());
    let unlock = async {
        // Longer than any of them waits.
        tokio::time::sleep(Duration::from_secs(7)).await;
        drop(lock);
    };
    let flood = join_all(deposits.iter().map(|call| call.clone().send()));
    let (answers, ()) = join(flood, unlock).await;
    let mut busy = 0;
    for answer in &answers {
        match answer.status {
            503 => {
                answer.problem(503, "busy");
                busy += 1;
            }
            _ => drop(answer.first(201)),
        }
    }
    assert!(busy > 0, "nobody was told to come back");
    shop.get("/readyz").send().await.ok(200);
    let settled = join_all(deposits.iter().map(settled)).await;
    for (answer, first) in settled.iter().zip(&answers) {
        match first.status {
            503 => drop(answer.ok(201)),
            _ => answer.replays(first),
        }
    }
    assert_eq!(audit(&site).journal, FLOOD as i64 + 1);
}
