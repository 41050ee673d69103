//! `/v1/events`: operations that come out of a queue, which delivers at least once.

use super::{accounts, coupons, messages, orders, payments, profiles, refunds};
use crate::domain::{Code, Problem};
use crate::http::body::Body;
use crate::http::cloud_event::CloudEvent;
use crate::http::extract::PathId;
use crate::http::intent::Intent;
use crate::http::respond::Result;
use crate::idempotency::IdempotencyKey;

/// What every type of event for this service begins with; the name of an operation follows.
pub(in crate::http) const PREFIX: &str = "payonce.";

/// How an operation is read from an event: by the function that reads it for its route.
pub(in crate::http) enum Reader {
    /// The subject is the parameter of the path.
    About(fn(PathId, &Body) -> Result<Intent>),
    /// The subject may stand in for a field of the body.
    Naming(&'static str, fn(&Body) -> Result<Intent>),
    /// There is no subject.
    Alone(fn(&Body) -> Result<Intent>),
}

pub(in crate::http) const READERS: [(&str, Reader); 11] = [
    (
        "order.create",
        Reader::Naming("order_no", orders::create_intent),
    ),
    ("order.pay", Reader::About(payments::pay_intent)),
    ("order.ship", Reader::About(orders::ship_intent)),
    ("order.complete", Reader::About(orders::complete_intent)),
    ("order.cancel", Reader::About(orders::cancel_intent)),
    ("order.refund", Reader::About(refunds::refund_intent)),
    ("account.deposit", Reader::About(accounts::deposit_intent)),
    ("coupon.grant", Reader::About(coupons::grant_intent)),
    ("coupon.limit", Reader::About(coupons::limit_intent)),
    ("profile.update", Reader::About(profiles::update_intent)),
    ("message.send", Reader::Alone(messages::send_intent)),
];

/// `POST /v1/events`: the answer of the operation. To a queue, 409 `idempotency_in_progress` and 5xx mean
/// later, and every other 4xx never.
pub(crate) async fn receive(mut event: CloudEvent) -> Result {
    let structured = event.structured;
    let key = IdempotencyKey::of_event(&event.source, &event.id);
    let performed = match intent(&mut event) {
        Ok(intent) => event.submission.perform(intent.or_key(Some(key))).await,
        Err(problem) => Err(problem),
    };
    performed.map_err(|problem| {
        if structured {
            problem.below("/data")
        } else {
            problem
        }
    })
}

fn intent(event: &mut CloudEvent) -> Result<Intent> {
    let operation = event.kind.strip_prefix(PREFIX);
    let reader = READERS
        .iter()
        .find(|(name, _)| Some(*name) == operation)
        .map(|(_, reader)| reader)
        .ok_or_else(|| {
            let detail = format!("{} is no operation of this service", event.kind);
            Problem::new(Code::BodyInvalid, detail)
        })?;
    let body = &mut event.submission.body;
    match (reader, event.subject.take()) {
        (Reader::About(read), Some(subject)) => read(PathId(subject), body),
        (Reader::About(_), None) => {
            let detail = format!("an event of type {} needs a subject", event.kind);
            Err(Problem::new(Code::BodyInvalid, detail))
        }
        (Reader::Naming(field, read), Some(subject)) => {
            body.add(field, &subject);
            if body.json().get(field) == Some(&subject.into()) {
                read(body)
            } else {
                let detail = format!("the subject and {field} differ");
                Err(Problem::at(Code::BodyInvalid, format!("/{field}"), detail))
            }
        }
        (Reader::Naming(_, read) | Reader::Alone(read), _) => read(body),
    }
}

#[cfg(any(test, fuzzing))]
pub mod fuzz {
    use serde_json::Value;

    use super::*;
    use crate::domain::{Decision, Given, Identifier, Snapshot};
    use crate::http::{body, strict_json};
    use crate::idempotency::fingerprint;

    /// Any bytes are strict JSON, and a command to each operation whose body they are, or refused.
    pub fn json_body(bytes: &[u8]) {
        strict_json::fuzz::as_others_or_refused(bytes);
        let Some(body) = body::fuzz::object_or_refused(bytes) else {
            return;
        };
        for (operation, reader) in &READERS {
            command_or_refused(operation, reader, "o", &body);
        }
    }

