//! Delivery of events: at least once, each under one identifier (invariant 12), whatever fails.

use std::collections::BTreeSet;

use futures::future::{join, join_all};
use rusqlite::params;
use serde_json::{Value, json};

use crate::support::client::Shop;
use crate::support::names::fresh;
use crate::support::oracle::audit;
use crate::support::receiver::Reaction::{Answer, Close, Hang};
use crate::support::receiver::{Receiver, SECRET};
use crate::support::shapes;
use crate::support::site::Site;
use crate::support::wait::eventually;

/// Calls the dispatcher.
pub async fn dispatch(admin: &Shop, body: Value) -> Value {
    let answer = admin.post("/admin/dispatch").json(&body).send().await;
    answer.first(200)
}

/// Calls the dispatcher until nothing is left to deliver.
pub async fn dispatch_all(admin: &Shop) {
    eventually("an empty outbox", async || {
        let left = &dispatch(admin, json!({})).await["left"];
        (left["due"] == 0 && left["waiting"] == 0).then_some(())
    })
    .await;
}

/// State, attempts and owner of an event.
fn delivery(site: &Site, event_id: &str) -> (String, i64, Option<String>) {
    let sql = "SELECT state, attempts, owner FROM deliveries WHERE event_id = ?1";
    let row = site.connect().query_row(sql, [event_id], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    });
    row.expect("a delivery")
}

/// Waits until an event is in this state.
async fn in_state(site: &Site, event_id: &str, state: &str) {
    eventually(state, async || {
        (delivery(site, event_id).0 == state).then_some(())
    })
    .await;
}

/// The identifier of the only event of an order.
fn event_of(site: &Site, order_no: &str) -> String {
    let sql = "SELECT event_id FROM outbox WHERE subject = ?1";
    let row = site.connect().query_row(sql, [order_no], |row| row.get(0));
    row.expect("an event")
}

/// Lets time pass: what a dispatcher holds and what pauses is due.
fn expire_leases(site: &Site) {
    let sql = "UPDATE deliveries SET due_at = 1 WHERE state = 'pending'";
    site.connect().execute(sql, []).unwrap();
}

/// A site whose failed events may be tried again at once.
fn impatient(receiver: &Receiver) -> Site {
    Site::new()
        .notifying(receiver)
        .variable("notify_pause_ms", 1)
}

/// R15, invariant 12: nobody waits for a sweep, and the event has what a consumer needs to apply it once.
#[tokio::test]
async fn events_arrive_by_themselves_signed_and_complete() {
    let receiver = Receiver::start();
    let site = Site::new().notifying(&receiver);
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(10).await;
    let key = fresh("k");
    let payment = shop.pay(&order_no, &key, 10).await.first(200);
    shop.pay(&order_no, &key, 10).await.ok(200);
    let order = shop.order(&order_no).await;

    let created = receiver.event(&order_no, "order.created").await;
    let paid = receiver.event(&order_no, "order.paid").await;
    for event in [&created, &paid] {
        assert!(event.is_signed_with(SECRET), "{event:?}");
        shapes::members(
            &event.body,
            &[
                "id",
                "type",
                "timestamp",
                "merchant_id",
                "subject",
                "version",
                "data",
            ],
        );
        assert!(event.id.starts_with("evt_"));
        assert_eq!(event.body["merchant_id"], "shop-a");
        shapes::time(&event.body["timestamp"]);
    }
    assert_eq!(created.body["version"], 1);
    assert_eq!(paid.body["version"], order["version"]);
    assert_eq!(paid.body["data"], payment);
    in_state(&site, &paid.id, "sent").await;
    in_state(&site, &created.id, "sent").await;
    assert_eq!(receiver.events_of(&order_no).len(), 2);
    // A replay is no second event, and what was sent is not sent again.
    let again = dispatch(&server.admin(), json!({})).await;
    assert_eq!(again["sent"], 0);
    assert_eq!(receiver.events_of(&order_no).len(), 2);
    audit(&site);
}

/// R15: an event that failed is sent again under its own identifier, with a fresh timestamp and the same
/// bytes, until the receiver says 2xx.
#[tokio::test]
async fn an_event_is_sent_again_under_its_identifier_until_it_is_taken() {
    let receiver = Receiver::start();
    let site = impatient(&receiver).variable("notify_timeout_ms", 100);
    receiver.script([
        Answer(500),
        Answer(301),
        Answer(404),
        Close,
        Hang,
        Answer(204),
    ]);
    let server = site.start();
    let order_no = server.shop().order_of("u", 1).await;
    dispatch_all(&server.admin()).await;

    let received = receiver.received();
    assert_eq!(received.len(), 6);
    for attempt in &received {
        assert_eq!(attempt.id, received[0].id);
        assert_eq!(attempt.bytes, received[0].bytes);
        assert!(attempt.is_signed_with(SECRET), "{attempt:?}");
    }
    assert_eq!(received[0].id, event_of(&site, &order_no));
    let (state, attempts, owner) = delivery(&site, &received[0].id);
    assert_eq!((state.as_str(), attempts, owner), ("sent", 6, None));
}

