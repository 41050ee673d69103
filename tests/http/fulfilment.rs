//! What becomes of an order beside its payment: shipped, completed, cancelled.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::answer::Answer;
use crate::support::client::Shop;
use crate::support::names::fresh;
use crate::support::shapes;
use crate::target::{other_shop, shop};

/// The moves, each with the status that it leads from and to.
const MOVES: [(&str, &str, &str); 3] = [
    ("ship", "paid", "shipped"),
    ("complete", "shipped", "completed"),
    ("cancel", "pending", "cancelled"),
];

/// A fresh order of ten that has this status.
async fn order_that_is(shop: &Shop, status: &str) -> String {
    let order_no = shop.payable(10).await;
    let path: &[&str] = match status {
        "pending" => &[],
        "cancelled" => &["cancel"],
        "paid" => &["pay"],
        "shipped" => &["pay", "ship"],
        "completed" => &["pay", "ship", "complete"],
        "refunded" => &["pay", "refunds"],
        other => panic!("{other}"),
    };
    for step in path {
        let answer = match *step {
            "pay" => shop.pay(&order_no, &fresh("k"), 10).await,
            verb => {
                let call = shop.move_call(&order_no, verb, &fresh("k"));
                call.send().await
            }
        };
        assert!(answer.status < 300, "{}", answer.text());
    }
    let order = shop.order(&order_no).await;
    assert_eq!(order["status"], status);
    order_no
}

/// Contract, State machine; invariants 2 and 6: 200 with the order one version on; the retry repeats it.
#[tokio::test]
async fn an_order_moves_on_once_and_the_retry_replays() {
    let shop = shop();
    for (verb, from, to) in MOVES {
        let order_no = order_that_is(&shop, from).await;
        let before = shop.order(&order_no).await;
        let call = shop.move_call(&order_no, verb, &fresh("k"));
        let answer = call.clone().send().await;
        let order = answer.first(200);
        shapes::order(&order);
        assert_eq!(order["status"], to);
        assert_eq!(order["version"], before["version"].as_u64().unwrap() + 1);
        assert_eq!(order["created_at"], before["created_at"]);
        assert_eq!(shop.order(&order_no).await, order);
        call.send().await.replays(&answer);
        assert_eq!(shop.order(&order_no).await, order);
    }
}

/// Contract, State machine: anything else is refused with 409, names the status and burns no key.
#[tokio::test]
async fn a_move_that_the_state_machine_has_not_is_refused_and_named() {
    let shop = shop();
    for status in [
        "pending",
        "paid",
        "shipped",
        "completed",
        "cancelled",
        "refunded",
    ] {
        let order_no = order_that_is(&shop, status).await;
        let before = shop.order(&order_no).await;
        for (verb, from, _) in MOVES {
            if from == status {
                continue;
            }
            let key = fresh("k");
            let answer = shop.move_call(&order_no, verb, &key).send().await;
            let problem = answer.problem(409, "order_state_invalid");
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains(status), "{detail}");
            // The key is free for something that can be done.
            let elsewhere = order_that_is(&shop, from).await;
            let call = shop.move_call(&elsewhere, verb, &key);
            call.send().await.first(200);
        }
        assert_eq!(shop.order(&order_no).await, before);
    }
}

/// Contract, Routes: the body is `{}` or none, and the two mean the same.
#[tokio::test]
async fn no_body_and_the_empty_one_are_the_same_request() {
    let shop = shop();
    for (verb, from, _) in MOVES {
        let order_no = order_that_is(&shop, from).await;
        let key = fresh("k");
        let path = format!("/v1/orders/{order_no}/{verb}");
        let answer = shop.post(&path).key(&key).send().await;
        answer.first(200);
        let again = shop.move_call(&order_no, verb, &key).send().await;
        again.replays(&answer);
    }
}

/// Contract, Routes: a shipment takes a tracking number, and only that.
#[tokio::test]
async fn a_shipment_may_have_a_tracking_number() {
    let shop = shop();
    let order_no = order_that_is(&shop, "paid").await;
    let path = format!("/v1/orders/{order_no}/ship");
    for (body, field) in [
        (json!({"tracking_no": 7}), "tracking_no"),
        (json!({"trackingNo": "T"}), "trackingNo"),
        (json!({"tracking_no": "x".repeat(501)}), "tracking_no"),
    ] {
        let answer = shop.command(&path, &fresh("k"), &body).send().await;
        answer.body_invalid(field);
    }
    let body = json!({"tracking_no": "1Z 999 AA1 01"});
    let call = shop.command(&path, &fresh("k"), &body);
    shapes::order(&call.send().await.first(200));
}

/// Contract, Conventions: unknown fields are refused on every route.
#[tokio::test]
async fn unknown_fields_are_refused() {
    let shop = shop();
    for (verb, from, _) in MOVES {
        let order_no = order_that_is(&shop, from).await;
        let path = format!("/v1/orders/{order_no}/{verb}");
        let body = json!({"reason": "x"});
        let answer = shop.command(&path, &fresh("k"), &body).send().await;
        answer.body_invalid("reason");
        assert_eq!(shop.order(&order_no).await["status"], from);
    }
}

