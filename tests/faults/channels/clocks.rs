//! Clocks that are wrong, or are set while requests run.

use payonce_channel::{Call, Fault, Surface};
use serde_json::json;

use super::till::{RECOVERIES, Recovery, Till};
use crate::support::wait::eventually;

const HOUR_MS: i64 = 3_600_000;

/// Invariants 2, 8 and 9: whoever was at work on a payment had a clock that was wrong, and died. Nobody waits for
/// a lease until then, and there is one charge.
#[tokio::test]
async fn the_lease_of_a_wrong_clock_holds_nobody_up() {
    for ahead in [-HOUR_MS, HOUR_MS] {
        for by in RECOVERIES {
            let what = format!("{ahead} ms ahead, {by:?}");
            let till = Till::open(Surface::Http);
            let order_no = till.order(100).await;
            till.site.set_clock(ahead);
            let wrong = till.site.start_with_clock();
            let call = till.pay_call(&order_no, 100);
            till.channel.script(Call::Charge, [Fault::LateAct]);
            let dying = tokio::spawn(call.clone().to(&wrong.base).attempt());
            let called = async || (till.channel.seen(Call::Charge) == 1).then_some(());
            eventually("the charge", called).await;
            wrong.kill();
            assert!(dying.await.unwrap().is_err(), "{what}");
            till.channel.release();

            if let Recovery::Reconcile = by {
                let swept = till.reconcile(json!({})).await;
                assert_eq!(swept["taken_over"], 1, "{what}: {swept}");
            }
            call.settled().await.ok(200);
            assert_eq!(
                till.channel.book().charges_of(&order_no).count(),
                1,
                "{what}"
            );
            till.books_agree();
        }
    }
}

/// Invariants 1, 2 and 9: two hosts whose clocks are an hour apart see each other's leases as over, and both make
/// the call: it has one number.
#[tokio::test]
async fn hosts_whose_clocks_disagree_make_one_charge() {
    let till = Till::open(Surface::Http);
    till.site.set_clock(HOUR_MS);
    let wrong = till.site.start_with_clock();
    for (first, second) in [
        (till.server().base.clone(), wrong.base.clone()),
        (wrong.base.clone(), till.server().base.clone()),
    ] {
        let order_no = till.order(100).await;
        let call = till.pay_call(&order_no, 100);
        let seen = till.channel.seen(Call::Charge);
        till.channel.script(Call::Charge, [Fault::LateAct]);
        let slow = tokio::spawn(call.clone().to(&first).send());
        let called = async || (till.channel.seen(Call::Charge) > seen).then_some(());
        eventually("the charge", called).await;
        let answer = call.clone().to(&second).settled().await;
        answer.ok(200);
        till.channel.release();
        slow.await.unwrap().equals(&answer);
        assert_eq!(till.channel.book().charges_of(&order_no).count(), 1);
        till.books_agree();
    }
}
