//! The database takes a statement and does not say so.

use crate::scene::settled;
use crate::support::names::fresh;
use crate::support::oracle::audit;
use crate::support::site::Site;

const APPEND: &str = "INSERT INTO operations";

/// R4, invariant 2: the insert commits, its result is lost: the request recognises its own operation
/// and goes on as the winner, it is no replay and no "concurrent request".
#[tokio::test]
async fn a_lost_result_of_a_commit_is_recognised_as_the_requests_own() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(100).await;
    server.stop();

    let server = site.start_losing_results(&[APPEND]);
    let shop = server.shop();
    let key = fresh("k");
    let first = shop.pay(&order_no, &key, 100).await;
    first.first(200);
    shop.pay(&order_no, &key, 100).await.replays(&first);
    server.stop();
    assert_eq!(audit(&site).succeeded, 1);
}

/// R4, R5: where the result is lost among those of others, each request gets its own answer.
#[tokio::test]
async fn results_lost_for_a_whole_batch_are_found_one_by_one() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let mut order_nos = Vec::new();
    for _ in 0..16 {
        order_nos.push(shop.payable(100).await);
    }
    server.stop();

    let server = site.start_losing_results(&[APPEND, APPEND, APPEND]);
    let shop = server.shop();
    let calls: Vec<_> = order_nos
        .iter()
        .map(|order_no| shop.pay_call(order_no, &fresh("k"), 100))
        .collect();
    let sent = calls.iter().map(|call| call.clone().send());
    let answers = futures::future::join_all(sent).await;
    for (call, answer) in calls.iter().zip(answers) {
        if answer.status == 503 {
            settled(call).await.ok(200);
        } else {
            answer.first(200);
        }
    }
    server.stop();
    assert_eq!(audit(&site).succeeded, 16);
}
