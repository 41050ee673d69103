//! The channel `http`: a small contract for gateways that have no adapter of their own.
//!
//! `POST /charges` and `POST /refunds` with the header `Idempotency-Key`, which is the number in the body;
//! `GET /charges/{request_no}` and `GET /refunds/{refund_no}`, 404 where the number is not known. Answers have the
//! number, `amount`, `currency` and `status`: `succeeded`, `declined` with a `code`, or `processing`. A decline may
//! come as 402. A `POST` that is answered 400 or 422 with a `code` was refused for good before anything happened.
//! Everything else is unknown.

use ::http::{HeaderMap, Method};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::client::{Answer, Client};
use super::signature::{invalid, verify_standard};
use super::{Channel, ChannelEvent, News, Outcome, code};
use crate::domain::{
    Amount, CallKind, ChannelCall, Code, Currency, DeclineCode, Identifier, Problem, Settlement,
    Timestamp,
};

/// A gateway that keeps the contract.
pub(super) struct HttpChannel {
    client: Client,
    webhook_secrets: Vec<Vec<u8>>,
}

#[derive(Serialize)]
struct ChargeBody<'a> {
    request_no: &'a str,
    order_no: &'a Identifier,
    merchant_id: &'a Identifier,
    amount: Amount,
    currency: Currency,
    #[serde(skip_serializing_if = "Option::is_none")]
    payment_method: Option<&'a str>,
}

#[derive(Serialize)]
struct RefundBody<'a> {
    refund_no: &'a str,
    request_no: &'a str,
    amount: Amount,
    currency: Currency,
}

/// A charge or a refund, as the gateway shows it.
#[derive(Deserialize)]
struct Shown {
    request_no: Option<String>,
    refund_no: Option<String>,
    amount: Option<i64>,
    currency: Option<String>,
    status: Status,
    code: Option<String>,
    charge_id: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Succeeded,
    Declined,
    Processing,
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    data: serde_json::Value,
}

impl HttpChannel {
    pub fn new(client: Client, webhook_secrets: Vec<Vec<u8>>) -> Self {
        Self {
            client,
            webhook_secrets,
        }
    }

    async fn post(&self, call: &ChannelCall, path: &str, body: &impl Serialize) -> Outcome {
        // Derived from plain structs: this cannot fail.
        let body = serde_json::to_string(body).unwrap_or_default();
        let request = self
            .client
            .request(Method::POST, path)
            .header("content-type", "application/json")
            .header("idempotency-key", &call.number);
        match self.client.send(request, body).await {
            Ok(answer) if matches!(answer.status, 400 | 422) => refused(&answer),
            Ok(answer) => read(call, &answer),
            Err(unknown) => unknown.into(),
        }
    }

    async fn get(&self, call: &ChannelCall, path: &str) -> Outcome {
        let path = format!("{path}/{}", call.number);
        let request = self.client.request(Method::GET, &path);
        match self.client.send(request, String::new()).await {
            Ok(answer) if answer.status == 404 => Outcome::NotFound,
            Ok(answer) => read(call, &answer),
            Err(unknown) => unknown.into(),
        }
    }
}

impl Channel for HttpChannel {
    fn charge<'a>(&'a self, call: &'a ChannelCall) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let body = ChargeBody {
                request_no: &call.number,
                order_no: &call.order_no,
                merchant_id: &call.merchant,
                amount: call.amount,
                currency: call.currency,
                payment_method: call.payment_method.as_deref(),
            };
            self.post(call, "/charges", &body).await
        })
    }

    fn lookup<'a>(&'a self, call: &'a ChannelCall, _: Timestamp) -> BoxFuture<'a, Outcome> {
        Box::pin(self.get(call, "/charges"))
    }

    fn refund<'a>(&'a self, call: &'a ChannelCall) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let body = RefundBody {
                refund_no: &call.number,
                request_no: &call.charge_number,
                amount: call.amount,
                currency: call.currency,
            };
            self.post(call, "/refunds", &body).await
        })
    }

    fn lookup_refund<'a>(&'a self, call: &'a ChannelCall, _: Timestamp) -> BoxFuture<'a, Outcome> {
        Box::pin(self.get(call, "/refunds"))
    }

    fn event(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: Timestamp,
    ) -> Result<ChannelEvent, Problem> {
        let header = |name| {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            value.ok_or_else(|| invalid("a header of Standard Webhooks is missing"))
        };
        let id = header("webhook-id")?;
        let (timestamp, signature) = (header("webhook-timestamp")?, header("webhook-signature")?);
        verify_standard(&self.webhook_secrets, id, timestamp, signature, body, now)?;
        event(id, body)
    }
}

