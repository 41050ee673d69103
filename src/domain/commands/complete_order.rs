//! `order.complete`: a shipped order is done.

use crate::domain::{
    Command, Decision, Given, Identifier, Lookup, Operation, OrderEvent, Problem, Snapshot,
};

/// Complete an order that was shipped.
#[derive(Clone, Debug)]
pub struct CompleteOrder {
    pub order_no: Identifier,
}

impl Command for CompleteOrder {
    fn operation(&self) -> &'static str {
        "order.complete"
    }

    fn lookup(&self) -> Lookup<'_> {
        Lookup {
            order_no: Some(&self.order_no),
            ..Lookup::default()
        }
    }

    fn decide(&self, snapshot: &Snapshot, given: &Given) -> Decision {
        self.operation_on(snapshot, given).into()
    }
}

impl CompleteOrder {
    fn operation_on(&self, snapshot: &Snapshot, given: &Given) -> Result<Operation, Problem> {
        let order = snapshot.order(&self.order_no)?;
        let completed = order.after(OrderEvent::Complete, given.now)?;
        let row = Operation::applied(self.operation(), given, 200, &completed, "order.completed");
        Ok(row.moving(order, &completed))
    }
}
