//! Coupons: one grant for a user in an activity, and no more than its limit.

use futures::future::join_all;
use reqwest::Method;
use serde_json::json;

use crate::support::client::Call;
use crate::support::names::fresh;
use crate::support::shapes;
use crate::target::{other_shop, shop};

/// Contract, Routes and Objects: 201 with the complete grant; the retry repeats it.
#[tokio::test]
async fn a_grant_is_answered_complete_and_the_retry_replays() {
    let shop = shop();
    let (activity_id, user_id) = (fresh("activity"), fresh("user"));
    let call = shop.grant_call(&activity_id, &fresh("k"), &user_id);
    let answer = call.clone().send().await;
    let grant = answer.first(201);
    shapes::grant(&grant);
    assert_eq!(grant["activity_id"], activity_id);
    assert_eq!(grant["user_id"], user_id);
    call.send().await.replays(&answer);
}

/// Contract, Routes: another key for the same user and activity gets 200 with the existing grant;
/// recorded, so that its own retry is a replay (invariant 2) and the key is taken (invariant 3).
#[tokio::test]
async fn another_key_gets_the_existing_grant() {
    let shop = shop();
    let (activity_id, user_id) = (fresh("activity"), fresh("user"));
    let first = shop.grant_call(&activity_id, &fresh("k"), &user_id);
    let grant = first.send().await.first(201);
    let key = fresh("k");
    let second = shop.grant_call(&activity_id, &key, &user_id);
    let answer = second.clone().send().await;
    assert_eq!(answer.first(200), grant);
    second.send().await.replays(&answer);
    let reused = shop.grant_call(&activity_id, &key, &fresh("user"));
    let refused = reused.send().await;
    refused.problem(422, "idempotency_key_reused");
}

/// Invariant 3: a key that granted is refused for another user or activity.
#[tokio::test]
async fn a_key_names_one_grant() {
    let shop = shop();
    let (activity_id, user_id, key) = (fresh("activity"), fresh("user"), fresh("k"));
    let call = shop.grant_call(&activity_id, &key, &user_id);
    call.send().await.first(201);
    for call in [
        shop.grant_call(&activity_id, &key, &fresh("user")),
        shop.grant_call(&fresh("activity"), &key, &user_id),
    ] {
        let answer = call.send().await;
        answer.problem(422, "idempotency_key_reused");
    }
}

/// Contract, Conventions: the body is a user, and only that.
#[tokio::test]
async fn a_wrong_field_is_refused_and_named() {
    let shop = shop();
    let activity_id = fresh("activity");
    let path = format!("/v1/coupons/{activity_id}/grants");
    for (body, field) in [
        (json!({}), "user_id"),
        (json!({"user_id": "a b"}), "user_id"),
        (json!({"user_id": null}), "user_id"),
        (json!({"user_id": "u", "count": 2}), "count"),
    ] {
        let answer = shop.command(&path, &fresh("k"), &body).send().await;
        answer.body_invalid(field);
    }
    let path = format!("/v1/coupons/{activity_id}");
    for (body, field) in [
        (json!({}), "limit"),
        (json!({"limit": -1}), "limit"),
        (json!({"limit": 1.5}), "limit"),
        (json!({"limit": "1"}), "limit"),
        (json!({"limit": 1, "max": 2}), "max"),
    ] {
        let call = shop.request(Method::PUT, &path).json(&body);
        call.send().await.body_invalid(field);
    }
}

/// Contract, Routes: the limit of an activity, with and without a key.
#[tokio::test]
async fn a_limit_is_set_and_can_be_set_again() {
    let shop = shop();
    let activity_id = fresh("activity");
    for limit in [Some(3), Some(0), None] {
        let answer = shop.limit(&activity_id, limit).await;
        shapes::members(&answer, &["activity_id", "limit", "updated_at"]);
        assert_eq!(answer["activity_id"], activity_id);
        assert_eq!(answer["limit"], json!(limit));
    }
    let path = format!("/v1/coupons/{activity_id}");
    let call = shop.request(Method::PUT, &path).key(&fresh("k"));
    let call = call.json(&json!({"limit": 7}));
    let answer = call.clone().send().await;
    answer.first(200);
    call.send().await.replays(&answer);
}

/// Contract, Error codes: `coupon_exhausted`, which burns no key and takes no grant back.
#[tokio::test]
async fn an_exhausted_activity_grants_nothing_until_its_limit_is_raised() {
    let shop = shop();
    let activity_id = fresh("activity");
    shop.limit(&activity_id, Some(1)).await;
    let (holder, late) = (fresh("user"), fresh("user"));
    let call = shop.grant_call(&activity_id, &fresh("k"), &holder);
    let grant = call.send().await.first(201);
    let waiting = shop.grant_call(&activity_id, &fresh("k"), &late);
    let refused = waiting.clone().send().await;
    refused.problem(409, "coupon_exhausted");
    shop.limit(&activity_id, Some(0)).await;
    let again = shop.grant_call(&activity_id, &fresh("k"), &holder);
    assert_eq!(again.send().await.first(200), grant);
    shop.limit(&activity_id, Some(2)).await;
    waiting.send().await.first(201);
    let third = shop.grant_call(&activity_id, &fresh("k"), &fresh("user"));
    let third = third.send().await;
    third.problem(409, "coupon_exhausted");
}

/// Invariant 10: activities and grants of two merchants are different things.
#[tokio::test]
async fn merchants_grant_their_own_coupons() {
    let (shop, other) = (shop(), other_shop());
    let (activity_id, user_id, key) = (fresh("activity"), fresh("user"), fresh("k"));
    shop.limit(&activity_id, Some(0)).await;
    let theirs = other.grant_call(&activity_id, &key, &user_id).send().await;
    theirs.first(201);
    let ours = shop.grant_call(&activity_id, &key, &user_id).send().await;
    ours.problem(409, "coupon_exhausted");
}

/// R8: identical grants at once, and different keys of one user at once: one grant.
#[tokio::test]
async fn a_user_has_one_grant_however_many_ask_at_once() {
    let shop = shop();
    let (activity_id, user_id, key) = (fresh("activity"), fresh("user"), fresh("k"));
    let mut calls = vec![shop.grant_call(&activity_id, &key, &user_id); 10];
    calls.extend([(); 10].map(|()| shop.grant_call(&activity_id, &fresh("k"), &user_id)));
    let answers = join_all(calls.iter().map(Call::settled)).await;
    let grant = answers[0].json();
    let mut made = 0;
    for answer in &answers {
        assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
        assert_eq!(answer.json(), grant);
        made += usize::from(answer.status == 201 && !answer.replayed());
    }
    assert_eq!(made, 1, "exactly one first answer");
}

/// 100 users want one of 30 coupons at once.
#[tokio::test]
async fn a_limit_is_never_exceeded_under_load() {
    let shop = shop();
    let activity_id = fresh("activity");
    shop.limit(&activity_id, Some(30)).await;
    let calls = [(); 100].map(|()| shop.grant_call(&activity_id, &fresh("k"), &fresh("user")));
    let answers = join_all(calls.iter().map(Call::settled)).await;
    let (granted, refused): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| answer.status == 201);
    assert_eq!(granted.len(), 30);
    for answer in refused {
        answer.problem(409, "coupon_exhausted");
    }
}
