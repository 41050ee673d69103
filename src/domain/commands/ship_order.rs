//! `order.ship`: a paid order is on its way.

use serde::Serialize;

use crate::domain::{
    Command, Decision, Given, Identifier, Lookup, Operation, Order, OrderEvent, PlainText, Problem,
    Snapshot,
};

/// Ship an order that is paid. The tracking number is for the consumers of the event.
#[derive(Clone, Debug)]
pub struct ShipOrder {
    pub order_no: Identifier,
    pub tracking_no: Option<PlainText>,
}

/// What the event `order.shipped` tells.
#[derive(Serialize)]
struct Shipped<'a> {
    #[serde(flatten)]
    order: &'a Order,
    tracking_no: Option<&'a PlainText>,
}

impl Command for ShipOrder {
    fn operation(&self) -> &'static str {
        "order.ship"
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

impl ShipOrder {
    fn operation_on(&self, snapshot: &Snapshot, given: &Given) -> Result<Operation, Problem> {
        let order = snapshot.order(&self.order_no)?;
        let shipped = order.after(OrderEvent::Ship, given.now)?;
        let tracking_no = self.tracking_no.as_ref();
        let event = Shipped {
            order: &shipped,
            tracking_no,
        };
        let row = Operation::silent(self.operation(), given, 200, &shipped);
        let row = row.with_event("order.shipped", given, &event);
        Ok(Operation {
            reference: tracking_no.map(|number| number.as_str().to_owned()),
            ..row.moving(order, &shipped)
        })
    }
}