/// The pause keeps a dispatcher from a receiver that has just failed.
#[tokio::test]
async fn a_failed_event_pauses() {
    let receiver = Receiver::start();
    receiver.otherwise(Answer(503));
    let site = Site::new().notifying(&receiver);
    let server = site.start();
    let order_no = server.shop().order_of("u", 1).await;
    let event_id = event_of(&site, &order_no);
    eventually("the first attempt", async || {
        let (_, attempts, owner) = delivery(&site, &event_id);
        (attempts == 1 && owner.is_none()).then_some(())
    })
    .await;
    let answer = dispatch(&server.admin(), json!({})).await;
    assert_eq!(answer["claimed"], 0);
    assert_eq!(answer["left"], json!({"due": 0, "waiting": 1, "dead": 0}));
    expire_leases(&site);
    let answer = dispatch(&server.admin(), json!({})).await;
    assert_eq!(
        (&answer["claimed"], &answer["failed"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(receiver.received().len(), 2);
}

/// After the configured number of attempts an event is given up, shown, and sent again when asked for.
#[tokio::test]
async fn a_dead_event_is_shown_and_can_be_sent_again() {
    let receiver = Receiver::start();
    receiver.otherwise(Answer(500));
    let site = impatient(&receiver).variable("notify_max_attempts", 3);
    let server = site.start();
    let (shop, admin) = (server.shop(), server.admin());
    let mut ids = Vec::new();
    for _ in 0..2 {
        let order_no = shop.order_of("u", 1).await;
        ids.push(event_of(&site, &order_no));
    }
    dispatch_all(&admin).await;
    for event_id in &ids {
        let (state, attempts, _) = delivery(&site, event_id);
        assert_eq!((state.as_str(), attempts), ("dead", 3));
    }
    assert_eq!(receiver.received().len(), 6);
    let answer = dispatch(&admin, json!({})).await;
    assert_eq!(answer["left"], json!({"due": 0, "waiting": 0, "dead": 2}));
    assert_eq!(receiver.received().len(), 6, "the dead are left alone");

    receiver.otherwise(Answer(200));
    let answer = dispatch(&admin, json!({"event_id": ids[0]})).await;
    assert_eq!(
        (&answer["revived"], &answer["sent"]),
        (&json!(1), &json!(1))
    );
    let answer = dispatch(&admin, json!({"dead": true})).await;
    assert_eq!(
        (&answer["revived"], &answer["sent"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(answer["left"], json!({"due": 0, "waiting": 0, "dead": 0}));
    let distinct: BTreeSet<_> = receiver.received().into_iter().map(|d| d.id).collect();
    assert_eq!(distinct, ids.iter().cloned().collect());
    // What was sent stays sent.
    let answer = dispatch(&admin, json!({"event_id": ids[0]})).await;
    assert_eq!(
        (&answer["revived"], &answer["sent"]),
        (&json!(0), &json!(0))
    );
}

/// Two dispatchers at once, in one process and in two: an event is claimed by one of them.
#[tokio::test]
async fn dispatchers_at_the_same_time_share_the_events() {
    let receiver = Receiver::start();
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let mut orders = Vec::new();
    for _ in 0..40 {
        orders.push(shop.order_of("u", 1).await);
    }
    server.stop();
    let site = site.notifying(&receiver);
    let (one, two) = (site.start(), site.start());
    let admins = [one.admin(), two.admin(), one.admin(), two.admin()];
    let answers = join_all(admins.iter().map(|admin| dispatch(admin, json!({})))).await;
    let sent: u64 = answers.iter().map(|a| a["sent"].as_u64().unwrap()).sum();
    assert_eq!(sent, 40);
    for order_no in &orders {
        assert_eq!(receiver.events_of(order_no).len(), 1);
    }
    audit(&site);
}

/// A dispatcher that dies after sending: the event is sent again when its lease is over, not before.
#[tokio::test]
async fn a_dispatcher_that_dies_after_sending_costs_a_repetition_only() {
    let receiver = Receiver::start();
    receiver.script([Hang]);
    let site = Site::new().notifying(&receiver);
    let server = site.start();
    let order_no = server.shop().order_of("u", 1).await;
    receiver.event(&order_no, "order.created").await;
    server.kill();

    let server = site.start();
    let early = dispatch(&server.admin(), json!({})).await;
    assert_eq!(early["left"], json!({"due": 0, "waiting": 1, "dead": 0}));
    expire_leases(&site);
    let late = dispatch(&server.admin(), json!({})).await;
    assert_eq!(late["sent"], 1);
    let events = receiver.events_of(&order_no);
    assert_eq!(events.len(), 2);
    assert_eq!(events[0], events[1], "one event, one identifier");
}

/// A stale dispatcher, whose event another one has taken over and delivered, changes nothing any more.
#[tokio::test]
async fn a_stale_dispatcher_does_not_overwrite_a_newer_state() {
    let receiver = Receiver::start();
    receiver.script([Hang, Answer(200)]);
    let site = Site::new()
        .notifying(&receiver)
        .variable("notify_timeout_ms", 1500);
    let server = site.start();
    let order_no = server.shop().order_of("u", 1).await;
    let event_id = receiver.event(&order_no, "order.created").await.id;
    let stale_owner = delivery(&site, &event_id).2;
    assert!(stale_owner.is_some());
    expire_leases(&site);
    let other = site.start();
    assert_eq!(dispatch(&other.admin(), json!({})).await["sent"], 1);
    let newer = delivery(&site, &event_id);
    assert_eq!(newer, ("sent".to_owned(), 2, None));
    // The next order's event is sent by the stale dispatcher's task after it has settled the first.
    let next = server.shop().order_of("u", 1).await;
    let next = receiver.event(&next, "order.created").await;
    in_state(&site, &next.id, "sent").await;
    assert_eq!(delivery(&site, &event_id), newer);
    assert_eq!(receiver.events_of(&order_no).len(), 2);
}

/// The receiver has the event and our own record of it fails: it is sent again under its identifier.
#[tokio::test]
async fn an_event_whose_record_fails_is_sent_again_and_not_lost() {
    let receiver = Receiver::start();
    let site = Site::new();
    let server = site.start();
    let order_no = server.shop().order_of("u", 1).await;
    server.stop();
    let broken = "CREATE TRIGGER broken BEFORE UPDATE OF state ON deliveries
                  BEGIN SELECT RAISE(ABORT, 'broken'); END";
    site.connect().execute_batch(broken).unwrap();
    let site = site.notifying(&receiver);
    let server = site.start();
    let call = server.admin().post("/admin/dispatch").json(&json!({}));
    call.send().await.problem(503, "storage_unavailable");
    assert_eq!(receiver.events_of(&order_no).len(), 1);
    site.connect().execute_batch("DROP TRIGGER broken").unwrap();
    expire_leases(&site);
    assert_eq!(dispatch(&server.admin(), json!({})).await["sent"], 1);
    let events = receiver.events_of(&order_no);
    assert_eq!(events.len(), 2);
    assert_eq!(events[0], events[1]);
}

/// A record that took effect and reported an error is recognized.
#[tokio::test]
async fn a_record_whose_result_was_lost_is_no_second_delivery() {
    let receiver = Receiver::start();
    let site = Site::new();
    let server = site.start();
    let order_no = server.shop().order_of("u", 1).await;
    server.stop();
    let site = site.notifying(&receiver);
    let lost = ["UPDATE deliveries SET state"];
    let server = site.start_losing_results(&lost);
    dispatch(&server.admin(), json!({})).await;
    dispatch_all(&server.admin()).await;
    assert_eq!(receiver.events_of(&order_no).len(), 1);
}

/// A receiver that hangs holds no operation up, neither a first answer nor a replay.
#[tokio::test]
async fn a_receiver_that_hangs_holds_no_operation_up() {
    let receiver = Receiver::start();
    receiver.otherwise(Hang);
    let site = Site::new().notifying(&receiver);
    let server = site.start();
    let shop = server.shop();
    for _ in 0..5 {
        let order_no = shop.payable(1).await;
        let key = fresh("k");
        let first = shop.pay(&order_no, &key, 1).await;
        first.first(200);
        shop.pay(&order_no, &key, 1).await.replays(&first);
    }
    eventually("an attempt", async || {
        (!receiver.received().is_empty()).then_some(())
    })
    .await;
    let sql = "SELECT count(*) FROM deliveries WHERE state = 'sent'";
    let sent: i64 = site.connect().query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(sent, 0);
}

/// Without a receiver events wait and nothing fails; with one, later, they arrive.
#[tokio::test]
async fn without_a_receiver_events_wait() {
    let site = Site::new();
    let server = site.start();
    let order_no = server.shop().order_of("u", 1).await;
    server.shop().get("/readyz").send().await.status(200);
    let answer = dispatch(&server.admin(), json!({})).await;
    assert_eq!(answer["claimed"], 0);
    assert_eq!(answer["left"]["due"], 1);
    assert_eq!(delivery(&site, &event_of(&site, &order_no)).1, 0);
    server.stop();
    let receiver = Receiver::start();
    let site = site.notifying(&receiver);
    let server = site.start();
    assert_eq!(dispatch(&server.admin(), json!({})).await["sent"], 1);
    assert_eq!(receiver.events_of(&order_no).len(), 1);
}

/// While secrets are changed, each receiver finds the signature of the one that it knows.
#[tokio::test]
async fn two_secrets_are_two_signatures() {
    let receiver = Receiver::start();
    let other = "whsec_YW5vdGhlci1zZWNyZXQtMDEyMzQ1Njc4OTAxMjM0NQ==";
    let both = format!("{SECRET} {other}");
    let site = Site::new()
        .notifying(&receiver)
        .variable("notify_secret", both);
    let server = site.start();
    let order_no = server.shop().order_of("u", 1).await;
    let event = receiver.event(&order_no, "order.created").await;
    assert_eq!(event.signature.split(' ').count(), 2);
    assert!(event.is_signed_with(SECRET) && event.is_signed_with(other));
}

/// Messages to customers go to the gateway, all other events to the merchants' systems; each waits for
/// its own receiver only.
#[tokio::test]
async fn messages_and_events_go_to_receivers_of_their_own() {
    let (shops, gateway) = (Receiver::start(), Receiver::start());
    shops.otherwise(Answer(500));
    let site = Site::new();
    let server = site.start();
    let order_no = server.shop().order_of("u", 1).await;
    server.stop();
    let sql = "INSERT INTO outbox (event_id, merchant_id, type, subject, data, created_at)
               VALUES ('evt_message', 'shop-a', 'message.queued', ?1, '{\"text\": \"hi\"}', 1)";
    site.connect().execute(sql, params![order_no]).unwrap();
    let site = site.notifying(&shops).messaging(&gateway);
    let server = site.start();
    let answer = dispatch(&server.admin(), json!({})).await;
    assert_eq!((&answer["sent"], &answer["failed"]), (&json!(1), &json!(1)));
    let message = gateway.event(&order_no, "message.queued").await;
    assert_eq!(message.body["data"], json!({"text": "hi"}));
    assert_eq!(message.body["version"], Value::Null);
    assert!(message.is_signed_with(SECRET));
    let types = |receiver: &Receiver| -> Vec<String> {
        let events = receiver.events_of(&order_no).into_iter();
        events.map(|(event_type, _)| event_type).collect()
    };
    assert_eq!(types(&gateway), ["message.queued"]);
    assert_eq!(types(&shops), ["order.created"]);
}

/// Contract, Configuration: a receiver without a secret, or one that Spin would not let us call, closes
/// the dispatcher and says so; payments go on.
#[tokio::test]
async fn a_receiver_that_cannot_be_used_is_named_and_stops_no_payment() {
    let receiver = Receiver::start();
    let good = || Site::new().notifying(&receiver);
    for (site, variable) in [
        (good().without("notify_secret"), "notify_secret"),
        (good().variable("notify_secret", "plain"), "notify_secret"),
        (good().without("notify_host"), "notify_host"),
        (good().variable("notify_url", "shop.example"), "notify_url"),
        (
            good().variable("notify_max_attempts", "0"),
            "notify_max_attempts",
        ),
    ] {
        let server = site.start();
        let (shop, admin) = (server.shop(), server.admin());
        let ready = shop.get("/readyz").send().await;
        ready.problem(503, "not_configured");
        assert!(ready.text().contains(variable), "{}", ready.text());
        let call = admin.post("/admin/dispatch").json(&json!({}));
        let answer = call.send().await;
        answer.problem(503, "not_configured");
        assert!(answer.text().contains(variable), "{}", answer.text());
        let order_no = shop.payable(1).await;
        shop.pay(&order_no, &fresh("k"), 1).await.first(200);
    }
    assert!(receiver.received().is_empty());
}

/// Dispatchers and operations at the same time: every event arrives, and under one identifier.
#[tokio::test]
async fn under_load_every_event_arrives() {
    let receiver = Receiver::start();
    receiver.script((0..60).map(|n| if n % 3 == 0 { Answer(503) } else { Answer(200) }));
    let site = impatient(&receiver).instance_reuse(8);
    let (one, two) = (site.start(), site.start());
    let work = async {
        let orders = (0..30).map(|n| {
            let shop = if n % 2 == 0 { one.shop() } else { two.shop() };
            async move {
                let order_no = shop.payable(1).await;
                shop.pay(&order_no, &fresh("k"), 1).await.first(200);
                order_no
            }
        });
        join_all(orders).await
    };
    let (orders, ()) = join(work, dispatch_all(&two.admin())).await;
    join(dispatch_all(&one.admin()), dispatch_all(&two.admin())).await;
    for order_no in &orders {
        let events: BTreeSet<_> = receiver.events_of(order_no).into_iter().collect();
        let types: Vec<_> = events.iter().map(|(event_type, _)| event_type).collect();
        assert_eq!(types, ["order.created", "order.paid"], "{order_no}");
    }
    audit(&site);
}
