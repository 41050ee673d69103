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
