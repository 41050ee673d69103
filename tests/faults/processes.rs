//! Several host processes on one data directory, and instances that serve one request only.

use std::collections::BTreeSet;

use futures::future::join_all;

use crate::scene::settled;
use crate::support::answer::Answer;
use crate::support::client::{Call, Shop};
use crate::support::names::fresh;
use crate::support::oracle::audit;
use crate::support::server::Server;
use crate::support::site::Site;

/// Starts processes at the same time.
fn start_together(site: &Site, count: usize) -> Vec<Server> {
    std::thread::scope(|scope| {
        let starting: Vec<_> = (0..count).map(|_| scope.spawn(|| site.start())).collect();
        let started = starting.into_iter().map(|thread| thread.join().unwrap());
        started.collect()
    })
}

/// The migrations as the database lists them.
fn migrations(site: &Site) -> Vec<i64> {
    let connection = site.connect();
    let sql = "SELECT version FROM schema_migrations ORDER BY version";
    let mut statement = connection.prepare(sql).unwrap();
    let versions = statement.query_map([], |row| row.get(0)).unwrap();
    versions.map(Result::unwrap).collect()
}

/// Asserts that among equal requests one was first and all agree.
fn one_first(answers: &[Answer], settled: &Answer) {
    let mut firsts = 0;
    for answer in answers {
        if answer.status == settled.status {
            answer.equals(settled);
            firsts += usize::from(!answer.replayed());
        } else {
            answer.problem(409, "idempotency_in_progress");
        }
    }
    assert_eq!(firsts, 1, "exactly one first answer");
}

/// Migrations are applied once when many start together on nothing; the first requests succeed.
#[tokio::test]
async fn processes_that_start_together_on_nothing_migrate_once() {
    let site = Site::new();
    let servers = start_together(&site, 3);
    let user_id = fresh("user");
    let calls: Vec<Call> = (0..30)
        .map(|number| {
            let shop: Shop = servers[number % servers.len()].shop();
            shop.deposit_call(&user_id, &fresh("k"), 1)
        })
        .collect();
    join_all(calls.iter().map(|call| call.clone().send())).await;
    for answer in join_all(calls.iter().map(settled)).await {
        answer.ok(201);
    }
    assert_eq!(servers[0].shop().balance(&user_id).await, 30);
    let applied = migrations(&site);
    let expected: Vec<i64> = (1..=applied.len() as i64).collect();
    assert!(!applied.is_empty());
    assert_eq!(applied, expected);
    audit(&site);
}

/// Invariants 1 and 2: no correctness rests on the memory of a process.
#[tokio::test]
async fn processes_that_race_for_the_same_keys_charge_once() {
    let site = Site::new();
    let servers = start_together(&site, 3);
    let shop = servers[0].shop();
    let user_id = fresh("user");
    shop.deposit(&user_id, 1000).await;
    let mut all = Vec::new();
    for _ in 0..15 {
        let order_no = shop.order_of(&user_id, 10).await;
        let call = shop.pay_call(&order_no, &fresh("k"), 10);
        let copies: Vec<Call> = (0..6)
            .map(|number| call.clone().to(&servers[number % servers.len()].base))
            .collect();
        all.push((call, copies));
    }
    let racing = all.iter().map(|(_, copies)| {
        join_all(copies.iter().map(|copy| {
            let copy = copy.clone();
            async move { copy.send().await }
        }))
    });
    let answers = join_all(racing).await;
    for ((call, copies), answers) in all.iter().zip(answers) {
        let last = settled(call).await;
        last.ok(200);
        // A process that gave up for now answers the same later.
        let busy = |answer: &Answer| answer.status == 503;
        let given: Vec<Answer> = answers.into_iter().filter(|answer| !busy(answer)).collect();
        one_first(&given, &last);
        for copy in copies {
            settled(copy).await.replays(&last);
        }
    }
    assert_eq!(shop.balance(&user_id).await, 850);
    assert_eq!(audit(&site).succeeded, 15);
}

