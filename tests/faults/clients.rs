//! Clients that are gone before their answer, or in the middle of their request (invariant 9).

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::scene::settled;
use crate::support::names::fresh;
use crate::support::oracle::{audit, journal_rows};
use crate::support::server::Server;
use crate::support::site::{KEY_A, Site};
use crate::support::wait::eventually;

/// How much of a request is sent, and how much of its answer is awaited, before the client is gone.
#[derive(Clone, Copy, Debug)]
enum Leaving {
    InTheHead,
    BeforeTheBody,
    InTheBody,
    AtOnce,
    AfterTheFirstByte,
}

/// A payment as it goes over the wire: head and body.
fn raw_payment(order_no: &str, key: &str, amount: u64) -> (String, String) {
    let body = format!(r#"{{"amount":{amount}}}"#);
    let head = format!(
        "POST /v1/orders/{order_no}/pay HTTP/1.1\r\nHost: shop\r\nAuthorization: Bearer {KEY_A}\r\n\
         Idempotency-Key: \"{key}\"\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    (head, body)
}

/// Sends a payment and leaves.
async fn leave(server: &Server, payment: (String, String), leaving: Leaving) {
    let (head, body) = payment;
    let address = server.base.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let sent = match leaving {
        Leaving::InTheHead => head[..head.len() / 2].to_owned(),
        Leaving::BeforeTheBody => head,
        Leaving::InTheBody => format!("{head}{}", &body[..body.len() / 2]),
        Leaving::AtOnce | Leaving::AfterTheFirstByte => format!("{head}{body}"),
    };
    stream.write_all(sent.as_bytes()).await.unwrap();
    if matches!(leaving, Leaving::AfterTheFirstByte) {
        let mut first = [0; 1];
        stream.read_exact(&mut first).await.unwrap();
    }
}

/// Contract: a request that never arrived whole leaves no trace; its key is unused.
#[tokio::test]
async fn half_a_request_leaves_no_trace() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    for leaving in [
        Leaving::InTheHead,
        Leaving::BeforeTheBody,
        Leaving::InTheBody,
    ] {
        for _ in 0..5 {
            let order_no = shop.payable(10).await;
            let key = fresh("k");
            leave(&server, raw_payment(&order_no, &key, 10), leaving).await;
            let retry = shop.pay_call(&order_no, &key, 10);
            let answer = settled(&retry).await;
            assert!(!answer.replayed(), "{leaving:?} executed");
            answer.first(200);
        }
    }
    assert_eq!(audit(&site).succeeded, 15);
}

/// Invariants 2 and 9: a whole request whose client is gone finishes or leaves no trace; the retry
/// gets one final answer.
#[tokio::test]
async fn a_request_whose_client_is_gone_finishes_or_leaves_no_trace() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let mut payments = Vec::new();
    for round in 0..20 {
        let order_no = shop.payable(10).await;
        let key = fresh("k");
        let leaving = if round % 2 == 0 {
            Leaving::AtOnce
        } else {
            Leaving::AfterTheFirstByte
        };
        leave(&server, raw_payment(&order_no, &key, 10), leaving).await;
        payments.push((order_no, key));
    }
    for (order_no, key) in &payments {
        let retry = shop.pay_call(order_no, key, 10);
        let answer = settled(&retry).await;
        answer.ok(200);
        retry.send().await.replays(&answer);
        assert_eq!(shop.payments(order_no).await.len(), 1);
        assert_eq!(journal_rows(&site, key), 1);
    }
    assert_eq!(audit(&site).succeeded, 20);
}

/// Invariant 4: what a client saw the first byte of has happened, and is logged.
#[tokio::test]
async fn an_answer_that_was_read_in_part_is_the_answer_of_the_retry() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(10).await;
    let key = fresh("k");
    let payment = raw_payment(&order_no, &key, 10);
    leave(&server, payment, Leaving::AfterTheFirstByte).await;
    let retry = shop.pay_call(&order_no, &key, 10);
    let answer = settled(&retry).await;
    answer.ok(200);
    assert!(answer.replayed(), "an answered payment was not recorded");
}

/// Invariant 5: a crowd of clients that leave does not disturb one that stays.
#[tokio::test]
async fn clients_that_leave_do_not_disturb_others() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let user_id = fresh("user");
    shop.deposit(&user_id, 1000).await;
    let order_no = shop.order_of(&user_id, 10).await;
    let key = fresh("k");
    let leavers = (0..30).map(|number| {
        let payment = raw_payment(&order_no, &key, 10);
        let leaving = match number % 3 {
            0 => Leaving::AtOnce,
            1 => Leaving::InTheBody,
            _ => Leaving::BeforeTheBody,
        };
        leave(&server, payment, leaving)
    });
    let stayer = shop.pay_call(&order_no, &key, 10);
    let (_, answer) = tokio::join!(futures::future::join_all(leavers), stayer.clone().send());
    if answer.status != 200 {
        answer.problem(409, "idempotency_in_progress");
    }
    settled(&stayer).await.ok(200);
    eventually("the service to answer as before", async || {
        let health = shop.get("/healthz").send().await;
        (health.status == 200).then_some(())
    })
    .await;
    assert_eq!(shop.balance(&user_id).await, 990);
    assert_eq!(audit(&site).succeeded, 1);
}

/// Contract, Conventions: a body is too large by its announcement, however large the number is.
#[tokio::test]
async fn a_body_that_is_announced_too_large_is_refused_at_once() {
    let site = Site::new();
    let server = site.start();
    let address = server.base.trim_start_matches("http://");
    for length in ["65537", "4294967296", "99999999999"] {
        let (head, _) = raw_payment("order", &fresh("k"), 1);
        let head = head.replace("Content-Length: 12", &format!("Content-Length: {length}"));
        assert!(head.contains(length));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 413", "{length}");
    }
}
