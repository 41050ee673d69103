//! Errors as clients see them: problem details (RFC 9457) with a stable `code`.

use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};
use uuid::Uuid;

use super::{Answer, Payment};

/// What a code means: its row in the table of errors, and its page below `/problems/`.
struct Meaning {
    name: &'static str,
    status: u16,
    title: &'static str,
    retryable: bool,
    remedy: &'static str,
}

/// Every error of the HTTP contract that a route of this component can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    BodyInvalid,
    QueryInvalid,
    IdempotencyKeyMissing,
    IdempotencyKeyInvalid,
    TokenInvalid,
    SignatureInvalid,
    Unauthorized,
    Forbidden,
    InsufficientFunds,
    CardDeclined,
    PaymentFailed,
    NotFound,
    OrderNotFound,
    PaymentNotFound,
    AccountNotFound,
    MethodNotAllowed,
    OrderStateInvalid,
    OrderAlreadyPaid,
    OrderExists,
    RequestNoUsed,
    RefundNoUsed,
    CouponExhausted,
    IdempotencyInProgress,
    TokenExpired,
    BodyTooLarge,
    MediaTypeUnsupported,
    IdempotencyKeyReused,
    IdempotencyKeyExpired,
    AmountMismatch,
    CurrencyMismatch,
    RefundExceedsPayment,
    StorageUnavailable,
    Busy,
    ChannelUnavailable,
    NotConfigured,
}

impl Code {
    /// Every code.
    pub const ALL: [Self; 35] = [
        Self::BodyInvalid,
        Self::QueryInvalid,
        Self::IdempotencyKeyMissing,
        Self::IdempotencyKeyInvalid,
        Self::TokenInvalid,
        Self::SignatureInvalid,
        Self::Unauthorized,
        Self::Forbidden,
        Self::InsufficientFunds,
        Self::CardDeclined,
        Self::PaymentFailed,
        Self::NotFound,
        Self::OrderNotFound,
        Self::PaymentNotFound,
        Self::AccountNotFound,
        Self::MethodNotAllowed,
        Self::OrderStateInvalid,
        Self::OrderAlreadyPaid,
        Self::OrderExists,
        Self::RequestNoUsed,
        Self::RefundNoUsed,
        Self::CouponExhausted,
        Self::IdempotencyInProgress,
        Self::TokenExpired,
        Self::BodyTooLarge,
        Self::MediaTypeUnsupported,
        Self::IdempotencyKeyReused,
        Self::IdempotencyKeyExpired,
        Self::AmountMismatch,
        Self::CurrencyMismatch,
        Self::RefundExceedsPayment,
        Self::StorageUnavailable,
        Self::Busy,
        Self::ChannelUnavailable,
        Self::NotConfigured,
    ];

