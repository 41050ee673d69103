//! What the channel says by itself: late, repeated, reversed, contradicting, forged.

use futures::future::{join, join_all};
use payonce_channel::{Call, Event, Fault, Manner, Outcome, Surface};
use serde_json::json;

use super::till::{SURFACES, Till, outcomes, step, unknown};
use crate::support::names::fresh;
use crate::support::receiver::SECRET;
use crate::support::wait::eventually;

/// Another secret of the form that operators configure.
const OLD_SECRET: &str = "whsec_b2xkLXNlY3JldC10ZXN0LTAxMjM0NTY3ODlhYmNkZWY=";

/// The event that tells how the last attempt of an order ended.
fn ending(till: &Till, order_no: &str) -> Event {
    let events = till.channel.events_of(order_no);
    events.last().expect("an event").clone()
}

/// Invariant 9: the webhook alone finishes a payment whose answer was lost.
#[tokio::test]
async fn a_webhook_finishes_a_payment_whose_answer_was_lost() {
    for surface in SURFACES {
        let till = Till::open(surface);
        for outcome in outcomes() {
            let (order_no, call) = till.unanswered(step(&outcome, Fault::Drop)).await;
            till.deliver(&till.channel.events_of(&order_no)).await;
            let answer = call.clone().send().await;
            // A failed attempt at Stripe is not over until a look-up has canceled it.
            let told = surface == Surface::Http || outcome.is_success();
            assert_eq!(answer.replayed(), told, "{}", answer.text());
            let status = if outcome.is_success() { 200 } else { 402 };
            answer.status(status);
            call.send().await.replays(&answer);
        }
        till.books_agree();
    }
}

/// Invariant 9: a channel whose webhooks arrive needs nobody else.
#[tokio::test]
async fn a_channel_that_tells_by_itself_finishes_what_was_lost() {
    for surface in SURFACES {
        let till = Till::told(surface);
        let mut payments = Vec::new();
        for fault in [Fault::Drop, Fault::FailAfter, Fault::Garble] {
            let order_no = till.order(100).await;
            till.channel.script(Call::Charge, [fault]);
            let call = till.pay_call(&order_no, 100);
            call.clone().send().await;
            payments.push((order_no, call));
        }
        for (order_no, call) in payments {
            eventually("the webhook", async || {
                (till.status_of(&order_no).await == "paid").then_some(())
            })
            .await;
            call.send().await.ok(200);
        }
        till.books_agree();
    }
}

/// R15: the client's answer and the webhook complete the same payment at the same moment.
#[tokio::test]
async fn an_answer_and_a_webhook_at_the_same_moment_pay_once() {
    for surface in SURFACES {
        let till = Till::open(surface);
        for number in 0..20 {
            let order_no = till.order(100).await;
            let fault = match number % 2 {
                0 => Fault::WebhookMeanwhile,
                _ => Fault::WebhookFirst,
            };
            till.channel.script(Call::Charge, [fault]);
            let call = till.pay_call(&order_no, 100);
            let answer = call.clone().send().await;
            answer.ok(200);
            call.send().await.replays(&answer);
            till.deliver(&till.channel.events_of(&order_no)).await;
            assert_eq!(till.outbox(&order_no, "order.paid"), 1);
            assert_eq!(till.shop().order(&order_no).await["version"], 3);
        }
        till.books_agree();
    }
}

/// R15, invariants 1 and 2: a retry, the webhook and two sweeps go for the same payment.
#[tokio::test]
async fn everybody_who_can_finish_a_payment_at_the_same_moment_finishes_it_once() {
    for surface in SURFACES {
        let till = Till::open(surface);
        for _ in 0..10 {
            let (order_no, call) = till.unanswered(Fault::Drop).await;
            till.expire_leases();
            let event = ending(&till, &order_no);
            let events = join_all((0..2).map(|_| till.channel.deliver(&event, Manner::Proper)));
            let sweeps = join_all((0..2).map(|_| till.reconcile(json!({}))));
            let retries = join_all((0..2).map(|_| call.clone().send()));
            join(join(events, sweeps), retries).await;
            let answer = crate::scene::settled(&call).await;
            answer.ok(200);
            call.send().await.replays(&answer);
            assert_eq!(till.outbox(&order_no, "order.paid"), 1);
            assert_eq!(till.channel.book().charges_of(&order_no).count(), 1);
        }
        till.books_agree();
    }
}

/// R13: attempt 1 is declined, attempt 2 pays, then comes the decline of attempt 1.
#[tokio::test]
async fn the_late_decline_of_an_earlier_attempt_changes_nothing() {
    for surface in SURFACES {
        let till = Till::open(surface);
        let order_no = till.declined(100).await;
        let decline = ending(&till, &order_no);
        till.pay_call(&order_no, 100).send().await.first(200);
        let before = till.shop().order(&order_no).await;
        till.deliver(&[decline.clone(), decline]).await;
        assert_eq!(till.shop().order(&order_no).await, before);
        assert_eq!(before["status"], "paid");
        till.books_agree();
    }
}

