//! Sweeping: what is past its retention goes, and its keys never take effect again.

use std::fs;

use futures::future::{join, join_all};
use rusqlite::params;
use serde_json::{Value, json};

use crate::dispatch::dispatch;
use crate::scene::settled;
use crate::support::client::{Call, Shop, order_body, pay_path};
use crate::support::names::fresh;
use crate::support::oracle::audit;
use crate::support::receiver::Reaction::Answer;
use crate::support::receiver::Receiver;
use crate::support::seal;
use crate::support::server::Server;
use crate::support::site::{Site, TOKEN_SECRET};
use crate::support::stores;
use crate::support::wait::eventually;

const EIGHT_DAYS: i64 = 8 * 86_400_000;

async fn sweep(admin: &Shop, body: Value) -> Value {
    let answer = admin.post("/admin/sweep").json(&body).send().await;
    answer.first(200)
}

/// Makes everything in the database eight days older.
fn age(site: &Site) {
    let connection = site.connect();
    for table in ["operations", "outbox"] {
        let sql = format!("UPDATE {table} SET created_at = created_at - ?1");
        connection.execute(&sql, [EIGHT_DAYS]).unwrap();
    }
    let sql = "UPDATE deliveries SET settled_at = settled_at - ?1";
    connection.execute(sql, [EIGHT_DAYS]).unwrap();
}

/// Makes every cached answer eight days older.
fn age_entries(site: &Site) {
    for (name, value) in stores::entries(&site.key_value()) {
        let Some(record) = seal::record(&value) else {
            continue;
        };
        let mut record: Value = serde_json::from_slice(record).unwrap();
        if let Some(stored_at) = record["response"]["stored_at"].as_i64() {
            record["response"]["stored_at"] = json!(stored_at - EIGHT_DAYS);
            let entry = seal::sealed(TOKEN_SECRET, &name, record.to_string().as_bytes());
            stores::overwrite(&site.key_value(), &name, &entry);
        }
    }
}

/// Lets eight days pass, sweeps, and empties the key-value store; returns a new server and what the sweep said.
/// The old one ends before the store is emptied: it may still have had an answer to cache.
async fn forget(site: &Site, server: Server) -> (Server, Value) {
    age(site);
    let swept = sweep(&server.admin(), json!({})).await;
    server.stop();
    stores::wipe(&site.key_value());
    (site.start(), swept)
}

fn count(site: &Site, table: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {table}");
    let count = site.connect().query_row(&sql, [], |row| row.get(0));
    count.unwrap()
}

/// Puts a record into the key-value store, as the service would.
fn put_record(site: &Site, name: &str, record: &Value) {
    let record = record.to_string();
    let entry = seal::sealed(TOKEN_SECRET, name, record.as_bytes());
    put(site, name, &entry);
}

/// Puts an entry into the key-value store, as another writer of it would.
fn put(site: &Site, name: &str, value: &[u8]) {
    let sql =
        "INSERT OR REPLACE INTO spin_key_value (store, key, value) VALUES ('default', ?1, ?2)";
    let connection = stores::open(&site.key_value());
    connection.execute(sql, params![name, value]).unwrap();
}

/// One request of every operation there is, with money that covers each, and one final decline.
async fn one_of_each(shop: &Shop) -> Vec<Call> {
    let user_id = fresh("user");
    let (order_no, poor_order) = (fresh("order"), fresh("order"));
    let deposit = shop.deposit_call(&user_id, &fresh("k"), 10);
    let named = order_body(&order_no, &user_id, 10);
    let create = shop.command("/v1/orders", &fresh("k"), &named);
    let mut unnamed = named.clone();
    unnamed.as_object_mut().unwrap().remove("order_no");
    let create_unnamed = shop.command("/v1/orders", &fresh("k"), &unnamed);
    let pay = shop.pay_call(&order_no, &fresh("k"), 10);
    for (call, status) in [
        (&deposit, 201),
        (&create, 201),
        (&create_unnamed, 201),
        (&pay, 200),
    ] {
        call.clone().send().await.first(status);
    }
    let poor = order_body(&poor_order, &fresh("poor"), 10);
    let create_poor = shop.command("/v1/orders", &fresh("k"), &poor);
    create_poor.clone().send().await.first(201);
    let declined = shop.pay_call(&poor_order, &fresh("k"), 10);
    declined
        .clone()
        .send()
        .await
        .problem(402, "insufficient_funds");
    vec![deposit, create, create_unnamed, pay, create_poor, declined]
}

