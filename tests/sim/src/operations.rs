//! The requests of the simulation: what a client sends, and what it means to the model.
//!
//! The shop they go to is made by [`fixture`]: `rich` has 150 EUR and two orders of 100 EUR, so that two
//! payments compete for one wallet, an order that is paid, and one that is shipped; `poor` has an order of
//! 100 EUR and nothing. The activity `sale` has one coupon.

use http::Method;
use serde_json::{Value, json};

use crate::model::{Act, Fulfilment};

/// The merchants. Their shops are the same.
pub const MERCHANTS: [&str; 2] = ["m", "n"];

/// What a request is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// An `Idempotency-Key`.
    Given(&'static str),
    /// The submit token of the shop.
    Token,
    /// The `id` of a CloudEvent.
    Event(&'static str),
    /// None: an operator's request, which may run any number of times.
    Operator,
    /// None: the channel tells of the event with this index.
    Channel(usize),
}

impl Key {
    /// Whether a journal row remembers the request by it.
    pub fn is_recorded(&self) -> bool {
        matches!(self, Self::Given(_) | Self::Token | Self::Event(_))
    }
}

/// A request that wants something done.
#[derive(Clone, Debug)]
pub struct Request {
    pub act: Act,
    pub method: Method,
    pub path: String,
    pub body: Value,
}

impl Request {
    fn post(act: Act, path: impl Into<String>, body: Value) -> Self {
        Self {
            act,
            method: Method::POST,
            path: path.into(),
            body,
        }
    }
}

/// `order.create`
pub fn create(order_no: &str) -> Request {
    let act = Act::Create {
        order_no: order_no.to_owned(),
    };
    let body = json!({"order_no": order_no, "user_id": "rich", "amount": 100, "currency": "EUR"});
    Request::post(act, "/v1/orders", body)
}

/// `account.deposit`
pub fn deposit(user: &str, amount: i64) -> Request {
    let body = json!({"amount": amount, "currency": "EUR"});
    Request::post(Act::Always, format!("/v1/accounts/{user}/deposits"), body)
}

/// `order.pay`
pub fn pay(order_no: &str, amount: i64) -> Request {
    let act = Act::Pay {
        order_no: order_no.to_owned(),
        request_no: None,
        amount,
    };
    let path = format!("/v1/orders/{order_no}/pay");
    Request::post(act, path, json!({"amount": amount}))
}

/// `order.pay` from the wallet, where there is a channel.
pub fn pay_from_wallet(order_no: &str, amount: i64) -> Request {
    let mut request = pay(order_no, amount);
    request.body["payment_method"] = "wallet".into();
    request
}

/// `order.pay` as a checkout page sends it.
pub fn checkout(order_no: &str, request_no: &str) -> Request {
    let act = Act::Pay {
        order_no: order_no.to_owned(),
        request_no: Some(request_no.to_owned()),
        amount: 100,
    };
    let body = json!({"order_no": order_no, "request_no": request_no, "amount": 100});
    Request::post(act, "/v1/pay", body)
}

/// `order.ship`, `order.complete` or `order.cancel`
pub fn fulfil(order_no: &str, what: Fulfilment) -> Request {
    let act = Act::Fulfil {
        order_no: order_no.to_owned(),
        what,
    };
    let path = format!("/v1/orders/{order_no}/{}", what.verb());
    Request::post(act, path, json!({}))
}

/// `order.refund`
pub fn refund(order_no: &str, amount: i64) -> Request {
    let act = Act::Refund {
        order_no: order_no.to_owned(),
        amount,
    };
    let path = format!("/v1/orders/{order_no}/refunds");
    Request::post(act, path, json!({"amount": amount}))
}

/// `coupon.grant`
pub fn grant(activity: &str, user: &str) -> Request {
    let act = Act::Grant {
        activity: activity.to_owned(),
        user: user.to_owned(),
    };
    let path = format!("/v1/coupons/{activity}/grants");
    Request::post(act, path, json!({"user_id": user}))
}

/// `coupon.limit`
pub fn limit(activity: &str, limit: i64) -> Request {
    let path = format!("/v1/coupons/{activity}");
    Request {
        method: Method::PUT,
        ..Request::post(Act::Always, path, json!({"limit": limit}))
    }
}

/// `profile.update`
pub fn profile(field: &str) -> Request {
    Request {
        method: Method::PATCH,
        ..Request::post(Act::Always, "/v1/users/rich/profile", json!({field: "set"}))
    }
}

/// `message.send`
pub fn message() -> Request {
    let body = json!({"kind": "sms", "to": "+4930123456", "text": "paid"});
    Request::post(Act::Always, "/v1/messages", body)
}

/// `order.pay` as a CloudEvent; its key goes into the event.
pub fn pay_event(order_no: &str) -> Request {
    let act = pay(order_no, 100).act;
    let body = json!({
        "specversion": "1.0", "type": "payonce.order.pay", "source": "/queue",
        "subject": order_no, "data": {"amount": 100},
    });
    Request::post(act, "/v1/events", body)
}

/// Sends the events that are due.
pub fn dispatch() -> Request {
    Request::post(Act::Always, "/admin/dispatch", json!({}))
}

/// Forgets what is past its retention, so much of each kind.
pub fn sweep(limit: i64) -> Request {
    Request::post(Act::Always, "/admin/sweep", json!({"limit": limit}))
}

/// Ends what waits for the channel and belongs to nobody.
pub fn reconcile() -> Request {
    Request::post(Act::Always, "/admin/reconcile", json!({}))
}

/// A webhook of the channel; the event is its body.
pub fn webhook() -> Request {
    Request::post(Act::Always, "/v1/webhooks/http", Value::Null)
}

/// One request for each operation, for the scenarios that every operation goes through: its name, the
/// request, and its key.
pub fn each() -> Vec<(&'static str, Request, Key)> {
    let key = || Key::Given("k");
    vec![
        ("create", create("new"), key()),
        ("deposit", deposit("rich", 7), key()),
        ("pay", pay("o1", 100), key()),
        ("decline", pay("p1", 100), key()),
        ("checkout", checkout("o1", "r1"), Key::Token),
        ("pay-event", pay_event("o1"), Key::Event("k")),
        ("ship", fulfil("paid", Fulfilment::Ship), key()),
        ("complete", fulfil("shipped", Fulfilment::Complete), key()),
        ("cancel", fulfil("o1", Fulfilment::Cancel), key()),
        ("refund", refund("paid", 60), key()),
        ("grant", grant("sale", "rich"), key()),
        ("limit", limit("sale", 5), key()),
        ("profile", profile("a"), key()),
        ("message", message(), key()),
    ]
}

/// What makes the shop of a merchant.
pub fn fixture() -> Vec<Request> {
    let order = |order_no: &str, user: &str| {
        let mut request = create(order_no);
        request.body["user_id"] = json!(user);
        request
    };
    vec![
        order("o1", "rich"),
        order("o2", "rich"),
        order("p1", "poor"),
        order("paid", "rich"),
        order("shipped", "rich"),
        deposit("rich", 350),
        pay("paid", 100),
        pay("shipped", 100),
        fulfil("shipped", Fulfilment::Ship),
        limit("sale", 1),
    ]
}

/// The fixture's payment of the order `paid`: its request, and its key.
pub fn first_payment() -> (Request, Key) {
    (pay("paid", 100), Key::Given("fixture-6"))
}

/// The fixture's deposit, which no state of things would refuse: its request, and its key.
pub fn first_deposit() -> (Request, Key) {
    (deposit("rich", 350), Key::Given("fixture-5"))
}
