//! Stripe: PaymentIntents, created and confirmed by one request whose `Idempotency-Key` is our number.
//!
//! Stripe answers a repeated key with the first answer for at least 24 hours, so repeating the request is how a
//! number is looked up until then, and by its metadata after that, or where the first answer was a failure of
//! Stripe or the repeated request is refused. Search lags behind by up to a minute.
//!
//! A payment intent that waits for a customer who has failed, or for too long, is canceled by whoever looks it up:
//! nothing else would end it.

use ::http::request::Builder;
use ::http::{HeaderMap, Method};
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::Value;

use super::client::{Answer, Client};
use super::signature::{invalid, verify_stripe};
use super::{Channel, ChannelEvent, News, Outcome, Unknown, code};
use crate::domain::{
    Amount, CallKind, ChannelCall, Code, Currency, DeclineCode, Problem, Settlement, Timestamp,
};

/// The version of Stripe's API whose objects are read here. Without it the account's own would count, which its
/// owner can change at any time.
const VERSION: &str = "2025-03-31.basil";

/// Until when a key is certainly remembered, milliseconds: an hour less than Stripe promises.
const REMEMBERED_MS: i64 = 23 * 3_600_000;

/// How far the search may lag behind, milliseconds: ten times what Stripe says.
const SEARCH_LAG_MS: i64 = 10 * 60_000;

/// An account at Stripe.
pub(super) struct StripeChannel {
    client: Client,
    webhook_secrets: Vec<Vec<u8>>,
    /// How long customers may take to confirm a payment, milliseconds.
    patience_ms: i64,
}

