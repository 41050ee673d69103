//! An answer as it is kept: what a replay repeats byte for byte (invariant 2).

use serde::{Deserialize, Serialize};

/// Status, `Location` and body of an answer; the content type follows from the status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The HTTP status code.
    pub status: u16,
    /// The path for a `Location` header.
    pub location: Option<String>,
    /// The JSON body.
    pub body: String,
}

impl Answer {
    /// The status of a row in the journal whose work is under way at a channel. It is never sent: 102 is an
    /// interim status (RFC 2518), and every final one is above it.
    pub const UNDER_WAY: u16 = 102;

    /// Whether the operation is under way and has no final answer yet.
    pub const fn is_under_way(&self) -> bool {
        self.status == Self::UNDER_WAY
    }

    /// `application/problem+json` (RFC 9457) for errors, `application/json` otherwise.
    pub const fn content_type(&self) -> &'static str {
        if self.status >= 400 {
            "application/problem+json"
        } else {
            "application/json"
        }
    }
}
