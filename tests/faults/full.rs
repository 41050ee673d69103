//! The disk is full.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use futures::future::join_all;
use serde_json::json;

use crate::scene::settled;
use crate::support::names::fresh;
use crate::support::oracle::audit;
use crate::support::site::Site;
use crate::support::wait::eventually;

/// SQLite begins its log anew only when nobody reads. Where somebody always does, the log stays small all the same.
#[tokio::test]
async fn the_log_of_the_database_is_emptied_although_somebody_always_reads() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    shop.deposit("u", 1).await;
    let [mut one, mut other] = [site.connect(), site.connect()];
    let (stop, stopped) = mpsc::channel::<()>();
    let readers = std::thread::spawn(move || {
        let look = "BEGIN; SELECT count(*) FROM accounts;";
        one.execute_batch(look).unwrap();
        while stopped.recv_timeout(Duration::from_millis(3)) == Err(RecvTimeoutError::Timeout) {
            other.execute_batch(look).unwrap();
            one.execute_batch("COMMIT").unwrap();
            std::mem::swap(&mut one, &mut other);
        }
    });
    let log = site.database().with_extension("db-wal");
    let mut longest = 0;
    eventually("a log that was emptied", async || {
        let users: Vec<_> = (0..16).map(|_| fresh("user")).collect();
        join_all(users.iter().map(|user| shop.deposit(user, 1))).await;
        let length = std::fs::metadata(&log).unwrap().len();
        longest = longest.max(length);
        (length < longest / 2).then_some(())
    })
    .await;
    drop(stop);
    readers.join().unwrap();
    audit(&site);
}

/// R5, invariants 4 and 5: what does not fit is a retryable 503 without effect; what was answered
/// stays; when there is room again every key ends in one final answer.
#[tokio::test]
async fn a_full_disk_is_a_503_without_effect_until_there_is_room() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let user_id = fresh("user");
    let mut payments = Vec::new();
    for _ in 0..60 {
        let order_no = shop.order_of(&user_id, 10).await;
        payments.push((order_no, fresh("k")));
    }
    shop.deposit(&user_id, 600).await;
    // The limit holds for the host's own files in memory too: leave room for an instance.
    for _ in 0..40 {
        let metadata: BTreeMap<_, _> = (0..20)
            .map(|i| (format!("k{i}"), "x".repeat(500)))
            .collect();
        let order =
            json!({"user_id": user_id, "amount": 10, "currency": "EUR", "metadata": metadata});
        let call = shop.post("/v1/orders").key(&fresh("k")).json(&order);
        call.send().await.first(201);
    }
    server.stop();
    let size = std::fs::metadata(site.database()).unwrap().len();

    let server = site.start_on_full_disk(size + 4096);
    let shop = server.shop();
    let mut answered = Vec::new();
    let mut failed = 0;
    for (order_no, key) in &payments {
        let answer = shop.pay(order_no, key, 10).await;
        if answer.status == 503 {
            let code = answer.json()["code"].as_str().unwrap().to_owned();
            answer.problem(503, &code);
            failed += 1;
        } else {
            answer.first(200);
            answered.push((order_no, key, answer));
        }
    }
    assert!(failed > 0, "the disk was never full");
    let paid = answered.len() as i64;
    assert_eq!(shop.balance(&user_id).await, 600 - 10 * paid);
    shop.get("/healthz").send().await.status(200);
    server.kill();
    assert_eq!(audit(&site).succeeded, paid);

    let server = site.start();
    let shop = server.shop();
    for (order_no, key, answer) in answered {
        shop.pay(order_no, key, 10).await.replays(&answer);
    }
    for (order_no, key) in &payments {
        settled(&shop.pay_call(order_no, key, 10)).await.ok(200);
    }
    assert_eq!(shop.balance(&user_id).await, 0);
    assert_eq!(audit(&site).succeeded, 60);
}
