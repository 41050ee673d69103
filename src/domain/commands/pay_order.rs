//! `order.pay`: pay an order from the customer's wallet.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::domain::{
    Amount, Code, Command, Currency, Decision, Given, Identifier, Lookup, Operation, Order,
    OrderEvent, OrderStatus, Payment, PaymentStatus, Problem, Snapshot,
};

/// How the customer pays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PaymentMethod {
    /// The customer's balance with the merchant.
    Wallet,
}

/// Pay an order in full. Without `request_no` a number is generated, without `currency` it is that of
/// the order.
#[derive(Clone, Debug)]
pub struct PayOrder {
    pub order_no: Identifier,
    pub amount: Amount,
    pub currency: Option<Currency>,
    pub request_no: Option<Identifier>,
    pub payment_method: PaymentMethod,
}

impl Command for PayOrder {
    fn operation(&self) -> &'static str {
        "order.pay"
    }

    fn lookup(&self) -> Lookup<'_> {
        Lookup {
            order_no: Some(&self.order_no),
            request_no: self.request_no.as_ref(),
            ..Lookup::default()
        }
    }

    fn decide(&self, snapshot: &Snapshot, given: &Given) -> Decision {
        self.operation_on(snapshot, given).into()
    }
}

impl PayOrder {
    fn operation_on(&self, snapshot: &Snapshot, given: &Given) -> Result<Operation, Problem> {
        let order = snapshot.order(&self.order_no)?;
        if let Some(problem) = self.refusal(order, snapshot) {
            return Err(problem);
        }
        let event = match self.payment_method {
            PaymentMethod::Wallet => OrderEvent::PayByWallet,
        };
        let paid = order.after(event, given.now)?;

        let request_no = self
            .request_no
            .clone()
            .unwrap_or_else(|| Identifier::generated("req", given.subject));
        let covered = snapshot
            .balance
            .is_some_and(|balance| balance >= order.amount.get());
        let row = if covered {
            let payment = Payment {
                payment_id: format!("pay_{}", given.subject),
                order_no: order.order_no.clone(),
                request_no: request_no.clone(),
                channel: "wallet".to_owned(),
                amount: order.amount,
                currency: order.currency,
                status: PaymentStatus::Succeeded,
                failure_code: None,
                created_at: given.now,
                updated_at: given.now,
            };
            Operation {
                subject_id: Some(payment.payment_id.clone()),
                details: Some(json!({ "channel": payment.channel })),
                ..Operation::applied(self.operation(), given, 200, &payment, "order.paid")
                    .moving(order, &paid)
            }
        } else {
            let detail = format!(
                "the wallet of {} does not cover {} {}",
                order.user_id.as_str(),
                order.amount.get(),
                order.currency.code()
            );
            Operation::declined(self.operation(), given, Code::InsufficientFunds, detail)
                .moving(order, order)
        };
        Ok(Operation {
            amount: Some(order.amount),
            currency: Some(order.currency),
            reference: Some(request_no.as_str().to_owned()),
            ..row
        })
    }

    /// What stands against paying, apart from the balance. The state of the order comes first: it is
    /// what the sender of a late duplicate needs to hear.
    fn refusal(&self, order: &Order, snapshot: &Snapshot) -> Option<Problem> {
        use OrderStatus::{Completed, Paid, Refunded, Shipped};
        if matches!(order.status, Paid | Shipped | Completed | Refunded) {
            let detail = format!("the order is {}", order.status.name());
            let problem = Problem::new(Code::OrderAlreadyPaid, detail);
            return Some(match &snapshot.live_payment {
                Some(payment) => problem.with_payment(payment),
                None => problem,
            });
        }
        if let Some(payment) = &snapshot.request_no_payment {
            let detail = format!(
                "the request_no {} has a payment",
                payment.request_no.as_str()
            );
            return Some(Problem::new(Code::RequestNoUsed, detail).with_payment(payment));
        }
        if self.amount != order.amount {
            let detail = format!(
                "the order is over {}, not {}",
                order.amount.get(),
                self.amount.get()
            );
            return Some(Problem::at(Code::AmountMismatch, "/amount", detail));
        }
        if let Some(currency) = self.currency.filter(|currency| *currency != order.currency) {
            let detail = format!(
                "the order is in {}, not {}",
                order.currency.code(),
                currency.code()
            );
            return Some(Problem::at(Code::CurrencyMismatch, "/currency", detail));
        }
        None
    }
}
