//! `refund.settle`: the end of a refund through a channel. It answers the request that began the refund.

use serde_json::json;

use crate::domain::{
    Code, Command, Decision, Given, Identifier, Lookup, Operation, OrderEvent, PaymentStatus,
    Problem, Refund, RefundStatus, Settlement, Snapshot,
};

/// Settle a refund that is processing, as its channel says.
#[derive(Clone, Debug)]
pub struct SettleRefund {
    /// As it was read; a refund changes nothing but its status, which the guard checks.
    pub refund: Refund,
    /// The number of the payment it belongs to.
    pub request_no: Identifier,
    pub settlement: Settlement,
}

impl Command for SettleRefund {
    fn operation(&self) -> &'static str {
        "refund.settle"
    }

    fn lookup(&self) -> Lookup<'_> {
        Lookup {
            order_no: Some(&self.refund.order_no),
            request_no: Some(&self.request_no),
            ..Lookup::default()
        }
    }

    fn decide(&self, snapshot: &Snapshot, given: &Given) -> Decision {
        self.operation_on(snapshot, given).into()
    }
}

impl SettleRefund {
    fn operation_on(&self, snapshot: &Snapshot, given: &Given) -> Result<Operation, Problem> {
        let order = snapshot.order(&self.refund.order_no)?;
        let payment = snapshot.request_no_payment(&self.request_no)?;
        let row = match &self.settlement {
            Settlement::Succeeded { .. } => {
                let status = RefundStatus::Succeeded;
                let refund = Refund {
                    status,
                    ..self.refund.clone()
                };
                let event_type = match payment.status {
                    PaymentStatus::Succeeded => "order.refunded",
                    PaymentStatus::Processing | PaymentStatus::Failed => "payment.returned",
                };
                let row = Operation::applied(self.operation(), given, 201, &refund, event_type);
                if payment.status == PaymentStatus::Succeeded {
                    // Reserved since the refund began, so this is at most all that is left.
                    let refunded = order.refunded_amount.saturating_add(refund.amount.get());
                    let event = if refunded == order.amount.get() {
                        OrderEvent::RefundRest
                    } else {
                        OrderEvent::RefundPart
                    };
                    row.moving(order, &order.after(event, given.now)?)
                } else {
                    row.about(order)
                }
            }
            Settlement::Declined { detail, .. } => {
                let status = RefundStatus::Failed;
                let refund = Refund {
                    status,
                    ..self.refund.clone()
                };
                let code = Code::PaymentFailed;
                let row = Operation::declined(self.operation(), given, code, detail.clone());
                row.with_event("refund.failed", given, &refund).about(order)
            }
        };
        let event = row
            .details
            .as_ref()
            .and_then(|details| details.get("event"));
        let details = json!({ "answer": row.answer, "event": event });
        Ok(Operation {
            amount: Some(self.refund.amount),
            currency: Some(self.refund.currency),
            subject_id: Some(self.refund.refund_id.clone()),
            reference: Some(self.refund.refund_no.as_str().to_owned()),
            details: Some(details),
            ..row
        })
    }
}
