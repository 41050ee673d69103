//! `message.send`: a message for the outbox to send.

use serde::Serialize;

use crate::domain::{
    Command, Decision, Given, Lookup, Message, MessageKind, MessageStatus, MessageText, Operation,
    Recipient, Snapshot,
};

/// Queue a message. The event that carries it is written by the same statement (invariant 12).
#[derive(Clone, Debug)]
pub struct SendMessage {
    pub kind: MessageKind,
    pub to: Recipient,
    pub text: MessageText,
}

/// What the event `message.queued` tells the gateway.
#[derive(Serialize)]
struct Queued<'a> {
    #[serde(flatten)]
    message: &'a Message,
    text: &'a MessageText,
}

impl Command for SendMessage {
    fn operation(&self) -> &'static str {
        "message.send"
    }

    fn lookup(&self) -> Lookup<'_> {
        Lookup::default()
    }

    /// Every message is a new one.
    fn subject(&self) -> Option<String> {
        None
    }

    fn decide(&self, _: &Snapshot, given: &Given) -> Decision {
        let message = Message {
            message_id: format!("msg_{}", given.subject),
            kind: self.kind,
            to: self.to.clone(),
            status: MessageStatus::Queued,
            created_at: given.now,
        };
        let event = Queued {
            message: &message,
            text: &self.text,
        };
        let row = Operation::silent(self.operation(), given, 202, &message);
        Decision::Append(Box::new(Operation {
            subject_id: Some(message.message_id.clone()),
            ..row.with_event("message.queued", given, &event)
        }))
    }
}
