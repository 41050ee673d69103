//! `order.cancel`: an order that nobody will pay.

use crate::domain::{
    Command, Decision, Given, Identifier, Lookup, Operation, OrderEvent, Problem, Snapshot,
};

/// Cancel an order that is not paid and that no channel works on.
#[derive(Clone, Debug)]
pub struct CancelOrder {
    pub order_no: Identifier,
}

impl Command for CancelOrder {
    fn operation(&self) -> &'static str {
        "order.cancel"
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

impl CancelOrder {
    fn operation_on(&self, snapshot: &Snapshot, given: &Given) -> Result<Operation, Problem> {
        let order = snapshot.order(&self.order_no)?;
        let cancelled = order.after(OrderEvent::Cancel, given.now)?;
        let row = Operation::applied(self.operation(), given, 200, &cancelled, "order.cancelled");
        Ok(row.moving(order, &cancelled))
    }
}
