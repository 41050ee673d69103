//! `order.pay`: pay an order, from the customer's wallet or through the payment channel.
//!
//! A payment from the wallet is one row. One through a channel begins with the row `order.pay_begin`, and
//! `payment.settle` ends it.

use serde_json::json;

use crate::domain::{
    Amount, ChannelTerms, Code, Command, Currency, Decision, Given, Identifier, Lookup, Operation,
    Order, OrderEvent, OrderStatus, Payment, PaymentMethod, PaymentStatus, Problem, Snapshot,
};

/// Pay an order in full. Without `request_no` a number is generated, without `currency` it is that of
/// the order, without `payment_method` it goes to the channel if there is one.
#[derive(Clone, Debug)]
pub struct PayOrder {
    pub order_no: Identifier,
    pub amount: Amount,
    pub currency: Option<Currency>,
    pub request_no: Option<Identifier>,
    pub payment_method: Option<PaymentMethod>,
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
        let request_no = self
            .request_no
            .clone()
            .unwrap_or_else(|| Identifier::generated("req", given.subject));
        let row = match self.channel(given)? {
            None => self.by_wallet(order, &request_no, snapshot.balance, given),
            Some(channel) => self.by_channel(order, &request_no, channel, given),
        };
        Ok(Operation {
            amount: Some(order.amount),
            currency: Some(order.currency),
            reference: Some(request_no.as_str().to_owned()),
            ..row?
        })
    }

    /// The channel that takes the payment, `None` for the wallet.
    fn channel(&self, given: &Given) -> Result<Option<ChannelTerms>, Problem> {
        let method = self.payment_method.as_ref();
        match given.channel {
            _ if method.is_some_and(PaymentMethod::is_wallet) => Ok(None),
            Some(channel) if channel.ready => Ok(Some(channel)),
            // Not from the wallet instead: this deployment means to charge.
            Some(_) => {
                let detail = "the payment channel is not configured: see /readyz";
                Err(Problem::new(Code::NotConfigured, detail))
            }
            None if method.is_none() => Ok(None),
            None => {
                let detail = "there is no payment channel, so it is wallet";
                Err(Problem::at(Code::BodyInvalid, "/payment_method", detail))
            }
        }
    }

    fn by_wallet(
        &self,
        order: &Order,
        request_no: &Identifier,
        balance: Option<i64>,
        given: &Given,
    ) -> Result<Operation, Problem> {
        let paid = order.after(OrderEvent::PayByWallet, given.now)?;
        if balance.is_some_and(|balance| balance >= order.amount.get()) {
            let payment = payment(order, request_no, "wallet", PaymentStatus::Succeeded, given);
            return Ok(Operation {
                subject_id: Some(payment.payment_id.clone()),
                details: Some(json!({ "channel": payment.channel })),
                ..Operation::applied(self.operation(), given, 200, &payment, "order.paid")
                    .moving(order, &paid)
            });
        }
        let detail = format!(
            "the wallet of {} does not cover {} {}",
            order.user_id.as_str(),
            order.amount.get(),
            order.currency.code()
        );
        Ok(
            Operation::declined(self.operation(), given, Code::InsufficientFunds, detail)
                .moving(order, order),
        )
    }

    fn by_channel(
        &self,
        order: &Order,
        request_no: &Identifier,
        channel: ChannelTerms,
        given: &Given,
    ) -> Result<Operation, Problem> {
        let processing = order.after(OrderEvent::PayByChannel, given.now)?;
        let status = PaymentStatus::Processing;
        let payment = payment(order, request_no, channel.name, status, given);
        Ok(Operation {
            subject_id: Some(payment.payment_id.clone()),
            details: Some(json!({
                "channel": channel.name,
                "payment_method": self.payment_method,
                "lease_until": given.now.plus_millis(channel.lease_ms).as_millis(),
            })),
            ..Operation::under_way("order.pay_begin", given, &payment).moving(order, &processing)
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

fn payment(
    order: &Order,
    request_no: &Identifier,
    channel: &str,
    status: PaymentStatus,
    given: &Given,
) -> Payment {
    Payment {
        payment_id: format!("pay_{}", given.subject),
        order_no: order.order_no.clone(),
        request_no: request_no.clone(),
        channel: channel.to_owned(),
        amount: order.amount,
        currency: order.currency,
        status,
        failure_code: None,
        created_at: given.now,
        updated_at: given.now,
        client_secret: None,
    }
}
