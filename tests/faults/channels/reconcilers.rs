//! `/admin/reconcile`: safe at any time, from several callers, in pieces.

use futures::future::{join, join_all};
use payonce_channel::{Call, Fault, Outcome};
use serde_json::json;

use super::till::{SURFACES, Till, unknown};
use crate::support::wait::eventually;

/// Invariants 1, 2 and 8: two reconcilers and a retry go for the same payments at the same moment.
#[tokio::test]
async fn two_reconcilers_and_a_retry_finish_each_payment_once() {
    for surface in SURFACES {
        let till = Till::open(surface);
        for lost in [Fault::Refuse, Fault::Drop] {
            let mut payments = Vec::new();
            for _ in 0..5 {
                let (order_no, call) = till.unanswered(lost).await;
                payments.push((order_no, call));
            }
            till.expire_leases();
            let retries = payments.iter().map(|(_, call)| call.clone().send());
            let sweeps = (0..2).map(|_| till.reconcile(json!({})));
            join(join_all(retries), join_all(sweeps)).await;
            for (order_no, call) in &payments {
                let paid = eventually("the final answer", async || {
                    let answer = call.clone().send().await;
                    (answer.status == 200).then_some(answer)
                });
                let paid = paid.await;
                call.clone().send().await.replays(&paid);
                assert_eq!(till.outbox(order_no, "order.paid"), 1);
                assert_eq!(till.channel.book().charges_of(order_no).count(), 1);
            }
        }
        till.books_agree();
    }
}

/// Invariant 9: a sweep takes no more than it is told, and sweeps in pieces take everything.
#[tokio::test]
async fn a_bounded_sweep_leaves_the_rest_to_the_next() {
    for surface in SURFACES {
        let till = Till::open(surface);
        let mut order_nos = Vec::new();
        for _ in 0..5 {
            let (order_no, _) = till.unanswered(Fault::Drop).await;
            order_nos.push(order_no);
        }
        till.expire_leases();
        for expected in [2, 4, 5, 5] {
            till.reconcile(json!({"limit": 2})).await;
            let statuses =
                join_all(order_nos.iter().map(|order_no| till.status_of(order_no))).await;
            let paid = statuses.iter().filter(|status| *status == "paid").count();
            assert_eq!(paid, expected);
        }
        till.books_agree();
    }
}

/// Invariant 9: a payment that has an owner is left to it; one that is settled is left alone.
#[tokio::test]
async fn a_sweep_leaves_what_is_under_way_and_what_is_over() {
    for surface in SURFACES {
        let till = Till::open(surface);
        till.paid(100).await;
        let order_no = till.order(100).await;
        let call = till.pay_call(&order_no, 100);
        till.channel.script(Call::Charge, [Fault::Late]);
        let first = tokio::spawn(call.send());
        eventually("the charge", async || {
            (till.channel.seen(Call::Charge) == 2).then_some(())
        })
        .await;
        till.reconcile(json!({})).await;
        assert_eq!(till.status_of(&order_no).await, "processing");
        assert_eq!(till.channel.seen(Call::Charge), 2);
        assert_eq!(till.channel.seen(Call::Lookup), 0);
        till.channel.release();
        first.await.unwrap().first(200);
        till.books_agree();
    }
}

/// Invariant 9: one payment that the channel says nothing about does not keep the others from their end.
#[tokio::test]
async fn a_payment_that_stays_open_does_not_hold_up_a_sweep() {
    for surface in SURFACES {
        let till = Till::open(surface);
        let (open, lost) = (till.order(100).await, till.order(100).await);
        till.channel.script(Call::Charge, [Outcome::Processing]);
        unknown(&till.pay_call(&open, 100).send().await);
        till.channel.script(Call::Charge, [Fault::Drop]);
        unknown(&till.pay_call(&lost, 100).send().await);
        // In pieces of one: the open one is not tried for ever.
        eventually("the lost payment", async || {
            till.expire_leases();
            till.reconcile(json!({"limit": 1})).await;
            (till.status_of(&lost).await == "paid").then_some(())
        })
        .await;
        assert_eq!(till.status_of(&open).await, "processing");
        till.books_agree();
    }
}
