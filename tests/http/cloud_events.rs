//! Operations out of a queue that delivers at least once: CloudEvents 1.0 in structured and binary mode.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::client::{Call, Shop};
use crate::support::names::fresh;
use crate::support::shapes;
use crate::target::{other_shop, shop};

/// The two ways in which an event can be sent.
const MODES: [Mode; 2] = [Mode::Structured, Mode::Binary];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Structured,
    Binary,
}

/// An event as a sender makes it.
#[derive(Clone, Debug)]
struct Event {
    source: String,
    id: String,
    kind: String,
    subject: Option<String>,
    data: Option<Value>,
}

impl Event {
    /// A new event of an operation.
    fn new(operation: &str, subject: Option<&str>, data: Value) -> Self {
        Self {
            source: "/queues/checkout".to_owned(),
            id: fresh("event"),
            kind: format!("payonce.{operation}"),
            subject: subject.map(str::to_owned),
            data: (!data.is_null()).then_some(data),
        }
    }

    /// The request that delivers it.
    fn call(&self, shop: &Shop, mode: Mode) -> Call {
        match mode {
            Mode::Structured => {
                let mut event = json!({
                    "specversion": "1.0", "source": self.source, "id": self.id, "type": self.kind,
                    "time": "2026-11-30T16:45:55Z", "datacontenttype": "application/json",
                    "deliverycount": 3,
                });
                if let Some(subject) = &self.subject {
                    event["subject"] = json!(subject);
                }
                if let Some(data) = &self.data {
                    event["data"] = data.clone();
                }
                let body = event.to_string();
                let media_type = "application/cloudevents+json; charset=utf-8";
                shop.post("/v1/events").bytes(media_type, body.as_bytes())
            }
            Mode::Binary => {
                let mut call = shop
                    .post("/v1/events")
                    .header("ce-specversion", "1.0")
                    .header("ce-source", &self.source)
                    .header("ce-id", &self.id)
                    .header("ce-type", &self.kind)
                    .header("ce-time", "2026-11-30T16:45:55Z");
                if let Some(subject) = &self.subject {
                    call = call.header("ce-subject", subject);
                }
                match &self.data {
                    Some(data) => call.json(data),
                    None => call,
                }
            }
        }
    }
}

/// Checks the shape of an answer.
type Shape = fn(&Value);

/// The life of an order and all else as events, each with the status and the shape of its answer.
fn every_operation(user_id: &str, order_no: &str) -> Vec<(Event, u16, Shape)> {
    let order = json!({"user_id": user_id, "amount": 10, "currency": "EUR"});
    let about = |operation, data| Event::new(operation, Some(order_no), data);
    let activity_id = fresh("activity");
    let message = json!({"kind": "sms", "to": "+4915112345678", "text": "x"});
    vec![
        (
            Event::new(
                "account.deposit",
                Some(user_id),
                json!({"amount": 10, "currency": "EUR"}),
            ),
            201,
            shapes::deposit,
        ),
        (about("order.create", order.clone()), 201, shapes::order),
        (
            about("order.pay", json!({"amount": 10})),
            200,
            shapes::payment,
        ),
        (
            about("order.ship", json!({"tracking_no": "T"})),
            200,
            shapes::order,
        ),
        (about("order.complete", json!({})), 200, shapes::order),
        (
            about("order.refund", json!({"amount": 4})),
            201,
            shapes::refund,
        ),
        (Event::new("order.create", None, order), 201, shapes::order),
        (
            Event::new("coupon.limit", Some(&activity_id), json!({"limit": 1})),
            200,
            |limit| assert_eq!(limit["limit"], 1),
        ),
        (
            Event::new(
                "coupon.grant",
                Some(&activity_id),
                json!({"user_id": user_id}),
            ),
            201,
            shapes::grant,
        ),
        (
            Event::new("profile.update", Some(user_id), json!({"a": "1"})),
            200,
            shapes::profile,
        ),
        (
            Event::new("message.send", None, message),
            202,
            shapes::message,
        ),
    ]
}

