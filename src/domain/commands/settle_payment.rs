//! `payment.settle`: the end of a payment through a channel. It moves the order, and answers the request that
//! began the payment.

use serde_json::json;

use crate::domain::{
    Code, Command, Decision, Given, Identifier, Lookup, Operation, OrderEvent, Payment,
    PaymentStatus, Problem, Settlement, Snapshot,
};

/// Settle a payment that is processing, as its channel says.
#[derive(Clone, Debug)]
pub struct SettlePayment {
    pub order_no: Identifier,
    pub request_no: Identifier,
    pub settlement: Settlement,
}

impl Command for SettlePayment {
    fn operation(&self) -> &'static str {
        "payment.settle"
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

impl SettlePayment {
    fn operation_on(&self, snapshot: &Snapshot, given: &Given) -> Result<Operation, Problem> {
        let order = snapshot.order(&self.order_no)?;
        let payment = snapshot.request_no_payment(&self.request_no)?;
        if payment.status != PaymentStatus::Processing {
            let detail = "the payment is not processing";
            return Err(Problem::new(Code::OrderStateInvalid, detail));
        }
        let ended = |status, failure_code| Payment {
            status,
            failure_code,
            updated_at: given.now,
            client_secret: None,
            ..payment.clone()
        };
        let (event, event_type, payment, answer, channel_ref) = match &self.settlement {
            Settlement::Succeeded { channel_ref } => {
                let payment = ended(PaymentStatus::Succeeded, None);
                let event = OrderEvent::ChannelSucceeded;
                (event, "order.paid", payment, None, channel_ref.as_ref())
            }
            Settlement::Declined { code, detail } => {
                let code = Code::from(*code);
                let payment = ended(PaymentStatus::Failed, Some(code.name().to_owned()));
                let problem = Problem::new(code, detail.as_str()).with_payment(&payment);
                let answer = Some(problem.answer(given.instance));
                let event = OrderEvent::ChannelDeclined;
                (event, "order.failed", payment, answer, None)
            }
        };
        let after = order.after(event, given.now)?;
        let row = Operation::applied(self.operation(), given, 200, &payment, event_type);
        let answer = answer.unwrap_or_else(|| row.answer.clone());
        Ok(Operation {
            amount: Some(payment.amount),
            currency: Some(payment.currency),
            details: Some(json!({
                "status": payment.status,
                "failure_code": payment.failure_code,
                "channel_ref": channel_ref,
                "answer": answer,
            })),
            subject_id: Some(payment.payment_id),
            reference: Some(payment.request_no.as_str().to_owned()),
            ..row.moving(order, &after)
        })
    }
}
