//! Refunds: money of a payment that goes back to the customer.

use serde::Serialize;

use super::{Amount, Currency, Identifier, PlainText, Timestamp};

/// The status of a refund. One to a wallet succeeds at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RefundStatus {
    Processing,
    Succeeded,
    Failed,
}

impl RefundStatus {
    /// The status of that name in SQL.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "processing" => Self::Processing,
            "succeeded" => Self::Succeeded,
            "failed" => Self::Failed,
            _ => return None,
        })
    }
}

/// A refund, complete as clients see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refund {
    pub refund_id: String,
    pub order_no: Identifier,
    pub payment_id: String,
    pub refund_no: Identifier,
    pub amount: Amount,
    pub currency: Currency,
    pub status: RefundStatus,
    pub reason: Option<PlainText>,
    pub created_at: Timestamp,
}