    /// Any object and subject are a command with a fingerprint and a decision, or refused and pointed at.
    pub(super) fn command_or_refused(operation: &str, reader: &Reader, subject: &str, body: &Body) {
        match read(reader, subject, body) {
            Ok(intent) => {
                assert_eq!(intent.command.operation(), operation);
                let path = intent.path.as_ref().map(Identifier::as_str);
                assert!(fingerprint(operation, path.as_slice(), body.json()).is_ok());
                match intent.command.decide(&Snapshot::default(), &Given::fixed()) {
                    Decision::Append(row) => {
                        assert!(serde_json::from_str::<Value>(&row.answer.body).is_ok());
                        let location = row.answer.location.unwrap_or_default();
                        assert!(location.bytes().all(|byte| byte.is_ascii_graphic()));
                    }
                    Decision::Refuse(problem) => assert_ne!(problem.code.status(), 402),
                }
            }
            Err(problem) => {
                assert!(matches!(problem.code.status(), 400 | 404), "{problem:?}");
                for error in problem.errors {
                    assert!(error.pointer.is_empty() || error.pointer.starts_with('/'));
                }
            }
        }
    }

    pub(super) fn read(reader: &Reader, subject: &str, body: &Body) -> Result<Intent> {
        match reader {
            Reader::About(read) => read(PathId(subject.to_owned()), body),
            Reader::Naming(_, read) | Reader::Alone(read) => read(body),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;
    use proptest::sample::Index;
    use serde_json::{Value, json};

    use super::fuzz::read;
    use super::*;
    use crate::hostile::{json, text};

    /// A body with every field that the operation has.
    fn full(operation: &str) -> Value {
        match operation {
            "order.create" => json!({
                "order_no": "o", "user_id": "u", "amount": 1, "currency": "EUR", "metadata": {"a": "b"}
            }),
            "order.pay" => json!({
                "amount": 1, "currency": "EUR", "request_no": "r", "payment_method": "wallet"
            }),
            "order.ship" => json!({"tracking_no": "t"}),
            "order.refund" => json!({"amount": 1, "refund_no": "r", "reason": "x"}),
            "account.deposit" => json!({"amount": 1, "currency": "EUR", "reference": "x"}),
            "coupon.grant" => json!({"user_id": "u"}),
            "coupon.limit" => json!({"limit": 1}),
            "profile.update" => json!({"a": "b", "c": null}),
            "message.send" => json!({"kind": "sms", "to": "+49", "text": "x"}),
            _ => json!({}),
        }
    }

    /// The place of a reader, and a body with some fields changed, missing or made up.
    fn almost_full() -> impl Strategy<Value = (usize, Value)> {
        let changes = vec((any::<Index>(), proptest::option::of(json())), 0..3);
        let more = prop_oneof![3 => Just(BTreeMap::<String, Value>::new()), 1 => btree_map(text(), json(), 0..3)];
        (0..READERS.len(), changes, more).prop_map(|(place, changes, more)| {
            let mut body = full(READERS[place].0);
            let members = body.as_object_mut().unwrap();
            for (index, value) in changes {
                let names: Vec<String> = members.keys().cloned().collect();
                match (names.is_empty(), value) {
                    (true, _) => None,
                    (false, Some(value)) => members.insert(index.get(&names).clone(), value),
                    (false, None) => members.remove(index.get(&names)),
                };
            }
            members.extend(more);
            (place, body)
        })
    }

    #[test]
    fn a_full_body_of_every_operation_is_read() {
        for (operation, reader) in &READERS {
            let body = Body::of(full(operation)).unwrap();
            let intent = read(reader, "o", &body).unwrap_or_else(|_| panic!("{operation}"));
            assert_eq!(intent.command.operation(), *operation);
        }
    }

    proptest! {
        #[test]
        fn a_hostile_body_is_a_command_or_refused(
            (place, body) in almost_full(), subject in prop_oneof![3 => Just("o".to_owned()), 1 => text()],
        ) {
            let (operation, reader) = &READERS[place];
            let body = Body::parse(body.to_string().as_bytes()).unwrap();
            fuzz::command_or_refused(operation, reader, &subject, &body);
        }
    }
}
