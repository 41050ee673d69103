//! What somebody can learn, or do, who is not who they say: by looking at answers, by measuring them, and by
//! requests that two readers read differently.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::answer::Answer;
use crate::support::client::{Call, pay_path};
use crate::support::names::fresh;
use crate::support::oracle::audit;
use crate::support::server::Server;
use crate::support::site::{KEY_A, Site};
use crate::support::stores;

/// What is left of an answer without what names the request.
fn seen(answer: &Answer, named: &str) -> (u16, Vec<String>, Value) {
    let mut headers: Vec<_> = answer.headers.keys().map(ToString::to_string).collect();
    headers.sort();
    let text = answer.text().replace(named, "-");
    let mut body: Value = serde_json::from_str(&text).unwrap();
    body["instance"] = Value::Null;
    (answer.status, headers, body)
}

/// Invariant 10: whatever is asked about an order of another merchant gets the answer of an order that nobody has.
#[tokio::test]
async fn what_is_anothers_looks_like_what_is_not_there() {
    let site = Site::new();
    let server = site.start();
    let (shop, other) = (server.shop(), server.other_shop());
    let order_no = shop.paid(10).await;
    let nowhere = fresh("order");
    let ask = |order_no: &str| -> Vec<Call> {
        let about = |path: &str| format!("/v1/orders/{order_no}{path}");
        vec![
            other.get(&about("")),
            other.get(&about("/payments")),
            other.get(&about("/refunds")),
            other.get(&about("/events")),
            other.pay_call(order_no, &fresh("k"), 10),
            other.refund_call(order_no, &fresh("k"), 10),
            other.move_call(order_no, "ship", &fresh("k")),
            other.move_call(order_no, "complete", &fresh("k")),
            other.move_call(order_no, "cancel", &fresh("k")),
        ]
    };
    for (theirs, nobodys) in ask(&order_no).into_iter().zip(ask(&nowhere)) {
        let (theirs, nobodys) = (theirs.send().await, nobodys.send().await);
        assert_eq!(seen(&theirs, &order_no), seen(&nobodys, &nowhere));
        assert_eq!(theirs.status, 404);
    }
    audit(&site);
}

const ROUNDS: usize = 300;

/// The medians of how long two kinds of request take that get the same status, asked in turn.
async fn medians(status: u16, calls: impl Fn(usize) -> [Call; 2]) -> [Duration; 2] {
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        let mut pair: Vec<_> = calls(round).into_iter().zip(0..).collect();
        // The second of two may find things warm.
        if round % 2 == 1 {
            pair.reverse();
        }
        for (call, kind) in pair {
            let began = Instant::now();
            let answer = call.send().await;
            times[kind as usize].push(began.elapsed());
            answer.status(status);
        }
    }
    times.map(|mut times: Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    })
}

/// Invariant 10: nor does it take longer, or less long, by what a look at a store takes.
#[tokio::test]
async fn what_is_anothers_takes_as_long_as_what_is_not_there() {
    let site = Site::new();
    let server = site.start();
    let (shop, other) = (server.shop(), server.other_shop());
    let order_no = shop.paid(10).await;
    let orders = [order_no.as_str(), "no-such"];
    let body = json!({"amount": 10});
    let keys: Vec<_> = (0..ROUNDS).map(|_| fresh("used")).collect();
    for key in &keys {
        let call = shop.deposit_call("u", key, 1);
        call.send().await.first(201);
    }
    let token = shop.token().await;
    let other_first = if token.starts_with('A') { 'B' } else { 'A' };
    let forged = format!("{other_first}{}", &token[1..]);
    let looked = medians(404, |_| {
        orders.map(|order_no| other.get(&format!("/v1/orders/{order_no}")))
    });
    let paid = medians(404, |_| {
        orders.map(|order_no| other.pay_call(order_no, &fresh("k"), 10))
    });
    let refunded = medians(404, |_| {
        orders.map(|order_no| other.refund_call(order_no, &fresh("k"), 10))
    });
    let keyed = medians(201, |round| {
        [keys[round].clone(), fresh("k")].map(|key| other.deposit_call(&fresh("u"), &key, 1))
    });
    let redeemed = medians(400, |_| {
        [&token, &forged].map(|token| {
            let call = other.post(&pay_path(&order_no)).json(&body);
            call.header("submit-token", token)
        })
    });
    for (what, [theirs, nobodys]) in [
        ("an order", looked.await),
        ("a payment", paid.await),
        ("a refund", refunded.await),
        ("a key", keyed.await),
        ("a token", redeemed.await),
    ] {
        let ratio = theirs.as_secs_f64() / nobodys.as_secs_f64();
        println!("{what}: {theirs:?} and {nobodys:?}, {ratio:.2}");
        assert!(
            (0.75..1.34).contains(&ratio),
            "{what}: {theirs:?} and {nobodys:?}"
        );
    }
}

