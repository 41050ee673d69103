//! `/v1/messages`: short messages and mail to customers.

use serde::Deserialize;

use crate::domain::commands::SendMessage;
use crate::domain::{MessageKind, MessageText, Recipient};
use crate::http::body::Body;
use crate::http::extract::Submission;
use crate::http::intent::Intent;
use crate::http::respond::Result;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SendBody {
    kind: MessageKind,
    to: Recipient,
    text: MessageText,
}

/// Reads `message.send`.
pub(in crate::http) fn send_intent(body: &Body) -> Result<Intent> {
    let SendBody { kind, to, text } = body.required()?;
    Ok(Intent::new(SendMessage { kind, to, text }))
}

/// `POST /v1/messages`: 202 with the message, which is queued.
pub(crate) async fn send(submission: Submission) -> Result {
    let intent = send_intent(&submission.body)?;
    submission.perform(intent).await
}
