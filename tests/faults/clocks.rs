//! The wall clock is wrong, or is set while the host runs.

use std::net::TcpListener;
use std::time::Duration;

use serde_json::json;

use crate::dispatch::dispatch;
use crate::scene::claimed;
use crate::support::client::order_body;
use crate::support::names::fresh;
use crate::support::oracle::{audit, journal_rows};
use crate::support::receiver::Receiver;
use crate::support::site::Site;
use crate::support::stores::WriteLock;
use crate::support::wait::eventually;

const DAY_MS: i64 = 86_400_000;

/// Invariants 1 to 4: the clock is set forward and back between a request and its retries, and the answer stays.
#[tokio::test]
async fn a_clock_that_jumps_changes_no_answer() {
    let site = Site::new();
    let server = site.start_with_clock();
    let shop = server.shop();
    let mut paid = Vec::new();
    for ahead in [0, DAY_MS, -DAY_MS, 365 * DAY_MS, 0] {
        site.set_clock(ahead);
        let order_no = shop.payable(10).await;
        let key = fresh("k");
        let call = shop.pay_call(&order_no, &key, 10);
        let answer = call.settled().await;
        answer.ok(200);
        paid.push((call, key, answer));
        for (call, key, answer) in &paid {
            call.settled().await.replays(answer);
            assert_eq!(journal_rows(&site, key), 1);
        }
    }
    audit(&site);
}

/// A clock that is wrong by more than a date can show: every answer is whole, and what was recorded meanwhile can be
/// read ever after.
#[tokio::test]
async fn a_clock_beyond_all_dates_leaves_every_answer_whole() {
    let site = Site::new();
    let server = site.start_with_clock();
    let shop = server.shop();
    let mut answered = Vec::new();
    for ahead in [
        9_000 * 365 * DAY_MS,
        i64::MAX,
        -100 * 365 * DAY_MS,
        i64::MIN,
    ] {
        site.set_clock(ahead);
        let order_no = fresh("order");
        let order = order_body(&order_no, "u", 10);
        let message = json!({"kind": "sms", "to": "+4915112345678", "text": "x"});
        let calls = [
            shop.deposit_call("u", &fresh("k"), 10),
            shop.command("/v1/orders", &fresh("k"), &order),
            shop.pay_call(&order_no, &fresh("k"), 10),
            shop.pay_call(&order_no, &fresh("k"), 10),
            shop.refund_call(&order_no, &fresh("k"), 1),
            shop.profile_call("u", &fresh("k"), &json!({"a": "b"})),
            shop.grant_call("spring", &fresh("k"), &fresh("u")),
            shop.command("/v1/messages", &fresh("k"), &message),
        ];
        for (call, status) in calls
            .into_iter()
            .zip([201, 201, 200, 409, 201, 200, 201, 202])
        {
            // Another instance may be at the same wallet.
            let answer = call.settled().await;
            answer.status(status).json();
            if status != 409 {
                answered.push((call, answer));
            }
        }
        shop.token().await;
        shop.order(&order_no).await;
        shop.trail(&order_no).await;
    }
    site.set_clock(0);
    for (call, answer) in &answered {
        call.settled().await.equals(answer);
    }
    shop.get("/v1/orders").send().await.ok(200);
    audit(&site);
}

/// A token expires by the clock, and one that has redeemed still gets its answer.
#[tokio::test]
async fn a_clock_that_jumps_lets_no_token_redeem_twice() {
    let site = Site::new();
    let server = site.start_with_clock();
    let shop = server.shop();
    let pay = async |token: &str| {
        let order_no = shop.payable(10).await;
        let path = format!("/v1/orders/{order_no}/pay");
        shop.post(&path)
            .header("submit-token", token)
            .json(&json!({"amount": 10}))
    };
    let (used, unused) = (shop.token().await, shop.token().await);
    let call = pay(&used).await;
    let answer = call.settled().await;
    answer.ok(200);
    site.set_clock(DAY_MS);
    call.settled().await.replays(&answer);
    let late = pay(&unused).await;
    late.clone().send().await.problem(410, "token_expired");
    site.set_clock(0);
    late.settled().await.ok(200);
    call.settled().await.replays(&answer);
    pay(&used)
        .await
        .send()
        .await
        .problem(422, "idempotency_key_reused");
    audit(&site);
}

/// How long a duplicate waits does not depend on the wall clock, which is set back by minutes meanwhile: far
/// longer than the client here has patience for.
#[tokio::test]
async fn a_clock_that_is_set_back_prolongs_no_wait() {
    let site = Site::new().variable("claim_lease_ms", 600_000);
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(10).await;
    let key = fresh("k");
    let lock = WriteLock::take(&site.database());
    let first = claimed(&site, &shop, &order_no, &key, 10).await;
    server.kill();
    drop(lock);
    first.answer.await.unwrap();
    // To this host, the claim that was left behind is live before and after.
    site.set_clock(500_000);
    let other = site.start_with_clock();
    let duplicate = other.shop().pay_call(&order_no, &key, 10);
    let waiting = tokio::spawn(duplicate.header("prefer", "wait=3").send());
    tokio::time::sleep(Duration::from_millis(500)).await;
    site.set_clock(100_000);
    let answer = waiting.await.unwrap();
    answer.problem(409, "idempotency_in_progress");
    audit(&site);
}

/// Rows that a wrong clock dated later than now do not keep the others from their retention.
#[tokio::test]
async fn rows_of_a_wrong_clock_do_not_stall_the_sweep() {
    let site = Site::new().variable("retention_days", 2);
    site.set_clock(365 * DAY_MS);
    let wrong = site.start_with_clock();
    let shop = wrong.shop();
    let users = (0..250).map(|n| format!("u{n}"));
    for user in users {
        shop.deposit(&user, 1).await;
    }
    site.set_clock(-3 * DAY_MS);
    shop.deposit("old", 1).await;
    wrong.stop();
    let server = site.start();
    let call = server.admin().post("/admin/sweep").json(&json!({}));
    let swept = call.send().await.first(200);
    assert_eq!(swept["deleted"]["journal_rows"], 1, "{swept}");
    assert_eq!(swept["left"]["journal_rows"], 0, "{swept}");
    audit(&site);
}

/// Invariant 12: a dispatcher whose clock is a week ahead put an event off, or died while it held it.
#[tokio::test]
async fn an_event_that_a_wrong_clock_put_off_is_sent() {
    for hangs in [false, true] {
        let receiver = Receiver::start();
        let site = Site::new().notifying(&receiver);
        // Connections are taken by the system, and never answered; or they are refused.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let origin = format!("http://{}", silent.local_addr().unwrap());
        let _silent = hangs.then_some(silent);
        let elsewhere = site
            .clone()
            .variable("notify_url", &origin)
            .variable("notify_host", &origin);
        site.set_clock(7 * DAY_MS);
        let wrong = elsewhere.start_with_clock();
        wrong.shop().order_of("u", 1).await;
        eventually("an attempt", async || {
            let sql = "SELECT count(*) FROM deliveries
                       WHERE attempts = 1 AND (owner IS NOT NULL) = ?1";
            let tried = site.connect().query_row(sql, [hangs], |row| row.get(0));
            (tried == Ok(1)).then_some(())
        })
        .await;
        wrong.kill();

        let server = site.start();
        let answer = dispatch(&server.admin(), json!({})).await;
        assert_eq!(answer["sent"], 1, "it hangs: {hangs}");
        assert_eq!(answer["left"], json!({"due": 0, "waiting": 0, "dead": 0}));
        assert_eq!(receiver.received().len(), 1);
    }
}