/// Invariant 1: two keys for one order at two processes: one pays.
#[tokio::test]
async fn two_processes_never_pay_one_order_twice() {
    let site = Site::new();
    let servers = start_together(&site, 2);
    let shop = servers[0].shop();
    let user_id = fresh("user");
    shop.deposit(&user_id, 1000).await;
    for _ in 0..15 {
        let order_no = shop.order_of(&user_id, 10).await;
        let calls: Vec<Call> = servers
            .iter()
            .map(|server| server.shop().pay_call(&order_no, &fresh("k"), 10))
            .collect();
        join_all(calls.iter().map(|call| call.clone().send())).await;
        let answers = join_all(calls.iter().map(settled)).await;
        let paid = answers.iter().filter(|answer| answer.status == 200).count();
        assert_eq!(paid, 1);
        let refused = answers.iter().find(|answer| answer.status != 200).unwrap();
        refused.problem(409, "order_already_paid");
    }
    assert_eq!(shop.balance(&user_id).await, 850);
    assert_eq!(audit(&site).succeeded, 15);
}

/// Invariant 5: what one process decided on a balance that another has changed does not count.
#[tokio::test]
async fn two_processes_never_overdraw_one_wallet() {
    let site = Site::new();
    let servers = start_together(&site, 2);
    let shop = servers[0].shop();
    let user_id = fresh("user");
    shop.deposit(&user_id, 100).await;
    let mut calls = Vec::new();
    for number in 0..20 {
        let order_no = shop.order_of(&user_id, 10).await;
        let call = shop.pay_call(&order_no, &fresh("k"), 10);
        calls.push(call.to(&servers[number % 2].base));
    }
    join_all(calls.iter().map(|call| call.clone().send())).await;
    let answers = join_all(calls.iter().map(settled)).await;
    let paid = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(paid, 10);
    for declined in answers.iter().filter(|answer| answer.status != 200) {
        declined.problem(402, "insufficient_funds");
    }
    assert_eq!(shop.balance(&user_id).await, 0);
    assert_eq!(audit(&site).succeeded, 10);
}

/// Invariant 5: deposits through two processes add up, and no two answers show the same balance.
#[tokio::test]
async fn deposits_through_two_processes_add_up() {
    let site = Site::new();
    let servers = start_together(&site, 2);
    let user_id = fresh("user");
    let calls: Vec<Call> = (0..20)
        .map(|number| {
            let shop = servers[number % 2].shop();
            shop.deposit_call(&user_id, &fresh("k"), 10)
        })
        .collect();
    join_all(calls.iter().map(|call| call.clone().send())).await;
    let answers = join_all(calls.iter().map(settled)).await;
    let shown = answers.iter().map(|answer| {
        let deposit = answer.ok(201);
        deposit["balance"].as_u64().unwrap()
    });
    let shown: BTreeSet<u64> = shown.collect();
    let expected: BTreeSet<u64> = (1..=20).map(|number| number * 10).collect();
    assert_eq!(shown, expected);
    audit(&site);
}

/// No correctness rests on the memory of an instance: a fresh one for every request.
#[tokio::test]
async fn instances_that_serve_one_request_each_charge_once() {
    // Without and with a claim for everything.
    for claim_after_ms in [20, 0] {
        let site = Site::new()
            .instance_reuse(1)
            .variable("claim_after_ms", claim_after_ms);
        charge_once(&site).await;
    }
}

/// Instances that live on and claim everything at once.
#[tokio::test]
async fn instances_that_claim_at_once_charge_once() {
    charge_once(&Site::new().variable("claim_after_ms", 0)).await;
}

/// Crowds of identical payments, one order after the other.
async fn charge_once(site: &Site) {
    let server = site.start();
    let shop = server.shop();
    let user_id = fresh("user");
    shop.deposit(&user_id, 100).await;
    for _ in 0..3 {
        let order_no = shop.order_of(&user_id, 10).await;
        let call = shop.pay_call(&order_no, &fresh("k"), 10);
        let answers = join_all((0..20).map(|_| call.clone().send())).await;
        let last = settled(&call).await;
        last.ok(200);
        one_first(&answers, &last);
        let other = shop.pay(&order_no, &fresh("k"), 10).await;
        other.problem(409, "order_already_paid");
    }
    assert_eq!(shop.balance(&user_id).await, 70);
    assert_eq!(audit(site).succeeded, 3);
}
