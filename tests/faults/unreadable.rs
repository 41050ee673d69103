//! The database cannot be read at all.

use std::fs;

use crate::support::client::{Shop, order_body};
use crate::support::names::fresh;
use crate::support::oracle::audit;
use crate::support::site::Site;
use crate::support::stores;
use crate::support::wait::eventually;

/// Asserts that every kind of request gets a retryable 503.
async fn all_unavailable(shop: &Shop) {
    let body = order_body(&fresh("order"), "u", 1);
    for call in [
        shop.command("/v1/orders", &fresh("k"), &body),
        shop.deposit_call("u", &fresh("k"), 1),
        shop.pay_call("x", &fresh("k"), 1),
        shop.get("/v1/orders"),
        shop.get("/v1/orders/x"),
        shop.get("/v1/orders/x/payments"),
        shop.get("/v1/orders/x/events"),
        shop.get("/v1/accounts/x"),
        shop.get("/v1/payments/pay_01890a5d-ac96-774b-bcce-b302099a8057"),
    ] {
        let answer = call.send().await;
        let problem = answer.problem(503, "storage_unavailable");
        assert_eq!(problem["retryable"], true);
        // What SQLite or the host said is for the log, not for clients.
        let text = answer.text();
        assert!(!text.contains("sqlite"), "{text}");
    }
}

/// R5: a directory in the place of the database: 503; when it is gone the same key runs, without a
/// restart.
#[tokio::test]
async fn a_directory_in_place_of_the_database_is_a_503_until_it_is_gone() {
    let site = Site::new();
    fs::create_dir(site.database()).unwrap();
    let server = site.start();
    let shop = server.shop();
    all_unavailable(&shop).await;
    shop.get("/healthz").send().await.status(200);
    let key = fresh("k");
    let deposit = shop.deposit_call(&fresh("user"), &key, 5);
    let failed = deposit.clone().send().await;
    failed.problem(503, "storage_unavailable");

    fs::remove_dir(site.database()).unwrap();
    let answer = eventually("the storage to be back", async || {
        let answer = deposit.clone().send().await;
        (answer.status != 503).then_some(answer)
    })
    .await;
    answer.first(201);
    deposit.send().await.replays(&answer);
    audit(&site);
}

/// R5: the file is damaged, the service says so, the file is restored: nothing is lost.
#[tokio::test]
async fn a_damaged_database_is_a_503_until_it_is_restored() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(10).await;
    let key = fresh("k");
    let answer = shop.pay(&order_no, &key, 10).await;
    answer.first(200);
    server.stop();
    // Everything into the one file, so that it can be moved.
    let merged = site.connect();
    merged
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    drop(merged);
    let good = site.database().with_extension("good");
    fs::rename(site.database(), &good).unwrap();
    fs::write(site.database(), "no database at all ".repeat(1000)).unwrap();
    // Without the cached answers, so that every request needs the database.
    fs::remove_file(site.key_value()).unwrap();

    let server = site.start();
    let shop = server.shop();
    all_unavailable(&shop).await;
    let pay = shop.pay_call(&order_no, &key, 10);
    let failed = pay.clone().send().await;
    failed.problem(503, "storage_unavailable");

    fs::rename(&good, site.database()).unwrap();
    let restored = eventually("the storage to be back", async || {
        let again = pay.clone().send().await;
        (again.status != 503).then_some(again)
    })
    .await;
    restored.replays(&answer);
    assert_eq!(audit(&site).succeeded, 1);
}

/// Contract: a replay is one key-value read, so it needs no database.
#[tokio::test]
async fn a_cached_answer_is_replayed_while_the_database_is_away() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(10).await;
    let key = fresh("k");
    let answer = shop.pay(&order_no, &key, 10).await;
    answer.first(200);
    let payment_id = answer.json()["payment_id"].as_str().unwrap().to_owned();
    eventually("the cached answer", async || {
        stores::entry_with(&site.key_value(), &payment_id)
    })
    .await;
    server.stop();
    let good = site.database().with_extension("good");
    fs::rename(site.database(), &good).unwrap();
    fs::create_dir(site.database()).unwrap();
    let server = site.start();
    let shop = server.shop();
    shop.pay(&order_no, &key, 10).await.replays(&answer);
    let other = shop.pay(&order_no, &key, 11).await;
    other.problem(422, "idempotency_key_reused");
}
