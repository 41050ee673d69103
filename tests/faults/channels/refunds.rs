//! Refunds through the channel: one each, whatever is lost on the way.

use futures::future::join_all;
use payonce_channel::{Call, Fault, Outcome, Surface};
use serde_json::json;

use super::till::{RECOVERIES, Recovery, SURFACES, Till, is_final, now, step, unknown};
use crate::support::client::{Call as Request, pay_path, refunds_path};
use crate::support::names::fresh;
use crate::support::shapes;

fn refund_call(till: &Till, order_no: &str, amount: u64) -> Request {
    till.shop().refund_call(order_no, &fresh("refund"), amount)
}

/// Invariants 2 and 7: the good case, in parts and to the end.
#[tokio::test]
async fn refunds_go_back_through_the_channel_in_parts_and_to_the_end() {
    for surface in SURFACES {
        let till = Till::open(surface);
        let order_no = till.paid(100).await;
        for (amount, status) in [(30, "paid"), (70, "refunded")] {
            let call = refund_call(&till, &order_no, amount);
            let first = call.clone().send().await;
            let refund = first.first(201);
            shapes::refund(&refund);
            assert_eq!(refund["status"], "succeeded");
            call.send().await.replays(&first);
            assert_eq!(till.status_of(&order_no).await, status);
        }
        let more = refund_call(&till, &order_no, 1).send().await;
        assert!(matches!(more.status, 409 | 422), "{}", more.text());
        assert_eq!(till.channel.seen(Call::Refund), 2);
        assert!(till.channel.book().kept().is_empty());
        till.books_agree();
    }
}

/// Invariants 2, 7, 8 and 9: every fault, on either surface.
async fn every_fault_of_a_refund_ends_well(surface: Surface, by: Recovery) {
    let till = Till::with_hasty(surface);
    for fault in Fault::ALL {
        let what = format!("{surface:?}, {by:?}, {fault:?}");
        let order_no = till.paid(100).await;
        let call = refund_call(&till, &order_no, 60);
        till.channel
            .script(Call::Refund, [step(&Outcome::Succeeded, fault)]);
        let first = till.hastily(&call).await;
        if !is_final(&first) {
            unknown(&first);
            // What may have gone back already is not there for another.
            let other = refund_call(&till, &order_no, 60).send().await;
            other.problem(422, "refund_exceeds_payment");
        }
        till.channel.release();
        let last = till.recover(&call, by, &what).await;
        last.ok(201);
        if is_final(&first) {
            last.replays(&first);
        }
        assert_eq!(
            till.shop().order(&order_no).await["refunded_amount"],
            60,
            "{what}"
        );
        assert_eq!(
            till.channel.book().refunds_of(&order_no).count(),
            1,
            "{what}"
        );
    }
    till.books_agree();
}

#[tokio::test]
async fn after_every_fault_of_a_refund_at_the_http_channel_a_retry_ends_well() {
    every_fault_of_a_refund_ends_well(Surface::Http, Recovery::Retry).await;
}

#[tokio::test]
async fn after_every_fault_of_a_refund_at_the_http_channel_a_sweep_ends_well() {
    every_fault_of_a_refund_ends_well(Surface::Http, Recovery::Reconcile).await;
}

#[tokio::test]
async fn after_every_fault_of_a_refund_at_stripe_a_retry_ends_well() {
    every_fault_of_a_refund_ends_well(Surface::Stripe, Recovery::Retry).await;
}

#[tokio::test]
async fn after_every_fault_of_a_refund_at_stripe_a_sweep_ends_well() {
    every_fault_of_a_refund_ends_well(Surface::Stripe, Recovery::Reconcile).await;
}

/// Invariants 8 and 9: a charge and a refund may have one number of the client, and are two at the channel.
#[tokio::test]
async fn a_refund_may_have_the_number_of_a_payment() {
    for surface in SURFACES {
        let till = Till::open(surface);
        let order_no = till.order(100).await;
        let pay = json!({"amount": 100, "request_no": order_no, "payment_method": "pm_card_visa"});
        let pay = till
            .shop()
            .command(&pay_path(&order_no), &fresh("pay"), &pay);
        pay.send().await.first(200);
        let refund = json!({"amount": 100, "refund_no": order_no});
        let refund = till
            .shop()
            .command(&refunds_path(&order_no), &fresh("refund"), &refund);
        refund.send().await.first(201);
        till.books_agree();
    }
}