/// A request that was refused, and would be again.
fn refused(answer: &Answer) -> Outcome {
    #[derive(Deserialize)]
    struct Refusal {
        code: String,
    }
    let refusal = serde_json::from_slice::<Refusal>(&answer.body).ok();
    let Some(said) = refusal.as_ref().and_then(|refusal| code(&refusal.code)) else {
        // The word of a proxy, not of the gateway.
        return answer.unclear();
    };
    // Something else has this number: nothing is known about this.
    if said.starts_with("idempotency") {
        return Outcome::unknown(said);
    }
    Outcome::Settled(Settlement::Declined {
        code: DeclineCode::PaymentFailed,
        detail: format!("the channel says {said}"),
    })
}

/// What an answer with an object says, if it is about this number.
fn read(call: &ChannelCall, answer: &Answer) -> Outcome {
    if !matches!(answer.status, 200 | 201 | 202 | 402) {
        return answer.unclear();
    }
    let Ok(shown) = serde_json::from_slice::<Shown>(&answer.body) else {
        return Outcome::unknown(format!("status {} without an object", answer.status));
    };
    let Some(news) = shown.news(call.kind) else {
        return Outcome::unknown("the channel names no number");
    };
    match news.of(call) {
        // A status that contradicts the object is no answer.
        Ok(Some(Settlement::Succeeded { .. })) if answer.status == 402 => answer.unclear(),
        Ok(Some(settlement)) => Outcome::Settled(settlement),
        Ok(None) => Outcome::unknown("the channel is processing it"),
        Err(reason) => Outcome::unknown(reason),
    }
}

impl Shown {
    /// What it says, if it says about what.
    fn news(self, kind: CallKind) -> Option<News> {
        let number = match kind {
            CallKind::Charge => self.request_no.clone(),
            CallKind::Refund => self.refund_no.clone(),
        };
        Some(News {
            kind,
            number: number?,
            money: self.money(),
            settlement: self.settlement(),
        })
    }

    fn money(&self) -> Option<(Amount, Currency)> {
        let amount = self.amount?.try_into().ok()?;
        Some((amount, self.currency.clone()?.try_into().ok()?))
    }

    fn settlement(self) -> Option<Settlement> {
        match self.status {
            Status::Succeeded => Some(Settlement::Succeeded {
                channel_ref: self.charge_id,
            }),
            Status::Declined => {
                let said = self.code.as_deref().and_then(code).unwrap_or("declined");
                let code = match said {
                    "payment_failed" | "processing_error" | "authentication_required" => {
                        DeclineCode::PaymentFailed
                    }
                    // What banks say is endless.
                    _ => DeclineCode::CardDeclined,
                };
                let detail = format!("the channel says {said}");
                Some(Settlement::Declined { code, detail })
            }
            Status::Processing => None,
        }
    }
}

/// An event whose signature was checked.
pub(super) fn event(id: &str, body: &[u8]) -> Result<ChannelEvent, Problem> {
    let invalid = |error: serde_json::Error| Problem::at(Code::BodyInvalid, "", error.to_string());
    let event: Event = serde_json::from_slice(body).map_err(invalid)?;
    let kind = match event.kind.as_str() {
        "charge.updated" => CallKind::Charge,
        "refund.updated" => CallKind::Refund,
        _ => {
            return Ok(ChannelEvent {
                id: id.to_owned(),
                news: None,
            });
        }
    };
    let shown: Shown = serde_json::from_value(event.data).map_err(invalid)?;
    let news = shown.news(kind);
    let news =
        news.ok_or_else(|| Problem::at(Code::BodyInvalid, "/data", "the number is missing"))?;
    Ok(ChannelEvent {
        id: id.to_owned(),
        news: Some(news),
    })
}

#[cfg(test)]
mod tests;
