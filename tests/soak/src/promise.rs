//! Keys: what was asked for under one, and the answer that it has to get for ever.

use std::sync::{Mutex, MutexGuard, PoisonError};

use reqwest::header::{CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::fleet::API_KEY;

/// Where redelivered requests come from.
const QUEUE: &str = "/queues/soak";

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Deposit,
    Create,
    Pay,
    Refund,
    Ship,
    Complete,
    Cancel,
    Grant,
    Profile,
    Message,
}

impl Operation {
    /// As an event in a queue names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Deposit => "account.deposit",
            Self::Create => "order.create",
            Self::Pay => "order.pay",
            Self::Refund => "order.refund",
            Self::Ship => "order.ship",
            Self::Complete => "order.complete",
            Self::Cancel => "order.cancel",
            Self::Grant => "coupon.grant",
            Self::Profile => "profile.update",
            Self::Message => "message.send",
        }
    }

    fn path(self, subject: &str) -> String {
        match self {
            Self::Deposit => format!("/v1/accounts/{subject}/deposits"),
            Self::Create => "/v1/orders".to_owned(),
            Self::Pay => format!("/v1/orders/{subject}/pay"),
            Self::Refund => format!("/v1/orders/{subject}/refunds"),
            Self::Ship => format!("/v1/orders/{subject}/ship"),
            Self::Complete => format!("/v1/orders/{subject}/complete"),
            Self::Cancel => format!("/v1/orders/{subject}/cancel"),
            Self::Grant => format!("/v1/coupons/{subject}/grants"),
            Self::Profile => format!("/v1/users/{subject}/profile"),
            Self::Message => "/v1/messages".to_owned(),
        }
    }

    fn method(self) -> Method {
        match self {
            Self::Profile => Method::PATCH,
            _ => Method::POST,
        }
    }

    /// The refusals that depend on how things stand; nothing is recorded with them. Any other is wrong.
    fn refusals(self) -> &'static [&'static str] {
        match self {
            Self::Deposit | Self::Create | Self::Profile | Self::Message => &[],
            Self::Pay => &["order_already_paid", "order_state_invalid"],
            Self::Refund => &["order_state_invalid", "refund_exceeds_payment"],
            Self::Ship | Self::Complete | Self::Cancel => &["order_state_invalid"],
            Self::Grant => &["coupon_exhausted"],
        }
    }
}

/// A request, which can be sent any number of times.
#[derive(Debug)]
pub struct Request {
    pub operation: Operation,
    /// The order, the user or the activity that it is about.
    pub subject: String,
    pub key: String,
    /// JSON.
    pub body: String,
    /// Whether it comes out of a queue.
    pub queued: bool,
}

impl Request {
    /// To the service at an address.
    pub fn to(&self, base: &str, http: &Client) -> RequestBuilder {
        let request = if self.queued {
            let kind = format!("payonce.{}", self.operation.name());
            let event = http
                .post(format!("{base}/v1/events"))
                .header("ce-specversion", "1.0")
                .header("ce-source", QUEUE)
                .header("ce-id", &self.key)
                .header("ce-type", kind);
            match self.operation {
                Operation::Message => event,
                _ => event.header("ce-subject", &self.subject),
            }
        } else {
            let url = format!("{base}{}", self.operation.path(&self.subject));
            http.request(self.operation.method(), url)
                .header("idempotency-key", format!("\"{}\"", self.key))
        };
        request
            .bearer_auth(API_KEY)
            .header(CONTENT_TYPE, "application/json")
            .body(self.body.clone())
    }
}

/// An answer, read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    /// Reads the rest of an answer.
    ///
    /// # Errors
    /// When the connection ends before.
    pub async fn read(response: Response) -> reqwest::Result<Self> {
        Ok(Self {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response.bytes().await?.to_vec(),
        })
    }

    fn header(&self, name: &str) -> Option<String> {
        let value = self.headers.get(name)?;
        value.to_str().ok().map(str::to_owned)
    }

    /// The code of a problem.
    pub fn code(&self) -> Option<String> {
        let media_type = self.header(CONTENT_TYPE.as_str())?;
        let problem = media_type.starts_with("application/problem+json");
        let body: Value = serde_json::from_slice(&self.body)
            .ok()
            .filter(|_| problem)?;
        body["code"].as_str().map(str::to_owned)
    }

    /// Status and code, as answers are counted.
    pub fn label(&self) -> String {
        match self.code() {
            Some(code) => format!("{} {code}", self.status),
            None => self.status.to_string(),
        }
    }

    /// The body as JSON; nothing where it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// What has to be the same in every answer to a key; of its body, the digest.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Final {
    status: u16,
    content_type: Option<String>,
    location: Option<String>,
    body: [u8; 32],
}

impl Final {
    fn of(answer: &Answer) -> Self {
        Self {
            status: answer.status,
            content_type: answer.header(CONTENT_TYPE.as_str()),
            location: answer.header(LOCATION.as_str()),
            body: Sha256::digest(&answer.body).into(),
        }
    }
}

/// What an answer means to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// The key has this answer for ever.
    Final(u16),
    /// Refused as things stand; nothing was recorded.
    Refused,
    /// The same request is to be sent again.
    Later,
}

/// A key, the request that it names, and the final answer to it, once there is one.
#[derive(Debug)]
pub struct Promise {
    pub request: Request,
    given: Mutex<Option<Final>>,
}