/// Invariant 2 for ever: after retention a key gets the state machine's answer or hears that it was used,
/// whatever the operation, and nothing happens a second time.
#[tokio::test]
async fn a_swept_key_never_takes_effect_again() {
    let site = Site::new();
    let server = site.start();
    let calls = one_of_each(&server.shop()).await;
    let (server, swept) = forget(&site, server).await;
    assert_eq!(swept["deleted"]["journal_rows"], 6);
    assert_eq!(count(&site, "operations"), 0);
    let before = audit(&site);
    let shop = server.shop();
    let calls: Vec<Call> = calls
        .into_iter()
        .map(|call| call.to(&server.base))
        .collect();

    let codes = [
        "idempotency_key_expired",
        "order_exists",
        "idempotency_key_expired",
        "order_already_paid",
        "order_exists",
        "idempotency_key_expired",
    ];
    // The declined payment would succeed now.
    let poor_order = calls[5].clone().send().await;
    poor_order.problem(409, "idempotency_key_expired");
    let sql = "SELECT user_id FROM orders WHERE status = 'pending' AND user_id LIKE 'poor%'";
    let poor: String = site.connect().query_row(sql, [], |row| row.get(0)).unwrap();
    shop.deposit(&poor, 10).await;
    for (call, code) in calls.iter().zip(codes) {
        for _ in 0..2 {
            let problem = call.clone().send().await.problem(409, code);
            let has_payment = code == "order_already_paid";
            assert_eq!(problem.get("payment").is_some(), has_payment, "{problem}");
        }
    }
    // Neither has the same key with another body any effect.
    let (key, user_id) = (fresh("k"), fresh("user"));
    shop.deposit_call(&user_id, &key, 1).send().await.first(201);
    let (server, _) = forget(&site, server).await;
    let shop = server.shop();
    let other = shop.deposit_call(&user_id, &key, 2).send().await;
    other.problem(409, "idempotency_key_expired");
    assert_eq!(shop.balance(&user_id).await, 1);
    assert_eq!(shop.balance(&poor).await, 10);
    // The merchants' keys are their own, retired or not.
    let call = server.other_shop().deposit_call(&user_id, &key, 5);
    call.send().await.first(201);

    let after = audit(&site);
    assert_eq!(
        (after.orders, after.succeeded),
        (before.orders, before.succeeded)
    );
    assert_eq!(after.journal, before.journal + 3);
}

/// The same for what becomes of an order and for what has none: no second refund, coupon, message, and no
/// old profile over a newer one.
#[tokio::test]
async fn no_other_operation_takes_effect_again_either() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let user_id = fresh("user");
    shop.deposit(&user_id, 10).await;
    let order_no = shop.order_of(&user_id, 10).await;
    shop.pay(&order_no, &fresh("k"), 10).await.first(200);
    let order = |command: &str| format!("/v1/orders/{order_no}/{command}");
    let profile = format!("/v1/users/{user_id}/profile");
    let update = |value: &str| {
        let call = shop.request(reqwest::Method::PATCH, &profile);
        call.key(&fresh("k")).json(&json!({"city": value}))
    };
    let old_profile = update("Ulm");
    let grants = format!("/v1/coupons/{}/grants", fresh("activity"));
    let message = json!({"kind": "sms", "to": "+49", "text": "hi"});
    let expired = "idempotency_key_expired";
    let calls = [
        (
            shop.command(&order("refunds"), &fresh("k"), &json!({"amount": 3})),
            201,
            expired,
        ),
        (
            shop.command(&order("ship"), &fresh("k"), &json!({})),
            200,
            "order_state_invalid",
        ),
        (
            shop.command(&order("complete"), &fresh("k"), &json!({})),
            200,
            "order_state_invalid",
        ),
        (
            shop.command(&grants, &fresh("k"), &json!({"user_id": user_id})),
            201,
            expired,
        ),
        (
            shop.command("/v1/messages", &fresh("k"), &message),
            202,
            expired,
        ),
        (old_profile, 200, expired),
    ];
    for (call, status, _) in &calls {
        call.clone().send().await.first(*status);
    }
    update("Bonn").send().await.first(200);
    let (server, _) = forget(&site, server).await;
    let shop = server.shop();
    audit(&site);
    let before = stores::row_counts(&site.connect());
    for (call, _, code) in &calls {
        let call = call.clone().to(&server.base);
        for _ in 0..2 {
            call.clone().send().await.problem(409, code);
        }
    }
    assert_eq!(stores::row_counts(&site.connect()), before);
    assert_eq!(shop.balance(&user_id).await, 3);
    assert_eq!(shop.order(&order_no).await["refunded_amount"], 3);
    let sql = "SELECT fields ->> '$.city' FROM profiles WHERE user_id = ?1";
    let city = site
        .connect()
        .query_row(sql, [&user_id], |row| row.get::<_, String>(0));
    assert_eq!(city.unwrap(), "Bonn");
    audit(&site);
}

