//! What a request asks for, once its route has read it. A queue message that asks for the same is read
//! by the same function, so an operation is parsed in one place.

use crate::domain::{Command, Identifier};
use crate::idempotency::IdempotencyKey;

/// A command, and what else its request is known by.
pub(super) struct Intent {
    pub command: Box<dyn Command>,
    /// The parameter of the path: a part of the fingerprint.
    pub path: Option<Identifier>,
    /// The key where the request names none.
    pub default_key: Option<IdempotencyKey>,
}

impl Intent {
    /// Of a route whose path says everything.
    pub fn new(command: impl Command + 'static) -> Self {
        Self {
            command: Box::new(command),
            path: None,
            default_key: None,
        }
    }

    /// Of a route whose path names what the command is about.
    pub fn about(path: Identifier, command: impl Command + 'static) -> Self {
        Self {
            path: Some(path),
            ..Self::new(command)
        }
    }

    /// With a key for requests that name none.
    pub fn or_key(self, default_key: Option<IdempotencyKey>) -> Self {
        Self {
            default_key,
            ..self
        }
    }
}