/// Contract, Routes: every operation, in both modes; a redelivery in either mode is a replay.
#[tokio::test]
async fn every_operation_comes_out_of_a_queue_once() {
    let shop = shop();
    for mode in MODES {
        let (user_id, order_no) = (fresh("user"), fresh("order"));
        for (event, status, shape) in every_operation(&user_id, &order_no) {
            let answer = event.call(&shop, mode).send().await;
            shape(&answer.first(status));
            for redelivered in MODES {
                let again = event.call(&shop, redelivered).send().await;
                again.replays(&answer);
            }
        }
        let order = shop.order(&order_no).await;
        assert_eq!(order["status"], "completed");
        assert_eq!(order["refunded_amount"], 4);
        assert_eq!(order["version"], 5, "invariant 6");
        assert_eq!(shop.balance(&user_id).await, 4);
    }
}

/// Contract, Routes: an order is cancelled by an event without data.
#[tokio::test]
async fn an_event_may_come_without_data() {
    let shop = shop();
    for mode in MODES {
        let order_no = shop.payable(10).await;
        let event = Event::new("order.cancel", Some(&order_no), Value::Null);
        let answer = event.call(&shop, mode).send().await;
        assert_eq!(answer.first(200)["status"], "cancelled");
        let empty = Event {
            data: Some(json!({})),
            ..event
        };
        empty.call(&shop, mode).send().await.replays(&answer);
    }
}

/// Contract, Objects: the audit trail shows which event it was.
#[tokio::test]
async fn the_trail_names_the_event() {
    let shop = shop();
    let order_no = shop.payable(10).await;
    let event = Event::new("order.pay", Some(&order_no), json!({"amount": 10}));
    event.call(&shop, Mode::Binary).send().await.first(200);
    let trail = shop.trail(&order_no).await;
    let key = trail[1]["idempotency_key"].as_str().unwrap();
    assert!(key.contains(&event.source) && key.contains(&event.id));
}

/// CloudEvents 1.0: `source` and `id` together name an event; invariant 3: with other data it is refused.
#[tokio::test]
async fn source_and_identifier_are_the_key() {
    let shop = shop();
    for mode in MODES {
        let user_id = fresh("user");
        let data = |amount| json!({"amount": amount, "currency": "EUR"});
        let event = Event::new("account.deposit", Some(&user_id), data(1));
        event.call(&shop, mode).send().await.first(201);
        let elsewhere = Event {
            source: "urn:another-queue".to_owned(),
            ..event.clone()
        };
        elsewhere.call(&shop, mode).send().await.first(201);
        let other_data = Event {
            data: Some(data(2)),
            ..event.clone()
        };
        let other_subject = Event {
            subject: Some(fresh("user")),
            ..event.clone()
        };
        for other in [other_data, other_subject] {
            let answer = other.call(&shop, mode).send().await;
            answer.problem(422, "idempotency_key_reused");
        }
        assert_eq!(shop.balance(&user_id).await, 2);
        // A client's key of the same name is another key.
        let client = shop.deposit_call(&user_id, &event.id, 1);
        client.send().await.first(201);
    }
}

/// CloudEvents, HTTP binding, section 3.1.3.2: what headers cannot carry is percent-encoded.
#[tokio::test]
async fn an_identifier_of_any_unicode_is_one_key_in_both_modes() {
    let shop = shop();
    let user_id = fresh("user");
    let data = json!({"amount": 1, "currency": "EUR"});
    let name = fresh("");
    let plain = Event {
        id: format!("Euro € {name}"),
        ..Event::new("account.deposit", Some(&user_id), data)
    };
    let encoded = Event {
        id: format!("Euro%20%E2%82%AC%20{name}"),
        ..plain.clone()
    };
    let answer = plain.call(&shop, Mode::Structured).send().await;
    answer.first(201);
    let again = encoded.call(&shop, Mode::Binary).send().await;
    again.replays(&answer);
}

/// R8: 20 deliveries at once: one effect, equal answers; the rest is told to come again.
#[tokio::test]
async fn deliveries_at_once_are_one_operation() {
    let shop = shop();
    let user_id = fresh("user");
    let data = json!({"amount": 5, "currency": "EUR"});
    let event = Event::new("account.deposit", Some(&user_id), data);
    let calls: Vec<Call> = (0..20)
        .map(|number| event.call(&shop, MODES[number % 2]))
        .collect();
    let answers = join_all(calls.iter().map(Call::settled)).await;
    let originals = answers.iter().filter(|answer| !answer.replayed());
    assert_eq!(originals.count(), 1, "exactly one first answer");
    for answer in &answers {
        answer.equals(&answers[0]);
    }
    assert_eq!(shop.balance(&user_id).await, 5);
}