    const fn meaning(self) -> Meaning {
        let (name, status, title, retryable, remedy) = match self {
            Self::BodyInvalid => (
                "body_invalid",
                400,
                "The request body is not valid",
                false,
                "The body is not JSON of the documented shape: a field is missing, unknown, given twice, \
                 of the wrong type or out of range. `errors` points at it. Correct the body and send it \
                 again, with the same idempotency key if you like: nothing was recorded.",
            ),
            Self::QueryInvalid => (
                "query_invalid",
                400,
                "The query string is not valid",
                false,
                "A query parameter is missing, unknown, given twice or out of range. Correct it.",
            ),
            Self::IdempotencyKeyMissing => (
                "idempotency_key_missing",
                400,
                "An idempotency key is required",
                false,
                "Send an `Idempotency-Key` header with a fresh random value for each thing you want done, \
                 and the same value when you retry it, or a `Submit-Token` from `POST /v1/tokens`.",
            ),
            Self::IdempotencyKeyInvalid => (
                "idempotency_key_invalid",
                400,
                "The idempotency key is not valid",
                false,
                "A key is 1 to 255 visible ASCII characters, in double quotes or bare, and is sent once. \
                 A header that occurs twice, aliases that differ, or a key together with a submit token \
                 are refused, because it would be unclear which one protects the request.",
            ),
            Self::TokenInvalid => (
                "token_invalid",
                400,
                "The submit token is not valid",
                false,
                "The token was not issued by this service for this merchant, or was damaged on its way. \
                 Ask for a new one with `POST /v1/tokens`.",
            ),
            Self::SignatureInvalid => (
                "signature_invalid",
                400,
                "The signature of the event is not valid",
                false,
                "No configured webhook secret signed this body at a time within five minutes from now. Check \
                 `webhook_secret`, the clock, and that nothing on the way changes the body.",
            ),
            Self::Unauthorized => (
                "unauthorized",
                401,
                "An API key is required",
                false,
                "Send `Authorization: Bearer <api key>` with a key of this deployment.",
            ),
            Self::Forbidden => (
                "forbidden",
                403,
                "The key does not open this door",
                false,
                "Routes below `/admin` take the admin key of this deployment, and no merchant's API key.",
            ),
            Self::InsufficientFunds => (
                "insufficient_funds",
                402,
                "The wallet does not cover the amount",
                false,
                "The decline is final for this idempotency key and is repeated for it. Deposit money and \
                 pay with a new key.",
            ),
            Self::CardDeclined => (
                "card_declined",
                402,
                "The customer's bank declined the payment",
                false,
                "The decline is final for this idempotency key and is repeated for it; `payment` is the attempt. \
                 Try again with another means of payment and a new key.",
            ),
            Self::PaymentFailed => (
                "payment_failed",
                402,
                "The payment channel refused",
                false,
                "The refusal is final for this idempotency key and is repeated for it; `detail` says what the \
                 channel said. Nothing was moved. A new attempt needs a new key.",
            ),
            Self::NotFound => (
                "not_found",
                404,
                "There is nothing here",
                false,
                "No route has this path. Check the path and its version prefix.",
            ),
            Self::OrderNotFound => (
                "order_not_found",
                404,
                "There is no such order",
                false,
                "No order of this merchant has this number.",
            ),
            Self::PaymentNotFound => (
                "payment_not_found",
                404,
                "There is no such payment",
                false,
                "No payment of this merchant has this identifier.",
            ),
            Self::AccountNotFound => (
                "account_not_found",
                404,
                "There is no such account",
                false,
                "No deposit was made for this user yet.",
            ),
            Self::MethodNotAllowed => (
                "method_not_allowed",
                405,
                "The method is not allowed here",
                false,
                "Use one of the methods in the `Allow` header.",
            ),
            Self::OrderStateInvalid => (
                "order_state_invalid",
                409,
                "The order does not allow this now",
                false,
                "The status of the order, which `detail` names, has no such transition. Orders move one \
                 way only.",
            ),
            Self::OrderAlreadyPaid => (
                "order_already_paid",
                409,
                "The order is paid already",
                false,
                "Another request paid this order; `payment` is the payment. Nothing was charged again.",
            ),
            Self::OrderExists => (
                "order_exists",
                409,
                "The order number is taken",
                false,
                "An order of this merchant has this `order_no`. Choose another, or leave it out.",
            ),
            Self::RequestNoUsed => (
                "request_no_used",
                409,
                "The request number is taken",
                false,
                "Another payment, shown in `payment`, has this `request_no`. Choose another.",
            ),
            Self::RefundNoUsed => (
                "refund_no_used",
                409,
                "The refund number is taken",
                false,
                "Another refund has this `refund_no`. If it is the one you mean, it is made: see \
                 `GET /v1/orders/{order_no}/refunds`. Otherwise choose another.",
            ),
            Self::CouponExhausted => (
                "coupon_exhausted",
                409,
                "There are no coupons left",
                false,
                "The activity has granted as many coupons as its limit allows; who has one keeps it. The \
                 merchant can raise the limit with `PUT /v1/coupons/{activity_id}`.",
            ),
            Self::IdempotencyInProgress => (
                "idempotency_in_progress",
                409,
                "The first request with this key is still running",
                true,
                "Send the same request again after `Retry-After` seconds: it gets the answer of the first.",
            ),
            Self::IdempotencyKeyExpired => (
                "idempotency_key_expired",
                409,
                "The idempotency key was used long ago",
                false,
                "A request with this key was answered before, and its answer is not kept any more \
                 (`retention_days`). Nothing happened now. Look up what the first request did; for a new \
                 operation use a new key.",
            ),
            Self::TokenExpired => (
                "token_expired",
                410,
                "The submit token has expired",
                false,
                "The token was not redeemed in time. Ask for a new one with `POST /v1/tokens`.",
            ),
            Self::BodyTooLarge => (
                "body_too_large",
                413,
                "The request body is too large",
                false,
                "A body has at most 65536 bytes.",
            ),
            Self::MediaTypeUnsupported => (
                "media_type_unsupported",
                415,
                "The media type is not supported",
                false,
                "Send the body as `Content-Type: application/json`.",
            ),
            Self::IdempotencyKeyReused => (
                "idempotency_key_reused",
                422,
                "The idempotency key belongs to another request",
                false,
                "This key was used with another route, path or body. A key names one request: retry that \
                 request unchanged, or use a new key.",
            ),
            Self::AmountMismatch => (
                "amount_mismatch",
                422,
                "The amount is not that of the order",
                false,
                "Pay exactly the order's `amount`. Nothing was recorded: the corrected request may use the \
                 same key.",
            ),
            Self::CurrencyMismatch => (
                "currency_mismatch",
                422,
                "The currency is not that of the order",
                false,
                "Pay in the order's `currency`, or leave it out. Nothing was recorded: the corrected \
                 request may use the same key.",
            ),
            Self::RefundExceedsPayment => (
                "refund_exceeds_payment",
                422,
                "The refund is more than is left of the payment",
                false,
                "The refunds of an order never add up to more than was paid; `detail` says what is left. \
                 Nothing was recorded: the corrected request may use the same key.",
            ),
            Self::StorageUnavailable => (
                "storage_unavailable",
                503,
                "The database cannot be reached",
                true,
                "Send the same request with the same key again after `Retry-After` seconds: if it took \
                 effect after all, the retry gets its answer, otherwise it runs.",
            ),
            Self::Busy => (
                "busy",
                503,
                "Too many requests want the same thing",
                true,
                "Send the same request with the same key again after `Retry-After` seconds.",
            ),
            Self::ChannelUnavailable => (
                "channel_unavailable",
                503,
                "The payment channel and this service do not agree yet",
                true,
                "The channel speaks of a payment that is not known here, or of another amount than it was asked for, \
                 or cannot be asked. Send the same request again after `Retry-After` seconds.",
            ),
            Self::NotConfigured => (
                "not_configured",
                503,
                "The service is not configured",
                true,
                "A variable that this route needs is missing or malformed; `errors` and `/readyz` name it. \
                 The operator has to set it.",
            ),
        };
        Meaning {
            name,
            status,
            title,
            retryable,
            remedy,
        }
    }

