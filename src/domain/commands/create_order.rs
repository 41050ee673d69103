//! `order.create`: a new pending order.

use serde_json::json;

use crate::domain::{
    Amount, Code, Command, Currency, Decision, Given, Identifier, Lookup, Metadata, Operation,
    Order, OrderStatus, Problem, Snapshot,
};

/// Create an order. Without `order_no` a number is generated.
#[derive(Clone, Debug)]
pub struct CreateOrder {
    pub order_no: Option<Identifier>,
    pub user_id: Identifier,
    pub amount: Amount,
    pub currency: Currency,
    pub metadata: Metadata,
}

impl Command for CreateOrder {
    fn operation(&self) -> &'static str {
        "order.create"
    }

    fn lookup(&self) -> Lookup<'_> {
        Lookup {
            order_no: self.order_no.as_ref(),
            ..Lookup::default()
        }
    }

    fn decide(&self, snapshot: &Snapshot, given: &Given) -> Decision {
        if let Some(order) = &snapshot.order {
            let detail = format!("the order {} exists", order.order_no.as_str());
            return Decision::Refuse(Problem::new(Code::OrderExists, detail));
        }
        let order_no = match &self.order_no {
            Some(order_no) => order_no.clone(),
            None => Identifier::generated("ord", given.subject),
        };
        let order = Order {
            order_no,
            user_id: self.user_id.clone(),
            amount: self.amount,
            currency: self.currency,
            status: OrderStatus::Pending,
            refunded_amount: 0,
            version: 1,
            metadata: self.metadata.clone(),
            created_at: given.now,
            updated_at: given.now,
        };
        let mut row = Operation::applied(self.operation(), given, 201, &order, "order.created");
        row.answer.location = Some(format!("/v1/orders/{}", order.order_no.as_str()));
        row.to_status = Some(order.status);
        row.version = Some(order.version);
        row.amount = Some(order.amount);
        row.currency = Some(order.currency);
        row.details = Some(json!({ "metadata": order.metadata }));
        row.user_id = Some(order.user_id);
        row.order_no = Some(order.order_no);
        Decision::Append(Box::new(row))
    }
}