/// Contract, Routes: what the operation refuses is answered as on its route, and recorded as little.
#[tokio::test]
async fn a_refusal_is_that_of_the_route_and_burns_no_event() {
    let shop = shop();
    for mode in MODES {
        let (order_no, user_id) = (fresh("order"), fresh("user"));
        let pay = Event::new("order.pay", Some(&order_no), json!({"amount": 10}));
        let early = pay.call(&shop, mode).send().await;
        early.problem(404, "order_not_found");
        let body = crate::support::client::order_body(&order_no, &user_id, 10);
        let created = shop.command("/v1/orders", &fresh("k"), &body).send().await;
        created.first(201);
        shop.deposit(&user_id, 10).await;
        pay.call(&shop, mode).send().await.first(200);
        let other = Event::new("order.pay", Some(&order_no), json!({"amount": 10}));
        let late = other.call(&shop, mode).send().await;
        late.problem(409, "order_already_paid");
    }
}

/// Recording: 402 is final, for an event too.
#[tokio::test]
async fn a_decline_is_final() {
    let shop = shop();
    let order_no = shop.order_of(&fresh("user"), 10).await;
    let pay = Event::new("order.pay", Some(&order_no), json!({"amount": 10}));
    let declined = pay.call(&shop, Mode::Structured).send().await;
    declined.problem(402, "insufficient_funds");
    let again = pay.call(&shop, Mode::Binary).send().await;
    again.replays(&declined);
}

/// Invariant 10: one event for two merchants is two operations.
#[tokio::test]
async fn merchants_have_their_own_events() {
    let (shop, other) = (shop(), other_shop());
    let user_id = fresh("user");
    let data = json!({"amount": 5, "currency": "EUR"});
    let event = Event::new("account.deposit", Some(&user_id), data);
    for shop in [&shop, &other] {
        let answer = event.call(shop, Mode::Binary).send().await;
        answer.first(201);
        assert_eq!(shop.balance(&user_id).await, 5);
    }
    let order_no = shop.payable(10).await;
    let pay = Event::new("order.pay", Some(&order_no), json!({"amount": 10}));
    let foreign = pay.call(&other, Mode::Binary).send().await;
    foreign.problem(404, "order_not_found");
}

/// Contract, Routes: poison gets a 4xx that says why.
#[tokio::test]
async fn poison_is_refused_and_told_why() {
    let shop = shop();
    let order_no = shop.payable(10).await;
    let good = Event::new("order.pay", Some(&order_no), json!({"amount": 10}));
    let with = |change: fn(&mut Event)| {
        let mut event = good.clone();
        change(&mut event);
        event
    };
    for (event, why) in [
        (
            with(|event| event.kind = "payonce.order.steal".into()),
            "order.steal",
        ),
        (with(|event| event.kind = "order.pay".into()), "order.pay"),
        (
            with(|event| event.kind = "com.example.pay".into()),
            "com.example",
        ),
        (with(|event| event.subject = None), "subject"),
        (with(|event| event.data = None), "object"),
        (with(|event| event.data = Some(json!([10]))), "object"),
        (with(|event| event.data = Some(json!({}))), "amount"),
        (
            with(|event| event.data = Some(json!({"amount": "10"}))),
            "amount",
        ),
        (
            with(|event| event.data = Some(json!({"amount": 10, "x": 1}))),
            "x",
        ),
        (with(|event| event.source = "a b".into()), "source"),
        (with(|event| event.source = "s".repeat(1025)), "source"),
        (with(|event| event.id = String::new()), "id"),
    ] {
        for mode in MODES {
            let answer = event.call(&shop, mode).send().await;
            let problem = answer.problem(400, "body_invalid");
            assert!(shapes::names_field(&problem, why), "{why}: {problem}");
        }
    }
    let create = Event::new(
        "order.create",
        Some("one"),
        json!({"order_no": "two", "user_id": "u", "amount": 1, "currency": "EUR"}),
    );
    for mode in MODES {
        let answer = create.call(&shop, mode).send().await;
        answer.body_invalid("order_no");
    }
    assert_eq!(shop.order(&order_no).await["status"], "pending");
}

