//! Payments: one attempt to move the money of an order.

use serde::Serialize;

use super::{Amount, Currency, Identifier, Timestamp};

/// The status of a payment; `processing` and `succeeded` are live, and an order has at most one
/// live payment (invariant 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PaymentStatus {
    Processing,
    Succeeded,
    Failed,
}

impl PaymentStatus {
    /// Every status.
    pub const ALL: [Self; 3] = [Self::Processing, Self::Succeeded, Self::Failed];

    /// The name in JSON and SQL.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Processing => "processing",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
        }
    }

    /// The status of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }
}

/// A payment, complete as clients see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Payment {
    pub payment_id: String,
    pub order_no: Identifier,
    pub request_no: Identifier,
    /// Where the money comes from; `wallet` is the customer's balance here.
    pub channel: String,
    pub amount: Amount,
    pub currency: Currency,
    pub status: PaymentStatus,
    pub failure_code: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// While the customer has to do something, what their browser needs for it at the channel (Stripe).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<String>,
}
