//! An end in good order, and a new beginning.

use crate::support::answer::Answer;
use crate::support::client::{Call, order_body};
use crate::support::names::fresh;
use crate::support::oracle::audit;
use crate::support::server::Server;
use crate::support::site::Site;
use crate::support::stores;

/// One command of each kind, and a decline.
async fn some_of_each(server: &Server) -> Vec<(Call, Answer)> {
    let shop = server.shop();
    let (user_id, poor) = (fresh("user"), fresh("poor"));
    let order_no = fresh("order");
    let unpaid = shop.order_of(&poor, 10).await;
    let calls = [
        shop.deposit_call(&user_id, &fresh("k"), 10),
        shop.command(
            "/v1/orders",
            &fresh("k"),
            &order_body(&order_no, &user_id, 10),
        ),
        shop.pay_call(&order_no, &fresh("k"), 10),
        shop.pay_call(&unpaid, &fresh("k"), 10),
    ];
    let mut answers = Vec::new();
    for (call, status) in calls.into_iter().zip([201, 201, 200, 402]) {
        let answer = call.clone().send().await;
        answer.status(status);
        assert!(!answer.replayed());
        answers.push((call, answer));
    }
    answers
}

/// Invariants 2 and 4: replays are equal after a restart, and after a second one without the
/// key-value store.
#[tokio::test]
async fn replays_are_equal_after_a_restart_and_without_the_key_value_store() {
    let site = Site::new();
    let server = site.start();
    let done = some_of_each(&server).await;
    server.stop();
    for lose_key_value in [false, true, true] {
        if lose_key_value {
            std::fs::remove_file(site.key_value()).unwrap();
        }
        let server = site.start();
        for (call, answer) in &done {
            let call = call.clone().to(&server.base);
            call.clone().send().await.replays(answer);
            call.send().await.replays(answer);
        }
        server.stop();
    }
    assert_eq!(audit(&site).succeeded, 1);
}

/// Invariant 10: a lost key-value store does not mix up merchants or bodies either.
#[tokio::test]
async fn a_reused_key_is_refused_from_the_journal_too() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let user_id = fresh("user");
    let key = fresh("k");
    let answer = shop.deposit_call(&user_id, &key, 10).send().await;
    answer.first(201);
    server.stop();
    std::fs::remove_file(site.key_value()).unwrap();
    let server = site.start();
    let other = server.shop().deposit_call(&user_id, &key, 11).send().await;
    other.problem(422, "idempotency_key_reused");
    let foreign = server.other_shop().deposit_call(&user_id, &key, 10);
    foreign.send().await.first(201);
    let same = server.shop().deposit_call(&user_id, &key, 10).send().await;
    same.replays(&answer);
    audit(&site);
}

/// Contract, Routes: issuing a token writes nothing, anywhere.
#[tokio::test]
async fn issuing_a_token_writes_nothing() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    shop.payable(1).await;
    server.stop();
    let before = (
        stores::row_counts(&site.connect()),
        stores::entries(&site.key_value()),
    );
    let server = site.start();
    server.shop().get("/readyz").send().await.status(200);
    for _ in 0..20 {
        server.shop().token().await;
    }
    server.stop();
    let after = (
        stores::row_counts(&site.connect()),
        stores::entries(&site.key_value()),
    );
    assert_eq!(before, after);
}