/// Many requests with one retired key at once, and among others: each hears so, the others go on.
#[tokio::test]
async fn a_retired_key_takes_no_other_operation_along() {
    let site = Site::new();
    let server = site.start();
    let (key, user_id) = (fresh("k"), fresh("user"));
    let deposit = server.shop().deposit_call(&user_id, &key, 1);
    deposit.send().await.first(201);
    let (server, _) = forget(&site, server).await;
    let shop = server.shop();
    let retired = shop.deposit_call(&user_id, &key, 1);
    let calls = (0..40).map(|n| match n % 4 {
        0 => retired.clone(),
        _ => shop.deposit_call(&user_id, &fresh("k"), 1),
    });
    let calls: Vec<Call> = calls.collect();
    let answers = join_all(calls.iter().map(settled)).await;
    for (n, answer) in answers.iter().enumerate() {
        if n % 4 == 0 {
            answer.problem(409, "idempotency_key_expired");
        } else {
            answer.ok(201);
        }
    }
    assert_eq!(shop.balance(&user_id).await, 31);
    audit(&site);
}

/// Invariant 13: a token is gone with its record.
#[tokio::test]
async fn a_redeemed_token_is_gone_after_its_retention() {
    let site = Site::new().variable("token_ttl_seconds", 1);
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(10).await;
    let token = shop.token().await;
    let call = shop
        .post(&pay_path(&order_no))
        .header("submit-token", &token)
        .json(&json!({"amount": 10}));
    let paid = call.clone().send().await;
    paid.first(200);
    let (server, _) = forget(&site, server).await;
    let call = call.to(&server.base);
    eventually("the token's end", async || {
        let late = call.clone().send().await;
        if late.status == 409 {
            late.problem(409, "order_already_paid");
            return None;
        }
        Some(late.problem(410, "token_expired"))
    })
    .await;
    let shop = server.shop();
    assert_eq!(shop.payments(&order_no).await.len(), 1);
    audit(&site);
}

/// What is younger than its retention stays and replays; the audit trail stays for ever.
#[tokio::test]
async fn only_what_is_past_its_retention_goes() {
    let receiver = Receiver::start();
    let site = Site::new().notifying(&receiver);
    let server = site.start();
    let (shop, admin) = (server.shop(), server.admin());
    let order_no = shop.payable(10).await;
    let trail_path = format!("/v1/orders/{order_no}/events");
    let decline_key = fresh("k");
    let other = shop.order_of(&fresh("poor"), 10).await;
    shop.pay(&other, &decline_key, 10).await.status(402);
    shop.pay(&order_no, &fresh("k"), 10).await.first(200);
    let other_path = format!("/v1/orders/{other}/events");
    receiver.event(&order_no, "order.paid").await;
    dispatch(&admin, json!({})).await;
    let (old, events) = (count(&site, "operations"), count(&site, "outbox"));
    eventually("all events sent", async || {
        (count(&site, "deliveries WHERE state = 'sent'") == events).then_some(())
    })
    .await;
    age(&site);
    let trail = shop.get(&trail_path).send().await;
    let other_trail = shop.get(&other_path).send().await;
    let key = fresh("k");
    let young_order = shop.payable(10).await;
    let young = shop.pay(&young_order, &key, 10).await;
    young.first(200);

    let answer = sweep(&admin, json!({})).await;
    assert_eq!(answer["deleted"]["journal_rows"], old);
    assert_eq!(answer["deleted"]["events"], events);
    assert_eq!(answer["left"]["journal_rows"], 0);
    assert_eq!(answer["left"]["events"], 0);
    assert_eq!(count(&site, "operations"), 3);
    let again = sweep(&admin, json!({})).await;
    assert_eq!(again["deleted"]["journal_rows"], 0);
    stores::wipe(&site.key_value());
    shop.pay(&young_order, &key, 10).await.replays(&young);
    shop.get(&trail_path).send().await.equals(&trail);
    shop.get(&other_path).send().await.equals(&other_trail);
    audit(&site);
}

