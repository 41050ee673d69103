//! What answers mean: nothing but a clear one settles anything.

use super::*;

pub(super) fn call(kind: CallKind) -> ChannelCall {
    let id = |text: &str| Identifier::try_from(text.to_owned()).unwrap();
    ChannelCall {
        subject_id: "pay_1".to_owned(),
        kind,
        channel: "http".to_owned(),
        number: "m~1".to_owned(),
        charge_number: "m~1".to_owned(),
        merchant: id("m"),
        order_no: id("o"),
        request_no: id("1"),
        idempotency_key: None,
        amount: 10.try_into().unwrap(),
        currency: "EUR".to_owned().try_into().unwrap(),
        payment_method: None,
        channel_ref: None,
        owner: None,
        lease_until: Timestamp::from_millis(0),
        created_at: Timestamp::from_millis(0),
        settled: false,
    }
}

fn answer(status: u16, body: &str) -> Answer {
    Answer {
        status,
        body: body.as_bytes().to_vec(),
    }
}

fn outcome(kind: CallKind, status: u16, body: &str) -> Outcome {
    read(&call(kind), &answer(status, body))
}

#[test]
fn a_clear_answer_settles() {
    let succeeded = r#"{"request_no":"m~1","amount":10,"currency":"EUR","status":"succeeded","charge_id":"ch_1","more":1}"#;
    for status in [200, 201] {
        let channel_ref = Some("ch_1".to_owned());
        assert_eq!(
            outcome(CallKind::Charge, status, succeeded),
            Outcome::Settled(Settlement::Succeeded { channel_ref })
        );
    }
    for status in [200, 402] {
        let declined = r#"{"request_no":"m~1","amount":10,"currency":"EUR","status":"declined","code":"card_declined"}"#;
        let Outcome::Settled(Settlement::Declined { code, .. }) =
            outcome(CallKind::Charge, status, declined)
        else {
            panic!("{status}")
        };
        assert_eq!(code, DeclineCode::CardDeclined);
    }
    let refund = r#"{"refund_no":"m~1","request_no":"m~0","amount":10,"currency":"EUR","status":"succeeded"}"#;
    assert!(matches!(
        outcome(CallKind::Refund, 200, refund),
        Outcome::Settled(_)
    ));
}

#[test]
fn anything_else_is_unknown() {
    let succeeded = r#"{"request_no":"m~1","amount":10,"currency":"EUR","status":"succeeded"}"#;
    for (status, body) in [
        (200, "<html>"),
        (200, ""),
        (200, "{}"),
        (
            200,
            r#"{"request_no":"m~1","amount":10,"currency":"EUR","status":"processing"}"#,
        ),
        (
            200,
            r#"{"request_no":"m~1","amount":10,"currency":"EUR","status":"refunded"}"#,
        ),
        (
            200,
            r#"{"request_no":"m~2","amount":10,"currency":"EUR","status":"succeeded"}"#,
        ),
        (
            200,
            r#"{"amount":10,"currency":"EUR","status":"succeeded"}"#,
        ),
        (402, succeeded),
        (301, succeeded),
        (401, succeeded),
        (404, succeeded),
        (409, succeeded),
        (429, succeeded),
        (500, succeeded),
        (503, succeeded),
    ] {
        let found = outcome(CallKind::Charge, status, body);
        assert!(
            matches!(found, Outcome::Unknown(_)),
            "{status} {body} {found:?}"
        );
    }
}