/// Invariant 9: who waits for a refund that the channel declines later hears of it.
#[tokio::test]
async fn a_refund_that_is_declined_in_the_end_is_an_event() {
    for surface in SURFACES {
        let till = Till::open(surface);
        let order_no = till.paid(100).await;
        till.channel.script(Call::Refund, [Outcome::Processing]);
        let call = refund_call(&till, &order_no, 100);
        unknown(&call.clone().send().await);
        let refund_id = till.channel.book().refunds[0].refund_id.clone();
        let declined = Outcome::Declined("expired_or_canceled_card".into());
        till.channel.settle_refund(&refund_id, declined);
        till.deliver(&till.channel.events_of(&order_no)).await;
        call.send().await.status(402);
        assert_eq!(till.outbox(&order_no, "refund.failed"), 1);
        till.books_agree();
    }
}

/// Invariant 7: a refund that the channel declines moved nothing, and its amount is there for another.
#[tokio::test]
async fn a_declined_refund_is_final_and_leaves_its_amount() {
    for surface in SURFACES {
        let till = Till::open(surface);
        let order_no = till.paid(100).await;
        let declined = Outcome::Declined("expired_or_canceled_card".into());
        till.channel.script(Call::Refund, [declined]);
        let call = refund_call(&till, &order_no, 100);
        let first = call.clone().send().await;
        first.status(402);
        call.clone().send().await.replays(&first);
        assert_eq!(till.shop().order(&order_no).await["refunded_amount"], 0);
        till.books_agree();
        refund_call(&till, &order_no, 100).send().await.first(201);
        call.send().await.replays(&first);
        assert_eq!(till.status_of(&order_no).await, "refunded");
        till.books_agree();
    }
}

/// Invariant 9: a refund that takes its time is followed to its end.
#[tokio::test]
async fn a_refund_that_is_processing_ends_as_the_channel_decides() {
    for surface in SURFACES {
        let till = Till::open(surface);
        for by in RECOVERIES {
            for outcome in [Outcome::Succeeded, Outcome::Declined("declined".into())] {
                let order_no = till.paid(100).await;
                till.channel.script(Call::Refund, [Outcome::Processing]);
                let call = refund_call(&till, &order_no, 100);
                unknown(&call.clone().send().await);
                till.expire_leases();
                till.reconcile(json!({})).await;
                unknown(&now(&call).await);
                let book = till.channel.book();
                let refund = book.refunds_of(&order_no).next().expect("a refund");
                till.channel
                    .settle_refund(&refund.refund_id, outcome.clone());
                let last = till
                    .recover(&call, by, &format!("{surface:?}, {outcome:?}"))
                    .await;
                assert_eq!(last.status == 201, outcome.is_success());
                let status = if outcome.is_success() {
                    "refunded"
                } else {
                    "paid"
                };
                assert_eq!(till.status_of(&order_no).await, status);
            }
        }
        till.books_agree();
    }
}

/// R12, invariant 7: refunds at the same moment never exceed the payment.
#[tokio::test]
async fn refunds_at_once_never_exceed_the_payment() {
    for surface in SURFACES {
        let till = Till::open(surface);
        for _ in 0..5 {
            let order_no = till.paid(100).await;
            let calls = [
                refund_call(&till, &order_no, 60),
                refund_call(&till, &order_no, 60),
            ];
            join_all(calls.iter().map(|call| call.clone().send())).await;
            let answers = join_all(calls.iter().map(crate::scene::settled)).await;
            let made = answers.iter().filter(|answer| answer.status == 201).count();
            assert_eq!(made, 1);
            let refused = answers.iter().find(|answer| answer.status != 201).unwrap();
            refused.problem(422, "refund_exceeds_payment");
            assert_eq!(till.shop().order(&order_no).await["refunded_amount"], 60);
        }
        let order_no = till.paid(100).await;
        let calls: Vec<_> = (0..10).map(|_| refund_call(&till, &order_no, 10)).collect();
        join_all(calls.iter().map(|call| call.clone().send())).await;
        for answer in join_all(calls.iter().map(crate::scene::settled)).await {
            answer.ok(201);
        }
        assert_eq!(till.status_of(&order_no).await, "refunded");
        assert_eq!(till.channel.book().refunds_of(&order_no).count(), 10);
        till.books_agree();
    }
}
