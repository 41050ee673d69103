//! SIGKILL in the middle of every kind of operation: what was answered stays so, and the retry of the rest
//! gets one final answer (invariants 2, 4 and 9).

use std::collections::BTreeMap;

use futures::future::join_all;
use serde_json::json;
use tokio::task::JoinSet;

use crate::support::answer::Answer;
use crate::support::client::{Call, Shop};
use crate::support::names::fresh;
use crate::support::oracle::{audit, journal_rows};
use crate::support::server::Server;
use crate::support::site::Site;

/// Calls of every kind under keys of their own, some of which exclude each other.
async fn every_kind(shop: &Shop) -> Vec<(String, Call)> {
    let activity_id = fresh("activity");
    shop.limit(&activity_id, Some(5)).await;
    let orders = join_all((0..10).map(|_| shop.paid(10))).await;
    let pending = join_all((0..10).map(|_| shop.payable(10))).await;
    let mut calls = Vec::new();
    let mut add = |call: &dyn Fn(&str) -> Call| {
        let key = fresh("k");
        let call = call(&key);
        calls.push((key, call));
    };
    for (number, (order_no, pending)) in orders.iter().zip(&pending).enumerate() {
        add(&|key| shop.move_call(order_no, "ship", key));
        add(&|key| shop.refund_call(order_no, key, 4));
        add(&|key| shop.refund_call(order_no, key, 7));
        add(&|key| shop.move_call(pending, "cancel", key));
        add(&|key| shop.pay_call(pending, key, 10));
        add(&|key| shop.grant_call(&activity_id, key, &format!("user-{number}")));
        add(&|key| shop.profile_call("ada", key, &json!({format!("k{number}"): "v"})));
        let message = json!({"kind": "email", "to": "ada@example.org", "text": "x"});
        add(&|key| shop.command("/v1/messages", key, &message));
    }
    calls
}

/// Sends all calls at once and kills the server after so many answers; returns what was answered.
async fn interrupted(
    server: Server,
    calls: &[(String, Call)],
    answers: usize,
) -> BTreeMap<usize, Answer> {
    let mut running = JoinSet::new();
    for (index, (_, call)) in calls.iter().enumerate() {
        let call = call.clone();
        running.spawn(async move { (index, call.attempt().await) });
    }
    let mut answered = BTreeMap::new();
    let mut server = Some(server);
    while let Some(one) = running.join_next().await {
        if let (index, Ok(answer)) = one.expect("a task") {
            answered.insert(index, answer);
        }
        if answered.len() >= answers
            && let Some(server) = server.take()
        {
            server.kill();
        }
    }
    answered
}

#[tokio::test]
async fn every_kind_of_operation_survives_a_kill() {
    for answers in [1, 10, 40] {
        let site = Site::new().variable("claim_lease_ms", 1000);
        let server = site.start();
        let calls = every_kind(&server.shop()).await;
        let answered = interrupted(server, &calls, answers).await;
        let server = site.start();
        audit(&site);
        for (index, (key, call)) in calls.iter().enumerate() {
            let call = call.clone().to(&server.base);
            let answer = call.settled().await;
            match answered.get(&index) {
                Some(before) if before.status < 300 => answer.replays(before),
                _ => {}
            }
            if answer.status < 300 {
                call.send().await.replays(&answer);
            }
            let recorded = i64::from(answer.status < 300);
            assert_eq!(journal_rows(&site, key), recorded, "{}", answer.text());
        }
        audit(&site);
    }
}
