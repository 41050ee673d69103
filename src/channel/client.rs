//! What the adapters share: authorized requests to the channel's URL.

use ::http::request::Builder;
use ::http::{Method, Request};

use super::{Outcome, Unknown};
use crate::config::ChannelConfig;
use crate::outbound;

/// The most bytes of an answer that are read.
const ANSWER_LIMIT: usize = 1024 * 1024;

/// Speaks to the channel.
pub(super) struct Client {
    /// Without a slash at its end.
    base: String,
    key: String,
    timeout_ms: u64,
}

impl Client {
    /// `None` where the configuration names no channel.
    pub fn new(config: &ChannelConfig) -> Option<Self> {
        let url = config.url.as_ref().filter(|_| !config.key.is_empty())?;
        Some(Self {
            base: url.to_string().trim_end_matches('/').to_owned(),
            key: config.key.clone(),
            timeout_ms: config.timeout_ms,
        })
    }

    /// A request below the URL of the channel.
    pub fn request(&self, method: Method, path: &str) -> Builder {
        Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base))
            .header("authorization", format!("Bearer {}", self.key))
            .header("accept", "application/json")
            .header("user-agent", concat!("payonce/", env!("CARGO_PKG_VERSION")))
    }

    /// Sends a request, once, and reads the answer.
    ///
    /// # Errors
    ///
    /// The outcome is unknown: there was no answer, or not all of it.
    pub async fn send(
        &self,
        request: Builder,
        body: String,
    ) -> std::result::Result<Answer, Unknown> {
        let unknown = |why| Unknown {
            why,
            client_secret: None,
        };
        let request = match body.len() {
            0 => request,
            length => request.header("content-length", length),
        };
        let request = request
            .body(body)
            .map_err(|_| unknown("the number has no place in a request".to_owned()))?;
        let (status, body) = outbound::exchange(request, self.timeout_ms, ANSWER_LIMIT)
            .await
            .map_err(unknown)?;
        let status = status.as_u16();
        Ok(Answer { status, body })
    }
}

/// An answer of the channel.
pub(super) struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Answer {
    /// What its status alone says: nothing.
    pub fn unclear(&self) -> Outcome {
        Outcome::unknown(format!("status {}", self.status))
    }
}

impl From<Unknown> for Outcome {
    fn from(unknown: Unknown) -> Self {
        Self::Unknown(unknown)
    }
}
