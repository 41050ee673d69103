//! One charge, whatever is lost on the way.

use futures::future::{join, join_all};
use payonce_channel::{Call, Fault, Outcome, Step, Surface};
use serde_json::json;

use super::till::{RECOVERIES, Recovery, SURFACES, Till, is_final, now, outcomes, step, unknown};
use crate::support::client::pay_path;
use crate::support::names::fresh;
use crate::support::shapes;
use crate::support::stores::{self, WriteLock};
use crate::support::wait::eventually;

/// Invariant 2: an answer is kept from when it was there, however long the channel took.
#[tokio::test]
async fn a_sweep_leaves_the_young_answer_of_an_old_payment() {
    let till = Till::open(Surface::Http);
    let (_, call) = till.unanswered(Fault::Drop).await;
    let connection = till.site.connect();
    let sql = "UPDATE operations SET created_at = 1 WHERE operation = 'order.pay_begin'";
    assert_eq!(connection.execute(sql, []).expect("an update"), 1);
    let answer = call.clone().send().await;
    answer.first(200);
    let sweep = till.server().admin().post("/admin/sweep").json(&json!({}));
    // Nor does it count as left over.
    assert_eq!(sweep.send().await.ok(200)["left"]["journal_rows"], 0);
    call.send().await.replays(&answer);
}

/// Invariants 1, 2 and 8: the good case.
#[tokio::test]
async fn a_charge_pays_the_order_and_its_retry_is_a_replay() {
    for surface in SURFACES {
        let till = Till::open(surface);
        let order_no = till.order(4200).await;
        let call = till.pay_call(&order_no, 4200);
        let first = call.clone().send().await;
        let payment = first.first(200);
        shapes::payment(&payment);
        assert_eq!(payment["status"], "succeeded");
        assert_eq!(payment["channel"], surface.name());
        call.send().await.replays(&first);
        assert_eq!(till.status_of(&order_no).await, "paid");
        assert_eq!(till.outbox(&order_no, "order.paid"), 1);
        assert_eq!(till.channel.seen(Call::Charge), 1);

        let book = till.channel.book();
        let [charge] = book.charges.as_slice() else {
            panic!("{book:?}");
        };
        assert_eq!(charge.asked.order_no, order_no);
        assert_eq!(charge.asked.merchant_id, "shop-a");
        assert_eq!(
            (charge.asked.amount, charge.asked.currency.as_str()),
            (4200, "EUR")
        );
        assert_eq!(charge.asked.payment_method.as_deref(), Some("pm_card_visa"));
        assert_eq!(
            charge.key.as_deref(),
            Some(charge.asked.request_no.as_str())
        );
        let ledger = till.server().admin().get("/admin/ledger").send().await;
        assert_eq!(ledger.ok(200)["ok"], true, "{}", ledger.text());
        till.books_agree();
    }
}

/// Contract, Routes: the short route charges like the long one, and a card is a card on both.
#[tokio::test]
async fn a_checkout_form_charges_the_card_that_it_names() {
    for surface in SURFACES {
        let till = Till::open(surface);
        let shop = till.shop();
        let order_no = till.order(100).await;
        let form = json!({
            "token": shop.token().await, "order_no": order_no, "request_no": fresh("r"),
            "amount": 100, "payment_method": "pm_card_visa",
        });
        let submit = shop.post("/v1/pay").json(&form);
        till.channel.script(Call::Charge, [Fault::Drop]);
        unknown(&submit.clone().send().await);
        let what = format!("{surface:?}");
        till.recover(&submit, Recovery::Retry, &what).await.ok(200);
        let book = till.channel.book();
        let asked: Vec<_> = book
            .charges_of(&order_no)
            .map(|charge| &charge.asked)
            .collect();
        let [asked] = asked.as_slice() else {
            panic!("{book:?}");
        };
        assert_eq!(asked.payment_method.as_deref(), Some("pm_card_visa"));
        till.books_agree();
    }
}