/// A payment intent or a refund.
#[derive(Deserialize)]
struct Object {
    id: String,
    amount: Option<i64>,
    currency: Option<String>,
    status: Option<String>,
    client_secret: Option<String>,
    last_payment_error: Option<StripeError>,
    failure_reason: Option<String>,
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct Metadata {
    request_no: Option<String>,
    refund_no: Option<String>,
}

#[derive(Deserialize)]
struct StripeError {
    #[serde(rename = "type")]
    kind: Option<String>,
    code: Option<String>,
    decline_code: Option<String>,
    param: Option<String>,
    /// The one that the error is about.
    payment_intent: Option<Box<Object>>,
}

#[derive(Deserialize)]
struct Failure {
    error: StripeError,
}

#[derive(Deserialize)]
struct Page {
    data: Vec<Object>,
}

#[derive(Deserialize)]
struct Event {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    data: EventData,
}

#[derive(Deserialize)]
struct EventData {
    object: Value,
}

type Form = Vec<(&'static str, String)>;

impl StripeChannel {
    pub fn new(client: Client, webhook_secrets: Vec<Vec<u8>>, patience_ms: i64) -> Self {
        Self {
            client,
            webhook_secrets,
            patience_ms,
        }
    }

    fn request(&self, method: Method, path: &str) -> Builder {
        self.client
            .request(method, path)
            .header("stripe-version", VERSION)
    }

    fn post(&self, path: &str) -> Builder {
        self.request(Method::POST, path)
            .header("content-type", "application/x-www-form-urlencoded")
    }

    /// Creates the object of a call, or repeats the first answer.
    async fn create(&self, call: &ChannelCall) -> Result<Answer, Outcome> {
        let form = match call.kind {
            CallKind::Charge => charge_form(call)?,
            CallKind::Refund => refund_form(call, self.charged(call).await?)?,
        };
        let request = self.post(path(call.kind));
        let request = request.header("idempotency-key", &call.number);
        Ok(self.client.send(request, encoded(form)).await?)
    }

    /// Asks for what the call is.
    async fn ask(&self, call: &ChannelCall) -> Outcome {
        match self.create(call).await {
            Ok(answer) => read(call, &answer),
            Err(outcome) => outcome,
        }
    }

    /// The object of a call as it is now; otherwise what it means that there is none.
    async fn find(&self, call: &ChannelCall, now: Timestamp) -> Result<Object, Outcome> {
        let mut repeated = None;
        if is_remembered(call, now) {
            let answer = self.create(call).await?;
            if !says_nothing(call, &answer) {
                return self.current(call, &answer).await;
            }
            repeated = Some(answer);
        }
        let found = match call.kind {
            CallKind::Charge => self.search(&call.number).await?,
            CallKind::Refund => self.search_refund(call).await?,
        };
        found.ok_or_else(|| no_trace(call, now, repeated.as_ref()))
    }

    async fn look_up(&self, call: &ChannelCall, now: Timestamp) -> Outcome {
        let found = match self.find(call, now).await {
            Ok(found) if found.has_no_future(call, now, self.patience_ms) => {
                self.cancel(call, &found.id).await
            }
            found => found,
        };
        match found {
            Ok(found) => found.outcome(call),
            Err(outcome) => outcome,
        }
    }

    /// The object that a repeated answer shows as it was at first, as it is now.
    async fn current(&self, call: &ChannelCall, answer: &Answer) -> Result<Object, Outcome> {
        let then = object(call, answer)?;
        if then.settlement(call.kind).is_some() {
            return Ok(then);
        }
        self.show(call, &then.id).await
    }

    async fn show(&self, call: &ChannelCall, id: &str) -> Result<Object, Outcome> {
        let path = format!("{}/{id}", path(call.kind));
        let request = self.request(Method::GET, &path);
        let answer = self.client.send(request, String::new()).await?;
        match answer.status {
            200 => object(call, &answer),
            _ => Err(answer.unclear()),
        }
    }

    /// Ends a payment intent that waits for its customer, and shows it. Without a key, as it can be repeated: with
    /// one, a failure would be, too.
    async fn cancel(&self, call: &ChannelCall, id: &str) -> Result<Object, Outcome> {
        let path = format!("{}/{id}/cancel", path(call.kind));
        let form = vec![("cancellation_reason", "abandoned".to_owned())];
        let answer = self.client.send(self.post(&path), encoded(form)).await?;
        match answer.status {
            200 => object(call, &answer),
            // It does not wait any more.
            400 => self.show(call, id).await,
            _ => Err(answer.unclear()),
        }
    }

    /// The objects of a list.
    async fn list(&self, path: &str, query: Form) -> Result<Vec<Object>, Outcome> {
        let request = self.request(Method::GET, &format!("{path}?{}", encoded(query)));
        let answer = self.client.send(request, String::new()).await?;
        match serde_json::from_slice::<Page>(&answer.body) {
            Ok(page) if answer.status == 200 => Ok(page.data),
            _ => Err(answer.unclear()),
        }
    }

    /// The payment intent of a number. Numbers are of `A-Z a-z 0-9 . _ : - ~`, so nothing needs escaping.
    async fn search(&self, number: &str) -> Result<Option<Object>, Outcome> {
        let query = vec![("query", format!("metadata['request_no']:'{number}'"))];
        let found = self.list("/v1/payment_intents/search", query).await?;
        let is_it = |object: &Object| object.number(CallKind::Charge) == Some(number);
        Ok(found.into_iter().find(is_it))
    }

    /// The payment intent that a refund gives back.
    async fn charged(&self, call: &ChannelCall) -> Result<String, Outcome> {
        if let Some(id) = &call.channel_ref {
            return Ok(id.clone());
        }
        let found = self.search(&call.charge_number).await?;
        let found = found.ok_or_else(|| Outcome::unknown("the charge is not found yet"))?;
        Ok(found.id)
    }

    async fn search_refund(&self, call: &ChannelCall) -> Result<Option<Object>, Outcome> {
        let query = vec![
            ("payment_intent", self.charged(call).await?),
            ("limit", "100".to_owned()),
        ];
        let found = self.list("/v1/refunds", query).await?;
        let is_it = |object: &Object| object.number(call.kind) == Some(&call.number);
        Ok(found.into_iter().find(is_it))
    }
}

impl Channel for StripeChannel {
    fn charge<'a>(&'a self, call: &'a ChannelCall) -> BoxFuture<'a, Outcome> {
        Box::pin(self.ask(call))
    }

    fn lookup<'a>(&'a self, call: &'a ChannelCall, now: Timestamp) -> BoxFuture<'a, Outcome> {
        Box::pin(self.look_up(call, now))
    }

    fn refund<'a>(&'a self, call: &'a ChannelCall) -> BoxFuture<'a, Outcome> {
        Box::pin(self.ask(call))
    }

    fn lookup_refund<'a>(
        &'a self,
        call: &'a ChannelCall,
        now: Timestamp,
    ) -> BoxFuture<'a, Outcome> {
        Box::pin(self.look_up(call, now))
    }

