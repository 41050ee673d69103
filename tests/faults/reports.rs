//! What the operator is told when something is wrong.

use serde_json::{Value, json};

use crate::support::names::fresh;
use crate::support::receiver::Reaction::Answer;
use crate::support::receiver::Receiver;
use crate::support::server::Server;
use crate::support::site::Site;
use crate::support::wait::eventually;

async fn read(server: &Server, path: &str) -> Value {
    server.admin().get(path).send().await.first(200)
}

/// Invariant 5: books that were tampered with are shown, account by account.
#[tokio::test]
async fn the_ledger_check_names_what_does_not_add_up() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let (right, wrong) = (fresh("right"), fresh("wrong"));
    shop.deposit(&right, 10).await;
    let deposit = shop.deposit(&wrong, 10).await;
    assert_eq!(read(&server, "/admin/ledger").await["ok"], true);

    let books = site.connect();
    let sql = "UPDATE accounts SET balance = balance + 1 WHERE user_id = ?1";
    books.execute(sql, [&wrong]).unwrap();
    let ledger = read(&server, "/admin/ledger").await;
    assert_eq!(ledger["ok"], false);
    assert_eq!(
        ledger["differences"],
        json!([{"merchant_id": "shop-a", "user_id": wrong, "currency": "EUR",
                "balance": 11, "entries": 10}])
    );
    assert_eq!(ledger["unbalanced"], json!([]));

    books
        .execute("DELETE FROM accounts WHERE user_id = ?1", [&wrong])
        .unwrap();
    let ledger = read(&server, "/admin/ledger").await;
    assert_eq!(ledger["differences"][0]["balance"], Value::Null);
    assert_eq!(ledger["differences"][0]["user_id"], wrong);

    books
        .execute_batch("DROP TRIGGER ledger_entries_stay")
        .unwrap();
    let sql = "UPDATE ledger_entries SET amount = amount - 3 WHERE source_id = ?1 AND amount < 0";
    let deposit_id = deposit["deposit_id"].as_str().unwrap();
    books.execute(sql, [deposit_id]).unwrap();
    let ledger = read(&server, "/admin/ledger").await;
    assert_eq!(ledger["ok"], false);
    assert_eq!(ledger["unbalanced"], json!([deposit_id]));
    assert_eq!(ledger["books"][0]["sum"], -3);
}

/// Stats show which events are dead and why, how old the oldest undelivered one is, and stuck payments.
#[tokio::test]
async fn stats_show_what_is_dead_and_what_is_stuck() {
    let receiver = Receiver::start();
    receiver.otherwise(Answer(503));
    let site = Site::new()
        .notifying(&receiver)
        .variable("notify_max_attempts", 1);
    let server = site.start();
    let order_no = server.shop().order_of("u", 1).await;
    let stats = eventually("a dead event", async || {
        let stats = read(&server, "/admin/stats").await;
        (stats["outbox"]["dead"] == 1).then_some(stats)
    })
    .await;
    let dead = &stats["dead_events"][0];
    assert_eq!(dead["subject"], order_no);
    assert_eq!(dead["type"], "order.created");
    assert_eq!(dead["attempts"], 1);
    assert_eq!(dead["last_error"], "status 503");
    assert_eq!(
        stats["outbox"]["oldest_undelivered_at"],
        receiver.received()[0].body["timestamp"]
    );
    assert_eq!(stats["stuck"]["payment_processing_since"], Value::Null);
    assert_eq!(stats["stuck"]["event_due_since"], Value::Null);

    let sql =
        "INSERT INTO payments (payment_id, merchant_id, order_no, request_no, channel, amount,
                 currency, status, created_at, updated_at)
               VALUES ('pay_stuck', 'shop-a', ?1, 'r', 'card', 1, 'EUR', 'processing', 0, 1000)";
    site.connect().execute(sql, [&order_no]).unwrap();
    let sql = "UPDATE deliveries SET state = 'pending', settled_at = NULL, due_at = 2000";
    site.connect().execute(sql, []).unwrap();
    let stats = read(&server, "/admin/stats").await;
    assert_eq!(stats["payments"]["processing"], 1);
    assert_eq!(
        stats["stuck"]["payment_processing_since"],
        "1970-01-01T00:00:01.000Z"
    );
    assert_eq!(
        stats["stuck"]["event_due_since"],
        "1970-01-01T00:00:02.000Z"
    );
}