/// Invariant 2: a decline is final for its key; another attempt needs, and gets, another one.
#[tokio::test]
async fn a_decline_is_final_for_its_key_and_another_key_tries_again() {
    for surface in SURFACES {
        let till = Till::open(surface);
        let order_no = till.order(100).await;
        let declined = Outcome::Declined("insufficient_funds".into());
        till.channel.script(Call::Charge, [declined]);
        let call = till.pay_call(&order_no, 100);
        let first = call.clone().send().await;
        first.problem(402, "card_declined");
        assert_eq!(till.status_of(&order_no).await, "failed");
        call.clone().send().await.replays(&first);

        till.pay_call(&order_no, 100).send().await.first(200);
        call.send().await.replays(&first);
        assert_eq!(till.channel.seen(Call::Charge), 2);
        till.books_agree();
    }
}

/// Invariants 2, 8 and 9: every fault, on either surface, with money and without: after it one retry, or one
/// sweep, brings the one final answer.
async fn every_fault_of_a_charge_ends_well(surface: Surface, by: Recovery) {
    let till = Till::with_hasty(surface);
    for fault in Fault::ALL {
        for outcome in outcomes() {
            let what = format!("{surface:?}, {by:?}, {fault:?}, {outcome:?}");
            let order_no = till.order(100).await;
            let call = till.pay_call(&order_no, 100);
            till.channel.script(Call::Charge, [step(&outcome, fault)]);
            let first = till.hastily(&call).await;
            if !is_final(&first) {
                unknown(&first);
            }
            // An answer that is too late finds nobody; a charge that is too late finds its number.
            till.channel.release();
            let last = till.recover(&call, by, &what).await;
            if is_final(&first) {
                last.replays(&first);
            }
            let charged = last.status == 200;
            // What was not done at first is done by the recovery, as any other charge.
            // What is done late is done as it was decided.
            let decided = fault.acts() || fault == Fault::LateAct;
            assert_eq!(charged, outcome.is_success() || !decided, "{what}");
            let expected = if charged { "paid" } else { "failed" };
            assert_eq!(till.status_of(&order_no).await, expected, "{what}");
            assert_eq!(
                till.outbox(&order_no, "order.paid"),
                i64::from(charged),
                "{what}"
            );
            assert_eq!(
                till.channel.book().charges_of(&order_no).count(),
                1,
                "{what}"
            );
        }
    }
    till.books_agree();
}

#[tokio::test]
async fn after_every_fault_of_the_http_channel_a_retry_ends_well() {
    every_fault_of_a_charge_ends_well(Surface::Http, Recovery::Retry).await;
}

#[tokio::test]
async fn after_every_fault_of_the_http_channel_a_sweep_ends_well() {
    every_fault_of_a_charge_ends_well(Surface::Http, Recovery::Reconcile).await;
}

#[tokio::test]
async fn after_every_fault_of_stripe_a_retry_ends_well() {
    every_fault_of_a_charge_ends_well(Surface::Stripe, Recovery::Retry).await;
}

#[tokio::test]
async fn after_every_fault_of_stripe_a_sweep_ends_well() {
    every_fault_of_a_charge_ends_well(Surface::Stripe, Recovery::Reconcile).await;
}

/// Invariants 8 and 9: the recovery meets a fault too, and so does the charge that it sends again: the next one
/// ends well.
async fn every_fault_of_a_recovery_ends_well(surface: Surface, by: Recovery) {
    let till = Till::with_hasty(surface);
    for lost in [Fault::Refuse, Fault::Drop] {
        for fault in Fault::ALL {
            for faulty in [Call::Lookup, Call::Charge] {
                let what = format!("{surface:?}, {by:?}, {lost:?}, then {fault:?} of {faulty:?}");
                let order_no = till.order(100).await;
                let call = till.pay_call(&order_no, 100);
                till.channel.script(Call::Charge, [lost]);
                unknown(&till.hastily(&call).await);
                till.channel.otherwise(faulty, fault);
                till.expire_leases();
                match by {
                    Recovery::Retry => drop(till.hastily(&call).await),
                    Recovery::Reconcile => drop(till.reconcile_hastily().await),
                }
                till.channel.otherwise(faulty, Outcome::Succeeded);
                till.channel.release();
                till.recover(&call, by, &what).await.ok(200);
                assert_eq!(
                    till.channel.book().charges_of(&order_no).count(),
                    1,
                    "{what}"
                );
            }
        }
    }
    till.books_agree();
}

