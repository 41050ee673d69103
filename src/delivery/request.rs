//! One attempt: the request that carries an event, as the Standard Webhooks specification has it.

use http::{Request, Uri};
use serde::Serialize;
use serde_json::value::RawValue;

use super::signature::sign;
use crate::domain::Timestamp;
use crate::outbound;
use crate::runtime;
use crate::store::outbox::Event;

/// What a consumer needs to apply an event once (invariant 12): it drops an `id` that it has seen, and a
/// `version` that is not above the last one of the same subject. The bytes are the same in every attempt.
#[derive(Serialize)]
struct Payload<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    event_type: &'a str,
    timestamp: Timestamp,
    merchant_id: &'a str,
    subject: &'a str,
    version: Option<i64>,
    data: &'a RawValue,
}

/// Sends an event; `Ok` means that the receiver has it.
///
/// # Errors
///
/// A short text for the operator: the status, or why there was none.
pub(super) async fn send(
    receiver: &Uri,
    secrets: &[Vec<u8>],
    timeout_ms: u64,
    event: &Event,
) -> Result<(), String> {
    let payload = payload(event).map_err(|_| "the event is no JSON".to_owned())?;
    let seconds = runtime::now().as_millis().div_euclid(1000);
    let request = Request::post(receiver)
        .header("content-type", "application/json")
        .header("content-length", payload.len())
        .header("user-agent", concat!("payonce/", env!("CARGO_PKG_VERSION")))
        .header("webhook-id", &event.event_id)
        .header("webhook-timestamp", seconds)
        .header(
            "webhook-signature",
            sign(secrets, &event.event_id, seconds, &payload),
        )
        .body(payload)
        .map_err(|_| "the event has no place in a request".to_owned())?;
    // What it says besides its status is of no interest.
    match outbound::exchange(request, timeout_ms, 0).await? {
        (status, _) if status.is_success() => Ok(()),
        (status, _) => Err(format!("status {}", status.as_u16())),
    }
}

fn payload(event: &Event) -> serde_json::Result<String> {
    serde_json::to_string(&Payload {
        id: &event.event_id,
        event_type: &event.event_type,
        timestamp: event.created_at,
        merchant_id: &event.merchant_id,
        subject: &event.subject,
        version: event.version,
        data: serde_json::from_str(&event.data)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::outbox::Destination;

    #[test]
    fn a_payload_has_what_a_consumer_needs_to_apply_it_once() {
        let event = Event {
            event_id: "evt_1".to_owned(),
            merchant_id: "shop".to_owned(),
            event_type: "order.paid".to_owned(),
            subject: "A-1".to_owned(),
            version: Some(2),
            data: r#"{"amount": 1}"#.to_owned(),
            created_at: Timestamp::from_millis(0),
            destination: Destination::Notify,
            attempts: 3,
        };
        assert_eq!(
            payload(&event).unwrap(),
            r#"{"id":"evt_1","type":"order.paid","timestamp":"1970-01-01T00:00:00.000Z","merchant_id":"shop","subject":"A-1","version":2,"data":{"amount": 1}}"#
        );
    }
}
