//! `GET /v1/orders`: filters, pages, cursors.

use std::collections::HashSet;

use serde_json::Value;

use crate::support::client::{Shop, escaped};
use crate::support::names::fresh;
use crate::support::shapes;
use crate::target::{other_shop, shop};

/// One page: the order numbers on it and the cursor behind it.
async fn page(shop: &Shop, query: &str) -> (Vec<String>, Option<String>) {
    let path = format!("/v1/orders?{query}");
    let page = shop.get(&path).send().await.ok(200);
    shapes::members(&page, &["data", "next_cursor"]);
    let orders = page["data"].as_array().expect("data");
    let numbers = orders.iter().map(|order| {
        shapes::order(order);
        order["order_no"].as_str().unwrap().to_owned()
    });
    let cursor = match &page["next_cursor"] {
        Value::Null => None,
        Value::String(cursor) => Some(cursor.clone()),
        other => panic!("next_cursor: {other}"),
    };
    (numbers.collect(), cursor)
}

/// All pages from the first.
async fn walk(shop: &Shop, query: &str, limit: usize) -> Vec<String> {
    let mut all = Vec::new();
    let mut query_now = format!("{query}&limit={limit}");
    loop {
        let (numbers, cursor) = page(shop, &query_now).await;
        assert!(numbers.len() <= limit);
        all.extend(numbers);
        let Some(cursor) = cursor else { return all };
        query_now = format!("{query}&limit={limit}&cursor={}", escaped(&cursor));
    }
}

/// Creates orders of one user, oldest first.
async fn some_orders(shop: &Shop, user_id: &str, count: usize) -> Vec<String> {
    let mut numbers = Vec::new();
    for _ in 0..count {
        numbers.push(shop.order_of(user_id, 10).await);
    }
    numbers
}

/// Contract, Routes: newest first, in pages of `limit`.
#[tokio::test]
async fn pages_of_any_size_show_every_order_once_newest_first() {
    let shop = shop();
    let user_id = fresh("user");
    let mut expected = some_orders(&shop, &user_id, 7).await;
    expected.reverse();
    for limit in [1, 2, 3, 6, 7, 8, 100] {
        let found = walk(&shop, &format!("user_id={user_id}"), limit).await;
        assert_eq!(found, expected, "limit {limit}");
    }
}

/// Contract, Routes: a cursor points behind an order, not at a distance from the newest.
#[tokio::test]
async fn an_order_that_arrives_between_two_pages_moves_nothing() {
    let shop = shop();
    let user_id = fresh("user");
    let old = some_orders(&shop, &user_id, 4).await;
    let query = format!("user_id={user_id}&limit=2");
    let (first, cursor) = page(&shop, &query).await;
    assert_eq!(first, [old[3].clone(), old[2].clone()]);
    some_orders(&shop, &user_id, 3).await;
    let cursor = cursor.expect("more to come");
    let (second, _) = page(&shop, &format!("{query}&cursor={}", escaped(&cursor))).await;
    assert_eq!(second, [old[1].clone(), old[0].clone()]);
}

/// Contract, Routes: the default limit is 20.
#[tokio::test]
async fn a_page_holds_twenty_orders_when_nothing_else_is_asked() {
    let shop = shop();
    let user_id = fresh("user");
    some_orders(&shop, &user_id, 21).await;
    let (numbers, cursor) = page(&shop, &format!("user_id={user_id}")).await;
    assert_eq!(numbers.len(), 20);
    assert!(cursor.is_some());
}

/// Contract, Routes: the filters `status` and `user_id`, alone and together.
#[tokio::test]
async fn filters_choose_by_status_and_by_user() {
    let shop = shop();
    let user_id = fresh("user");
    let orders = some_orders(&shop, &user_id, 3).await;
    some_orders(&shop, &fresh("user"), 1).await;
    shop.deposit(&user_id, 10).await;
    shop.pay(&orders[1], &fresh("k"), 10).await.first(200);
    let paid = walk(&shop, &format!("user_id={user_id}&status=paid"), 1).await;
    assert_eq!(paid, [orders[1].clone()]);
    let pending = walk(&shop, &format!("user_id={user_id}&status=pending"), 1).await;
    assert_eq!(pending, [orders[2].clone(), orders[0].clone()]);
    let (newest_paid, _) = page(&shop, "status=paid&limit=100").await;
    assert!(newest_paid.contains(&orders[1]));
    assert!(!newest_paid.contains(&orders[0]));
    let (nobody, cursor) = page(&shop, &format!("user_id={}", fresh("nobody"))).await;
    assert!(nobody.is_empty() && cursor.is_none());
}

/// Contract, Error codes: `query_invalid`.
#[tokio::test]
async fn a_query_that_means_nothing_is_refused() {
    let shop = shop();
    for query in [
        "limit=0",
        "limit=101",
        "limit=-1",
        "limit=1.5",
        "limit=ten",
        "limit=",
        "limit=99999999999999999999",
        "status=nonsense",
        "status=PAID",
        "cursor=nonsense",
        "cursor=%00",
        "cursor=%FF",
        "cursor=e30",
        "user_id=a%20b",
        "limit=1&limit=2",
    ] {
        let path = format!("/v1/orders?{query}");
        let answer = shop.get(&path).send().await;
        assert_eq!(answer.status, 400, "{query}: {}", answer.text());
        answer.problem(400, "query_invalid");
    }
}

/// Contract: a cursor is the server's own; what a client made of it is refused or harmless.
#[tokio::test]
async fn a_damaged_cursor_never_fails_in_the_server() {
    let shop = shop();
    let user_id = fresh("user");
    let own: HashSet<String> = some_orders(&shop, &user_id, 3).await.into_iter().collect();
    let query = format!("user_id={user_id}&limit=1");
    let (_, cursor) = page(&shop, &query).await;
    let cursor = cursor.expect("more to come");
    let mut damaged: Vec<String> = cursor
        .char_indices()
        .map(|(end, _)| cursor[..end].to_owned())
        .collect();
    damaged.push(format!("{cursor}{cursor}"));
    damaged.push(cursor.chars().rev().collect());
    for cursor in damaged {
        let path = format!("/v1/orders?{query}&cursor={}", escaped(&cursor));
        let answer = shop.get(&path).send().await;
        if answer.status == 200 {
            let page = answer.ok(200);
            for order in page["data"].as_array().unwrap() {
                assert!(own.contains(order["order_no"].as_str().unwrap()));
            }
        } else {
            answer.problem(400, "query_invalid");
        }
    }
}

/// Invariant 10: neither a list nor another merchant's cursor shows another merchant's orders.
#[tokio::test]
async fn a_list_shows_the_own_orders_only_even_with_a_foreign_cursor() {
    let (shop, other) = (shop(), other_shop());
    let user_id = fresh("user");
    let ours = some_orders(&shop, &user_id, 3).await;
    let theirs = some_orders(&other, &user_id, 2).await;
    let query = format!("user_id={user_id}&limit=1");
    let (_, cursor) = page(&shop, &query).await;
    let cursor = cursor.expect("more to come");
    let mut expected = theirs.clone();
    expected.reverse();
    assert_eq!(
        walk(&other, &format!("user_id={user_id}"), 100).await,
        expected
    );
    let path = format!("/v1/orders?{query}&cursor={}", escaped(&cursor));
    let answer = other.get(&path).send().await;
    assert!(matches!(answer.status, 200 | 400), "{}", answer.text());
    assert!(ours.iter().all(|number| !answer.text().contains(number)));
}