#[tokio::test]
async fn a_retry_that_meets_any_fault_of_the_http_channel_is_followed_by_one_that_ends_well() {
    every_fault_of_a_recovery_ends_well(Surface::Http, Recovery::Retry).await;
}

#[tokio::test]
async fn a_sweep_that_meets_any_fault_of_the_http_channel_is_followed_by_one_that_ends_well() {
    every_fault_of_a_recovery_ends_well(Surface::Http, Recovery::Reconcile).await;
}

#[tokio::test]
async fn a_retry_that_meets_any_fault_of_stripe_is_followed_by_one_that_ends_well() {
    every_fault_of_a_recovery_ends_well(Surface::Stripe, Recovery::Retry).await;
}

#[tokio::test]
async fn a_sweep_that_meets_any_fault_of_stripe_is_followed_by_one_that_ends_well() {
    every_fault_of_a_recovery_ends_well(Surface::Stripe, Recovery::Reconcile).await;
}

/// Invariants 8 and 9: Stripe forgets keys after a day. Whoever comes later must not repeat the request, and
/// finds what it did all the same.
#[tokio::test]
async fn a_day_later_the_charge_is_found_without_its_key() {
    const DAY: u64 = 25 * 3_600_000;
    let till = Till::open(Surface::Stripe);
    for by in RECOVERIES {
        for lost in [Fault::Refuse, Fault::Drop, Fault::FailAfter] {
            let (order_no, call) = till.unanswered(lost).await;
            till.lapse(DAY);
            till.channel.forget_keys();
            let what = format!("{by:?}, {lost:?}");
            till.recover(&call, by, &what).await.ok(200);

            till.channel.script(Call::Refund, [lost]);
            let refund = till.shop().refund_call(&order_no, &fresh("k"), 100);
            unknown(&refund.clone().send().await);
            till.lapse(DAY);
            till.channel.forget_keys();
            till.recover(&refund, by, &what).await.ok(201);
            let book = till.channel.book();
            assert_eq!(book.charges_of(&order_no).count(), 1, "{what}");
            assert_eq!(book.refunds_of(&order_no).count(), 1, "{what}");
        }
    }
    till.books_agree();
}

/// Invariants 8 and 9: an upgrade between the call and its retry words the request differently. A channel that
/// compares requests refuses it, which says nothing about the first one.
#[tokio::test]
async fn a_request_that_an_upgrade_words_differently_is_no_decline() {
    for surface in SURFACES {
        let till = Till::open(surface);
        for by in RECOVERIES {
            let (order_no, call) = till.unanswered(Fault::Drop).await;
            let sql = "UPDATE channel_calls SET payment_method = 'pm_card_mastercard'";
            till.site.connect().execute(sql, []).unwrap();
            till.recover(&call, by, &format!("{surface:?}, {by:?}"))
                .await
                .ok(200);
            assert_eq!(till.channel.book().charges_of(&order_no).count(), 1);
        }
        till.books_agree();
    }
}

/// Invariants 8 and 9: Stripe may refuse a repeated request before it looks at the key. The first one, if it
/// arrived, is found all the same; if not, the refusal counts when the search cannot lag behind any more.
#[tokio::test]
async fn a_repeated_request_that_is_refused_is_looked_for() {
    let till = Till::open(Surface::Stripe);
    for by in RECOVERIES {
        for (lost, status) in [(Fault::Drop, 200), (Fault::Refuse, 402)] {
            let (_, call) = till.unanswered(lost).await;
            let sql = "UPDATE channel_calls SET payment_method = '' WHERE settled_at IS NULL";
            till.site.connect().execute(sql, []).unwrap();
            till.channel.forget_keys();
            if lost == Fault::Refuse {
                unknown(&now(&call).await);
            }
            let what = format!("{by:?}, {lost:?}");
            till.recover(&call, by, &what).await.status(status);
        }
    }
    till.books_agree();
}

