//! One HTTP answer, read to its end, with the assertions every test makes on it.

use reqwest::header::{CONTENT_TYPE, HeaderMap, LOCATION};
use serde_json::Value;

use super::shapes;

/// Status, headers and the whole body of an answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    /// Stands in for an answer that never arrived: status 0 and the reason.
    pub fn lost(reason: &dyn std::error::Error) -> Self {
        Self {
            status: 0,
            headers: HeaderMap::new(),
            body: reason.to_string().into_bytes(),
        }
    }

    /// The body as text, for messages and searches.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The value of a header that occurs at most once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let first = values.next()?;
        assert!(values.next().is_none(), "{name} occurs twice");
        Some(first.to_str().expect("a header of visible ASCII"))
    }

    /// Whether the answer says that it repeats an earlier one.
    pub fn replayed(&self) -> bool {
        match self.header("idempotent-replayed") {
            None => false,
            Some("true") => true,
            Some(other) => panic!("Idempotent-Replayed: {other}"),
        }
    }

    /// Asserts the status.
    #[track_caller]
    pub fn status(&self, expected: u16) -> &Self {
        assert_eq!(self.status, expected, "answer was: {}", self.text());
        self
    }

    /// Asserts a successful JSON answer of this status and returns its body.
    #[track_caller]
    pub fn ok(&self, expected: u16) -> Value {
        self.status(expected);
        assert_eq!(media_type(self), "application/json");
        self.json()
    }

    /// Asserts a success that is not a replay.
    #[track_caller]
    pub fn first(&self, expected: u16) -> Value {
        assert!(!self.replayed(), "a first answer says that it is a replay");
        self.ok(expected)
    }

    /// The body as JSON, of whatever status.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error} in: {}", self.text()))
    }

    /// Asserts a complete problem of this status and code and returns it.
    #[track_caller]
    pub fn problem(&self, status: u16, code: &str) -> Value {
        self.status(status);
        assert_eq!(media_type(self), "application/problem+json");
        let problem = self.json();
        shapes::problem(&problem);
        assert_eq!(problem["status"], status, "status member: {problem}");
        assert_eq!(problem["code"], code, "code member: {problem}");
        if problem["retryable"] == true {
            let pause = self.header("retry-after").expect("Retry-After");
            pause.parse::<u32>().expect("Retry-After in whole seconds");
        }
        problem
    }

    /// Asserts a `body_invalid` whose text or pointer names the field.
    #[track_caller]
    pub fn body_invalid(&self, field: &str) -> Value {
        let problem = self.problem(400, "body_invalid");
        assert!(
            shapes::names_field(&problem, field),
            "`{field}` is not named: {problem}"
        );
        problem
    }

    /// Asserts that this is the replay of `first`: same status, content type, location and bytes.
    #[track_caller]
    pub fn replays(&self, first: &Answer) {
        self.equals(first);
        assert!(self.replayed(), "a replay does not say so: {}", self.text());
    }

    /// Asserts the same status, content type, location and body bytes, first answer or replay.
    #[track_caller]
    pub fn equals(&self, first: &Answer) {
        assert_eq!(self.status, first.status, "status of {}", self.text());
        assert_eq!(self.text(), first.text(), "body");
        assert_eq!(self.body, first.body, "body bytes");
        for name in [CONTENT_TYPE, LOCATION] {
            assert_eq!(
                self.header(name.as_str()),
                first.header(name.as_str()),
                "header {name}"
            );
        }
    }
}

/// The content type without its parameters.
pub(super) fn media_type(answer: &Answer) -> String {
    let full = answer.header("content-type").expect("a content type");
    full.split(';').next().unwrap_or(full).trim().to_owned()
}
