//! Submit tokens whose time is over, and secrets that change.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::client::{Call, Shop, pay_path};
use crate::support::names::fresh;
use crate::support::oracle::audit;
use crate::support::site::{KEY_A, Site, TOKEN_SECRET};
use crate::support::stores;
use crate::support::wait::eventually;

fn pay_with(shop: &Shop, token: &str, order_no: &str, amount: u64) -> Call {
    shop.post(&pay_path(order_no))
        .header("submit-token", token)
        .json(&json!({"amount": amount}))
}

/// The moment, to the millisecond.
fn now() -> jiff::Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    jiff::Timestamp::from_millisecond(since.as_millis() as i64).unwrap()
}

/// Invariant 13: an expired token that never redeemed is 410; one that did keeps replaying, from the
/// key-value store and from the journal.
#[tokio::test]
async fn an_expired_token_is_gone_unless_it_redeemed() {
    let site = Site::new().variable("token_ttl_seconds", 3);
    let server = site.start();
    let shop = server.shop();
    let (paid_order, open_order) = (shop.payable(10).await, shop.payable(10).await);
    let used = shop.token().await;
    let unused = shop.token().await;
    let redeemed = pay_with(&shop, &used, &paid_order, 10);
    let answer = redeemed.clone().send().await;
    answer.first(200);

    // A wrong amount is never recorded, so asking does not redeem.
    let probe = pay_with(&shop, &unused, &open_order, 11);
    eventually("the end of the token", async || {
        let answer = probe.clone().send().await;
        if answer.status == 422 {
            answer.problem(422, "amount_mismatch");
            return None;
        }
        answer.problem(410, "token_expired");
        Some(())
    })
    .await;
    let late = pay_with(&shop, &unused, &open_order, 10).send().await;
    late.problem(410, "token_expired");
    assert_eq!(shop.order(&open_order).await["status"], "pending");
    let in_body = json!({
        "token": unused, "order_no": open_order, "request_no": fresh("r"), "amount": 10
    });
    let late = shop.post("/v1/pay").json(&in_body).send().await;
    late.problem(410, "token_expired");

    redeemed.clone().send().await.replays(&answer);
    stores::wipe(&site.key_value());
    redeemed.send().await.replays(&answer);
    // Invariant 3: for another body it neither executes nor reveals.
    let other = pay_with(&shop, &used, &open_order, 10).send().await;
    assert!(matches!(other.status, 410 | 422), "{}", other.text());
    assert!(!other.text().contains("pay_"));
    assert_eq!(audit(&site).succeeded, 1);
}

/// Contract, Routes: `expires_at` is `token_ttl_seconds` ahead, and a second more is not 10 minutes.
#[tokio::test]
async fn the_end_of_a_token_is_what_the_variable_says() {
    let site = Site::new().variable("token_ttl_seconds", 86_400);
    let server = site.start();
    let before = now();
    let token = server.shop().post("/v1/tokens").send().await.first(201);
    let after = now();
    let expires: jiff::Timestamp = token["expires_at"].as_str().unwrap().parse().unwrap();
    let day = jiff::SignedDuration::from_hours(24);
    // Whole seconds may be rounded.
    let slack = jiff::SignedDuration::from_secs(1);
    assert!(expires >= before + day - slack && expires <= after + day + slack);
}

/// Contract, Error codes: a token signed with another secret is forged.
#[tokio::test]
async fn a_token_of_another_secret_is_refused() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(10).await;
    let token = shop.token().await;
    server.stop();
    let site = site.variable("token_secret", "another-secret-0123456789abcdef");
    let server = site.start();
    let answer = pay_with(&server.shop(), &token, &order_no, 10).send().await;
    answer.problem(400, "token_invalid");
    assert_eq!(audit(&site).succeeded, 0);
}

/// Invariant 13: while the secret changes, tokens of both are good.
#[tokio::test]
async fn a_token_of_the_old_secret_redeems_while_both_are_configured() {
    const NEW: &str = "the-next-secret-0123456789";
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let (first_order, second_order) = (shop.payable(10).await, shop.payable(10).await);
    let old = shop.token().await;
    server.stop();
    let site = site.variable("token_secret", format!("{NEW},{TOKEN_SECRET}"));
    let server = site.start();
    let shop = server.shop();
    pay_with(&shop, &old, &first_order, 10)
        .send()
        .await
        .first(200);
    let new = shop.token().await;
    server.stop();
    let site = site.variable("token_secret", NEW);
    let server = site.start();
    let shop = server.shop();
    pay_with(&shop, &new, &second_order, 10)
        .send()
        .await
        .first(200);
    let late = pay_with(&shop, &old, &first_order, 10).send().await;
    late.problem(400, "token_invalid");
    assert_eq!(audit(&site).succeeded, 2);
}

/// Invariant 4: a token is stateless: one that was issued before a restart redeems after it.
#[tokio::test]
async fn a_token_outlives_the_process_that_issued_it() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(10).await;
    let token = shop.token().await;
    server.kill();
    let server = site.start();
    let call = pay_with(&server.shop(), &token, &order_no, 10);
    let answer = call.clone().send().await;
    answer.first(200);
    call.send().await.replays(&answer);
}

/// Invariant 13: a token that is good when the head of a request comes and over when its body does has
/// expired.
#[tokio::test]
async fn a_token_expires_while_a_body_is_on_its_way() {
    let site = Site::new().variable("token_ttl_seconds", 2);
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(10).await;
    let token = shop.token().await;
    let body = r#"{"amount":10}"#;
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer {KEY_A}\r\nSubmit-Token: {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        pay_path(&order_no),
        body.len()
    );
    let address = server.base.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();

    let probe = pay_with(&shop, &token, &order_no, 11);
    eventually("the end of the token", async || {
        (probe.clone().send().await.status == 410).then_some(())
    })
    .await;
    stream.write_all(body.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 410");
    assert_eq!(shop.order(&order_no).await["status"], "pending");
}
