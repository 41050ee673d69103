//! The log: one JSON object a request, and nothing that must stay secret.

use serde_json::{Value, json};

use crate::support::client::{order_body, pay_path};
use crate::support::names::fresh;
use crate::support::receiver::{Reaction, Receiver, SECRET};
use crate::support::site::{ADMIN_KEY, KEY_A, KEY_B, Site, TOKEN_SECRET};
use crate::support::stores::WriteLock;

const MEMBERS: [&str; 8] = [
    "method",
    "route",
    "status",
    "merchant",
    "operation",
    "replayed",
    "waited",
    "milliseconds",
];

/// Every member is there and of its kind.
fn complete(line: &Value) {
    for member in MEMBERS {
        assert!(line.get(member).is_some(), "{member} is missing: {line}");
    }
    assert!(line["method"].is_string(), "{line}");
    assert!(line["status"].is_u64(), "{line}");
    assert!(line["replayed"].is_boolean(), "{line}");
    assert!(line["milliseconds"].is_number(), "{line}");
}

/// One line says who, what, how it ended, whether it was a replay.
#[tokio::test]
async fn every_request_is_one_complete_line() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(10).await;
    let call = shop.pay_call(&order_no, &fresh("k"), 10);
    let answer = call.clone().send().await;
    answer.first(200);
    call.send().await.replays(&answer);
    let nobody = shop.with_key("");
    nobody.get("/v1/orders").send().await.status(401);
    shop.get("/nowhere").send().await.status(404);
    nobody.get("/healthz").send().await.status(200);

    let is_pay = |line: &Value| line["route"].as_str().unwrap_or("").ends_with("/pay");
    let first = server
        .logged("the payment", |line| {
            is_pay(line) && line["replayed"] == false
        })
        .await;
    complete(&first);
    assert_eq!(first["method"], "POST");
    assert_eq!(first["status"], 200);
    assert_eq!(first["merchant"], "shop-a");
    assert_eq!(first["operation"], "order.pay");
    let replay = server
        .logged("the replay", |line| {
            is_pay(line) && line["replayed"] == true
        })
        .await;
    complete(&replay);
    assert_eq!(replay["status"], 200);
    let refused = server.logged("the 401", |line| line["status"] == 401).await;
    complete(&refused);
    assert!(refused["merchant"].is_null());
    complete(&server.logged("the 404", |line| line["status"] == 404).await);
    let health = |line: &Value| line["route"] == "/healthz";
    complete(&server.logged("the health check", health).await);
    // Deposit, order, payment, replay, 401, 404, health: seven requests, seven lines.
    assert_eq!(server.requests().len(), 7, "{:#?}", server.log());
}

/// The walk: a duplicate that waited says so.
#[tokio::test]
async fn a_request_that_waited_says_so() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(10).await;
    let key = fresh("k");
    let lock = WriteLock::take(&site.database());
    let first = crate::scene::claimed(&site, &shop, &order_no, &key, 10).await;
    let duplicate = shop.pay_call(&order_no, &key, 10);
    let timed_out = duplicate.header("prefer", "wait=1").send().await;
    timed_out.problem(409, "idempotency_in_progress");
    drop(lock);
    first.answer.await.unwrap().first(200);
    let waited = |line: &Value| !line["waited"].is_null() && line["waited"] != false;
    let line = server
        .logged("a line that says it waited", |line| {
            waited(line) && line["waited"] != 0
        })
        .await;
    assert_eq!(line["status"], 409);
    let paid = server
        .logged("the payment", |line| {
            line["operation"] == "order.pay" && line["status"] == 200
        })
        .await;
    assert!(!waited(&paid) || paid["waited"] == 0, "{paid}");
}

/// Contract, Conventions: never a key, token, secret or body, on success and on failure.
#[tokio::test]
async fn nothing_secret_is_ever_logged() {
    let receiver = Receiver::start();
    receiver.otherwise(Reaction::Answer(500));
    let site = Site::new().notifying(&receiver);
    let server = site.start();
    let shop = server.shop();
    for path in ["/admin/dispatch", "/admin/sweep"] {
        server.admin().post(path).send().await.first(200);
        shop.post(path).send().await.problem(403, "forbidden");
    }
    let marker = fresh("marker");
    let secret = |what: &str| format!("{what}-{marker}");
    let user_id = secret("user");
    shop.deposit(&user_id, 20).await;
    let mut body = order_body(&secret("order"), &user_id, 10);
    body["metadata"] = json!({"note": secret("note")});
    let key = secret("key");
    let create = shop.command("/v1/orders", &key, &body);
    create.clone().send().await.first(201);
    create.send().await.ok(201);
    body["amount"] = json!(11);
    let reused = shop.command("/v1/orders", &key, &body).send().await;
    reused.problem(422, "idempotency_key_reused");
    let token = shop.token().await;
    let forged = format!("{token}{}", secret("forged"));
    let pay = |token: &str| {
        shop.post(&pay_path(&secret("order")))
            .header("submit-token", token)
            .json(&json!({"amount": 10}))
    };
    pay(&token).send().await.first(200);
    pay(&forged).send().await.problem(400, "token_invalid");
    let in_body = json!({
        "token": token, "order_no": secret("order"), "request_no": secret("r"), "amount": 10
    });
    shop.post("/v1/pay").json(&in_body).send().await;
    let wrong = shop
        .get("/v1/orders")
        .authorization(&format!("Bearer {}", secret("api")));
    wrong.send().await.problem(401, "unauthorized");
    let bad_key = shop.deposit_call(&user_id, &format!("{} x", secret("bad")), 1);
    bad_key.send().await.problem(400, "idempotency_key_invalid");
    let field = secret("field");
    let unknown = shop.command("/v1/orders", &fresh("k"), &json!({field: secret("value")}));
    unknown.send().await.problem(400, "body_invalid");
    let invalid = shop
        .post("/v1/orders")
        .key(&fresh("k"))
        .text(&secret("no json"));
    invalid.send().await.problem(400, "body_invalid");
    let query = format!("/v1/orders?cursor={}", secret("cursor"));
    shop.get(&query).send().await.problem(400, "query_invalid");
    let path = format!("/v1/nowhere/{}", secret("path"));
    shop.get(&path).send().await.problem(404, "not_found");
    let lock = WriteLock::take(&site.database());
    let failed = shop
        .deposit_call(&user_id, &secret("locked"), 1)
        .send()
        .await;
    failed.status(503);
    drop(lock);

    let last = |line: &Value| line["status"] == 503;
    server.logged("the last request", last).await;
    let log = server.log().join("\n");
    let secrets = [KEY_A, KEY_B, ADMIN_KEY, SECRET, TOKEN_SECRET];
    for secret in secrets.into_iter().chain([&*token, &*marker]) {
        assert!(!log.contains(secret), "{secret} is in the log:\n{log}");
    }
}
