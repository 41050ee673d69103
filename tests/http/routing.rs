//! Routes, methods and who may call them.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::json;

use crate::support::client::order_body;
use crate::support::document::routes;
use crate::support::names::fresh;
use crate::target::{api_key, shop, stranger};

const WEBHOOKS: &str = "/v1/webhooks/";

/// Contract, Conventions: an unknown route is 404.
#[tokio::test]
async fn an_unknown_route_is_not_found() {
    let shop = shop();
    for path in [
        "/",
        "/v1",
        "/v1/",
        "/v2/orders",
        "/v1/order",
        "/v1/orders/x/y/z",
        "/v1/orders/x/payments/y",
        "/v1/tokens/x",
        "/V1/orders",
        "/healthz/x",
        "/favicon.ico",
        "/%2e%2e/etc/passwd",
    ] {
        shop.get(path).send().await.problem(404, "not_found");
    }
    let posted = shop.command("/v1/nonsense", &fresh("k"), &json!({}));
    posted.send().await.problem(404, "not_found");
}

/// Contract, Conventions: a wrong method is 405 with `Allow`. So every documented path is there, and takes
/// the methods that are documented and no other; that no path is missing, a test beside the router checks.
#[tokio::test]
async fn a_wrong_method_is_refused_with_the_right_ones() {
    let shop = shop();
    let wrong = [
        Method::GET,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
    ];
    for (path, documented) in routes("/") {
        for method in wrong.iter().filter(|method| !documented.contains(method)) {
            let call = shop.request(method.clone(), &path).key(&fresh("k"));
            let answer = call.json(&json!({})).send().await;
            assert_eq!(answer.status, 405, "{method} {path}: {}", answer.text());
            answer.problem(405, "method_not_allowed");
            let allow = answer.header("allow").expect("Allow");
            let allowed: BTreeSet<&str> = allow
                .split(',')
                .map(str::trim)
                // It comes with GET.
                .filter(|method| *method != "HEAD")
                .collect();
            let documented = documented.iter().map(Method::as_str);
            assert_eq!(allowed, documented.collect(), "{path}");
        }
    }
}

/// Contract, Conventions: everything below `/v1` but webhooks, which are signed, needs an API key; 401 with
/// `WWW-Authenticate`.
#[tokio::test]
async fn a_request_without_the_right_key_is_refused_on_every_route() {
    let right = api_key();
    let nobody = stranger();
    let cut = &right[..right.len() - 1];
    let keyed = routes("/v1").into_iter();
    for (path, methods) in keyed.filter(|(path, _)| !path.starts_with(WEBHOOKS)) {
        for method in methods {
            let call = || nobody.request(method.clone(), &path);
            let mut answers = vec![call().send().await];
            for credentials in [
                "Bearer ",
                "Bearer",
                "Bearer wrong",
                right,
                &format!("Bearer {cut}"),
                &format!("Bearer {right}x"),
                &format!("Bearer {right},"),
                &format!("Bearer {right} {right}"),
                &format!("Bearer \"{right}\""),
                &format!("Basic {right}"),
                &format!("Token {right}"),
            ] {
                answers.push(call().authorization(credentials).send().await);
            }
            for answer in answers {
                answer.problem(401, "unauthorized");
                let challenge = answer.header("www-authenticate").expect("a challenge");
                assert!(challenge.starts_with("Bearer"), "{challenge}");
                // A key of a few letters may be part of any text.
                let echoed = cut.len() > 7 && answer.text().contains(cut);
                assert!(!echoed, "a key is echoed");
            }
        }
    }
}

/// Contract, Routes: there are webhooks of the channel of the deployment only.
#[tokio::test]
async fn a_webhook_of_another_channel_is_not_found() {
    for name in ["wallet", "nobody", "-", "%20"] {
        let call = stranger().post(&format!("{WEBHOOKS}{name}"));
        let answer = call.json(&json!({"id": "evt_1"})).send().await;
        answer.problem(404, "not_found");
    }
    let call = stranger().post(&format!("{WEBHOOKS}nobody"));
    let large = call.bytes("application/json", &[b' '; 64 * 1024 + 1]);
    large.send().await.problem(413, "body_too_large");
}

/// Contract, Conventions: a key that comes twice is not one key.
#[tokio::test]
async fn two_authorization_lines_are_refused() {
    let shop = shop();
    for second in ["Bearer wrong".to_owned(), format!("Bearer {}", api_key())] {
        let call = shop.get("/v1/orders").header("authorization", &second);
        let answer = call.send().await;
        assert!(matches!(answer.status, 400 | 401), "{}", answer.text());
    }
}

/// RFC 9110, section 11.1: the scheme's name is case-insensitive.
#[tokio::test]
async fn the_scheme_of_the_api_key_may_be_written_in_any_case() {
    for scheme in ["Bearer", "bearer", "BEARER"] {
        let call = stranger().get("/v1/orders?limit=1");
        let answer = call.authorization(&format!("{scheme} {}", api_key()));
        answer.send().await.ok(200);
    }
}

/// Contract, Conventions: who is nobody learns nothing about keys, bodies and orders.
#[tokio::test]
async fn a_missing_api_key_is_noticed_before_anything_else() {
    let order_no = shop().payable(10).await;
    let nobody = stranger();
    let replay = {
        let key = fresh("k");
        shop().pay(&order_no, &key, 10).await.first(200);
        nobody.pay_call(&order_no, &key, 10)
    };
    for call in [
        replay,
        nobody.post("/v1/orders").text("{"),
        nobody.post("/v1/orders").bytes("text/plain", b"x"),
        nobody.post("/v1/orders").header("idempotency-key", "a b"),
        nobody.get(&format!("/v1/orders/{order_no}")),
        nobody.get("/v1/orders?limit=0"),
    ] {
        call.send().await.problem(401, "unauthorized");
    }
}

/// Contract, Routes: health and problem pages are open to all.
#[tokio::test]
async fn health_and_readiness_are_open_and_good() {
    for path in ["/healthz", "/readyz"] {
        stranger().get(path).send().await.status(200);
        shop().get(path).send().await.status(200);
    }
}

/// Contract, Conventions: a query on a route that takes none changes nothing.
#[tokio::test]
async fn a_query_does_not_change_the_route() {
    let shop = shop();
    let order_no = fresh("order");
    let body = order_body(&order_no, "u", 1);
    let call = shop.command("/v1/orders?x=1", &fresh("k"), &body);
    let answer = call.send().await;
    assert!(matches!(answer.status, 201 | 400), "{}", answer.text());
    stranger().get("/healthz?x=1").send().await.status(200);
}
