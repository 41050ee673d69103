//! SIGKILL in the middle of many payments.

use std::collections::BTreeMap;

use futures::future::join_all;
use tokio::task::JoinSet;

use crate::scene::settled;
use crate::support::answer::Answer;
use crate::support::client::{Call, Shop};
use crate::support::names::fresh;
use crate::support::oracle::audit;
use crate::support::site::Site;
use crate::support::stores;
use crate::support::wait::eventually;

const USERS: usize = 10;
const ORDERS: usize = 20;
/// How many of its orders the wallet of each user can pay.
const COVERED: usize = 15;
const AMOUNT: u64 = 10;

/// When the process is killed.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// After so many answers have arrived.
    Answers(usize),
    /// When the journal shows so many payments, whatever has been answered.
    Journal(i64),
}

/// Two hundred payments, by ten users whose wallets cover three quarters of them.
struct Crowd {
    users: Vec<String>,
    /// Order number and key of every payment.
    payments: Vec<(String, String)>,
}

impl Crowd {
    async fn gather(shop: &Shop) -> Self {
        let users: Vec<String> = (0..USERS).map(|_| fresh("user")).collect();
        let mut calls = Vec::new();
        let mut payments = Vec::new();
        for user_id in &users {
            let wallet = AMOUNT * COVERED as u64;
            calls.push(shop.deposit_call(user_id, &fresh("fund"), wallet));
            for _ in 0..ORDERS {
                let order_no = fresh("order");
                let body = crate::support::client::order_body(&order_no, user_id, AMOUNT);
                calls.push(shop.command("/v1/orders", &fresh("create"), &body));
                payments.push((order_no, fresh("pay")));
            }
        }
        for answer in join_all(calls.iter().map(settled)).await {
            answer.ok(201);
        }
        Self { users, payments }
    }

    fn call(&self, shop: &Shop, index: usize) -> Call {
        let (order_no, key) = &self.payments[index];
        shop.pay_call(order_no, key, AMOUNT)
    }
}

fn journal_of_payments(site: &Site) -> i64 {
    let sql = "SELECT count(*) FROM operations WHERE operation = 'order.pay'";
    let count = site.connect().query_row(sql, [], |row| row.get(0));
    count.expect("a count")
}

/// Sends all payments at once, kills the server at the moment, and returns what was answered.
async fn interrupted(site: &Site, crowd: &Crowd, moment: Moment) -> BTreeMap<usize, Answer> {
    let server = site.start();
    let shop = server.shop();
    let before = journal_of_payments(site);
    let mut running = JoinSet::new();
    for index in 0..crowd.payments.len() {
        let call = crowd.call(&shop, index);
        running.spawn(async move { (index, call.attempt().await) });
    }
    let mut answered = BTreeMap::new();
    let mut keep = |(index, answer): (usize, reqwest::Result<Answer>)| {
        if let Ok(answer) = answer {
            answered.insert(index, answer);
        }
        answered.len()
    };
    match moment {
        Moment::Answers(count) => {
            while let Some(one) = running.join_next().await {
                if keep(one.unwrap()) >= count {
                    break;
                }
            }
        }
        Moment::Journal(rows) => {
            let connection = site.connect();
            eventually("payments in the journal", async || {
                let sql = "SELECT count(*) FROM operations WHERE operation = 'order.pay'";
                let now: i64 = connection.query_row(sql, [], |row| row.get(0)).unwrap();
                (now >= before + rows).then_some(())
            })
            .await;
        }
    }
    server.kill();
    while let Some(one) = running.join_next().await {
        keep(one.unwrap());
    }
    answered
}

/// Invariants 1, 2, 4, 5 and 9: whatever the moment, every key ends in one final answer, the one it
/// had already if it had one, and the books balance.
#[tokio::test]
async fn a_killed_process_leaves_no_payment_lost_doubled_or_stuck() {
    let site = Site::new().variable("claim_lease_ms", 1000);
    let mut paid_before = 0;
    for moment in [
        Moment::Answers(1),
        Moment::Answers(50),
        Moment::Journal(1),
        Moment::Journal(100),
        Moment::Answers(150),
    ] {
        let server = site.start();
        let crowd = Crowd::gather(&server.shop()).await;
        server.stop();
        let answered = interrupted(&site, &crowd, moment).await;
        audit(&site);

        let server = site.start();
        let shop = server.shop();
        let calls: Vec<Call> = (0..crowd.payments.len())
            .map(|index| crowd.call(&shop, index))
            .collect();
        let finals = join_all(calls.iter().map(settled)).await;
        let again = join_all(calls.iter().map(settled)).await;
        for (index, answer) in finals.iter().enumerate() {
            assert!(
                matches!(answer.status, 200 | 402),
                "{moment:?}: {}",
                answer.text()
            );
            again[index].replays(answer);
            match answered.get(&index) {
                Some(early) if matches!(early.status, 200 | 402) => answer.replays(early),
                Some(early) => drop(early.problem(503, early.json()["code"].as_str().unwrap())),
                None => {}
            }
        }
        let paid = finals.iter().filter(|answer| answer.status == 200).count();
        assert_eq!(paid, USERS * COVERED, "{moment:?}");
        for user_id in &crowd.users {
            assert_eq!(shop.balance(user_id).await, 0, "{moment:?}");
        }
        server.stop();
        let books = audit(&site);
        assert_eq!(books.succeeded, paid_before + paid as i64);
        paid_before = books.succeeded;
    }
}

/// Invariant 4: what was answered before the crash survives it, even together with the loss of the
/// whole key-value store.
#[tokio::test]
async fn an_answered_payment_survives_a_crash_and_the_loss_of_the_key_value_store() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(10).await;
    let key = fresh("k");
    let answer = shop.pay(&order_no, &key, 10).await;
    answer.first(200);
    server.kill();
    std::fs::remove_file(site.key_value()).unwrap();
    assert!(stores::entries(&site.key_value()).is_empty());
    let server = site.start();
    let shop = server.shop();
    shop.pay(&order_no, &key, 10).await.replays(&answer);
    assert_eq!(shop.order(&order_no).await["status"], "paid");
    assert_eq!(audit(&site).succeeded, 1);
}
