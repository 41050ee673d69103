//! Body fields that are wrong: every one is refused, named, and without effect.

use serde_json::{Value, json};

use crate::support::client::{order_body, pay_path};
use crate::support::names::fresh;
use crate::target::shop;

/// Amounts that are no amounts, as JSON text.
const BAD_AMOUNTS: [&str; 22] = [
    "0",
    "-0",
    "-1",
    "1.5",
    "1.0",
    "100.0",
    "1e2",
    "1E2",
    "1e-2",
    "0.1e1",
    "9007199254740992",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551616",
    "-9223372036854775809",
    "12345678901234567890",
    "\"100\"",
    "null",
    "true",
    "[100]",
    "{}",
    "\"\"",
];

/// Contract, Conventions: an amount is an integer from 1 to 9007199254740991; no floats, no strings.
#[tokio::test]
async fn an_order_with_a_bad_amount_is_refused_and_not_created() {
    let shop = shop();
    let order_no = fresh("order");
    for amount in BAD_AMOUNTS {
        let body = format!(
            r#"{{"order_no":"{order_no}","user_id":"u","amount":{amount},"currency":"EUR"}}"#
        );
        let answer = shop
            .post("/v1/orders")
            .key(&fresh("k"))
            .text(&body)
            .send()
            .await;
        assert_eq!(answer.status, 400, "{amount}: {}", answer.text());
        answer.body_invalid("amount");
    }
    let path = format!("/v1/orders/{order_no}");
    shop.get(&path).send().await.problem(404, "order_not_found");
}