    fn event(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: Timestamp,
    ) -> Result<ChannelEvent, Problem> {
        let header = headers.get("stripe-signature");
        let header = header.and_then(|header| header.to_str().ok());
        let header = header.ok_or_else(|| invalid("the header Stripe-Signature is missing"))?;
        verify_stripe(&self.webhook_secrets, header, body, now)?;
        event(body)
    }
}

fn encoded(form: Form) -> String {
    // Names and texts only: this cannot fail.
    serde_urlencoded::to_string(form).unwrap_or_default()
}

const fn path(kind: CallKind) -> &'static str {
    match kind {
        CallKind::Charge => "/v1/payment_intents",
        CallKind::Refund => "/v1/refunds",
    }
}

/// Whether repeating the request tells what became of the first.
fn is_remembered(call: &ChannelCall, now: Timestamp) -> bool {
    now < call.created_at.plus_millis(REMEMBERED_MS)
}

/// Whether the answer to a repeated request says nothing about the first one: Stripe repeats its own failures too,
/// and may refuse what an upgrade words differently before it looks at the key. Then the metadata tell.
fn says_nothing(call: &ChannelCall, answer: &Answer) -> bool {
    match answer.status {
        // Nor would they say anything now.
        401 | 403 | 409 | 429 => false,
        402 => matches!(read(call, answer), Outcome::Unknown(_)),
        status => status >= 400,
    }
}

/// What it means that nothing bears the number. While Stripe remembers the key, asking again would only repeat the
/// answer: a refusal, which stands once the search would find what it does not mention, or a failure.
fn no_trace(call: &ChannelCall, now: Timestamp, repeated: Option<&Answer>) -> Outcome {
    let Some(answer) = repeated else {
        return Outcome::NotFound;
    };
    match read(call, answer) {
        Outcome::Settled(_) if now < call.created_at.plus_millis(SEARCH_LAG_MS) => {
            Outcome::unknown("the channel refuses, and shows no trace of the number yet")
        }
        outcome => outcome,
    }
}

/// How often the minor unit of ISO 4217 goes into the one that Stripe counts a currency in, as a fraction:
/// <https://docs.stripe.com/currencies>.
fn ratio(currency: Currency) -> (i64, i64) {
    match currency.code() {
        // No minor unit, but counted in hundredths there.
        "ISK" | "UGX" => (100, 1),
        // Two decimals, but counted in whole ones there.
        "MGA" => (1, 100),
        _ => (1, 1),
    }
}

/// The product, if it is a whole number.
fn whole(number: i64, (numerator, denominator): (i64, i64)) -> Option<i64> {
    let product = number.checked_mul(numerator)?;
    let whole = product.checked_rem(denominator)? == 0;
    product.checked_div(denominator).filter(|_| whole)
}

/// The amount as Stripe counts it.
fn units(call: &ChannelCall) -> Result<i64, Outcome> {
    whole(call.amount.get(), ratio(call.currency)).ok_or_else(|| {
        Outcome::Settled(Settlement::Declined {
            code: DeclineCode::PaymentFailed,
            detail: format!("the channel takes no fractions of {}", call.currency.code()),
        })
    })
}

fn charge_form(call: &ChannelCall) -> Result<Form, Outcome> {
    let mut form = vec![
        ("amount", units(call)?.to_string()),
        ("currency", call.currency.code().to_ascii_lowercase()),
        ("confirm", "true".to_owned()),
        // A customer who has to act does so in this page and not at an address we would have to know.
        ("automatic_payment_methods[enabled]", "true".to_owned()),
        (
            "automatic_payment_methods[allow_redirects]",
            "never".to_owned(),
        ),
        ("metadata[request_no]", call.number.clone()),
        ("metadata[order_no]", call.order_no.as_str().to_owned()),
        ("metadata[merchant_id]", call.merchant.as_str().to_owned()),
    ];
    if let Some(method) = &call.payment_method {
        form.push(("payment_method", method.clone()));
    }
    Ok(form)
}

