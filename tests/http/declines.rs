//! Final declines: recorded and repeated, until a new key tries again.

use crate::support::names::fresh;
use crate::support::shapes;
use crate::target::shop;

/// Recording: `insufficient_funds` is final for its key; a new key pays.
#[tokio::test]
async fn a_decline_is_replayed_after_a_deposit_and_a_new_key_pays() {
    let shop = shop();
    let user_id = fresh("user");
    shop.deposit(&user_id, 99).await;
    let order_no = shop.order_of(&user_id, 100).await;
    let key = fresh("k");
    let declined = shop.pay(&order_no, &key, 100).await;
    declined.problem(402, "insufficient_funds");
    assert!(!declined.replayed());
    assert_eq!(shop.balance(&user_id).await, 99);

    shop.deposit(&user_id, 1).await;
    shop.pay(&order_no, &key, 100).await.replays(&declined);
    assert_eq!(shop.balance(&user_id).await, 100);
    shop.pay(&order_no, &fresh("k"), 100).await.first(200);
    assert_eq!(shop.balance(&user_id).await, 0);
    shop.pay(&order_no, &key, 100).await.replays(&declined);
}

/// Contract, Error codes: a user without an account has an empty wallet.
#[tokio::test]
async fn a_user_without_account_has_an_empty_wallet() {
    let shop = shop();
    let user_id = fresh("user");
    let order_no = shop.order_of(&user_id, 1).await;
    let key = fresh("k");
    let declined = shop.pay(&order_no, &key, 1).await;
    declined.problem(402, "insufficient_funds");
    shop.pay(&order_no, &key, 1).await.replays(&declined);
}

/// Invariant 3: a recorded decline belongs to its body like a success does.
#[tokio::test]
async fn a_declined_key_refuses_another_body() {
    let shop = shop();
    let order_no = shop.order_of(&fresh("user"), 5).await;
    let key = fresh("k");
    let declined = shop.pay(&order_no, &key, 5).await;
    declined.problem(402, "insufficient_funds");
    let other = shop.pay(&order_no, &key, 6).await;
    other.problem(422, "idempotency_key_reused");
}

/// R16: a declined payment ends; nothing of it stays in progress.
#[tokio::test]
async fn a_decline_leaves_a_terminal_state() {
    let shop = shop();
    let order_no = shop.order_of(&fresh("user"), 5).await;
    let declined = shop.pay(&order_no, &fresh("k"), 5).await;
    declined.problem(402, "insufficient_funds");
    let status = &shop.order(&order_no).await["status"];
    assert!(status == "pending" || status == "failed", "{status}");
    for payment in shop.payments(&order_no).await {
        shapes::payment(&payment);
        assert_eq!(payment["status"], "failed");
    }
}

/// Contract, Error codes: the amount is compared before the wallet is looked at.
#[tokio::test]
async fn a_wrong_amount_is_not_mistaken_for_an_empty_wallet() {
    let shop = shop();
    let order_no = shop.order_of(&fresh("user"), 5).await;
    let answer = shop.pay(&order_no, &fresh("k"), 6).await;
    answer.problem(422, "amount_mismatch");
}