impl Promise {
    /// Nothing was answered yet.
    pub fn new(request: Request) -> Self {
        Self {
            request,
            given: Mutex::default(),
        }
    }

    fn given(&self) -> MutexGuard<'_, Option<Final>> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The status of the final answer.
    pub fn status(&self) -> Option<u16> {
        self.given().as_ref().map(|given| given.status)
    }

    /// Holds a final answer against the one before, or keeps it as the first.
    fn keep(&self, answer: &Answer, known: bool) -> Result<Reading, String> {
        let wrong = |what: &str| Err(format!("{what}: {self} got {answer}"));
        let new = Final::of(answer);
        let before = self.given().get_or_insert_with(|| new.clone()).clone();
        if before != new {
            return wrong(&format!("the answer was another {} before", before.status));
        }
        if known && answer.header("idempotent-replayed").is_none() {
            return wrong("a first answer to a key that has one");
        }
        Ok(Reading::Final(answer.status))
    }

    /// Holds an answer against what was promised. `known` says whether there was a final answer when the
    /// request was sent.
    ///
    /// # Errors
    /// What is wrong with the answer.
    pub fn read(&self, answer: &Answer, known: bool) -> Result<Reading, String> {
        let wrong = |what: &str| Err(format!("{what}: {self} got {answer}"));
        let retry_after = answer.header("retry-after").is_some();
        let code = answer.code();
        let is_message = self.request.operation == Operation::Message;
        match (answer.status, code.as_deref()) {
            (200 | 201, None) | (402, Some(_)) => self.keep(answer, known),
            // A message is queued when it is accepted.
            (202, None) if is_message => self.keep(answer, known),
            (202, None) | (409, Some("idempotency_in_progress")) | (503, Some(_)) => {
                match (code.as_deref(), retry_after) {
                    (Some("not_configured"), _) => {
                        wrong("a service that is configured says it is not")
                    }
                    (_, false) => wrong("no Retry-After"),
                    (None, true) if known => wrong("a final answer is withdrawn"),
                    _ => Ok(Reading::Later),
                }
            }
            (_, Some(code)) if self.request.operation.refusals().contains(&code) => match known {
                true => wrong("a final answer is withdrawn"),
                false => Ok(Reading::Refused),
            },
            _ => wrong("not an answer to this request"),
        }
    }
}

impl std::fmt::Display for Promise {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Request {
            operation,
            subject,
            key,
            body,
            queued,
        } = &self.request;
        let by = if *queued { "event" } else { "key" };
        write!(out, "{} {subject} {body} with {by} {key}", operation.name())
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}", self.status, self.text())
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    fn promise(operation: Operation) -> Promise {
        Promise::new(Request {
            operation,
            subject: "o1".into(),
            key: "k1".into(),
            body: "{}".into(),
            queued: false,
        })
    }

    fn answer(status: u16, body: &str, headers: &[(&'static str, &'static str)]) -> Answer {
        let media_type = match status {
            400.. => "application/problem+json",
            _ => "application/json",
        };
        let mut all = HeaderMap::new();
        all.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
        for (name, value) in headers {
            all.insert(*name, HeaderValue::from_static(value));
        }
        Answer {
            status,
            headers: all,
            body: body.into(),
        }
    }

    const AGAIN: (&str, &str) = ("retry-after", "1");
    const REPLAY: (&str, &str) = ("idempotent-replayed", "true");

    #[test]
    fn a_final_answer_stays() {
        let pay = promise(Operation::Pay);
        let first = answer(200, "{\"a\":1}", &[]);
        assert_eq!(pay.read(&first, false), Ok(Reading::Final(200)));
        let again = answer(200, "{\"a\":1}", &[REPLAY]);
        assert_eq!(pay.read(&again, true), Ok(Reading::Final(200)));
        assert!(pay.read(&first, true).is_err(), "it ran twice");
        let other = answer(200, "{\"a\": 1}", &[REPLAY]);
        assert!(pay.read(&other, true).is_err(), "other bytes");
        let refused = answer(409, r#"{"code":"order_already_paid"}"#, &[]);
        assert!(pay.read(&refused, true).is_err(), "withdrawn");
        // It was under way when there was no answer yet.
        assert_eq!(pay.read(&refused, false), Ok(Reading::Refused));
    }

    #[test]
    fn what_is_to_be_repeated_says_when() {
        let pay = promise(Operation::Pay);
        for (status, body) in [
            (202, "{}"),
            (409, r#"{"code":"idempotency_in_progress"}"#),
            (503, r#"{"code":"busy"}"#),
        ] {
            let later = answer(status, body, &[AGAIN]);
            assert_eq!(pay.read(&later, false), Ok(Reading::Later), "{status}");
            assert!(pay.read(&answer(status, body, &[]), false).is_err());
        }
    }

    #[test]
    fn refusals_are_those_of_the_operation() {
        let refused = answer(409, r#"{"code":"order_state_invalid"}"#, &[]);
        let ship = promise(Operation::Ship);
        assert_eq!(ship.read(&refused, false), Ok(Reading::Refused));
        assert!(promise(Operation::Create).read(&refused, false).is_err());
        assert!(ship.read(&answer(500, "", &[]), false).is_err());
    }
}