fn refund_form(call: &ChannelCall, payment_intent: String) -> Result<Form, Outcome> {
    Ok(vec![
        ("payment_intent", payment_intent),
        ("amount", units(call)?.to_string()),
        ("metadata[refund_no]", call.number.clone()),
        ("metadata[order_no]", call.order_no.as_str().to_owned()),
        ("metadata[merchant_id]", call.merchant.as_str().to_owned()),
    ])
}

fn read(call: &ChannelCall, answer: &Answer) -> Outcome {
    match object(call, answer) {
        Ok(object) => object.outcome(call),
        Err(outcome) => outcome,
    }
}

/// The object that an answer shows; otherwise what it means that it shows none.
fn object(call: &ChannelCall, answer: &Answer) -> Result<Object, Outcome> {
    match answer.status {
        200 => serde_json::from_slice(&answer.body)
            .map_err(|_| Outcome::unknown(format!("status {} without an object", answer.status))),
        status => Err(match serde_json::from_slice::<Failure>(&answer.body) {
            Ok(Failure { error }) => error.outcome(call, status),
            Err(_) => answer.unclear(),
        }),
    }
}

impl StripeError {
    fn outcome(&self, call: &ChannelCall, status: u16) -> Outcome {
        // An error of a refund shows the payment intent that it takes from.
        if let (CallKind::Charge, Some(shown)) = (call.kind, &self.payment_intent)
            && let Err(reason) = shown.said(call)
        {
            return Outcome::unknown(reason);
        }
        match (status, self.kind.as_deref()) {
            (402, Some("card_error")) => Outcome::Settled(self.decline()),
            // It was refused before anything happened, and would be again. The same key with other parameters
            // has a type of its own, `idempotency_error`.
            (400, Some("invalid_request_error")) => Outcome::Settled(self.decline()),
            // What the request names does not exist. Without that code it is the address that does not.
            (404, Some("invalid_request_error"))
                if self.code.as_deref() == Some("resource_missing") =>
            {
                Outcome::Settled(self.decline())
            }
            // 401 and 403 are the operator's to mend, 409 is the same key at work, 429 and 5xx say nothing.
            _ => Outcome::unknown(format!("status {status}: {}", self.said())),
        }
    }

    /// The reason: a code, or else the type of the error and the parameter that it is about.
    fn said(&self) -> String {
        let named = |text: &Option<String>| text.as_deref().and_then(code).map(str::to_owned);
        let reason = named(&self.decline_code).or_else(|| named(&self.code));
        reason.unwrap_or_else(|| {
            let kind = named(&self.kind).unwrap_or_else(|| "no reason".to_owned());
            match named(&self.param) {
                Some(param) => format!("{kind} about {param}"),
                None => kind,
            }
        })
    }

    fn decline(&self) -> Settlement {
        let code = match self.code.as_deref() {
            Some(
                "card_declined"
                | "expired_card"
                | "incorrect_cvc"
                | "incorrect_number"
                | "invalid_cvc"
                | "invalid_number"
                | "invalid_expiry_month"
                | "invalid_expiry_year",
            ) => DeclineCode::CardDeclined,
            _ => DeclineCode::PaymentFailed,
        };
        Settlement::Declined {
            code,
            detail: format!("the channel says {}", self.said()),
        }
    }
}

impl Object {
    fn outcome(&self, call: &ChannelCall) -> Outcome {
        match self.said(call) {
            Ok(Some(settlement)) => Outcome::Settled(settlement),
            Ok(None) => Outcome::Unknown(Unknown {
                why: format!(
                    "the channel says {}",
                    self.status.as_deref().unwrap_or("nothing")
                ),
                client_secret: (self.status.as_deref() == Some("requires_action"))
                    .then(|| self.client_secret.clone())
                    .flatten(),
            }),
            Err(reason) => Outcome::unknown(reason),
        }
    }

