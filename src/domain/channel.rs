//! Outside payment channels, as far as decisions know them.

use serde::{Deserialize, Serialize};

use super::{Amount, Code, Currency, Identifier, Timestamp};

/// The channel that takes payments which are not from the wallet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelTerms {
    /// As in the journal and in payments.
    pub name: &'static str,
    /// How long whoever begins a payment has it to itself, milliseconds.
    pub lease_ms: i64,
    /// Whether its configuration is complete.
    pub ready: bool,
}

/// How the customer pays: `wallet`, or what the channel knows a means of payment by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct PaymentMethod(String);

impl PaymentMethod {
    /// The customer's balance with the merchant.
    pub fn wallet() -> Self {
        Self(Self::WALLET.to_owned())
    }

    const WALLET: &'static str = "wallet";

    /// Whether it is the customer's balance.
    pub fn is_wallet(&self) -> bool {
        self.0 == Self::WALLET
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for PaymentMethod {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if (1..=255).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic()) {
            Ok(Self(text))
        } else {
            Err("a payment method is 1 to 255 visible ASCII characters")
        }
    }
}

/// Why a channel refused for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeclineCode {
    /// The customer's bank.
    CardDeclined,
    /// Anybody or anything else.
    PaymentFailed,
}

impl From<DeclineCode> for Code {
    fn from(code: DeclineCode) -> Self {
        match code {
            DeclineCode::CardDeclined => Self::CardDeclined,
            DeclineCode::PaymentFailed => Self::PaymentFailed,
        }
    }
}

/// How a call of a channel ended, for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The money moved.
    Succeeded {
        /// The channel's own identifier of the charge.
        channel_ref: Option<String>,
    },
    /// It did not, and will not under this number.
    Declined {
        code: DeclineCode,
        /// For people; the channel's own code, if it gave one.
        detail: String,
    },
}

/// What a channel is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    Charge,
    Refund,
}

impl CallKind {
    /// The name in SQL.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Charge => "charge",
            Self::Refund => "refund",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Charge, Self::Refund]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

/// A charge or refund that a channel is asked for, until it is settled.
#[derive(Clone, Debug)]
pub struct ChannelCall {
    /// The payment or refund.
    pub subject_id: String,
    pub kind: CallKind,
    pub channel: String,
    /// What the channel knows it by, always the same: `<merchant>~<request_no>` or
    /// `<merchant>~refund~<refund_no>`, unique over charges and refunds of all who share an account there.
    pub number: String,
    /// The number of the charge that a refund gives back, otherwise its own.
    pub charge_number: String,
    pub merchant: Identifier,
    pub order_no: Identifier,
    /// The number of the payment.
    pub request_no: Identifier,
    /// Of the request that waits for it; none where a refund began by itself.
    pub idempotency_key: Option<String>,
    pub amount: Amount,
    pub currency: Currency,
    pub payment_method: Option<String>,
    /// The channel's own identifier of the charge.
    pub channel_ref: Option<String>,
    /// Who is at work on it until `lease_until`.
    pub owner: Option<String>,
    pub lease_until: Timestamp,
    pub created_at: Timestamp,
    pub settled: bool,
}
