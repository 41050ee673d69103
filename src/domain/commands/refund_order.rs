//! `order.refund`: give money of a paid order back, to where it came from.
//!
//! To the wallet that is one row. Through a channel it begins with the row `order.refund_begin`, which
//! reserves the amount, and `refund.settle` ends it.

use serde_json::json;

use crate::domain::{
    Amount, Code, Command, Decision, Given, Identifier, Lookup, MAX_AMOUNT, Operation, Order,
    OrderEvent, PaymentStatus, PlainText, Problem, Refund, RefundStatus, Snapshot,
};

/// Refund an order. Without `amount` it is all that is left, without `refund_no` a number is generated.
#[derive(Clone, Debug)]
pub struct RefundOrder {
    pub order_no: Identifier,
    pub amount: Option<Amount>,
    pub refund_no: Option<Identifier>,
    pub reason: Option<PlainText>,
}

impl Command for RefundOrder {
    fn operation(&self) -> &'static str {
        "order.refund"
    }

    fn lookup(&self) -> Lookup<'_> {
        Lookup {
            order_no: Some(&self.order_no),
            refund_no: self.refund_no.as_ref(),
            ..Lookup::default()
        }
    }

    fn decide(&self, snapshot: &Snapshot, given: &Given) -> Decision {
        self.operation_on(snapshot, given).into()
    }
}

impl RefundOrder {
    fn operation_on(&self, snapshot: &Snapshot, given: &Given) -> Result<Operation, Problem> {
        let order = snapshot.order(&self.order_no)?;
        if snapshot.refund_no_used {
            let detail = "the refund_no has a refund";
            return Err(Problem::new(Code::RefundNoUsed, detail));
        }
        // The state of the order comes before the amount: all of it tells nothing about a pending order.
        order.after(OrderEvent::RefundRest, given.now)?;
        let (amount, left) = self.amount_of(order, snapshot.refunding)?;
        let payment = snapshot
            .live_payment
            .as_ref()
            .filter(|payment| payment.status == PaymentStatus::Succeeded)
            .ok_or_else(|| {
                let detail = "the order has no payment that succeeded";
                Problem::new(Code::OrderStateInvalid, detail)
            })?;
        let to_wallet = payment.channel == "wallet";
        let refund = Refund {
            refund_id: format!("ref_{}", given.subject),
            order_no: order.order_no.clone(),
            payment_id: payment.payment_id.clone(),
            refund_no: self
                .refund_no
                .clone()
                .unwrap_or_else(|| Identifier::generated("rfn", given.subject)),
            amount,
            currency: order.currency,
            status: if to_wallet {
                RefundStatus::Succeeded
            } else {
                RefundStatus::Processing
            },
            reason: self.reason.clone(),
            created_at: given.now,
        };
        let (row, lease_until) = if to_wallet {
            self.check_room(order, amount, snapshot.balance)?;
            let event = if left == 0 {
                OrderEvent::RefundRest
            } else {
                OrderEvent::RefundPart
            };
            let refunded = order.after(event, given.now)?;
            let row = Operation::applied(self.operation(), given, 201, &refund, "order.refunded");
            (row.moving(order, &refunded), None)
        } else {
            let row = Operation::under_way("order.refund_begin", given, &refund).about(order);
            (row, Some(lease_until(&payment.channel, given)?))
        };
        Ok(Operation {
            amount: Some(refund.amount),
            currency: Some(refund.currency),
            subject_id: Some(refund.refund_id),
            reference: Some(refund.refund_no.as_str().to_owned()),
            details: Some(json!({
                "payment_id": refund.payment_id,
                "reason": refund.reason,
                "lease_until": lease_until,
            })),
            ..row
        })
    }

    /// What to refund, and what is left of the payment after it (invariant 7).
    fn amount_of(&self, order: &Order, refunding: i64) -> Result<(Amount, i64), Problem> {
        let gone = order.refunded_amount.saturating_add(refunding);
        let left = order.amount.get().saturating_sub(gone);
        let amount = match self.amount {
            Some(amount) => Some(amount),
            None => Amount::try_from(left).ok(),
        };
        amount
            .and_then(|amount| Some((amount, left.checked_sub(amount.get())?)))
            .filter(|(_, left)| *left >= 0)
            .ok_or_else(|| {
                let detail = format!("{left} of the payment is left to refund");
                Problem::at(Code::RefundExceedsPayment, "/amount", detail)
            })
    }

    /// A wallet that is full takes nothing (invariant 5).
    fn check_room(
        &self,
        order: &Order,
        amount: Amount,
        balance: Option<i64>,
    ) -> Result<(), Problem> {
        balance
            .and_then(|balance| balance.checked_add(amount.get()))
            .filter(|sum| *sum <= MAX_AMOUNT)
            .map(drop)
            .ok_or_else(|| {
                let user_id = order.user_id.as_str();
                let detail = format!("the wallet of {user_id} would exceed {MAX_AMOUNT}");
                Problem::at(Code::BodyInvalid, "/amount", detail)
            })
    }
}

/// Until when the request has the refund to itself.
fn lease_until(channel: &str, given: &Given) -> Result<i64, Problem> {
    let terms = given
        .channel
        .filter(|terms| terms.ready && terms.name == channel);
    let terms = terms.ok_or_else(|| {
        let detail = format!("the payment channel {channel} is not configured: see /readyz");
        Problem::new(Code::NotConfigured, detail)
    })?;
    Ok(given.now.plus_millis(terms.lease_ms).as_millis())
}
