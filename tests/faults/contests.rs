//! Operations that want the same thing at the same moment, and an audit of what they leave.
//!
//! How they meet differs from run to run; two host processes on one database make it rougher.

use futures::future::join_all;
use serde_json::json;

use crate::support::answer::Answer;
use crate::support::client::Call;
use crate::support::names::fresh;
use crate::support::oracle::audit;
use crate::support::site::Site;

/// Sends all calls at once, each until its answer is final.
async fn at_once(calls: &[Call]) -> Vec<Answer> {
    join_all(calls.iter().map(Call::settled)).await
}

/// Every second call goes to the other server.
fn spread(calls: Vec<Call>, other: &str) -> Vec<Call> {
    let send = |(number, call): (usize, Call)| match number % 2 {
        0 => call,
        _ => call.to(other),
    };
    calls.into_iter().enumerate().map(send).collect()
}

/// Invariants 1 and 6: 200 orders, each paid and cancelled at the same moment: one of the two happens.
#[tokio::test]
async fn an_order_is_paid_or_cancelled_and_never_both() {
    let site = Site::new();
    let (first, second) = (site.start(), site.start());
    let shop = first.shop();
    let mut succeeded = 0;
    for round in 0..20 {
        let orders = join_all((0..10).map(|_| shop.payable(10))).await;
        let calls = orders.iter().flat_map(|order_no| {
            let pay = shop.pay_call(order_no, &fresh("pay"), 10);
            let cancel = shop.move_call(order_no, "cancel", &fresh("cancel"));
            match round % 2 {
                0 => [pay, cancel],
                _ => [cancel, pay],
            }
        });
        let calls = spread(calls.collect(), &second.base);
        let answers = at_once(&calls).await;
        for (order_no, answers) in orders.iter().zip(answers.chunks_exact(2)) {
            let (made, refused): (Vec<_>, Vec<_>) =
                answers.iter().partition(|answer| answer.status == 200);
            assert_eq!((made.len(), refused.len()), (1, 1), "{answers:?}");
            let order = shop.order(order_no).await;
            if made[0].json().get("payment_id").is_some() {
                assert_eq!(order["status"], "paid");
                succeeded += 1;
            } else {
                assert_eq!(order["status"], "cancelled");
            }
            refused[0].problem(409, "order_state_invalid");
        }
    }
    let books = audit(&site);
    assert_eq!((books.orders, books.succeeded), (200, succeeded));
}

/// Invariant 7: 20 refunds of one payment at once, on two servers.
#[tokio::test]
async fn twenty_refunds_on_two_servers_never_exceed_the_payment() {
    let site = Site::new();
    let (first, second) = (site.start(), site.start());
    let shop = first.shop();
    for (paid, part, expected) in [(100, 15, 6), (100, 60, 1), (200, 10, 20)] {
        let order_no = shop.paid(paid).await;
        let calls = [(); 20].map(|()| shop.refund_call(&order_no, &fresh("k"), part));
        let answers = at_once(&spread(calls.to_vec(), &second.base)).await;
        let (made, refused): (Vec<_>, Vec<_>) =
            answers.iter().partition(|answer| answer.status == 201);
        assert_eq!(made.len(), expected);
        for answer in refused {
            answer.problem(422, "refund_exceeds_payment");
        }
        assert_eq!(shop.refunds(&order_no).await.len(), expected);
        audit(&site);
    }
}

/// Invariants 5 to 7: refunds, shipping, completion and new payments of one wallet, all at once.
#[tokio::test]
async fn everything_that_can_happen_to_an_order_at_once_leaves_right_books() {
    let site = Site::new();
    let (first, second) = (site.start(), site.start());
    let shop = first.shop();
    for _ in 0..5 {
        let order_no = shop.paid(100).await;
        let user_id = shop.order(&order_no).await["user_id"].clone();
        let next = shop.order_of(user_id.as_str().unwrap(), 30).await;
        let mut calls = vec![
            shop.move_call(&order_no, "complete", &fresh("k")),
            shop.move_call(&order_no, "ship", &fresh("k")),
            shop.move_call(&order_no, "cancel", &fresh("k")),
            shop.move_call(&next, "cancel", &fresh("k")),
        ];
        for amount in [30, 30, 30, 30, 100] {
            calls.push(shop.refund_call(&order_no, &fresh("k"), amount));
            calls.push(shop.pay_call(&next, &fresh("k"), 30));
        }
        at_once(&spread(calls, &second.base)).await;
        audit(&site);
    }
}

/// 100 users want one of 30 coupons at once on two servers, some of them twice.
#[tokio::test]
async fn a_hundred_grants_on_two_servers_never_exceed_the_limit() {
    let site = Site::new();
    let (first, second) = (site.start(), site.start());
    let shop = first.shop();
    let activity_id = fresh("activity");
    shop.limit(&activity_id, Some(30)).await;
    let grant = |number| shop.grant_call(&activity_id, &fresh("k"), &format!("user-{number}"));
    let calls = (0..100).map(|number| grant(number % 80)).collect();
    let calls = spread(calls, &second.base);
    let answers = at_once(&calls).await;
    let made = answers.iter().filter(|answer| answer.status == 201);
    assert_eq!(made.count(), 30);
    for answer in &answers {
        if !matches!(answer.status, 200 | 201) {
            answer.problem(409, "coupon_exhausted");
        }
    }
    audit(&site);
    for (call, answer) in calls.iter().zip(&answers) {
        if matches!(answer.status, 200 | 201) {
            call.clone().send().await.replays(answer);
        }
    }
    // Everybody who has one, and everybody else, gets the same answer under a new key.
    for number in 0..80 {
        let again = grant(number).settled().await;
        assert!(matches!(again.status, 200 | 409), "{}", again.text());
    }
    audit(&site);
}

/// A limit that is moved up and down while users ask: no grant is made beyond the limit of its moment.
#[tokio::test]
async fn a_limit_that_moves_under_load_is_kept() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let activity_id = fresh("activity");
    let grants: Vec<Call> = (0..60)
        .map(|_| shop.grant_call(&activity_id, &fresh("k"), &fresh("user")))
        .collect();
    let limits = async {
        for limit in [Some(5), Some(20), Some(10), Some(0), Some(25)] {
            shop.limit(&activity_id, limit).await;
        }
    };
    tokio::join!(limits, at_once(&grants));
    audit(&site);
}

/// Patches of one profile at once, from two servers: none is lost and none is merged twice.
#[tokio::test]
async fn patches_of_one_profile_on_two_servers_are_all_merged() {
    let site = Site::new();
    let (first, second) = (site.start(), site.start());
    let shop = first.shop();
    let patch = |number: u32| json!({format!("k{}", number % 15): number.to_string()});
    let calls = (0..40).map(|number| shop.profile_call("u", &fresh("k"), &patch(number)));
    let calls = spread(calls.collect(), &second.base);
    at_once(&calls).await;
    audit(&site);
    // Replays move nothing.
    let before = profile(&site);
    at_once(&calls).await;
    assert_eq!(profile(&site), before);
    audit(&site);
}

/// Fields, version and time of the only profile.
fn profile(site: &Site) -> (String, i64, i64) {
    let sql = "SELECT fields, version, updated_at FROM profiles";
    let row = site
        .connect()
        .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    row.expect("a profile")
}