/// Contract, Conventions: faults in the data of a structured event are pointed at where they are.
#[tokio::test]
async fn a_fault_in_the_data_is_pointed_at() {
    let shop = shop();
    let order_no = shop.payable(10).await;
    let event = Event::new("order.pay", Some(&order_no), json!({"amount": 0}));
    for (mode, pointer) in [
        (Mode::Structured, "/data/amount"),
        (Mode::Binary, "/amount"),
    ] {
        let answer = event.call(&shop, mode).send().await;
        let problem = answer.problem(400, "body_invalid");
        assert_eq!(problem["errors"][0]["pointer"], pointer);
    }
}

/// CloudEvents 1.0: what is no event of that version in one of the two modes.
#[tokio::test]
async fn what_is_no_event_is_refused() {
    let shop = shop();
    let structured = |body: &str| {
        let media_type = "application/cloudevents+json";
        shop.post("/v1/events").bytes(media_type, body.as_bytes())
    };
    let event =
        r#""specversion":"1.0","type":"payonce.order.ship","subject":"o","source":"/q","id":"1""#;
    for body in [
        "",
        "{",
        "[]",
        "{}",
        r#"{"specversion":"0.3","type":"payonce.order.ship","subject":"o","source":"/q","id":"1"}"#,
        r#"{"specversion":"1.0","type":"payonce.order.ship","subject":"o","id":"1"}"#,
        r#"{"specversion":"1.0","type":"payonce.order.ship","subject":"o","source":"/q"}"#,
        r#"{"specversion":"1.0","type":"payonce.order.ship","subject":"o","source":"/q","id":7}"#,
        &format!("{{{event},\"id\":\"1\"}}"),
        &format!("{{{event},\"Data\":{{}}}}"),
        &format!("{{{event},\"data\":{{\"a\":1,\"a\":1}}}}"),
        &format!("{{{event},\"data\":{{}},\"data_base64\":\"e30=\"}}"),
        &format!("{{{event},\"data_base64\":\"?\"}}"),
    ] {
        let answer = structured(body).send().await;
        assert_eq!(answer.status, 400, "{body}: {}", answer.text());
        answer.problem(400, "body_invalid");
    }
    // RFC 6901, section 3: whatever the name of a member is, a pointer leads to it.
    let answer = structured(&format!("{{{event},\"a/b~\\n\":1}}"))
        .send()
        .await;
    let problem = answer.problem(400, "body_invalid");
    assert_eq!(problem["errors"][0]["pointer"], "/a~1b~0\n");
    let text = format!("{{{event},\"datacontenttype\":\"text/plain\",\"data\":\"x\"}}");
    let answer = structured(&text).send().await;
    answer.problem(415, "media_type_unsupported");
    for media_type in [
        "application/cloudevents-batch+json",
        "application/cloudevents",
    ] {
        let call = shop.post("/v1/events").bytes(media_type, b"[]");
        let answer = call.send().await;
        answer.problem(415, "media_type_unsupported");
    }
    // Plain JSON, and events whose headers are incomplete or doubtful.
    let plain = || shop.post("/v1/events").json(&json!({}));
    for (call, header) in [
        (plain(), "ce-specversion"),
        (plain().header("ce-specversion", "1.0"), "ce-id"),
        (
            plain()
                .header("ce-specversion", "1.0")
                .header("ce-id", "1")
                .header("ce-id", "1"),
            "ce-id",
        ),
    ] {
        call.send().await.body_invalid(header);
    }
}

/// Contract, Idempotency: an event brings its key, and another one beside it is refused.
#[tokio::test]
async fn a_key_beside_that_of_the_event_is_refused() {
    let shop = shop();
    let order_no = shop.paid(10).await;
    let event = Event::new("order.ship", Some(&order_no), json!({}));
    let token = shop.token().await;
    for mode in MODES {
        for (name, value) in [
            ("idempotency-key", "k"),
            ("x-idempotency-key", "k"),
            ("submit-token", &token),
        ] {
            let call = event.call(&shop, mode).header(name, value);
            let answer = call.send().await;
            answer.problem(400, "idempotency_key_invalid");
        }
    }
    assert_eq!(shop.order(&order_no).await["status"], "paid");
}