/// Invariants 8 and 9: while the channel cannot be reached nothing is guessed, by nobody.
#[tokio::test]
async fn a_channel_that_is_down_leaves_the_payment_open_until_it_is_back() {
    for surface in SURFACES {
        let till = Till::open(surface);
        for by in RECOVERIES {
            let order_no = till.order(100).await;
            let call = till.pay_call(&order_no, 100);
            till.channel.go_down();
            unknown(&call.clone().send().await);
            till.expire_leases();
            till.reconcile(json!({})).await;
            unknown(&now(&call).await);
            assert_eq!(till.status_of(&order_no).await, "processing");
            // An hour is longer than `channel_stuck_after_seconds`.
            let stuck = till.stats().await["stuck"].clone();
            assert_eq!(stuck.as_array().map(Vec::len), Some(1), "{stuck}");
            assert_eq!(stuck[0]["order_no"], order_no);
            assert!(stuck[0]["last_error"].is_string(), "{stuck}");
            till.channel.come_back();
            till.recover(&call, by, "back").await.ok(200);
            assert_eq!(till.stats().await["stuck"], json!([]));
        }
        till.books_agree();
    }
}

/// Invariants 8 and 9: a channel that speaks of another amount settles nothing, and the operator sees it.
#[tokio::test]
async fn an_answer_about_another_amount_leaves_the_payment_open() {
    for surface in SURFACES {
        let till = Till::open(surface);
        for outcome in outcomes() {
            let order_no = till.order(100).await;
            let call = till.pay_call(&order_no, 100);
            till.channel
                .script(Call::Charge, [step(&outcome, Fault::Misstate)]);
            for call in [Call::Charge, Call::Lookup] {
                till.channel.otherwise(call, Fault::Misstate);
            }
            unknown(&call.clone().send().await);
            till.expire_leases();
            till.reconcile(json!({})).await;
            unknown(&now(&call).await);
            let stuck = till.stats().await["stuck"].clone();
            let reason = "the channel speaks of 101 EUR, and not of 100 EUR";
            assert_eq!(stuck[0]["last_error"], reason, "{stuck}");
            for call in [Call::Charge, Call::Lookup] {
                till.channel.otherwise(call, Step::default());
            }
            let last = till
                .recover(&call, Recovery::Reconcile, "right again")
                .await;
            assert_eq!(last.status == 200, outcome.is_success());
        }
        till.books_agree();
    }
}

/// Invariant 9: what the channel has not decided stays open, and is followed: what it said first counts no more
/// than what it says now.
#[tokio::test]
async fn a_charge_that_is_processing_ends_as_the_channel_decides() {
    for surface in SURFACES {
        let till = Till::open(surface);
        for by in RECOVERIES {
            for undecided in [Outcome::Processing, Outcome::RequiresAction] {
                for outcome in outcomes() {
                    let order_no = till.order(100).await;
                    let call = till.pay_call(&order_no, 100);
                    till.channel.script(Call::Charge, [undecided.clone()]);
                    let first = call.clone().send().await;
                    let payment = unknown(&first);
                    let location = first.header("location").expect("Location");
                    let shown = till.shop().get(location).send().await.ok(200);
                    assert_eq!(shown["payment_id"], payment["payment_id"]);
                    let confirms =
                        surface == Surface::Stripe && undecided == Outcome::RequiresAction;
                    assert_eq!(payment["client_secret"].is_string(), confirms, "{payment}");

                    // Still undecided: a sweep and a retry leave it so.
                    till.lapse(60_000);
                    till.reconcile(json!({})).await;
                    unknown(&now(&call).await);

                    let book = till.channel.book();
                    let charge = book.charges_of(&order_no).next().expect("a charge");
                    till.channel
                        .settle_charge(&charge.charge_id, outcome.clone());
                    let last = till
                        .recover(&call, by, &format!("{surface:?}, {outcome:?}"))
                        .await;
                    assert_eq!(last.status == 200, outcome.is_success());
                }
            }
        }
        till.books_agree();
    }
}

