//! Variables that are missing or wrong close the door and say so.

use crate::support::client::Shop;
use crate::support::names::fresh;
use crate::support::receiver::{Receiver, SECRET};
use crate::support::site::{ADMIN_KEY, KEY_A, KEY_B, Site};
use crate::support::stores;

/// Asserts that the service is up, not ready for want of `variable`, and lets nobody in.
async fn closed(shop: &Shop, variable: &str) {
    shop.get("/healthz").send().await.status(200);
    let ready = shop.get("/readyz").send().await;
    ready.status(503);
    assert!(ready.text().contains(variable), "{}", ready.text());
    shop.get("/problems/not_configured")
        .send()
        .await
        .status(200);
}

/// Contract, Configuration: without API keys every route below `/v1` is closed, for every key.
#[tokio::test]
async fn without_api_keys_nobody_gets_in() {
    let site = Site::new().without("api_keys");
    let server = site.start();
    for api_key in [KEY_A, "", "=", "shop-a="] {
        let shop = server.shop().with_key(api_key);
        closed(&shop, "api_keys").await;
        let order = crate::support::client::order_body(&fresh("order"), "u", 1);
        for call in [
            shop.get("/v1/orders"),
            shop.post("/v1/tokens"),
            shop.command("/v1/orders", &fresh("k"), &order),
            shop.deposit_call("u", &fresh("k"), 1),
            shop.pay_call("x", &fresh("k"), 1),
        ] {
            call.send().await.problem(503, "not_configured");
        }
    }
}

/// Contract, Configuration: without the token secret no token is issued or believed.
#[tokio::test]
async fn without_a_token_secret_no_token_is_issued_or_believed() {
    let site = Site::new();
    let server = site.start();
    let token = server.shop().token().await;
    server.stop();
    let site = site.without("token_secret");
    let server = site.start();
    let shop = server.shop();
    closed(&shop, "token_secret").await;
    let issued = shop.post("/v1/tokens").send().await;
    issued.problem(503, "not_configured");
    let order = crate::support::client::order_body(&fresh("order"), "u", 1);
    let call = shop.post("/v1/orders").header("submit-token", &token);
    let redeemed = call.json(&order).send().await;
    redeemed.problem(503, "not_configured");
}

/// Contract, Configuration: a token secret that can be guessed signs nothing.
#[tokio::test]
async fn a_short_token_secret_is_none() {
    for secrets in ["short", "short,0123456789abcdef"] {
        let site = Site::new().variable("token_secret", secrets);
        let server = site.start();
        let shop = server.shop();
        closed(&shop, "token_secret").await;
        let issued = shop.post("/v1/tokens").send().await;
        issued.problem(503, "not_configured");
    }
}

/// Contract, Configuration: without the admin key `/admin` is closed for every key; payments go on.
#[tokio::test]
async fn without_an_admin_key_nobody_administers() {
    let site = Site::new().without("admin_key");
    let server = site.start();
    for key in [ADMIN_KEY, KEY_A, ""] {
        let shop = server.shop().with_key(key);
        closed(&shop, "admin_key").await;
        for call in [
            shop.post("/admin/dispatch"),
            shop.post("/admin/sweep"),
            shop.get("/admin/stats"),
            shop.get("/admin/ledger"),
        ] {
            for call in [call.clone(), call.authorization("Bearer ")] {
                call.send().await.problem(503, "not_configured");
            }
        }
    }
    let shop = server.shop();
    let order_no = shop.payable(1).await;
    shop.pay(&order_no, &fresh("k"), 1).await.first(200);
}

/// Contract, Configuration: without API keys the operator still gets in.
#[tokio::test]
async fn without_api_keys_the_operator_gets_in() {
    let site = Site::new().without("api_keys").without("token_secret");
    let server = site.start();
    let stats = server.admin().get("/admin/stats").send().await;
    stats.first(200);
    let other = server.shop().get("/admin/stats").send().await;
    other.problem(401, "unauthorized");
}

/// Contract, Configuration: with nothing configured everything that is missing is named.
#[tokio::test]
async fn readiness_names_everything_that_is_missing() {
    let site = Site::bare();
    let server = site.start();
    let shop = server.shop().with_key("");
    for variable in ["api_keys", "token_secret", "admin_key"] {
        closed(&shop, variable).await;
    }
    let answer = shop.get("/v1/orders").send().await;
    assert!(matches!(answer.status, 401 | 503), "{}", answer.text());
}