    /// The code as clients see it.
    pub const fn name(self) -> &'static str {
        self.meaning().name
    }

    /// The HTTP status code.
    pub const fn status(self) -> u16 {
        self.meaning().status
    }

    /// A short description of the kind of error.
    pub const fn title(self) -> &'static str {
        self.meaning().title
    }

    /// What caused it and what to do about it.
    pub const fn remedy(self) -> &'static str {
        self.meaning().remedy
    }

    /// The code of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.name() == name)
    }
}

/// One fault in the body, the query or the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// Where: a JSON pointer (RFC 6901) into the body, or a name after `#`.
    pub pointer: String,
    /// What is wrong.
    pub detail: String,
}

/// An error on its way to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub code: Code,
    pub detail: String,
    pub errors: Vec<FieldError>,
    /// The payment that stands in the way, or that failed.
    pub payment: Option<Box<Payment>>,
    /// Seconds for `Retry-After`.
    pub retry_after: Option<u32>,
    /// What went wrong inside, for the log only.
    pub cause: Option<String>,
}

impl Problem {
    /// A problem of that kind; `detail` says what happened in this instance of it.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let retry_after = code.meaning().retryable.then_some(1);
        Self {
            code,
            detail: detail.into(),
            errors: Vec::new(),
            payment: None,
            retry_after,
            cause: None,
        }
    }

    /// With a fault at `pointer`; the detail of the problem is that of the fault.
    pub fn at(code: Code, pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        let mut problem = Self::new(code, detail.clone());
        problem.errors.push(FieldError {
            pointer: pointer.into(),
            detail,
        });
        problem
    }

    /// The same, where the body that it points into is a part of another.
    pub fn below(mut self, pointer: &str) -> Self {
        for error in &mut self.errors {
            error.pointer.insert_str(0, pointer);
        }
        self
    }

    /// With the payment that stands in the way, or that failed.
    pub fn with_payment(mut self, payment: &Payment) -> Self {
        self.payment = Some(Box::new(payment.clone()));
        self
    }

    /// The answer that carries this problem; `instance` identifies the occurrence.
    pub fn answer(&self, instance: Uuid) -> Answer {
        let body = serde_json::to_string(&Occurrence {
            problem: self,
            instance,
        });
        Answer {
            status: self.code.status(),
            location: None,
            // Texts and numbers only: this cannot fail.
            body: body.unwrap_or_default(),
        }
    }
}

struct Occurrence<'a> {
    problem: &'a Problem,
    instance: Uuid,
}

impl Serialize for Occurrence<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Problem {
            code,
            detail,
            errors,
            payment,
            ..
        } = self.problem;
        let Meaning {
            name,
            status,
            title,
            retryable,
            ..
        } = code.meaning();
        let mut object = serializer.serialize_struct("Problem", 9)?;
        object.serialize_field("type", &format_args!("/problems/{name}"))?;
        object.serialize_field("title", title)?;
        object.serialize_field("status", &status)?;
        object.serialize_field("detail", detail)?;
        object.serialize_field("instance", &format_args!("urn:uuid:{}", self.instance))?;
        object.serialize_field("code", name)?;
        object.serialize_field("retryable", &retryable)?;
        if !errors.is_empty() {
            object.serialize_field("errors", errors)?;
        }
        if let Some(payment) = payment {
            object.serialize_field("payment", payment)?;
        }
        object.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_found_by_name() {
        for code in Code::ALL {
            assert_eq!(Code::from_name(code.name()), Some(code));
        }
    }

    #[test]
    fn a_problem_has_the_members_of_rfc_9457_and_ours() {
        let answer = Problem::at(Code::BodyInvalid, "/amount", "no").answer(Uuid::nil());
        assert_eq!(answer.content_type(), "application/problem+json");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&answer.body).unwrap(),
            serde_json::json!({
                "type": "/problems/body_invalid",
                "title": "The request body is not valid",
                "status": 400,
                "detail": "no",
                "instance": "urn:uuid:00000000-0000-0000-0000-000000000000",
                "code": "body_invalid",
                "retryable": false,
                "errors": [{"pointer": "/amount", "detail": "no"}],
            })
        );
    }
}
