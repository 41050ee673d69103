//! Wallets: deposits and balances.

use serde_json::json;

use crate::support::names::fresh;
use crate::support::shapes;
use crate::target::shop;

/// Contract, Objects: the complete deposit, with the balance after it.
#[tokio::test]
async fn a_deposit_is_answered_complete_with_the_balance_after_it() {
    let shop = shop();
    let user_id = fresh("user");
    let path = format!("/v1/accounts/{user_id}/deposits");
    let body = json!({"amount": 250, "currency": "EUR", "reference": "bank transfer 7/Ü"});
    let first = shop.command(&path, &fresh("k"), &body).send().await;
    let first = first.first(201);
    shapes::deposit(&first);
    assert_eq!(first["user_id"], user_id);
    assert_eq!(first["amount"], 250);
    assert_eq!(first["currency"], "EUR");
    assert_eq!(first["balance"], 250);
    assert_eq!(first["reference"], "bank transfer 7/Ü");
    let second = shop.deposit(&user_id, 50).await;
    shapes::deposit(&second);
    assert_eq!(second["balance"], 300);
    assert!(second["reference"].is_null());
    assert_ne!(first["deposit_id"], second["deposit_id"]);
}

/// Contract, Routes: an account shows a balance for each currency.
#[tokio::test]
async fn an_account_keeps_its_currencies_apart() {
    let shop = shop();
    let user_id = fresh("user");
    let path = format!("/v1/accounts/{user_id}/deposits");
    for (amount, currency) in [(100, "EUR"), (7000, "JPY"), (20, "EUR"), (5, "USD")] {
        let body = json!({"amount": amount, "currency": currency});
        let answer = shop.command(&path, &fresh("k"), &body).send().await;
        answer.first(201);
    }
    let path = format!("/v1/accounts/{user_id}");
    let account = shop.get(&path).send().await.ok(200);
    shapes::account(&account);
    assert_eq!(account["user_id"], user_id);
    let mut balances = account["balances"].as_array().unwrap().clone();
    balances.sort_by_key(|entry| entry["currency"].to_string());
    assert_eq!(
        balances,
        [
            json!({"currency": "EUR", "balance": 120}),
            json!({"currency": "JPY", "balance": 7000}),
            json!({"currency": "USD", "balance": 5}),
        ]
    );
}

/// Invariant 2: a repeated deposit adds once, and its answer keeps the balance of then.
#[tokio::test]
async fn a_repeated_deposit_adds_once_and_repeats_the_old_balance() {
    let shop = shop();
    let user_id = fresh("user");
    let call = shop.deposit_call(&user_id, &fresh("k"), 100);
    let answer = call.clone().send().await;
    assert_eq!(answer.first(201)["balance"], 100);
    shop.deposit(&user_id, 11).await;
    for _ in 0..3 {
        call.clone().send().await.replays(&answer);
    }
    assert_eq!(shop.balance(&user_id).await, 111);
}

/// Contract, Error codes: `account_not_found`.
#[tokio::test]
async fn an_unknown_account_is_not_found() {
    let shop = shop();
    let path = format!("/v1/accounts/{}", fresh("nobody"));
    let answer = shop.get(&path).send().await;
    answer.problem(404, "account_not_found");
}

/// Invariant 5: a balance beyond the largest amount is exact or refused, never wrong.
#[tokio::test]
async fn huge_balances_are_exact_or_refused() {
    let shop = shop();
    let user_id = fresh("rich");
    let huge: u64 = 9_007_199_254_740_991;
    let mut expected: u64 = 0;
    for round in 0..4 {
        let call = shop.deposit_call(&user_id, &fresh("k"), huge);
        let answer = call.send().await;
        if answer.status == 201 {
            expected += huge;
            let deposit = answer.first(201);
            assert_eq!(deposit["balance"].as_u64(), Some(expected));
        } else {
            assert!(round > 0, "the largest amount is refused");
            assert!((400..500).contains(&answer.status), "{}", answer.text());
            shapes::problem(&answer.json());
        }
    }
    let balance = u64::try_from(shop.balance(&user_id).await).unwrap();
    assert_eq!(balance, expected);
}

/// Invariant 5: money of one currency pays no order of another.
#[tokio::test]
async fn a_wallet_pays_in_the_currency_of_the_order_only() {
    let shop = shop();
    let user_id = fresh("user");
    let path = format!("/v1/accounts/{user_id}/deposits");
    let body = json!({"amount": 1000, "currency": "USD"});
    let deposit = shop.command(&path, &fresh("k"), &body).send().await;
    deposit.first(201);
    let order_no = shop.order_of(&user_id, 100).await;
    let answer = shop.pay(&order_no, &fresh("k"), 100).await;
    answer.problem(402, "insufficient_funds");
}
