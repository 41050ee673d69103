//! Submit tokens: stateless, bound to their merchant, good for one operation.

use serde_json::json;

use crate::support::client::{Call, order_body, pay_path};
use crate::support::names::fresh;
use crate::support::shapes;
use crate::target::{other_shop, shop, stranger};

/// A deposit of ten by a fresh user with these tokens in its header, and that user.
fn deposit_with(tokens: &[&str]) -> (String, Call) {
    let user_id = fresh("user");
    let body = json!({"amount": 10, "currency": "EUR"});
    let path = format!("/v1/accounts/{user_id}/deposits");
    let call = shop().post(&path).json(&body);
    let add = |call: Call, token: &&str| call.header("submit-token", token);
    (user_id, tokens.iter().fold(call, add))
}

/// Contract, Routes: 201 `{token, expires_at}`.
#[tokio::test]
async fn a_token_is_answered_complete_and_every_one_is_new() {
    let shop = shop();
    let first = shop.post("/v1/tokens").send().await.first(201);
    shapes::token(&first);
    let second = shop.post("/v1/tokens").send().await.first(201);
    assert_ne!(first["token"], second["token"]);
    let expires: jiff::Timestamp = first["expires_at"].as_str().unwrap().parse().unwrap();
    assert!(expires > jiff::Timestamp::UNIX_EPOCH);
}

/// Contract, Routes: a token is for a merchant, so a stranger gets none.
#[tokio::test]
async fn a_stranger_gets_no_token() {
    let answer = stranger().post("/v1/tokens").send().await;
    answer.problem(401, "unauthorized");
}

/// Invariant 13: a token stands in for the key, and a second use of it is a replay.
#[tokio::test]
async fn a_token_in_the_header_pays_once_and_then_replays() {
    let shop = shop();
    let order_no = shop.payable(30).await;
    let token = shop.token().await;
    let call = shop
        .post(&pay_path(&order_no))
        .header("submit-token", &token)
        .json(&json!({"amount": 30}));
    let answer = call.clone().send().await;
    shapes::payment(&answer.first(200));
    for _ in 0..3 {
        call.clone().send().await.replays(&answer);
    }
    assert!(!answer.text().contains(&token), "a token is echoed");
}

/// Contract, Idempotency: a token works on every command.
#[tokio::test]
async fn a_token_works_for_orders_and_deposits() {
    let shop = shop();
    let body = json!({"user_id": fresh("user"), "amount": 1, "currency": "EUR"});
    let call = shop.post("/v1/orders").json(&body);
    let call = call.header("submit-token", &shop.token().await);
    let answer = call.clone().send().await;
    shapes::order(&answer.first(201));
    call.send().await.replays(&answer);

    let (user_id, call) = deposit_with(&[&shop.token().await]);
    let answer = call.clone().send().await;
    answer.first(201);
    call.send().await.replays(&answer);
    assert_eq!(shop.balance(&user_id).await, 10);
}

/// Invariant 13: one token, two operations: the second is refused and learns nothing.
#[tokio::test]
async fn a_token_redeems_one_operation_only() {
    let shop = shop();
    let (first_order, second_order) = (shop.payable(5).await, shop.payable(5).await);
    let token = shop.token().await;
    let pay = |order_no: &str| {
        shop.post(&pay_path(order_no))
            .header("submit-token", &token)
            .json(&json!({"amount": 5}))
    };
    let payment = pay(&first_order).send().await.first(200);
    let refused = pay(&second_order).send().await;
    refused.problem(422, "idempotency_key_reused");
    let payment_id = payment["payment_id"].as_str().unwrap();
    assert!(!refused.text().contains(payment_id));
    assert_eq!(shop.order(&second_order).await["status"], "pending");
}