/// Sends bytes and returns what comes back until the connection ends or is silent.
async fn exchange(server: &Server, request: &[u8]) -> String {
    let address = server.base.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The other side may have seen enough.
    stream.write_all(request).await.ok();
    let mut answer = Vec::new();
    let all = stream.read_to_end(&mut answer);
    tokio::time::timeout(Duration::from_secs(2), all).await.ok();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Header lines that a proxy in front may read in another way than the service: nothing that they carry along is
/// done, and others are served.
#[tokio::test]
async fn a_smuggled_request_has_no_effect() {
    let site = Site::new();
    let server = site.start();
    server.shop().deposit("u", 1).await;
    let before = stores::row_counts(&site.connect());
    let deposit = |lines: &str, body: &str| {
        format!(
            "POST /v1/accounts/u/deposits HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer {KEY_A}\r\n\
             Content-Type: application/json\r\n{lines}\r\n\r\n{body}"
        )
    };
    let body = r#"{"amount":1,"currency":"EUR"}"#;
    let length = format!("Content-Length: {}", body.len());
    let hidden = deposit(&format!("Idempotency-Key: hidden\r\n{length}"), body);
    let long = "x".repeat(1 << 20);
    for (what, request) in [
        (
            "a folded key",
            deposit(&format!("{length}\r\nIdempotency-Key: \"a\r\n b\""), body),
        ),
        (
            "two keys",
            deposit(
                &format!("{length}\r\nIdempotency-Key: a\r\nIdempotency-Key: b"),
                body,
            ),
        ),
        (
            "a NUL",
            deposit(&format!("{length}\r\nIdempotency-Key: a\0b"), body),
        ),
        (
            "a bare CR",
            deposit(&format!("{length}\r\nIdempotency-Key: a\rb"), body),
        ),
        (
            "a control character",
            deposit(&format!("{length}\r\nIdempotency-Key: a\x01b"), body),
        ),
        (
            "a space before the colon",
            deposit(&format!("{length}\r\nIdempotency-Key : a"), body),
        ),
        (
            "a very long key",
            deposit(&format!("{length}\r\nIdempotency-Key: {long}"), body),
        ),
        (
            "a very long name",
            deposit(&format!("{length}\r\n{long}: a"), body),
        ),
        (
            "two lengths",
            deposit(
                &format!("{length}\r\nContent-Length: 0\r\nIdempotency-Key: a"),
                body,
            ),
        ),
        (
            "a signed length",
            deposit("Content-Length: +29\r\nIdempotency-Key: a", body),
        ),
        (
            "an unknown coding",
            deposit("Transfer-Encoding: xchunked\r\nIdempotency-Key: a", body),
        ),
        (
            "a request behind the end of a chunked one",
            deposit(
                "Transfer-Encoding: chunked\r\nContent-Length: 5\r\nConnection: close\r\n\
                     Idempotency-Key: \"\"",
                &format!("0\r\n\r\n{hidden}"),
            ),
        ),
    ] {
        let answer = exchange(&server, request.as_bytes()).await;
        assert!(!answer.contains("HTTP/1.1 2"), "{what}: {answer}");
        assert_eq!(
            stores::row_counts(&site.connect()),
            before,
            "{what}: {answer}"
        );
    }
    server.shop().deposit("u", 1).await;
    audit(&site);
}