    /// How it ended, if it has; otherwise why it is not about the call.
    fn said(&self, call: &ChannelCall) -> Result<Option<Settlement>, String> {
        let news = self.news(call.kind);
        news.ok_or_else(|| "the channel names no number".to_owned())?
            .of(call)
    }

    /// Whether it is a payment that waits for its customer, who has failed or has had the time to confirm it.
    fn has_no_future(&self, call: &ChannelCall, now: Timestamp, patience_ms: i64) -> bool {
        let waits = matches!(
            self.status.as_deref(),
            Some("requires_action" | "requires_confirmation" | "requires_payment_method")
        );
        call.kind == CallKind::Charge
            && waits
            && self.said(call) == Ok(None)
            && (self.last_payment_error.is_some()
                || now >= call.created_at.plus_millis(patience_ms))
    }

    /// The number that it bears, if it is of our kind: an account may have other uses.
    fn number(&self, kind: CallKind) -> Option<&str> {
        let metadata = self.metadata.as_ref()?;
        let number = match kind {
            CallKind::Charge => metadata.request_no.as_deref(),
            CallKind::Refund => metadata.refund_no.as_deref(),
        };
        number.filter(|number| number.contains('~'))
    }

    /// What it says, if it bears a number.
    fn news(&self, kind: CallKind) -> Option<News> {
        Some(News {
            kind,
            number: self.number(kind)?.to_owned(),
            money: self.money(),
            settlement: self.settlement(kind),
        })
    }

    /// The amount as we count it.
    fn money(&self) -> Option<(Amount, Currency)> {
        let currency = self.currency.as_ref()?.to_ascii_uppercase();
        let currency = currency.try_into().ok()?;
        let (numerator, denominator) = ratio(currency);
        let amount = whole(self.amount?, (denominator, numerator))?;
        Some((amount.try_into().ok()?, currency))
    }

    fn settlement(&self, kind: CallKind) -> Option<Settlement> {
        match kind {
            CallKind::Charge => self.charge_settlement(),
            CallKind::Refund => self.refund_settlement(),
        }
    }

    fn charge_settlement(&self) -> Option<Settlement> {
        match self.status.as_deref()? {
            "succeeded" => Some(Settlement::Succeeded {
                channel_ref: Some(self.id.clone()),
            }),
            // What failed can be confirmed again until it is canceled.
            "canceled" => Some(match &self.last_payment_error {
                Some(error) => error.decline(),
                None => Settlement::Declined {
                    code: DeclineCode::PaymentFailed,
                    detail: "the channel says canceled".to_owned(),
                },
            }),
            _ => None,
        }
    }

    fn refund_settlement(&self) -> Option<Settlement> {
        match self.status.as_deref()? {
            "succeeded" => Some(Settlement::Succeeded { channel_ref: None }),
            status @ ("failed" | "canceled") => {
                let said = self.failure_reason.as_deref().and_then(code);
                let said = said.unwrap_or(status);
                Some(Settlement::Declined {
                    code: DeclineCode::PaymentFailed,
                    detail: format!("the channel says {said}"),
                })
            }
            _ => None,
        }
    }
}

/// An event whose signature was checked. What bears no number of ours is of no concern: the account may have
/// other uses.
pub(super) fn event(body: &[u8]) -> Result<ChannelEvent, Problem> {
    let invalid = |error: serde_json::Error| Problem::at(Code::BodyInvalid, "", error.to_string());
    let event: Event = serde_json::from_slice(body).map_err(invalid)?;
    let kind = match event.kind.split_once('.') {
        Some(("payment_intent", _)) => CallKind::Charge,
        Some(("refund", _)) => CallKind::Refund,
        _ => {
            return Ok(ChannelEvent {
                id: event.id,
                news: None,
            });
        }
    };
    let object: Object = serde_json::from_value(event.data.object).map_err(invalid)?;
    Ok(ChannelEvent {
        id: event.id,
        news: object.news(kind),
    })
}

#[cfg(test)]
mod tests;
