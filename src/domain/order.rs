//! Orders and their one-way state machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Amount, Code, Currency, Identifier, PlainText, Problem, Timestamp};

/// The status of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OrderStatus {
    Pending,
    Processing,
    Paid,
    Failed,
    Cancelled,
    Shipped,
    Completed,
    Refunded,
}

impl OrderStatus {
    /// Every status.
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::Processing,
        Self::Paid,
        Self::Failed,
        Self::Cancelled,
        Self::Shipped,
        Self::Completed,
        Self::Refunded,
    ];

    /// The name in JSON and SQL.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Processing => "processing",
            Self::Paid => "paid",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Shipped => "shipped",
            Self::Completed => "completed",
            Self::Refunded => "refunded",
        }
    }

    /// The status of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// The status after `event`, or `None` where the state machine refuses it (invariant 6).
    ///
    /// The trigger `orders_state_machine` holds the same table.
    pub const fn after(self, event: OrderEvent) -> Option<Self> {
        use OrderEvent::*;
        Some(match (self, event) {
            (Self::Pending | Self::Failed, PayByWallet) => Self::Paid,
            (Self::Pending | Self::Failed, PayByChannel) => Self::Processing,
            (Self::Processing, ChannelSucceeded) => Self::Paid,
            (Self::Processing, ChannelDeclined) => Self::Failed,
            (Self::Pending | Self::Failed, Cancel) => Self::Cancelled,
            (Self::Paid, Ship) => Self::Shipped,
            (Self::Shipped, Complete) => Self::Completed,
            (Self::Paid | Self::Shipped | Self::Completed, RefundPart) => self,
            (Self::Paid | Self::Shipped | Self::Completed, RefundRest) => Self::Refunded,
            _ => return None,
        })
    }
}

/// What can happen to an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderEvent {
    PayByWallet,
    PayByChannel,
    ChannelSucceeded,
    ChannelDeclined,
    Cancel,
    Ship,
    Complete,
    RefundPart,
    RefundRest,
}

impl OrderEvent {
    /// Every event.
    pub const ALL: [Self; 9] = [
        Self::PayByWallet,
        Self::PayByChannel,
        Self::ChannelSucceeded,
        Self::ChannelDeclined,
        Self::Cancel,
        Self::Ship,
        Self::Complete,
        Self::RefundPart,
        Self::RefundRest,
    ];

    /// What the order has been then, for people.
    const fn participle(self) -> &'static str {
        match self {
            Self::PayByWallet | Self::PayByChannel | Self::ChannelSucceeded => "paid",
            Self::ChannelDeclined => "declined",
            Self::Cancel => "cancelled",
            Self::Ship => "shipped",
            Self::Complete => "completed",
            Self::RefundPart | Self::RefundRest => "refunded",
        }
    }
}

/// A flat object of at most 20 short texts that the merchant attaches to an order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, PlainText>")]
pub struct Metadata(BTreeMap<String, PlainText>);

impl Metadata {
    /// Names and values.
    pub fn entries(&self) -> &BTreeMap<String, PlainText> {
        &self.0
    }
}

impl TryFrom<BTreeMap<String, PlainText>> for Metadata {
    type Error = &'static str;

    fn try_from(entries: BTreeMap<String, PlainText>) -> Result<Self, Self::Error> {
        let good =
            |key: &String| (1..=64).contains(&key.len()) && !key.chars().any(char::is_control);
        if entries.len() > 20 {
            Err("there are at most 20 entries")
        } else if !entries.keys().all(good) {
            Err("a name is 1 to 64 bytes, without control characters")
        } else {
            Ok(Self(entries))
        }
    }
}

/// An order, complete as clients see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Order {
    pub order_no: Identifier,
    pub user_id: Identifier,
    pub amount: Amount,
    pub currency: Currency,
    pub status: OrderStatus,
    /// Minor units given back so far, 0 to `amount` (invariant 7).
    pub refunded_amount: i64,
    /// 1 for a new order, one more with each move (invariant 6).
    pub version: i64,
    pub metadata: Metadata,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl Order {
    /// The order after `event`.
    ///
    /// # Errors
    ///
    /// `order_state_invalid` where the state machine refuses it.
    pub(super) fn after(&self, event: OrderEvent, now: Timestamp) -> Result<Self, Problem> {
        let status = self.status.after(event).ok_or_else(|| {
            let (status, participle) = (self.status.name(), event.participle());
            let detail = format!("the order is {status} and cannot be {participle}");
            Problem::new(Code::OrderStateInvalid, detail)
        })?;
        Ok(Self {
            status,
            version: self.version.saturating_add(1),
            updated_at: now,
            ..self.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_event_leads_back_to_pending_and_final_states_stay() {
        for event in OrderEvent::ALL {
            for status in OrderStatus::ALL {
                assert_ne!(status.after(event), Some(OrderStatus::Pending));
            }
            assert_eq!(OrderStatus::Cancelled.after(event), None);
            assert_eq!(OrderStatus::Refunded.after(event), None);
        }
    }

    #[test]
    fn names_are_those_of_json() {
        for status in OrderStatus::ALL {
            assert_eq!(serde_json::to_value(status).unwrap(), status.name());
            assert_eq!(OrderStatus::from_name(status.name()), Some(status));
        }
    }

    #[test]
    fn metadata_is_bounded() {
        let of = |n: usize| -> BTreeMap<String, String> {
            (0..n).map(|i| (format!("k{i}"), "v".to_owned())).collect()
        };
        let parse = |map: &BTreeMap<String, String>| {
            serde_json::from_value::<Metadata>(serde_json::to_value(map).unwrap())
        };
        assert!(parse(&of(20)).is_ok());
        assert!(parse(&of(21)).is_err());
        assert!(parse(&BTreeMap::from([(String::new(), String::new())])).is_err());
    }
}
