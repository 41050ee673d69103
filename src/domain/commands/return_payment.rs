//! `payment.late`: money arrived for a payment that had failed. The order does not take it any more, so it is
//! booked, and a refund of it is queued in the same statement: it is neither dropped nor kept silently.

use serde_json::json;

use crate::domain::{
    Code, Command, Decision, Given, Identifier, Lookup, Operation, PaymentStatus, Problem, Snapshot,
};

/// Book the money of a failed payment, and give it back.
#[derive(Clone, Debug)]
pub struct ReturnPayment {
    pub order_no: Identifier,
    pub request_no: Identifier,
    /// The channel's own identifier of the charge.
    pub channel_ref: Option<String>,
}

impl Command for ReturnPayment {
    fn operation(&self) -> &'static str {
        "payment.late"
    }

    fn lookup(&self) -> Lookup<'_> {
        Lookup {
            order_no: Some(&self.order_no),
            request_no: Some(&self.request_no),
            ..Lookup::default()
        }
    }

    fn decide(&self, snapshot: &Snapshot, given: &Given) -> Decision {
        self.operation_on(snapshot, given).into()
    }
}

impl ReturnPayment {
    fn operation_on(&self, snapshot: &Snapshot, given: &Given) -> Result<Operation, Problem> {
        let order = snapshot.order(&self.order_no)?;
        let payment = snapshot.request_no_payment(&self.request_no)?;
        if payment.status != PaymentStatus::Failed {
            let detail = "the payment has not failed";
            return Err(Problem::new(Code::OrderStateInvalid, detail));
        }
        let refund_no = Identifier::generated("rfn", given.subject);
        let row = Operation::applied(self.operation(), given, 200, payment, "payment.late");
        Ok(Operation {
            amount: Some(payment.amount),
            currency: Some(payment.currency),
            subject_id: Some(payment.payment_id.clone()),
            reference: Some(refund_no.as_str().to_owned()),
            details: Some(json!({
                "refund_id": format!("ref_{}", given.subject),
                "reason": "the payment had failed when its money came",
                "channel_ref": self.channel_ref,
            })),
            ..row.about(order)
        })
    }
}
