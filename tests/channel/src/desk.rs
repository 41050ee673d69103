//! The channel without a network, for whoever plays the faults himself.

use bytes::Bytes;
use hyper::Request;
use serde_json::Value;

use crate::book::{Book, Outcome};
use crate::contract;
use crate::events::Event;
use crate::request::{Asked, Reply};
use crate::state::State;

/// Does at once what the `http` contract is asked for.
#[derive(Default)]
pub struct Desk(State);

impl Desk {
    /// Answers a request, with status and body; `outcome` is for a charge or a refund that is new.
    pub fn answer(&mut self, request: Request<Bytes>, outcome: Outcome) -> (u16, Value) {
        let asked = Asked::from(request);
        let Reply { status, body } = match contract::route(&asked) {
            Some((_, act)) => act(&mut self.0, &asked, outcome),
            None => contract::problem(404, "not_found", "there is no such route"),
        };
        (status, body)
    }

    pub fn book(&self) -> &Book {
        &self.0.book
    }

    /// What happened, in that order.
    pub fn events(&self) -> &[Event] {
        &self.0.events
    }

    /// Changes how a charge stands, whatever it was: there is an event of it.
    pub fn settle_charge(&mut self, charge_id: &str, outcome: Outcome) -> bool {
        self.0.settle_charge(charge_id, outcome)
    }

    /// Changes how a refund stands, whatever it was: there is an event of it.
    pub fn settle_refund(&mut self, refund_id: &str, outcome: Outcome) -> bool {
        self.0.settle_refund(refund_id, outcome)
    }
}
