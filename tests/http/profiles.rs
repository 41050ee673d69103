//! Profiles: patches that merge.

use futures::future::join_all;
use serde_json::{Map, Value, json};

use crate::support::client::Call;
use crate::support::names::fresh;
use crate::support::shapes;
use crate::target::{other_shop, shop};

/// Contract, Routes and Objects: 200 with the complete profile; set, replace, remove.
#[tokio::test]
async fn a_patch_merges_and_null_removes() {
    let shop = shop();
    let user_id = fresh("user");
    for (patch, fields) in [
        (
            json!({"name": "Jörg", "city": "Köln"}),
            json!({"name": "Jörg", "city": "Köln"}),
        ),
        (
            json!({"city": "Bonn", "note": ""}),
            json!({"name": "Jörg", "city": "Bonn", "note": ""}),
        ),
        (
            json!({"name": null, "missing": null}),
            json!({"city": "Bonn", "note": ""}),
        ),
        (json!({}), json!({"city": "Bonn", "note": ""})),
    ] {
        let call = shop.profile_call(&user_id, &fresh("k"), &patch);
        let profile = call.send().await.first(200);
        shapes::profile(&profile);
        assert_eq!(profile["user_id"], user_id);
        assert_eq!(profile["fields"], fields);
    }
}

/// Contract, Routes: a replay neither moves `updated_at` nor brings an old field back.
#[tokio::test]
async fn a_replay_changes_nothing() {
    let shop = shop();
    let user_id = fresh("user");
    let old = shop.profile_call(&user_id, &fresh("k"), &json!({"a": "1"}));
    let answer = old.clone().send().await;
    answer.first(200);
    let new = shop.profile_call(&user_id, &fresh("k"), &json!({"a": "2"}));
    new.send().await.first(200);
    old.send().await.replays(&answer);
    let look = shop.profile_call(&user_id, &fresh("k"), &json!({}));
    assert_eq!(look.send().await.first(200)["fields"], json!({"a": "2"}));
}

/// Contract, Conventions: a flat object of strings and nulls, bounded, and what is refused burns no key.
#[tokio::test]
async fn what_is_no_flat_object_of_texts_is_refused() {
    let shop = shop();
    let (user_id, key) = (fresh("user"), fresh("k"));
    let many: Map<String, Value> = (0..21).map(|n| (format!("k{n}"), json!("v"))).collect();
    for patch in [
        json!({"a": 1}),
        json!({"a": {"b": "c"}}),
        json!({"a": ["b"]}),
        json!({"a": true}),
        json!({"": "x"}),
        json!({"x".repeat(65): "x"}),
        json!({"a": "x".repeat(501)}),
        Value::Object(many),
    ] {
        let answer = shop.profile_call(&user_id, &key, &patch).send().await;
        answer.problem(400, "body_invalid");
    }
    let path = format!("/v1/users/{user_id}/profile");
    let empty = shop.request(reqwest::Method::PATCH, &path).key(&key);
    empty.send().await.problem(400, "body_invalid");
    let good = shop.profile_call(&user_id, &key, &json!({"a": "1"}));
    good.send().await.first(200);
}

/// Invariant 3: a key that changed one profile is refused for another patch or user.
#[tokio::test]
async fn a_key_names_one_patch() {
    let shop = shop();
    let (user_id, key) = (fresh("user"), fresh("k"));
    let patch = json!({"a": "1"});
    let call = shop.profile_call(&user_id, &key, &patch);
    call.send().await.first(200);
    for call in [
        shop.profile_call(&user_id, &key, &json!({"a": "2"})),
        shop.profile_call(&fresh("user"), &key, &patch),
    ] {
        let answer = call.send().await;
        answer.problem(422, "idempotency_key_reused");
    }
}

/// Invariant 10: profiles of two merchants are different things.
#[tokio::test]
async fn merchants_keep_their_own_profiles() {
    let (shop, other) = (shop(), other_shop());
    let (user_id, key) = (fresh("user"), fresh("k"));
    for (shop, field) in [(&shop, "ours"), (&other, "theirs")] {
        let call = shop.profile_call(&user_id, &key, &json!({field: "x"}));
        let profile = call.send().await.first(200);
        assert_eq!(profile["fields"], json!({field: "x"}));
    }
}

/// R8: identical patches at once are one update.
#[tokio::test]
async fn identical_patches_at_once_happen_once() {
    let shop = shop();
    let call = shop.profile_call(&fresh("user"), &fresh("k"), &json!({"a": "1"}));
    let calls = vec![call.clone(); 20];
    let answers = join_all(calls.iter().map(Call::settled)).await;
    let first = call.send().await;
    for answer in &answers {
        answer.equals(&first);
    }
    let originals = answers.iter().filter(|answer| !answer.replayed());
    assert_eq!(originals.count(), 1, "exactly one first answer");
}

/// Patches of different fields at once all survive.
#[tokio::test]
async fn patches_at_once_lose_nothing() {
    let shop = shop();
    let user_id = fresh("user");
    let calls: Vec<Call> = (0..15)
        .map(|n| shop.profile_call(&user_id, &fresh("k"), &json!({format!("k{n}"): "v"})))
        .collect();
    for answer in join_all(calls.iter().map(Call::settled)).await {
        answer.ok(200);
    }
    let look = shop.profile_call(&user_id, &fresh("k"), &json!({}));
    let fields = look.send().await.first(200)["fields"].clone();
    assert_eq!(fields.as_object().unwrap().len(), 15);
}