/// Contract, Configuration: API keys that cannot be read open no door, least of all an empty key.
#[tokio::test]
async fn malformed_api_keys_let_nobody_in() {
    for api_keys in [
        "shop-a=",
        "=",
        ",",
        "shop-a",
        "=key",
        "shop-a=,shop-b=",
        " ",
    ] {
        let site = Site::new().variable("api_keys", api_keys);
        let server = site.start();
        for credentials in ["Bearer ", "Bearer", "Bearer key", "Bearer shop-a"] {
            let call = server.shop().get("/v1/orders").authorization(credentials);
            let answer = call.send().await;
            assert!(
                matches!(answer.status, 401 | 503),
                "`{api_keys}` with `{credentials}`: {}",
                answer.text()
            );
        }
        server.shop().get("/healthz").send().await.status(200);
    }
}

/// Contract, Configuration: a number that is none is named, not replaced by a guess.
#[tokio::test]
async fn a_malformed_number_is_named() {
    for (variable, value) in [
        ("token_ttl_seconds", "soon"),
        ("claim_lease_ms", "-1"),
        ("max_wait_ms", "1e3"),
    ] {
        let site = Site::new().variable(variable, value);
        let server = site.start();
        closed(&server.shop(), variable).await;
        let answer = server.shop().get("/v1/orders").send().await;
        answer.problem(503, "not_configured");
    }
}

/// Contract, Configuration: several keys of one merchant are one merchant, so that keys can change.
#[tokio::test]
async fn two_keys_of_one_merchant_are_the_same_merchant() {
    let pairs = format!("shop-a={KEY_A}, shop-a={KEY_B}");
    let site = Site::new().variable("api_keys", pairs);
    let server = site.start();
    let call = server.shop().deposit_call("u", &fresh("k"), 1);
    let answer = call.send().await;
    answer.first(201);
    let key = fresh("k");
    let first = server.shop().deposit_call("u", &key, 1).send().await;
    first.first(201);
    let second = server.other_shop().deposit_call("u", &key, 1).send().await;
    second.replays(&first);
}

/// Invariant 10: names of merchants that run into their keys do not meet.
#[tokio::test]
async fn merchants_whose_names_run_into_their_keys_do_not_meet() {
    let pairs = format!("m={KEY_A},m:x={KEY_B}");
    let site = Site::new().variable("api_keys", pairs);
    let server = site.start();
    let unique = fresh("k");
    let (short, long) = (server.shop(), server.other_shop());
    let first = short.deposit_call("u", &format!("x:{unique}"), 1);
    let second = long.deposit_call("u", &unique, 1);
    let (first, second) = (first.send().await, second.send().await);
    assert_ne!(
        first.first(201)["deposit_id"],
        second.first(201)["deposit_id"]
    );
    assert_eq!(short.balance("u").await, 1);
    assert_eq!(long.balance("u").await, 1);
}

/// Contract: a configured secret never reaches the disk.
#[tokio::test]
async fn no_secret_is_written_to_the_data_directory() {
    let receiver = Receiver::start();
    let site = Site::new().notifying(&receiver);
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(1).await;
    let token = shop.token().await;
    let call = shop
        .post(&crate::support::client::pay_path(&order_no))
        .header("submit-token", &token)
        .json(&serde_json::json!({"amount": 1}));
    call.send().await.first(200);
    receiver.event(&order_no, "order.paid").await;
    server.admin().post("/admin/sweep").send().await.first(200);
    server.stop();
    let mut bytes = std::fs::read(site.database()).unwrap();
    for entry in stores::entries(&site.key_value()) {
        bytes.extend(entry.0.into_bytes());
        bytes.extend(entry.1);
    }
    let secrets = [
        KEY_A,
        KEY_B,
        ADMIN_KEY,
        SECRET,
        crate::support::site::TOKEN_SECRET,
        &token,
    ];
    for secret in secrets {
        let found = bytes
            .windows(secret.len())
            .any(|window| window == secret.as_bytes());
        assert!(!found, "{secret} was written");
    }
}