/// R14, invariant 8: money for an order that was cancelled meanwhile is booked and goes back.
#[tokio::test]
async fn money_for_a_cancelled_order_goes_back() {
    for surface in SURFACES {
        let till = Till::open(surface);
        let order_no = till.declined(100).await;
        let cancel = till.shop().move_call(&order_no, "cancel", &fresh("k"));
        cancel.send().await.first(200);
        money_comes_late(&till, &order_no).await;
        assert_eq!(till.status_of(&order_no).await, "cancelled");
        assert!(till.channel.book().kept().is_empty());
        till.books_agree();
    }
}

/// R14, invariants 1 and 8: money of an attempt that failed, for an order that another attempt has paid.
#[tokio::test]
async fn money_of_an_attempt_that_lost_goes_back() {
    for surface in SURFACES {
        let till = Till::open(surface);
        let order_no = till.declined(100).await;
        till.pay_call(&order_no, 100).send().await.first(200);
        money_comes_late(&till, &order_no).await;
        let order = till.shop().order(&order_no).await;
        assert_eq!(
            (&order["status"], &order["refunded_amount"]),
            (&json!("paid"), &json!(0))
        );
        let kept: u64 = till.channel.book().kept().into_values().sum();
        assert_eq!(kept, 100);
        till.books_agree();
    }
}

/// The first charge of an order, which was declined, succeeds after all, and is told so twice; then the
/// operator's timer runs.
async fn money_comes_late(till: &Till, order_no: &str) {
    let book = till.channel.book();
    let first = book.charges_of(order_no).next().expect("a charge");
    till.channel
        .settle_charge(&first.charge_id, Outcome::Succeeded);
    let event = ending(till, order_no);
    till.deliver(&[event.clone(), event]).await;
    till.books_agree();
    let queued = till.shop().refunds(order_no).await;
    assert_eq!(queued.len(), 1, "{queued:?}");
    assert_eq!(queued[0]["status"], "processing");
    let unclaimed = till.stats().await["unclaimed"].clone();
    assert_eq!(unclaimed.as_array().map(Vec::len), Some(1), "{unclaimed}");
    assert_eq!(unclaimed[0]["order_no"], order_no);
    assert_eq!(unclaimed[0]["amount"], 100);
    let trail = till.shop().trail(order_no).await;
    assert!(
        trail
            .iter()
            .any(|event| event["operation"] == "payment.late")
    );
    eventually("the refund", async || {
        till.expire_leases();
        till.reconcile(json!({})).await;
        let refunds = till.channel.book();
        let refund = refunds.refunds_of(order_no).next()?;
        assert_eq!(refund.asked.amount, 100);
        Some(())
    })
    .await;
    let refunds = till.shop().refunds(order_no).await;
    assert_eq!(refunds.len(), 1, "{refunds:?}");
    assert_eq!(refunds[0]["status"], "succeeded");
    assert_eq!(till.stats().await["unclaimed"], json!([]));
    // What the channel tells of its refund is no news.
    till.deliver(&till.channel.events_of(order_no)).await;
    assert_eq!(till.channel.book().refunds_of(order_no).count(), 1);
}

/// Invariant 6: whatever comes again, in whatever order, no order moves backwards.
#[tokio::test]
async fn repeated_reversed_and_contradicting_events_move_nothing() {
    for surface in SURFACES {
        let till = Till::open(surface);
        let order_no = till.order(100).await;
        till.channel.script(Call::Charge, [Outcome::Processing]);
        let call = till.pay_call(&order_no, 100);
        unknown(&call.clone().send().await);
        let charge_id = till.channel.book().charges[0].charge_id.clone();
        till.channel.settle_charge(&charge_id, Outcome::Succeeded);
        let mut events = till.channel.events_of(&order_no);
        events.reverse();
        till.deliver(&events).await;
        let paid = till.shop().order(&order_no).await;
        assert_eq!(paid["status"], "paid");

        // A channel that contradicts itself: what was recorded counts.
        till.channel
            .settle_charge(&charge_id, Outcome::Declined("fraud".into()));
        till.deliver(&till.channel.events_of(&order_no)).await;
        assert_eq!(till.shop().order(&order_no).await, paid);
        till.channel.settle_charge(&charge_id, Outcome::Succeeded);

        let refund = till.shop().refund_call(&order_no, &fresh("k"), 100);
        refund.send().await.first(201);
        let refunded = till.shop().order(&order_no).await;
        let mut events = till.channel.events_of(&order_no);
        for _ in 0..2 {
            till.deliver(&events).await;
            events.reverse();
        }
        assert_eq!(till.shop().order(&order_no).await, refunded);
        assert_eq!(till.outbox(&order_no, "order.paid"), 1);
        till.books_agree();
    }
}

