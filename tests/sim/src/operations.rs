//! The requests of the simulation: what a client sends, and what it means to the model.
//!
//! The shop they go to is made by [`fixture`]: `rich` has 150 EUR and two orders of 100 EUR, so that two
//! payments compete for one wallet; `poor` has an order of 100 EUR and nothing.

use serde_json::{Value, json};

use crate::model::Act;

/// The merchants. Their shops are the same.
pub const MERCHANTS: [&str; 2] = ["m", "n"];

/// What a request is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// An `Idempotency-Key`.
    Given(&'static str),
    /// The submit token of the shop.
    Token,
}

/// A request that wants something done.
#[derive(Clone, Debug)]
pub struct Request {
    pub act: Act,
    pub path: String,
    pub body: Value,
}

/// `order.create`
pub fn create(order_no: &str) -> Request {
    Request {
        act: Act::Create {
            order_no: order_no.to_owned(),
        },
        path: "/v1/orders".to_owned(),
        body: json!({"order_no": order_no, "user_id": "rich", "amount": 100, "currency": "EUR"}),
    }
}

/// `account.deposit`
pub fn deposit(user: &str, amount: i64) -> Request {
    Request {
        act: Act::Deposit,
        path: format!("/v1/accounts/{user}/deposits"),
        body: json!({"amount": amount, "currency": "EUR"}),
    }
}

/// `order.pay`
pub fn pay(order_no: &str, amount: i64) -> Request {
    Request {
        act: Act::Pay {
            order_no: order_no.to_owned(),
            request_no: None,
            amount,
        },
        path: format!("/v1/orders/{order_no}/pay"),
        body: json!({"amount": amount}),
    }
}

/// `order.pay` as a checkout page sends it.
pub fn checkout(order_no: &str, request_no: &str) -> Request {
    Request {
        act: Act::Pay {
            order_no: order_no.to_owned(),
            request_no: Some(request_no.to_owned()),
            amount: 100,
        },
        path: "/v1/pay".to_owned(),
        body: json!({"order_no": order_no, "request_no": request_no, "amount": 100}),
    }
}

/// One request for each operation, for the scenarios that every operation goes through: its name, the
/// request, and its key.
pub fn each() -> Vec<(&'static str, Request, Key)> {
    vec![
        ("create", create("new"), Key::Given("k")),
        ("deposit", deposit("rich", 7), Key::Given("k")),
        ("pay", pay("o1", 100), Key::Given("k")),
        ("decline", pay("p1", 100), Key::Given("k")),
        ("checkout", checkout("o1", "r1"), Key::Token),
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
        deposit("rich", 150),
    ]
}