/// Invariant 13: a request that recorded nothing does not burn its token.
#[tokio::test]
async fn a_refused_request_does_not_burn_its_token() {
    let shop = shop();
    let order_no = shop.payable(5).await;
    let token = shop.token().await;
    let pay = |body| {
        shop.post(&pay_path(&order_no))
            .header("submit-token", &token)
            .json(&body)
    };
    let wrong = pay(json!({"amount": 6})).send().await;
    wrong.problem(422, "amount_mismatch");
    let malformed = pay(json!({"amount": "5"})).send().await;
    malformed.body_invalid("amount");
    pay(json!({"amount": 5})).send().await.first(200);
}

/// Invariant 13: a form that is submitted twice, at once or later, is one order.
#[tokio::test]
async fn a_form_submitted_twice_creates_one_order() {
    let shop = shop();
    let user_id = fresh("user");
    let token = shop.token().await;
    let body = json!({"user_id": user_id, "amount": 10, "currency": "EUR"});
    let submit = shop.post("/v1/orders").header("submit-token", &token);
    let submit = submit.json(&body);
    let (first, second) = tokio::join!(submit.settled(), submit.settled());
    first.ok(201);
    second.equals(&first);
    assert_ne!(first.replayed(), second.replayed());
    submit.send().await.replays(&first);
    let path = format!("/v1/orders?user_id={user_id}");
    let page = shop.get(&path).send().await.ok(200);
    assert_eq!(page["data"].as_array().unwrap().len(), 1);
}

/// Invariant 13: a form that was refused is corrected and submitted with the same token.
#[tokio::test]
async fn a_refused_form_does_not_burn_its_token() {
    let shop = shop();
    let taken = shop.order_of(&fresh("user"), 10).await;
    let order_no = fresh("order");
    let token = shop.token().await;
    let submit = |order_no: &str, amount| {
        let body = order_body(order_no, "u", amount);
        let call = shop.post("/v1/orders").header("submit-token", &token);
        call.json(&body).send()
    };
    submit(&order_no, 0).await.body_invalid("amount");
    submit(&taken, 10).await.problem(409, "order_exists");
    submit(&order_no, 10).await.first(201);
    let again = submit(&taken, 10).await;
    again.problem(422, "idempotency_key_reused");
}

/// Contract, Routes: `/v1/pay` takes the token in its body; the walk: it is not part of the
/// fingerprint, so the same token in the header is the same request.
#[tokio::test]
async fn a_token_in_the_body_is_the_token_in_the_header() {
    let shop = shop();
    let order_no = shop.payable(5).await;
    let token = shop.token().await;
    let request_no = fresh("request");
    let plain = json!({"order_no": order_no, "request_no": request_no, "amount": 5});
    let mut with_token = plain.clone();
    with_token["token"] = json!(token);
    let in_body = shop.post("/v1/pay").json(&with_token);
    let answer = in_body.clone().send().await;
    shapes::payment(&answer.first(200));
    in_body.send().await.replays(&answer);
    let in_header = shop.post("/v1/pay").header("submit-token", &token);
    in_header.json(&plain).send().await.replays(&answer);
}

/// Contract, Error codes: a bad token in the body is refused like one in the header.
#[tokio::test]
async fn a_bad_token_in_the_body_is_refused_and_does_not_fall_back_to_the_request_number() {
    let shop = shop();
    let order_no = shop.payable(5).await;
    for token in ["nonsense".to_owned(), other_shop().token().await] {
        let body = json!({
            "token": token, "order_no": order_no, "request_no": fresh("r"), "amount": 5
        });
        let answer = shop.post("/v1/pay").json(&body).send().await;
        answer.problem(400, "token_invalid");
    }
    for token in [json!(7), json!(["a"]), json!({})] {
        let body = json!({
            "token": token, "order_no": order_no, "request_no": fresh("r"), "amount": 5
        });
        let answer = shop.post("/v1/pay").json(&body).send().await;
        answer.problem(400, "body_invalid");
    }
    assert_eq!(shop.order(&order_no).await["status"], "pending");
}

