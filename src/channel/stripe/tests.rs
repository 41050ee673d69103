//! What Stripe's answers mean, and what it is asked.

use super::*;
use crate::domain::Identifier;

fn call() -> ChannelCall {
    let id = |text: &str| Identifier::try_from(text.to_owned()).unwrap();
    ChannelCall {
        subject_id: "pay_1".to_owned(),
        kind: CallKind::Charge,
        channel: "stripe".to_owned(),
        number: "m~1".to_owned(),
        charge_number: "m~1".to_owned(),
        merchant: id("m"),
        order_no: id("o"),
        request_no: id("1"),
        idempotency_key: None,
        amount: 1999.try_into().unwrap(),
        currency: "EUR".to_owned().try_into().unwrap(),
        payment_method: Some("pm_card_visa".to_owned()),
        channel_ref: None,
        owner: None,
        lease_until: Timestamp::from_millis(0),
        created_at: Timestamp::from_millis(0),
        settled: false,
    }
}

fn refund() -> ChannelCall {
    ChannelCall {
        kind: CallKind::Refund,
        number: "m~2".to_owned(),
        ..call()
    }
}

fn answer(status: u16, body: &str) -> Answer {
    let body = body.as_bytes().to_vec();
    Answer { status, body }
}

fn charge(status: u16, body: &str) -> Outcome {
    read(&call(), &answer(status, body))
}

/// The payment intent of the call.
fn intent(more: &str) -> String {
    let ours = r#""id":"pi_1","amount":1999,"currency":"eur","metadata":{"request_no":"m~1"}"#;
    format!("{{{ours},{more}}}")
}

