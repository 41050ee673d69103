//! What the channel has done: its own books, with which those of payonce are compared.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::events::Surface;

/// How a charge or a refund stands, or what becomes of it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    #[default]
    Succeeded,
    /// For good, with the channel's own code.
    Declined(String),
    Processing,
    /// The customer has to confirm the charge first; to the `http` contract the same as processing.
    RequiresAction,
    /// Nobody has confirmed it, and now nobody can; to the `http` contract a decline.
    Canceled,
}

impl Outcome {
    /// As the `http` contract words it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Declined(_) | Self::Canceled => "declined",
            Self::Processing | Self::RequiresAction => "processing",
        }
    }

    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Declined(code) => Some(code),
            Self::Canceled => Some("canceled"),
            _ => None,
        }
    }

    pub fn is_success(&self) -> bool {
        *self == Self::Succeeded
    }
}

/// What a caller asked for: two calls with one idempotency key have to ask for the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChargeRequest {
    /// The number of whoever asked, unique to him.
    pub request_no: String,
    pub order_no: String,
    pub merchant_id: String,
    /// In the currency's minor unit.
    pub amount: u64,
    /// Upper case.
    pub currency: String,
    pub payment_method: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Charge {
    pub charge_id: String,
    /// By which it was asked for, and its events go.
    pub surface: Surface,
    pub key: Option<String>,
    #[serde(flatten)]
    pub asked: ChargeRequest,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefundRequest {
    pub refund_no: String,
    pub charge_id: String,
    pub amount: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Refund {
    pub refund_id: String,
    pub key: Option<String>,
    #[serde(flatten)]
    pub asked: RefundRequest,
    pub outcome: Outcome,
}

/// Every charge and every refund, in the order in which they came.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Book {
    pub charges: Vec<Charge>,
    pub refunds: Vec<Refund>,
}

impl Book {
    /// Notes a new charge.
    pub fn charge(
        &mut self,
        surface: Surface,
        key: Option<String>,
        asked: ChargeRequest,
        outcome: Outcome,
    ) -> &Charge {
        let prefix = match surface {
            Surface::Http => "ch",
            Surface::Stripe => "pi",
        };
        let charge_id = format!("{prefix}_{:06}", self.charges.len() + 1);
        let charge = Charge {
            charge_id,
            surface,
            key,
            asked,
            outcome,
        };
        self.charges.push(charge);
        &self.charges[self.charges.len() - 1]
    }

    /// Notes a new refund.
    pub fn refund(
        &mut self,
        key: Option<String>,
        asked: RefundRequest,
        outcome: Outcome,
    ) -> &Refund {
        let refund_id = format!("re_{:06}", self.refunds.len() + 1);
        let refund = Refund {
            refund_id,
            key,
            asked,
            outcome,
        };
        self.refunds.push(refund);
        &self.refunds[self.refunds.len() - 1]
    }

    pub fn charge_by_id(&self, charge_id: &str) -> Option<&Charge> {
        let mut charges = self.charges.iter();
        charges.find(|charge| charge.charge_id == charge_id)
    }

    /// The first charge of a number: a caller without keys can have made several.
    pub fn charge_by_number(&self, request_no: &str) -> Option<&Charge> {
        let mut charges = self.charges.iter();
        charges.find(|charge| charge.asked.request_no == request_no)
    }

    pub fn charge_by_key(&self, key: &str) -> Option<&Charge> {
        let mut charges = self.charges.iter();
        charges.find(|charge| charge.key.as_deref() == Some(key))
    }

    pub fn refund_by_id(&self, refund_id: &str) -> Option<&Refund> {
        let mut refunds = self.refunds.iter();
        refunds.find(|refund| refund.refund_id == refund_id)
    }

    pub fn refund_by_number(&self, refund_no: &str) -> Option<&Refund> {
        let mut refunds = self.refunds.iter();
        refunds.find(|refund| refund.asked.refund_no == refund_no)
    }

    pub fn refund_by_key(&self, key: &str) -> Option<&Refund> {
        let mut refunds = self.refunds.iter();
        refunds.find(|refund| refund.key.as_deref() == Some(key))
    }

    /// The charges of an order of a merchant.
    pub fn charges_of(&self, order_no: &str) -> impl Iterator<Item = &Charge> {
        let of_order = move |charge: &&Charge| charge.asked.order_no == order_no;
        self.charges.iter().filter(of_order)
    }

    /// The refunds of the charges of an order.
    pub fn refunds_of(&self, order_no: &str) -> impl Iterator<Item = &Refund> {
        self.refunds.iter().filter(move |refund| {
            let charge = self.charge_by_id(&refund.asked.charge_id);
            charge.is_some_and(|charge| charge.asked.order_no == order_no)
        })
    }

    /// What is left of a charge: nothing of one that did not succeed.
    pub fn kept_of(&self, charge: &Charge) -> u64 {
        if !charge.outcome.is_success() {
            return 0;
        }
        charge
            .asked
            .amount
            .saturating_sub(self.returned(&charge.charge_id, Outcome::is_success))
    }

    /// What can still be refunded of a charge: a refund that is on its way may succeed.
    pub fn refundable(&self, charge: &Charge) -> u64 {
        if !charge.outcome.is_success() {
            return 0;
        }
        let possible = |outcome: &Outcome| outcome.code().is_none();
        let gone = self.returned(&charge.charge_id, possible);
        charge.asked.amount.saturating_sub(gone)
    }

    /// The sum of the refunds of a charge that stand like this.
    fn returned(&self, charge_id: &str, counts: impl Fn(&Outcome) -> bool) -> u64 {
        let refunds = self.refunds.iter();
        refunds
            .filter(|refund| refund.asked.charge_id == charge_id && counts(&refund.outcome))
            .map(|refund| refund.asked.amount)
            .sum()
    }

    /// A number under which there are two charges, two refunds, or one of each.
    pub fn number_used_twice(&self) -> Option<&str> {
        let charges = self.charges.iter().map(|charge| &charge.asked.request_no);
        let refunds = self.refunds.iter().map(|refund| &refund.asked.refund_no);
        let mut seen = BTreeSet::new();
        charges
            .chain(refunds)
            .map(String::as_str)
            .find(|number| !seen.insert(*number))
    }

    /// What customers have paid for each order and not got back, by merchant and order number; orders for
    /// which that is nothing are left out.
    pub fn kept(&self) -> BTreeMap<(String, String), u64> {
        let mut kept = BTreeMap::new();
        for charge in &self.charges {
            let order = (
                charge.asked.merchant_id.clone(),
                charge.asked.order_no.clone(),
            );
            *kept.entry(order).or_default() += self.kept_of(charge);
        }
        kept.retain(|_, amount| *amount > 0);
        kept
    }
}