/// Contract, Error codes: `token_invalid` for whatever this service did not sign.
#[tokio::test]
async fn a_forged_token_is_refused_wherever_it_was_changed() {
    let token = shop().token().await;
    let mut forged: Vec<String> = vec![
        "nonsense".to_owned(),
        ".".to_owned(),
        "..".to_owned(),
        "a.b.c".to_owned(),
        "x".repeat(5000),
        format!("{token}{token}"),
        format!("{token}A"),
        format!("{token}="),
        format!("A{token}"),
        token.to_uppercase(),
        token.to_lowercase(),
        // `{"alg":"none"}`, as a careless library might take it.
        "eyJhbGciOiJub25lIn0.e30.".to_owned(),
    ];
    for (index, letter) in token.char_indices() {
        // A letter from the other half of the alphabet changes the uppermost bit.
        let other = if letter.is_ascii_uppercase() {
            'z'
        } else {
            'A'
        };
        let mut changed = token.clone();
        changed.replace_range(index..=index, &other.to_string());
        forged.push(changed);
        if index > 0 {
            forged.push(token[..index].to_owned());
        }
    }
    let forged = forged.iter().filter(|forged| **forged != token);
    for token in forged {
        let (user_id, call) = deposit_with(&[token]);
        let answer = call.send().await;
        assert_eq!(answer.status, 400, "{token}: {}", answer.text());
        answer.problem(400, "token_invalid");
        let path = format!("/v1/accounts/{user_id}");
        let account = shop().get(&path).send().await;
        account.problem(404, "account_not_found");
    }
}

/// Contract, Error codes: `token_invalid` also for another merchant's token (invariant 10).
#[tokio::test]
async fn a_token_of_another_merchant_is_refused_used_or_not() {
    let other = other_shop();
    let unused = other.token().await;
    let used = other.token().await;
    let order_no = other.payable(5).await;
    let paid = other
        .post(&pay_path(&order_no))
        .header("submit-token", &used)
        .json(&json!({"amount": 5}));
    paid.send().await.first(200);
    for token in [unused, used] {
        let (_, call) = deposit_with(&[&token]);
        call.send().await.problem(400, "token_invalid");
    }
}

/// Contract, Idempotency: a token comes instead of the key, never with it.
#[tokio::test]
async fn a_key_and_a_token_at_once_are_refused() {
    let token = shop().token().await;
    for name in ["idempotency-key", "x-idempotency-key"] {
        let (_, call) = deposit_with(&[&token]);
        let answer = call.header(name, &fresh("k")).send().await;
        answer.problem(400, "idempotency_key_invalid");
    }
    // The refusal has not burnt the token.
    let (_, call) = deposit_with(&[&token]);
    call.send().await.first(201);
}

/// R10, for tokens: a header that occurs twice is refused.
#[tokio::test]
async fn a_token_that_occurs_twice_is_refused() {
    let (first, second) = (shop().token().await, shop().token().await);
    for pair in [[&first, &first], [&first, &second]] {
        let (user_id, call) = deposit_with(&[pair[0], pair[1]]);
        let answer = call.send().await;
        answer.status(400);
        shapes::problem(&answer.json());
        let path = format!("/v1/accounts/{user_id}");
        let account = shop().get(&path).send().await;
        account.problem(404, "account_not_found");
    }
}

/// Contract, Error codes: an empty token is no token of this service.
#[tokio::test]
async fn an_empty_token_is_refused() {
    let (_, call) = deposit_with(&[""]);
    call.send().await.problem(400, "token_invalid");
}

/// Invariant 10: no key that a client can choose reaches what a token did.
#[tokio::test]
async fn a_token_used_as_a_key_is_another_key() {
    let shop = shop();
    let token = shop.token().await;
    let (user_id, call) = deposit_with(&[&token]);
    call.send().await.first(201);
    if token.len() <= 255 {
        let again = shop.deposit_call(&user_id, &token, 10).send().await;
        again.first(201);
        assert_eq!(shop.balance(&user_id).await, 20);
    }
}