fn declined_with(outcome: Outcome) -> DeclineCode {
    match outcome {
        Outcome::Settled(Settlement::Declined { code, .. }) => code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_charge_is_a_form_with_our_numbers_in_its_metadata() {
    let form = serde_urlencoded::to_string(charge_form(&call()).unwrap()).unwrap();
    for part in [
        "amount=1999",
        "currency=eur",
        "confirm=true",
        "payment_method=pm_card_visa",
        "metadata%5Brequest_no%5D=m%7E1",
        "metadata%5Border_no%5D=o",
        "metadata%5Bmerchant_id%5D=m",
    ] {
        assert!(form.split('&').any(|pair| pair == part), "{part}: {form}");
    }
}

#[test]
fn every_request_names_the_version_of_the_api() {
    let mut config = crate::config::ChannelConfig::default();
    config.url = Some("https://api.stripe.com".parse().unwrap());
    config.key = "sk".to_owned();
    let stripe = StripeChannel::new(Client::new(&config).unwrap(), Vec::new(), 0);
    let request = stripe.request(Method::GET, "/v1/refunds").body(()).unwrap();
    assert_eq!(request.headers()["stripe-version"], "2025-03-31.basil");
}

/// Three currencies have another minor unit at Stripe than in ISO 4217.
#[test]
fn the_amount_is_counted_as_stripe_counts() {
    let asked = |amount: i64, currency: &str| {
        units(&ChannelCall {
            amount: amount.try_into().unwrap(),
            currency: currency.to_owned().try_into().unwrap(),
            ..call()
        })
    };
    let told = |counted: i64, currency: &str| {
        let body = format!(r#"{{"id":"pi_1","amount":{counted},"currency":"{currency}"}}"#);
        let object: Object = serde_json::from_str(&body.to_lowercase()).unwrap();
        object.money().map(|(amount, _)| amount.get())
    };
    for (amount, currency, counted) in [
        (1999, "EUR", 1999),
        (500, "JPY", 500),
        (5120, "KWD", 5120),
        (5, "ISK", 500),
        (5, "UGX", 500),
        (500, "MGA", 5),
    ] {
        assert_eq!(asked(amount, currency), Ok(counted), "{currency}");
        assert_eq!(told(counted, currency), Some(amount), "{currency}");
    }
    assert_eq!(told(550, "ISK"), None);
    let fraction = asked(550, "MGA").unwrap_err();
    assert_eq!(declined_with(fraction), DeclineCode::PaymentFailed);
}

#[test]
fn a_payment_intent_that_is_over_settles() {
    let channel_ref = Some("pi_1".to_owned());
    assert_eq!(
        charge(
            200,
            &intent(r#""object":"payment_intent","status":"succeeded""#)
        ),
        Outcome::Settled(Settlement::Succeeded { channel_ref })
    );
    let declined = r#"{"error":{"type":"card_error","code":"card_declined","decline_code":"generic_decline"}}"#;
    assert_eq!(
        declined_with(charge(402, declined)),
        DeclineCode::CardDeclined
    );
    let other = r#"{"error":{"type":"card_error","code":"processing_error"}}"#;
    assert_eq!(
        declined_with(charge(402, other)),
        DeclineCode::PaymentFailed
    );
    let invalid = r#"{"error":{"type":"invalid_request_error","code":"resource_missing"}}"#;
    assert_eq!(
        declined_with(charge(400, invalid)),
        DeclineCode::PaymentFailed
    );
    assert_eq!(
        declined_with(charge(200, &intent(r#""status":"canceled""#))),
        DeclineCode::PaymentFailed
    );
}

#[test]
fn anything_else_is_unknown() {
    let card_error = r#"{"error":{"type":"card_error","code":"card_declined"}}"#;
    for (status, body) in [
        (200, "<html>"),
        (200, &intent(r#""status":"processing""#)),
        (200, &intent(r#""status":"requires_payment_method""#)),
        (400, r#"{"error":{"type":"idempotency_error"}}"#),
        (401, card_error),
        (402, "{}"),
        (
            402,
            r#"{"error":{"type":"invalid_request_error","code":"card_declined"}}"#,
        ),
        (402, r#"{"error":{"code":"card_declined"}}"#),
        (409, card_error),
        (429, card_error),
        (500, card_error),
    ] {
        let found = charge(status, body);
        assert!(
            matches!(found, Outcome::Unknown(_)),
            "{status} {body} {found:?}"
        );
    }
}

/// Whatever it says, what bears another number or other money is not about the call.
#[test]
fn another_number_amount_or_currency_is_no_answer() {
    let ours =
        r#""amount":1999,"currency":"eur","metadata":{"request_no":"m~1","refund_no":"m~2"}"#;
    for other in [
        ours.replace("1999", "2000"),
        ours.replace("1999", "199900"),
        ours.replace("1999", "0"),
        ours.replace("1999", "null"),
        ours.replace("eur", "usd"),
        ours.replace("\"eur\"", "null"),
        ours.replace("m~", "m~1"),
        ours.replace("_no", "_number"),
    ] {
        for status in ["succeeded", "canceled", "processing"] {
            for call in [call(), refund()] {
                let shown = |money: &str| format!(r#"{{"id":"id_1",{money},"status":"{status}"}}"#);
                let said = |money: &str| read(&call, &answer(200, &shown(money)));
                let right = matches!(said(ours), Outcome::Settled(_));
                assert_eq!(right, status != "processing", "{ours}");
                let wrong = matches!(said(&other), Outcome::Unknown(_));
                assert!(wrong, "{other}");

                let name = match call.kind {
                    CallKind::Charge => "payment_intent",
                    CallKind::Refund => "refund",
                };
                let object = shown(&other);
                let body = format!(
                    r#"{{"id":"evt_1","type":"{name}.updated","data":{{"object":{object}}}}}"#
                );
                let news = event(body.as_bytes()).unwrap().news;
                assert!(news.is_none_or(|news| news.of(&call).is_err()), "{other}");
            }
        }
        let declined = |money: &str| {
            let shown = format!(r#"{{"id":"pi_1",{money}}}"#);
            charge(
                402,
                &format!(r#"{{"error":{{"type":"card_error","payment_intent":{shown}}}}}"#),
            )
        };
        assert!(matches!(declined(ours), Outcome::Settled(_)), "{ours}");
        assert!(matches!(declined(&other), Outcome::Unknown(_)), "{other}");
    }
}

/// An error of a refund shows the payment intent, which has another number and another amount.
#[test]
fn a_refund_that_is_refused_is_a_decline() {
    let shown = intent(r#""status":"succeeded""#);
    let error = format!(
        r#"{{"error":{{"type":"invalid_request_error","code":"charge_already_refunded",
                       "payment_intent":{shown}}}}}"#
    );
    let refused = read(&refund(), &answer(400, &error));
    assert_eq!(declined_with(refused), DeclineCode::PaymentFailed);
}

/// The customer has to act: the secret is for their browser, and only then.
#[test]
fn what_the_customer_needs_is_passed_on() {
    let secret = |status: &str| {
        let body = intent(&format!(r#""status":"{status}","client_secret":"s""#));
        match charge(200, &body) {
            Outcome::Unknown(unknown) => unknown.client_secret,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(secret("requires_action").as_deref(), Some("s"));
    assert_eq!(secret("processing"), None);
}

/// Nothing that is over, in the hands of the bank, or somebody else's is canceled.
#[test]
fn a_payment_has_no_future_when_its_customer_has_failed_or_let_the_time_pass() {
    let has_no_future = |call: &ChannelCall, object: &str, minutes: i64| {
        let object: Object = serde_json::from_str(object).unwrap();
        let now = Timestamp::from_millis(minutes * 60_000);
        object.has_no_future(call, now, 15 * 60_000)
    };
    for status in [
        "requires_action",
        "requires_confirmation",
        "requires_payment_method",
    ] {
        let waiting = intent(&format!(r#""status":"{status}""#));
        assert!(!has_no_future(&call(), &waiting, 14), "{status}");
        assert!(has_no_future(&call(), &waiting, 15), "{status}");
        for other in [
            waiting.replace("1999", "2000"),
            waiting.replace("eur", "usd"),
            waiting.replace("m~1", "m~3"),
            waiting.replace("request_no", "refund_no"),
        ] {
            assert!(!has_no_future(&call(), &other, 15), "{other}");
        }
    }
    for over in [
        r#""status":"succeeded""#,
        r#""status":"canceled""#,
        r#""status":"processing""#,
        r#""status":"requires_capture""#,
        r#""more":1"#,
    ] {
        assert!(!has_no_future(&call(), &intent(over), 15), "{over}");
    }
    let failed =
        r#""status":"requires_payment_method","last_payment_error":{"code":"card_declined"}"#;
    assert!(has_no_future(&call(), &intent(failed), 0));
    let refunded = intent(r#""status":"requires_action""#).replace("request_no", "refund_no");
    let refunded = refunded.replace("m~1", "m~2");
    assert!(!has_no_future(&refund(), &refunded, 15));
}

#[test]
fn a_key_is_repeated_while_stripe_remembers_it() {
    let after = |hours: i64| is_remembered(&call(), Timestamp::from_millis(hours * 3_600_000));
    assert!(after(0) && after(22));
    assert!(!after(23) && !after(48));
}

/// What the first request became of is then looked for by its metadata.
#[test]
fn some_answers_say_nothing_about_the_first_request() {
    let says_nothing = |status: u16, body: &str| says_nothing(&call(), &answer(status, body));
    let error = |kind: &str| format!(r#"{{"error":{{"type":"{kind}"}}}}"#);
    for (status, body) in [
        (500, String::new()),
        (400, error("idempotency_error")),
        (400, error("invalid_request_error")),
        (404, error("invalid_request_error")),
        (422, error("invalid_request_error")),
        (402, error("invalid_request_error")),
        (402, String::new()),
    ] {
        assert!(says_nothing(status, &body), "{status} {body}");
    }
    assert!(!says_nothing(402, &error("card_error")));
    assert!(!says_nothing(200, r#"{"id":"pi_1","status":"succeeded"}"#));
    for status in [401, 403, 409, 429] {
        assert!(!says_nothing(status, &error("api_error")), "{status}");
    }
}

/// A refusal of a repeated request stands when the first one would be found by now.
#[test]
fn without_a_trace_of_the_number_the_repeated_answer_counts_in_the_end() {
    let after = |minutes: i64, status: u16, body: &str| {
        let now = Timestamp::from_millis(minutes * 60_000);
        no_trace(&call(), now, Some(&answer(status, body)))
    };
    let refusal = r#"{"error":{"type":"invalid_request_error","code":"resource_missing"}}"#;
    assert!(matches!(after(9, 400, refusal), Outcome::Unknown(_)));
    let refused = after(10, 400, refusal);
    assert_eq!(declined_with(refused), DeclineCode::PaymentFailed);
    for (status, body) in [
        (500, ""),
        (400, r#"{"error":{"type":"idempotency_error"}}"#),
    ] {
        assert!(matches!(after(1000, status, body), Outcome::Unknown(_)));
    }
    let forgotten = no_trace(&call(), Timestamp::from_millis(REMEMBERED_MS), None);
    assert_eq!(forgotten, Outcome::NotFound);
}

/// Texts of Stripe may be about the customer, codes and names of parameters are not.
#[test]
fn a_refusal_is_explained_by_codes_only() {
    let detail = |error: &str| match charge(400, &format!(r#"{{"error":{error}}}"#)) {
        Outcome::Settled(Settlement::Declined { detail, .. }) => detail,
        Outcome::Unknown(unknown) => unknown.why,
        other => panic!("{other:?}"),
    };
    let invalid = r#""type":"invalid_request_error","message":"No such customer: Ada, 1 Main St""#;
    for (more, said) in [
        (
            r#","code":"resource_missing""#,
            "the channel says resource_missing",
        ),
        ("", "the channel says invalid_request_error"),
        (
            r#","param":"metadata[order_no]""#,
            "the channel says invalid_request_error about metadata[order_no]",
        ),
        (
            r#","code":"Ada, 1 Main St","param":"of Ada""#,
            "the channel says invalid_request_error",
        ),
    ] {
        assert_eq!(detail(&format!("{{{invalid}{more}}}")), said);
    }
    let other = r#"{"type":"idempotency_error","message":"Ada"}"#;
    assert_eq!(detail(other), "status 400: idempotency_error");
    assert_eq!(detail(r#"{"message":"Ada"}"#), "status 400: no reason");
}

#[test]
fn events_are_about_what_bears_our_number() {
    let of = |kind: &str, object: &str| {
        let body = format!(r#"{{"id":"evt_1","type":"{kind}","data":{{"object":{object}}}}}"#);
        event(body.as_bytes()).unwrap().news
    };
    let paid = of(
        "payment_intent.succeeded",
        &intent(r#""status":"succeeded""#),
    );
    let paid = paid.unwrap();
    assert_eq!((paid.kind, paid.number.as_str()), (CallKind::Charge, "m~1"));
    assert!(matches!(
        paid.of(&call()),
        Ok(Some(Settlement::Succeeded { .. }))
    ));
    let failed = of(
        "payment_intent.payment_failed",
        &intent(
            r#""status":"requires_payment_method",
               "last_payment_error":{"type":"card_error","code":"card_declined"}"#,
        ),
    );
    // It can be confirmed again.
    assert!(matches!(failed.unwrap().of(&call()), Ok(None)));
    let canceled = of(
        "payment_intent.canceled",
        &intent(
            r#""status":"canceled",
               "last_payment_error":{"type":"card_error","code":"card_declined"}"#,
        ),
    );
    assert!(matches!(
        canceled.unwrap().of(&call()),
        Ok(Some(Settlement::Declined {
            code: DeclineCode::CardDeclined,
            ..
        }))
    ));
    let refund = r#"{"id":"re_1","status":"succeeded","metadata":{"refund_no":"m~2"}}"#;
    assert_eq!(of("refund.updated", refund).unwrap().kind, CallKind::Refund);
    assert_eq!(
        of("payment_intent.created", r#"{"id":"pi_1","metadata":{}}"#),
        None
    );
    assert_eq!(of("customer.created", r#"{"anything":1}"#), None);
}

proptest::proptest! {
    #[test]
    fn a_hostile_event_is_read_or_refused(
        body in crate::hostile::hostile(proptest::strategy::Just(
            r#"{"id":"evt_1","type":"payment_intent.succeeded","data":{"object":{"id":"pi_1","amount":10,"amount_received":10,"currency":"eur","status":"succeeded","metadata":{"request_no":"m~1"}}}}"#,
        )),
    ) {
        crate::channel::fuzz::read_or_refused(event(&body));
    }
}