/// Invariant 12: an event that was not delivered stays, however old, and so does one that was given up.
#[tokio::test]
async fn an_undelivered_event_is_never_swept() {
    let receiver = Receiver::start();
    receiver.otherwise(Answer(500));
    let site = Site::new()
        .notifying(&receiver)
        .variable("notify_max_attempts", 1);
    let server = site.start();
    let (shop, admin) = (server.shop(), server.admin());
    let dead = shop.order_of("u", 1).await;
    eventually("a dead event", async || {
        (count(&site, "deliveries WHERE state = 'dead'") == 1).then_some(())
    })
    .await;
    age(&site);
    let answer = sweep(&admin, json!({})).await;
    assert_eq!(answer["deleted"]["journal_rows"], 1);
    assert_eq!(answer["deleted"]["events"], 0);
    receiver.otherwise(Answer(200));
    assert_eq!(dispatch(&admin, json!({"dead": true})).await["sent"], 1);
    assert_eq!(receiver.events_of(&dead).len(), 2);
}

/// A sweep is bounded by its limit and says what is left; the next goes on.
#[tokio::test]
async fn a_sweep_is_bounded_and_the_next_goes_on() {
    let site = Site::new();
    let server = site.start();
    let (shop, admin) = (server.shop(), server.admin());
    let user_id = fresh("user");
    for _ in 0..10 {
        shop.deposit(&user_id, 1).await;
    }
    age(&site);
    let old = json!({"response": {"fingerprint": "f", "stored_at": 1,
        "answer": {"status": 200, "location": null, "body": "{}"}}});
    for number in 0..10 {
        put_record(&site, &format!("payonce:1:{number}"), &old);
    }
    for left in [6, 2, 0] {
        let answer = sweep(&admin, json!({"limit": 4})).await;
        assert_eq!(answer["left"]["journal_rows"], left);
        assert!(answer["deleted"]["answers"].as_u64().unwrap() <= 4);
    }
    eventually("the end of a round", async || {
        let answer = sweep(&admin, json!({"limit": 4})).await;
        (answer["left"]["entries"] == 0).then_some(())
    })
    .await;
    assert_eq!(count(&site, "operations"), 0);
    let of_test = |name: &String| name.len() == "payonce:1:0".len();
    let entries = stores::entries(&site.key_value());
    assert_eq!(entries.keys().filter(|name| of_test(name)).count(), 0);
    audit(&site);
}

/// Old answers, claims nobody waits for and garbage go; what is fresh, and what others keep in the same
/// store, stays.
#[tokio::test]
async fn of_the_key_value_store_only_expired_entries_of_ours_go() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(10).await;
    let key = fresh("k");
    let paid = shop.pay(&order_no, &key, 10).await;
    shop.pay(&order_no, &key, 10).await.replays(&paid);
    let payment_id = paid.json()["payment_id"].as_str().unwrap().to_owned();
    eventually("a cached answer", async || {
        stores::entry_with(&site.key_value(), &payment_id)
    })
    .await;
    // What it still had to write is written, or never will be.
    server.stop();
    let server = site.start();
    let (shop, admin) = (server.shop(), server.admin());
    let answers = || {
        let entries = stores::entries(&site.key_value()).into_values();
        let texts = entries.map(|value| String::from_utf8_lossy(&value).into_owned());
        texts.filter(|text| text.contains("stored_at")).count()
    };
    let fresh_entries = answers();
    let now = site
        .connect()
        .query_row("SELECT unixepoch() * 1000", [], |row| row.get(0));
    let now: i64 = now.unwrap();
    let claim = |lease_until: i64| {
        json!({"claim": {"owner": "018f0000-0000-7000-8000-000000000000", "fingerprint": "f",
            "lease_until": lease_until}})
    };
    put_record(&site, "payonce:1:dead-claim", &claim(now - 3_600_000));
    put_record(&site, "payonce:1:live-claim", &claim(now + 5_000));
    for name in ["payonce:1:garbage", "others", "payonce:2:next"] {
        put(&site, name, b"garbage");
    }
    let answer = sweep(&admin, json!({})).await;
    let deleted = &answer["deleted"];
    assert_eq!(
        (
            &deleted["answers"],
            &deleted["claims"],
            &deleted["unreadable"]
        ),
        (&json!(0), &json!(1), &json!(1))
    );
    let entries = stores::entries(&site.key_value());
    assert_eq!(answers(), fresh_entries);
    for name in ["payonce:1:live-claim", "others", "payonce:2:next"] {
        assert!(entries.contains_key(name), "{name}");
    }
    age_entries(&site);
    let answer = sweep(&admin, json!({})).await;
    assert_eq!(answer["deleted"]["answers"], fresh_entries);
    shop.pay(&order_no, &key, 10).await.replays(&paid);
}