/// Contract, Conventions: the same on the routes that move money.
#[tokio::test]
async fn a_deposit_or_payment_with_a_bad_amount_is_refused_and_moves_nothing() {
    let shop = shop();
    let user_id = fresh("user");
    shop.deposit(&user_id, 100).await;
    let order_no = shop.order_of(&user_id, 100).await;
    let deposits = format!("/v1/accounts/{user_id}/deposits");
    let request_no = fresh("request");
    for amount in BAD_AMOUNTS {
        let bodies = [
            (
                deposits.clone(),
                format!(r#"{{"amount":{amount},"currency":"EUR"}}"#),
            ),
            (pay_path(&order_no), format!(r#"{{"amount":{amount}}}"#)),
            (
                "/v1/pay".to_owned(),
                format!(
                    r#"{{"order_no":"{order_no}","request_no":"{request_no}","amount":{amount}}}"#
                ),
            ),
        ];
        for (path, body) in bodies {
            let call = shop.post(&path).key(&fresh("k")).text(&body);
            let answer = call.send().await;
            assert_eq!(answer.status, 400, "{path} {amount}: {}", answer.text());
            answer.body_invalid("amount");
        }
    }
    assert_eq!(shop.balance(&user_id).await, 100);
    assert_eq!(shop.order(&order_no).await["status"], "pending");
}

/// Contract, Conventions: a number that no type holds breaks nothing.
#[tokio::test]
async fn an_amount_beyond_every_number_type_is_refused() {
    let shop = shop();
    let user_id = fresh("user");
    let path = format!("/v1/accounts/{user_id}/deposits");
    let digits = "9".repeat(40_000);
    for amount in ["1e400", "-1e400", "1e99999999999", &digits] {
        let body = format!(r#"{{"amount":{amount},"currency":"EUR"}}"#);
        let call = shop.post(&path).key(&fresh("k")).text(&body);
        call.send().await.problem(400, "body_invalid");
    }
    let path = format!("/v1/accounts/{user_id}");
    let account = shop.get(&path).send().await;
    account.problem(404, "account_not_found");
}

/// Recording: a bad amount (400) is not recorded; the corrected body runs under the same key.
#[tokio::test]
async fn a_bad_amount_does_not_burn_the_key() {
    let shop = shop();
    let user_id = fresh("user");
    let path = format!("/v1/accounts/{user_id}/deposits");
    let key = fresh("k");
    let bad = json!({"amount": "5", "currency": "EUR"});
    let answer = shop.command(&path, &key, &bad).send().await;
    answer.body_invalid("amount");
    let deposit = shop.deposit_call(&user_id, &key, 5).send().await;
    deposit.first(201);
}

/// Contract, Conventions: `currency` is an ISO 4217 code in upper case.
#[tokio::test]
async fn a_currency_that_iso_4217_does_not_list_is_refused() {
    let shop = shop();
    for currency in [
        json!("eur"),
        json!("Eur"),
        json!("EU"),
        json!("EURO"),
        json!("ZZZ"),
        json!("ABC"),
        json!(""),
        json!(" EUR"),
        json!("E\u{0}R"),
        json!("ЕUR"),
        json!(978),
        json!(null),
        json!(["EUR"]),
    ] {
        let body = json!({"user_id": "u", "amount": 1, "currency": currency});
        let answer = shop.command("/v1/orders", &fresh("k"), &body).send().await;
        assert_eq!(answer.status, 400, "{currency}: {}", answer.text());
        answer.body_invalid("currency");
        let path = format!("/v1/accounts/{}/deposits", fresh("user"));
        let body = json!({"amount": 1, "currency": currency});
        let answer = shop.command(&path, &fresh("k"), &body).send().await;
        answer.body_invalid("currency");
    }
}

/// Contract, Conventions: currencies without and with many decimals are ISO 4217 too.
#[tokio::test]
async fn currencies_of_any_exponent_are_accepted() {
    let shop = shop();
    for currency in ["EUR", "USD", "JPY", "KWD", "CHF", "CNY", "CLF"] {
        let body = json!({"user_id": "u", "amount": 1, "currency": currency});
        let call = shop.command("/v1/orders", &fresh("k"), &body);
        assert_eq!(call.send().await.first(201)["currency"], currency);
    }
}

/// Contract, Conventions: identifiers are 1 to 64 of a fixed set of characters.
#[tokio::test]
async fn an_identifier_of_other_characters_is_refused_and_named() {
    let shop = shop();
    let long = "x".repeat(65);
    let bad = [
        json!(""),
        json!(" "),
        json!("a b"),
        json!("a/b"),
        json!("ä"),
        json!("a\u{0}"),
        json!("a\n"),
        json!("a,b"),
        json!(long),
        json!(7),
        json!(["a"]),
    ];
    let order_no = shop.payable(1).await;
    for id in bad {
        let mut body = order_body("placeholder", "u", 1);
        body["order_no"] = id.clone();
        let call = shop.command("/v1/orders", &fresh("k"), &body);
        call.send().await.body_invalid("order_no");

        let mut body = order_body(&fresh("order"), "u", 1);
        body["user_id"] = id.clone();
        let call = shop.command("/v1/orders", &fresh("k"), &body);
        call.send().await.body_invalid("user_id");

        let body = json!({"amount": 1, "request_no": id});
        let call = shop.command(&pay_path(&order_no), &fresh("k"), &body);
        call.send().await.body_invalid("request_no");
        // It must not become a derived key either.
        let call = shop.post(&pay_path(&order_no)).json(&body);
        call.send().await.body_invalid("request_no");
    }
    assert_eq!(shop.order(&order_no).await["status"], "pending");
}

/// Contract, Conventions: unknown fields are refused by name, so that no typo passes.
#[tokio::test]
async fn an_unknown_field_is_refused_and_named() {
    let shop = shop();
    let user_id = fresh("user");
    shop.deposit(&user_id, 1).await;
    let order_no = shop.order_of(&user_id, 1).await;
    let deposits = format!("/v1/accounts/{user_id}/deposits");
    let bodies = [
        (
            "/v1/orders",
            json!({"user_id": "u", "amount": 1, "currency": "EUR"}),
        ),
        (&pay_path(&order_no), json!({"amount": 1})),
        (&deposits, json!({"amount": 1, "currency": "EUR"})),
        (
            "/v1/pay",
            json!({"order_no": order_no, "request_no": fresh("r"), "amount": 1}),
        ),
        ("/v1/tokens", json!({})),
    ];
    for (path, body) in bodies {
        for field in ["ammount", "Amount", "idempotency_key"] {
            let mut body = body.clone();
            body[field] = json!(1);
            let answer = shop.command(path, &fresh("k"), &body).send().await;
            assert_eq!(answer.status, 400, "{path} {field}: {}", answer.text());
            answer.body_invalid(field);
        }
    }
    // The token belongs into the body of the short route only.
    let body = json!({"amount": 1, "token": shop.token().await});
    let call = shop.command(&pay_path(&order_no), &fresh("k"), &body);
    call.send().await.body_invalid("token");
    assert_eq!(shop.balance(&user_id).await, 1);
}

/// Contract, Routes: what a route requires and does not get is named.
#[tokio::test]
async fn a_missing_field_is_refused_and_named() {
    let shop = shop();
    let order_no = shop.payable(1).await;
    let deposits = format!("/v1/accounts/{}/deposits", fresh("user"));
    let complete = [
        (
            "/v1/orders",
            json!({"user_id": "u", "amount": 1, "currency": "EUR"}),
        ),
        (&pay_path(&order_no), json!({"amount": 1})),
        (&deposits, json!({"amount": 1, "currency": "EUR"})),
        (
            "/v1/pay",
            json!({"order_no": order_no, "request_no": fresh("r"), "amount": 1}),
        ),
    ];
    for (path, body) in complete {
        let fields: Vec<String> = body.as_object().unwrap().keys().cloned().collect();
        for field in fields {
            let mut body = body.clone();
            body.as_object_mut().unwrap().remove(&field);
            let answer = shop.command(path, &fresh("k"), &body).send().await;
            assert_eq!(answer.status, 400, "{path} {field}: {}", answer.text());
            answer.body_invalid(&field);
        }
    }
    assert_eq!(shop.order(&order_no).await["status"], "pending");
}

/// Contract, Routes: metadata is a flat object of strings, at most 20.
#[tokio::test]
async fn metadata_of_another_form_is_refused_and_named() {
    let shop = shop();
    let many: serde_json::Map<String, Value> = (0..21)
        .map(|number| (format!("k{number}"), json!("v")))
        .collect();
    for metadata in [
        Value::Object(many),
        json!({"a": 1}),
        json!({"a": null}),
        json!({"a": {"b": "c"}}),
        json!({"a": ["b"]}),
        json!({"a": true}),
        json!([]),
        json!(["a"]),
        json!("a"),
        json!(1),
    ] {
        let order_no = fresh("order");
        let mut body = order_body(&order_no, "u", 1);
        body["metadata"] = metadata.clone();
        let answer = shop.command("/v1/orders", &fresh("k"), &body).send().await;
        assert_eq!(answer.status, 400, "{metadata}: {}", answer.text());
        let problem = answer.problem(400, "body_invalid");
        assert!(problem.to_string().contains("metadata"), "{problem}");
        let path = format!("/v1/orders/{order_no}");
        shop.get(&path).send().await.problem(404, "order_not_found");
    }
}