/// Invariant 9: a customer who does not come back leaves nothing open, and can pay anew.
#[tokio::test]
async fn a_charge_that_nobody_confirms_is_cancelled() {
    for by in RECOVERIES {
        let till = Till::open(Surface::Stripe);
        let (order_no, call) = till.unanswered(Outcome::RequiresAction).await;
        let last = till.recover(&call, by, "nobody confirms").await;
        last.problem(402, "payment_failed");
        assert_eq!(till.status_of(&order_no).await, "failed");
        assert_eq!(till.channel.book().charges[0].outcome, Outcome::Canceled);
        assert_eq!(till.channel.seen(Call::Cancel), 1);

        till.pay_call(&order_no, 100).send().await.first(200);
        till.deliver(&till.channel.events_of(&order_no)).await;
        assert_eq!(till.status_of(&order_no).await, "paid");
        till.books_agree();
    }
}

/// Invariants 2, 8 and 9: every fault of the cancelling.
#[tokio::test]
async fn a_cancelling_that_meets_any_fault_is_followed_by_one_that_ends_well() {
    let till = Till::with_hasty(Surface::Stripe);
    for by in RECOVERIES {
        for fault in Fault::ALL {
            let order_no = till.order(100).await;
            let call = till.pay_call(&order_no, 100);
            till.channel.script(Call::Charge, [Outcome::RequiresAction]);
            till.channel.script(Call::Cancel, [fault]);
            unknown(&call.clone().send().await);
            till.expire_leases();
            till.reconcile_hastily().await;
            till.channel.release();
            let last = till.recover(&call, by, &format!("{by:?}, {fault:?}")).await;
            last.problem(402, "payment_failed");
            assert_eq!(till.status_of(&order_no).await, "failed");
        }
    }
    till.books_agree();
}

/// Invariants 8 and 9: what the customer or the merchant did after the look-up and before the cancelling counts.
#[tokio::test]
async fn a_confirmation_that_overtakes_the_cancelling_counts() {
    for (overtaking, status) in [
        (Outcome::Succeeded, "paid"),
        (Outcome::Processing, "processing"),
        (Outcome::Canceled, "failed"),
    ] {
        let till = Till::open(Surface::Stripe);
        let (order_no, call) = till.unanswered(Outcome::RequiresAction).await;
        till.expire_leases();
        till.channel.script(Call::Lookup, [Fault::Late]);
        let overtake = async {
            eventually("the look-up", async || {
                (till.channel.seen(Call::Lookup) == 1).then_some(())
            })
            .await;
            let charge_id = till.channel.book().charges[0].charge_id.clone();
            till.channel.settle_charge(&charge_id, overtaking.clone());
            till.channel.release();
        };
        join(till.reconcile(json!({})), overtake).await;
        assert_eq!(till.channel.seen(Call::Cancel), 1);
        assert_eq!(till.status_of(&order_no).await, status);
        if overtaking == Outcome::Processing {
            let charge_id = till.channel.book().charges[0].charge_id.clone();
            till.channel.settle_charge(&charge_id, Outcome::Succeeded);
        }
        let last = till.recover(&call, Recovery::Retry, status).await;
        assert_eq!(last.status == 200, overtaking != Outcome::Canceled);
        till.books_agree();
    }
}

/// Invariant 2: a duplicate that waits gets the first request's answer.
#[tokio::test]
async fn a_duplicate_that_waits_gets_the_answer_of_the_charge_under_way() {
    for surface in SURFACES {
        let till = Till::open(surface);
        let order_no = till.order(100).await;
        let call = till.pay_call(&order_no, 100);
        till.channel.script(Call::Charge, [Fault::Late]);
        let first = tokio::spawn(call.clone().send());
        eventually("the charge", async || {
            (till.channel.seen(Call::Charge) == 1).then_some(())
        })
        .await;
        let duplicate = call.clone().header("prefer", "wait=20").send();
        let release = async { till.channel.release() };
        let (duplicate, ()) = join(duplicate, release).await;
        let first = first.await.unwrap();
        first.first(200);
        duplicate.replays(&first);
        assert_eq!(till.channel.seen(Call::Charge), 1);
        till.books_agree();
    }
}

