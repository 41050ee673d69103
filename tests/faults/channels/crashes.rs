//! SIGKILL of the host around the call of a channel.

use payonce_channel::{Call, Fault, Outcome};
use serde_json::json;

use super::till::{RECOVERIES, SURFACES, Till};
use crate::support::client::refunds_path;
use crate::support::names::fresh;
use crate::support::wait::eventually;

/// Where the call is when the host dies: not there yet, done, or on its way to be done.
const MOMENTS: [Fault; 3] = [Fault::Hang, Fault::Late, Fault::LateAct];

/// R2, R3, invariants 2, 4, 8 and 9: a crash in the middle of a charge.
#[tokio::test]
async fn a_crash_in_the_middle_of_a_charge_leaves_one_charge_and_one_answer() {
    for surface in SURFACES {
        let mut till = Till::open_with(surface, |site| site.variable("claim_lease_ms", 1000));
        for moment in MOMENTS {
            for by in RECOVERIES {
                let what = format!("{surface:?}, {moment:?}, {by:?}");
                let order_no = till.order(100).await;
                let before = till.pay_call(&order_no, 100);
                let seen = till.channel.seen(Call::Charge);
                till.channel.script(Call::Charge, [moment]);
                let dying = tokio::spawn(before.clone().attempt());
                let called = async || (till.channel.seen(Call::Charge) > seen).then_some(());
                eventually("the charge", called).await;
                till.crash();
                assert!(dying.await.unwrap().is_err(), "{what}");
                till.channel.release();
                assert_eq!(till.status_of(&order_no).await, "processing", "{what}");

                let call = before.to(&till.server().base);
                till.recover(&call, by, &what).await.ok(200);
                assert_eq!(till.outbox(&order_no, "order.paid"), 1, "{what}");
                assert_eq!(
                    till.channel.book().charges_of(&order_no).count(),
                    1,
                    "{what}"
                );
            }
        }
        till.books_agree();
    }
}

/// Invariant 4: the answer is on disk before it is sent, and stays.
#[tokio::test]
async fn a_charge_that_was_answered_survives_a_crash_and_is_not_made_again() {
    for surface in SURFACES {
        let mut till = Till::open(surface);
        let order_no = till.order(100).await;
        let call = till.pay_call(&order_no, 100);
        let first = call.clone().send().await;
        first.first(200);
        till.crash();
        till.reconcile(json!({})).await;
        let again = call.to(&till.server().base).send().await;
        again.replays(&first);
        assert_eq!(till.channel.seen(Call::Charge), 1);
        till.books_agree();
    }
}

/// Invariants 7, 8 and 9: a crash in the middle of a refund.
#[tokio::test]
async fn a_crash_in_the_middle_of_a_refund_leaves_one_refund_and_one_answer() {
    for surface in SURFACES {
        let mut till = Till::open_with(surface, |site| site.variable("claim_lease_ms", 1000));
        for moment in MOMENTS {
            for by in RECOVERIES {
                let what = format!("{surface:?}, {moment:?}, {by:?}");
                let order_no = till.paid(100).await;
                let path = refunds_path(&order_no);
                let before = till
                    .shop()
                    .command(&path, &fresh("k"), &json!({"amount": 40}));
                let seen = till.channel.seen(Call::Refund);
                till.channel.script(Call::Refund, [moment]);
                let dying = tokio::spawn(before.clone().attempt());
                let called = async || (till.channel.seen(Call::Refund) > seen).then_some(());
                eventually("the refund", called).await;
                till.crash();
                assert!(dying.await.unwrap().is_err(), "{what}");
                till.channel.release();

                let call = before.to(&till.server().base);
                till.recover(&call, by, &what).await.ok(201);
                assert_eq!(till.shop().order(&order_no).await["refunded_amount"], 40);
                assert_eq!(
                    till.channel.book().refunds_of(&order_no).count(),
                    1,
                    "{what}"
                );
            }
        }
        till.books_agree();
    }
}

/// R14, invariants 8 and 9: a crash while money that came too late goes back.
#[tokio::test]
async fn a_crash_while_late_money_goes_back_sends_it_back_once() {
    for surface in SURFACES {
        let mut till = Till::open(surface);
        for moment in MOMENTS {
            let order_no = till.declined(100).await;
            let book = till.channel.book();
            let charge = book.charges_of(&order_no).next().expect("a charge");
            till.channel
                .settle_charge(&charge.charge_id, Outcome::Succeeded);
            till.deliver(&till.channel.events_of(&order_no)).await;

            let seen = till.channel.seen(Call::Refund);
            till.channel.script(Call::Refund, [moment]);
            let sweep = till.server().admin().post("/admin/reconcile");
            let dying = tokio::spawn(sweep.json(&json!({})).attempt());
            let called = async || (till.channel.seen(Call::Refund) > seen).then_some(());
            eventually("the refund", called).await;
            till.crash();
            assert!(dying.await.unwrap().is_err(), "{surface:?}, {moment:?}");
            till.channel.release();

            till.expire_leases();
            till.reconcile(json!({})).await;
            let book = till.channel.book();
            assert_eq!(
                book.refunds_of(&order_no).count(),
                1,
                "{surface:?}, {moment:?}"
            );
            assert_eq!(till.stats().await["unclaimed"], json!([]));
        }
        assert!(till.channel.book().kept().is_empty());
        till.books_agree();
    }
}