/// R8, for moves: 20 identical requests at once: one effect, equal answers.
#[tokio::test]
async fn identical_moves_at_once_happen_once() {
    let shop = shop();
    for (verb, from, to) in MOVES {
        let order_no = order_that_is(&shop, from).await;
        let version = shop.order(&order_no).await["version"].as_u64().unwrap();
        let call = shop.move_call(&order_no, verb, &fresh("k"));
        let answers = join_all((0..20).map(|_| call.clone().send())).await;
        let firsts: Vec<&Answer> = answers
            .iter()
            .filter(|answer| answer.status == 200 && !answer.replayed())
            .collect();
        assert_eq!(firsts.len(), 1, "exactly one first answer");
        for answer in &answers {
            if answer.status == 200 {
                answer.equals(firsts[0]);
            } else {
                answer.problem(409, "idempotency_in_progress");
            }
        }
        let order = shop.order(&order_no).await;
        assert_eq!(order["status"], to);
        assert_eq!(order["version"], version + 1, "invariant 6");
    }
}

/// Invariant 6: two keys that both want one move: one makes it, the other is told the status.
#[tokio::test]
async fn two_keys_for_one_move_make_it_once() {
    let shop = shop();
    for (verb, from, to) in MOVES {
        let order_no = order_that_is(&shop, from).await;
        let calls = [(); 2].map(|()| shop.move_call(&order_no, verb, &fresh("k")).send());
        let answers = join_all(calls).await;
        let (made, refused): (Vec<_>, Vec<_>) =
            answers.iter().partition(|answer| answer.status == 200);
        assert_eq!((made.len(), refused.len()), (1, 1), "{answers:?}");
        let problem = refused[0].problem(409, "order_state_invalid");
        assert!(problem["detail"].as_str().unwrap().contains(to));
    }
}

/// Invariant 3: a key that moved one order is refused for another order, verb or body.
#[tokio::test]
async fn a_key_names_one_move_of_one_order() {
    let shop = shop();
    let (first, second) = (
        order_that_is(&shop, "paid").await,
        order_that_is(&shop, "paid").await,
    );
    let key = fresh("k");
    let ship = shop.move_call(&first, "ship", &key);
    ship.send().await.first(200);
    let body = json!({"tracking_no": "T"});
    let path = format!("/v1/orders/{first}/ship");
    for call in [
        shop.move_call(&second, "ship", &key),
        shop.move_call(&first, "complete", &key),
        shop.command(&path, &key, &body),
    ] {
        let answer = call.send().await;
        answer.problem(422, "idempotency_key_reused");
    }
    assert_eq!(shop.order(&first).await["status"], "shipped");
    assert_eq!(shop.order(&second).await["status"], "paid");
}

/// Invariant 10: an order of another merchant looks like one that does not exist.
#[tokio::test]
async fn an_order_of_another_merchant_cannot_be_moved() {
    let (shop, other) = (shop(), other_shop());
    for (verb, from, _) in MOVES {
        let order_no = order_that_is(&shop, from).await;
        let foreign = other.move_call(&order_no, verb, &fresh("k")).send().await;
        foreign.problem(404, "order_not_found");
        assert_eq!(shop.order(&order_no).await["status"], from);
    }
}

/// Contract, Error codes: a cancelled order takes no money; a paid one is not cancelled.
#[tokio::test]
async fn an_order_is_cancelled_or_paid() {
    let shop = shop();
    let order_no = order_that_is(&shop, "cancelled").await;
    let late = shop.pay(&order_no, &fresh("k"), 10).await;
    let problem = late.problem(409, "order_state_invalid");
    assert!(problem["detail"].as_str().unwrap().contains("cancelled"));
    assert!(shop.payments(&order_no).await.is_empty());
}

/// Contract, Objects: the audit trail names every move with its key, statuses and version.
#[tokio::test]
async fn the_trail_shows_every_move() {
    let shop = shop();
    let order_no = shop.payable(10).await;
    let keys = [(); 4].map(|()| fresh("k"));
    shop.pay(&order_no, &keys[0], 10).await.first(200);
    for (verb, key) in [("ship", &keys[1]), ("complete", &keys[2])] {
        let call = shop.move_call(&order_no, verb, key);
        call.send().await.first(200);
    }
    let refund = shop.refund_call(&order_no, &keys[3], 4);
    refund.send().await.first(201);
    let trail = shop.trail(&order_no).await;
    trail.iter().for_each(shapes::event);
    let shown: Vec<[&Value; 4]> = trail[1..]
        .iter()
        .map(|event| {
            ["operation", "from_status", "to_status", "idempotency_key"].map(|name| &event[name])
        })
        .collect();
    let expected = [
        ["order.pay", "pending", "paid", &keys[0]],
        ["order.ship", "paid", "shipped", &keys[1]],
        ["order.complete", "shipped", "completed", &keys[2]],
        ["order.refund", "completed", "completed", &keys[3]],
    ];
    assert_eq!(json!(shown), json!(expected));
    let versions: Vec<u64> = trail
        .iter()
        .map(|event| event["version"].as_u64().unwrap())
        .collect();
    assert_eq!(versions, [1, 2, 3, 4, 5], "invariant 6");
}