/// Invariant 11: without the key-value store the database is swept all the same, and the answer says so.
#[tokio::test]
async fn without_the_key_value_store_the_journal_is_swept() {
    let site = Site::new();
    fs::create_dir(site.key_value()).unwrap();
    let server = site.start();
    server.shop().deposit("u", 1).await;
    age(&site);
    let answer = sweep(&server.admin(), json!({})).await;
    assert_eq!(answer["deleted"]["journal_rows"], 1);
    assert_eq!(answer["left"]["entries"], Value::Null);
}

/// Several sweeps at once, in two processes, next to live payments and replays: every old row goes once,
/// no answer changes.
#[tokio::test]
async fn sweeps_run_beside_each_other_and_beside_live_requests() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let user_id = fresh("user");
    let fund = (0..400).map(|_| shop.deposit_call(&user_id, &fresh("k"), 1));
    let fund: Vec<Call> = fund.collect();
    for answer in join_all(fund.iter().map(settled)).await {
        answer.ok(201);
    }
    age(&site);
    let other = site.start();
    let admins = [server.admin(), other.admin(), server.admin(), other.admin()];
    let sweeps = join_all(admins.iter().map(|admin| sweep(admin, json!({}))));
    let live = async {
        let pays = (0..30).map(|n| {
            let shop = if n % 2 == 0 {
                server.shop()
            } else {
                other.shop()
            };
            async move {
                let order_no = shop.payable(1).await;
                let call = shop.pay_call(&order_no, &fresh("k"), 1);
                let first = settled(&call).await;
                first.ok(200);
                settled(&call).await.equals(&first);
            }
        });
        join_all(pays).await
    };
    let (answers, _) = join(sweeps, live).await;
    let deleted = |answer: &Value| answer["deleted"]["journal_rows"].as_i64().unwrap();
    assert_eq!(answers.iter().map(deleted).sum::<i64>(), 400);
    assert_eq!(count(&site, "retired_operations"), 400);
    assert_eq!(shop.balance(&user_id).await, 400);
    audit(&site);
}

/// A sweep that is killed leaves nothing half done, and the next one ends it.
#[tokio::test]
async fn a_killed_sweep_is_finished_by_the_next() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let fund = (0..300).map(|_| shop.deposit_call("u", &fresh("k"), 1));
    let fund: Vec<Call> = fund.collect();
    for answer in join_all(fund.iter().map(settled)).await {
        answer.ok(201);
    }
    age(&site);
    let call = server.admin().post("/admin/sweep").json(&json!({}));
    let running = tokio::spawn(call.attempt());
    eventually("a swept row", async || {
        (count(&site, "retired_operations") > 0).then_some(())
    })
    .await;
    server.kill();
    let _ = running.await.unwrap();
    assert_eq!(
        count(&site, "operations") + count(&site, "retired_operations"),
        300
    );
    audit(&site);
    let server = site.start();
    assert_eq!(
        sweep(&server.admin(), json!({})).await["left"]["journal_rows"],
        0
    );
    assert_eq!(count(&site, "retired_operations"), 300);
    audit(&site);
}

/// Contract, Configuration: a retention that ends before the retries do is refused; payments go on.
#[tokio::test]
async fn a_retention_below_two_days_is_refused() {
    for days in ["1", "0", "-7", "1.5", "week"] {
        let site = Site::new().variable("retention_days", days);
        let server = site.start();
        let shop = server.shop();
        let ready = shop.get("/readyz").send().await;
        ready.problem(503, "not_configured");
        assert!(ready.text().contains("retention_days"), "{}", ready.text());
        let call = server.admin().post("/admin/sweep").send().await;
        call.problem(503, "not_configured");
        let order_no = shop.payable(1).await;
        shop.pay(&order_no, &fresh("k"), 1).await.first(200);
    }
}