/// R8, invariants 1, 2 and 8: many at once, under one key and under many.
#[tokio::test]
async fn a_crowd_of_payments_of_one_order_makes_one_charge() {
    for surface in SURFACES {
        let till = Till::open(surface);
        for _ in 0..3 {
            let order_no = till.order(100).await;
            let same = till.pay_call(&order_no, 100);
            let mut calls = vec![same.clone(); 8];
            calls.extend((0..4).map(|_| till.pay_call(&order_no, 100)));
            let answers = join_all(calls.iter().map(|call| call.clone().send())).await;
            for answer in &answers {
                assert!(
                    matches!(answer.status, 200 | 202 | 409),
                    "{}",
                    answer.text()
                );
            }
            let last = join_all(calls.iter().map(crate::scene::settled)).await;
            let paid = last.iter().filter(|answer| answer.status == 200);
            let mut payments: Vec<_> = paid
                .map(|answer| answer.json()["payment_id"].clone())
                .collect();
            payments.dedup();
            assert_eq!(payments.len(), 1);
            for answer in last.iter().filter(|answer| answer.status != 200) {
                answer.problem(409, "order_already_paid");
            }
            assert_eq!(till.channel.book().charges_of(&order_no).count(), 1);
        }
        till.books_agree();
    }
}

/// Invariant 8: while one attempt is open no other starts, by whatever key.
#[tokio::test]
async fn an_open_payment_keeps_every_other_attempt_out() {
    for surface in SURFACES {
        let till = Till::open(surface);
        let (order_no, call) = till.unanswered(Fault::Drop).await;
        let other = till.pay_call(&order_no, 100).send().await;
        other.problem(409, "order_state_invalid");
        let cancel = till.shop().move_call(&order_no, "cancel", &fresh("k"));
        cancel.send().await.problem(409, "order_state_invalid");
        till.recover(&call, Recovery::Retry, "the attempt")
            .await
            .ok(200);
        till.books_agree();
    }
}

/// Invariant 10: merchants may use the same numbers, and know nothing of each other.
#[tokio::test]
async fn two_merchants_with_one_request_no_are_two_charges() {
    for surface in SURFACES {
        let till = Till::open(surface);
        let (user_id, request_no) = (fresh("user"), fresh("request"));
        for shop in [till.shop(), till.server().other_shop()] {
            let order_no = shop.order_of(&user_id, 100).await;
            let body =
                json!({"amount": 100, "request_no": request_no, "payment_method": "pm_card_visa"});
            let call = shop.post(&pay_path(&order_no)).json(&body);
            let first = call.clone().send().await;
            first.first(200);
            call.send().await.replays(&first);
        }
        let book = till.channel.book();
        assert_eq!(book.charges.len(), 2);
        assert_ne!(
            book.charges[0].asked.merchant_id,
            book.charges[1].asked.merchant_id
        );
        till.books_agree();
    }
}

/// R3, R5: the card is charged, and the step after it fails: the retry goes on behind the charge.
#[tokio::test]
async fn a_charge_whose_record_fails_is_found_by_the_retry() {
    for surface in SURFACES {
        let till = Till::open(surface);
        let order_no = till.order(100).await;
        let call = till.pay_call(&order_no, 100);
        till.channel.script(Call::Charge, [Fault::Late]);
        let first = tokio::spawn(call.clone().send());
        eventually("the charge", async || {
            (till.channel.seen(Call::Charge) == 1).then_some(())
        })
        .await;
        let lock = WriteLock::take(&till.site.database());
        till.channel.release();
        let first = first.await.unwrap();
        assert!(matches!(first.status, 202 | 503), "{}", first.text());
        drop(lock);
        till.recover(&call, Recovery::Retry, "the retry")
            .await
            .ok(200);
        assert_eq!(till.channel.book().charges_of(&order_no).count(), 1);
        till.books_agree();
    }
}

