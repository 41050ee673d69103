//! Scenes that several fault tests begin with.

use tokio::task::JoinHandle;

use crate::support::answer::Answer;
use crate::support::client::{Call, Shop};
use crate::support::site::Site;
use crate::support::stores;
use crate::support::wait::eventually;

/// Repeats a call until it gets an answer that is final, as a client told `retryable` does.
pub async fn settled(call: &Call) -> Answer {
    call.settled().await
}

/// A payment that is on its way: its claim is in the key-value store, its answer is not here yet.
pub struct InProgress {
    pub answer: JoinHandle<Answer>,
    /// The claim as it lies in the store.
    pub claim: (String, Vec<u8>),
}

/// Sends a payment that something holds up and waits until its claim shows.
pub async fn claimed(
    site: &Site,
    shop: &Shop,
    order_no: &str,
    key: &str,
    amount: u64,
) -> InProgress {
    let before = stores::entries(&site.key_value());
    let call = shop.pay_call(order_no, key, amount);
    let answer = tokio::spawn(async move {
        let answer = call.attempt().await;
        answer.unwrap_or_else(|error| Answer::lost(&error))
    });
    let claim = eventually("a claim", async || {
        assert!(!answer.is_finished(), "nothing holds the payment up");
        let claims = stores::claims(&site.key_value());
        claims
            .into_iter()
            .find(|(name, _)| !before.contains_key(name))
    })
    .await;
    InProgress { answer, claim }
}