/// An event that anybody could have sent, at any time, is refused and changes nothing.
#[tokio::test]
async fn an_event_without_a_fresh_signature_is_refused() {
    for surface in SURFACES {
        let till = Till::open(surface);
        let order_no = till.order(100).await;
        till.channel.script(Call::Charge, [Outcome::Processing]);
        let call = till.pay_call(&order_no, 100);
        unknown(&call.clone().send().await);
        let charge_id = till.channel.book().charges[0].charge_id.clone();
        till.channel.settle_charge(&charge_id, Outcome::Succeeded);
        let event = ending(&till, &order_no);
        for manner in [
            Manner::Stale,
            Manner::Early,
            Manner::Forged,
            Manner::Altered,
            Manner::Unsigned,
        ] {
            let status = till.channel.deliver(&event, manner).await;
            assert_eq!(status, Some(400), "{surface:?}, {manner:?}");
            assert_eq!(till.status_of(&order_no).await, "processing", "{manner:?}");
        }
        // A refused one is not remembered as dealt with.
        till.deliver(&[event]).await;
        assert_eq!(till.status_of(&order_no).await, "paid");
        till.books_agree();
    }
}

/// Contract, Routes: webhooks are open to all and answer as documented: 200 also where there is no news, 400
/// without a signature, 404 for another channel, and 503 for what is not known yet.
#[tokio::test]
async fn every_answer_to_an_event_is_as_documented() {
    let send = async |till: &Till, name: &str, event: &Event, signed: bool| {
        let anybody = till.shop().with_key("");
        let call = anybody.post(&format!("/v1/webhooks/{name}"));
        let headers = event.signed(SECRET).into_iter().filter(|_| signed);
        let call = headers.fold(call.json(&event.body), |call, (name, value)| {
            call.header(name, &value)
        });
        call.send().await
    };
    let tills = SURFACES.map(Till::open);
    for (till, surface) in tills.iter().zip(SURFACES) {
        let name = surface.name();
        let (order_no, _) = till.unanswered(Fault::Drop).await;
        let event = ending(till, &order_no);
        let unsigned = send(till, name, &event, false).await;
        unsigned.problem(400, "signature_invalid");
        let unreadable = Event {
            id: "evt_unreadable".to_owned(),
            body: json!("charge.updated"),
            ..event.clone()
        };
        let unreadable = send(till, name, &unreadable, true).await;
        unreadable.problem(400, "body_invalid");
        let early = send(&Till::open(surface), name, &event, true).await;
        early.problem(503, "channel_unavailable");
        let others = tills.iter().zip(SURFACES);
        for (other, _) in others.filter(|(_, other)| *other != surface) {
            let elsewhere = send(other, name, &event, true).await;
            elsewhere.problem(404, "not_found");
        }
        for applied in [true, false] {
            let heard = send(till, name, &event, true).await;
            assert_eq!(heard.first(200), json!({"applied": applied}));
        }
        assert_eq!(till.status_of(&order_no).await, "paid");
        till.books_agree();
    }
}

/// While a secret changes, events under the old and the new one are taken.
#[tokio::test]
async fn events_under_either_of_two_secrets_are_taken() {
    for surface in SURFACES {
        for secrets in [
            format!("{OLD_SECRET},{SECRET}"),
            format!("{SECRET},{OLD_SECRET}"),
        ] {
            let till = Till::open_with(surface, |site| site.variable("webhook_secret", &secrets));
            let order_no = till.paid(100).await;
            till.deliver(&till.channel.events_of(&order_no)).await;
            let event = ending(&till, &order_no);
            let forged = till.channel.deliver(&event, Manner::Forged).await;
            assert_eq!(forged, Some(400));
        }
    }
}

/// Invariant 8: an event of other money is refused, so that the channel notices, and settles nothing.
#[tokio::test]
async fn an_event_of_another_amount_or_currency_settles_nothing() {
    for surface in SURFACES {
        let till = Till::open(surface);
        for outcome in outcomes() {
            let (order_no, call) = till.unanswered(step(&outcome, Fault::Drop)).await;
            let event = ending(&till, &order_no);
            for (name, value) in [
                ("amount", json!(101)),
                ("amount", json!(null)),
                ("currency", json!("USD")),
                ("currency", json!("usd")),
            ] {
                let mut other = event.clone();
                let object = match surface {
                    Surface::Http => &mut other.body["data"],
                    Surface::Stripe => &mut other.body["data"]["object"],
                };
                object[name] = value;
                let status = till.channel.deliver(&other, Manner::Proper).await;
                assert_eq!(status, Some(503), "{}", other.body);
                assert_eq!(till.status_of(&order_no).await, "processing");
            }
            // Nor is it remembered as dealt with.
            till.deliver(&[event]).await;
            let status = if outcome.is_success() { 200 } else { 402 };
            call.send().await.status(status);
        }
        till.books_agree();
    }
}

/// An event that is here before its payment is answered so that the channel sends it again.
#[tokio::test]
async fn an_event_of_a_payment_that_is_not_known_yet_is_asked_for_again() {
    for surface in SURFACES {
        let other = Till::open(surface);
        let order_no = other.paid(100).await;
        let event = ending(&other, &order_no);
        let till = Till::open(surface);
        let status = till.channel.deliver(&event, Manner::Proper).await;
        let again = status.is_some_and(|status| !(200..300).contains(&status) && status != 400);
        assert!(again, "{surface:?}: {status:?}");
        // And is not remembered as dealt with.
        assert_eq!(till.channel.deliver(&event, Manner::Proper).await, status);
    }
}