/// R4: the database takes the first or the second statement and does not say so.
#[tokio::test]
async fn a_charge_whose_statements_lose_their_results_is_one_charge() {
    const APPEND: &str = "INSERT INTO operations";
    for surface in SURFACES {
        for lost in [&[APPEND] as &[&str], &[APPEND, APPEND]] {
            let mut till = Till::open(surface);
            let order_no = till.order(100).await;
            till.restart_losing_results(lost);
            let call = till.pay_call(&order_no, 100);
            let first = call.clone().send().await;
            assert!(matches!(first.status, 200 | 202 | 503), "{}", first.text());
            till.recover(&call, Recovery::Retry, "the retry")
                .await
                .ok(200);
            assert_eq!(till.channel.book().charges_of(&order_no).count(), 1);
            till.books_agree();
        }
    }
}

/// Invariant 11: what the key-value store knows of a payment under way, and of one that is over, may go.
#[tokio::test]
async fn a_charge_whose_key_value_entries_are_gone_is_found_all_the_same() {
    for surface in SURFACES {
        let till = Till::open(surface);
        for by in RECOVERIES {
            let (order_no, call) = till.unanswered(Fault::Drop).await;
            stores::wipe(&till.site.key_value());
            let last = till.recover(&call, by, "without entries").await;
            last.ok(200);
            stores::wipe(&till.site.key_value());
            call.send().await.replays(&last);
            assert_eq!(till.channel.book().charges_of(&order_no).count(), 1);
        }
        till.books_agree();
    }
}

/// Contract, Routes: an event out of a queue charges once, however often it is delivered.
#[tokio::test]
async fn a_charge_out_of_a_queue_is_under_way_until_a_redelivery_hears_its_end() {
    for surface in SURFACES {
        let till = Till::open(surface);
        for outcome in outcomes() {
            let order_no = till.order(100).await;
            let event = json!({
                "specversion": "1.0", "source": "/queues/checkout", "id": fresh("event"),
                "type": "payonce.order.pay", "subject": order_no,
                "data": {"amount": 100, "payment_method": "pm_card_visa"},
            });
            let delivery = till.shop().post("/v1/events");
            let media_type = "application/cloudevents+json";
            let delivery = delivery.bytes(media_type, event.to_string().as_bytes());
            till.channel
                .script(Call::Charge, [step(&outcome, Fault::Drop)]);
            unknown(&delivery.clone().send().await);
            let what = format!("{surface:?}, {outcome:?}");
            let last = till.recover(&delivery, Recovery::Retry, &what).await;
            assert_eq!(last.status == 200, outcome.is_success());
            assert_eq!(till.channel.book().charges_of(&order_no).count(), 1);
        }
        till.books_agree();
    }
}

/// Where there is a channel, the wallet still pays by itself, and gets its refunds.
#[tokio::test]
async fn a_payment_from_the_wallet_never_meets_the_channel() {
    for surface in SURFACES {
        let till = Till::open(surface);
        let shop = till.shop();
        let user_id = fresh("user");
        shop.deposit(&user_id, 100).await;
        let order_no = shop.order_of(&user_id, 100).await;
        let body = json!({"amount": 100, "payment_method": "wallet"});
        let pay = shop.command(&pay_path(&order_no), &fresh("k"), &body);
        assert_eq!(pay.send().await.first(200)["channel"], "wallet");
        let refund = shop.refund_call(&order_no, &fresh("k"), 30);
        refund.send().await.first(201);
        assert_eq!(shop.balance(&user_id).await, 30);
        assert_eq!(till.channel.seen(Call::Charge), 0);
        assert_eq!(till.channel.seen(Call::Refund), 0);
        till.books_agree();
    }
}