/// Whatever it says, an answer or an event about other money is not about this number.
#[test]
fn another_amount_or_currency_is_no_answer() {
    for money in [
        r#""amount":11,"currency":"EUR""#,
        r#""amount":1000,"currency":"EUR""#,
        r#""amount":-10,"currency":"EUR""#,
        r#""amount":10,"currency":"USD""#,
        r#""amount":10,"currency":"eur""#,
        r#""amount":10"#,
        r#""currency":"EUR""#,
        r#""more":1"#,
    ] {
        for status in ["succeeded", "declined", "processing"] {
            for (kind, number) in [
                (CallKind::Charge, "request_no"),
                (CallKind::Refund, "refund_no"),
            ] {
                let shown = format!(r#"{{"{number}":"m~1",{money},"status":"{status}"}}"#);
                let Outcome::Unknown(unknown) = outcome(kind, 200, &shown) else {
                    panic!("{shown}")
                };
                let ours = unknown.why.contains("of 10 EUR");
                assert!(ours, "{shown}: {}", unknown.why);
                let body = format!(r#"{{"type":"{}.updated","data":{shown}}}"#, kind.name());
                let news = event("evt_1", body.as_bytes()).unwrap().news.unwrap();
                assert_eq!(news.of(&call(kind)), Err(unknown.why), "{shown}");
            }
        }
    }
    let news = event(
        "evt_1",
        br#"{"type":"charge.updated","data":{"request_no":"m~2","amount":10,"currency":"EUR","status":"succeeded"}}"#,
    );
    let news = news.unwrap().news.unwrap();
    assert!(news.of(&call(CallKind::Charge)).is_err());
}

#[test]
fn a_refused_request_is_a_decline_unless_the_number_is_taken() {
    for status in [400, 422] {
        let found = refused(&answer(status, r#"{"code":"refund_exceeds_charge"}"#));
        assert!(
            matches!(found, Outcome::Settled(Settlement::Declined { .. })),
            "{status}"
        );
        let taken = refused(&answer(status, r#"{"code":"idempotency_key_reused"}"#));
        assert!(matches!(taken, Outcome::Unknown(_)), "{status}");
    }
}

/// A proxy on the way refuses requests too, and knows nothing about the charge.
#[test]
fn a_refusal_without_a_code_is_unknown() {
    for status in [400, 422] {
        for body in [
            "",
            "<html><h1>400 Bad Request</h1></html>",
            "{}",
            r#"{"error":"bad request"}"#,
            r#"{"code":null}"#,
            r#"{"code":400}"#,
            r#"{"code":""}"#,
            r#"{"code":"Request blocked, call +1 555 0100"}"#,
            r#""refund_exceeds_charge""#,
            r#"{"code":"refund_exceeds_charge""#,
        ] {
            let found = refused(&answer(status, body));
            assert!(matches!(found, Outcome::Unknown(_)), "{status} {body}");
        }
    }
}

#[test]
fn events_name_what_they_are_about() {
    let of = |body: &str| event("evt_1", body.as_bytes());
    let news = of(
        r#"{"type":"charge.updated","data":{"request_no":"m~1","amount":10,"currency":"EUR","status":"succeeded"}}"#,
    );
    let news = news.unwrap().news.unwrap();
    assert_eq!((news.kind, news.number.as_str()), (CallKind::Charge, "m~1"));
    assert_eq!(
        news.of(&call(CallKind::Charge)),
        Ok(Some(Settlement::Succeeded { channel_ref: None }))
    );
    let news = of(
        r#"{"type":"refund.updated","data":{"refund_no":"m~2","request_no":"m~1","amount":10,"currency":"EUR","status":"processing"}}"#,
    );
    let news = news.unwrap().news.unwrap();
    assert_eq!((news.kind, news.number.as_str()), (CallKind::Refund, "m~2"));
    assert_eq!(news.settlement, None);
    assert_eq!(
        of(r#"{"type":"charge.disputed","data":{}}"#).unwrap().news,
        None
    );
    for bad in [
        "",
        "{}",
        r#"{"type":"charge.updated","data":{"status":"succeeded"}}"#,
    ] {
        assert_eq!(of(bad).unwrap_err().code, Code::BodyInvalid, "{bad}");
    }
}

proptest::proptest! {
    #[test]
    fn a_hostile_event_is_read_or_refused(
        body in crate::hostile::hostile(proptest::strategy::Just(
            r#"{"type":"charge.updated","data":{"request_no":"m~1","amount":10,"currency":"EUR","status":"succeeded","charge_id":"ch_1"}}"#,
        )),
    ) {
        crate::channel::fuzz::read_or_refused(event("evt_1", &body));
    }
}
