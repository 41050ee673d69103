//! Everything the channel knows, behind one lock.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde_json::Value;

use crate::book::{Book, Outcome};
use crate::events::{Event, Surface};
use crate::request::Reply;
use crate::script::{Call, Step};
use crate::server::Held;
use crate::{contract, stripe};

/// What Stripe keeps of the first request of an idempotency key.
pub(crate) struct Saved {
    pub request: String,
    /// None while it is in flight.
    pub reply: Option<Reply>,
}

#[derive(Default)]
pub(crate) struct State {
    pub book: Book,
    /// By idempotency key.
    pub saved: HashMap<String, Saved>,
    pub events: Vec<Event>,
    /// Calls that the next release does.
    pub held: Vec<Held>,
    /// Where webhooks go.
    pub payonce: Option<String>,
    script: BTreeMap<Call, VecDeque<Step>>,
    always: BTreeMap<Call, Step>,
    seen: BTreeMap<Call, usize>,
}

impl State {
    /// Appends to what becomes of the next calls of this kind.
    pub fn script(&mut self, call: Call, steps: impl IntoIterator<Item = Step>) {
        self.script.entry(call).or_default().extend(steps);
    }

    /// What becomes of every call of this kind that no script is for.
    pub fn otherwise(&mut self, call: Call, step: Step) {
        self.always.insert(call, step);
    }

    pub fn count(&mut self, call: Call) {
        *self.seen.entry(call).or_default() += 1;
    }

    /// What becomes of this call.
    pub fn next(&mut self, call: Call) -> Step {
        let scripted = self.script.get_mut(&call).and_then(VecDeque::pop_front);
        let otherwise = || self.always.get(&call).cloned();
        scripted.or_else(otherwise).unwrap_or_default()
    }

    /// How many calls of this kind came.
    pub fn seen(&self, call: Call) -> usize {
        self.seen.get(&call).copied().unwrap_or_default()
    }

    pub fn forget_keys(&mut self) {
        self.saved.clear();
    }

    /// Notes the event that a charge stands as it does now.
    pub fn tell_charge(&mut self, charge_id: &str) {
        let Some(charge) = self.book.charge_by_id(charge_id) else {
            return;
        };
        let surface = charge.surface;
        let told = match surface {
            Surface::Http => contract::charge_events(charge),
            Surface::Stripe => stripe::charge_events(charge),
        };
        let order_no = charge.asked.order_no.clone();
        self.tell(surface, &order_no, told);
    }

    /// Notes the event that a refund stands as it does now.
    pub fn tell_refund(&mut self, refund_id: &str) {
        let refund = self.book.refund_by_id(refund_id);
        let Some((charge, refund)) = refund.and_then(|refund| {
            let charge = self.book.charge_by_id(&refund.asked.charge_id)?;
            Some((charge, refund))
        }) else {
            return;
        };
        let surface = charge.surface;
        let told = match surface {
            Surface::Http => contract::refund_events(charge, refund),
            Surface::Stripe => stripe::refund_events(&self.book, charge, refund),
        };
        let order_no = charge.asked.order_no.clone();
        self.tell(surface, &order_no, told);
    }

    fn tell(&mut self, surface: Surface, order_no: &str, told: Vec<(&'static str, Value)>) {
        for (event_type, data) in told {
            let id = format!("evt_{:06}", self.events.len() + 1);
            let body = match surface {
                Surface::Http => contract::event(event_type, data),
                Surface::Stripe => stripe::event(&id, event_type, data),
            };
            self.events.push(Event {
                id,
                surface,
                order_no: order_no.to_owned(),
                body,
            });
        }
    }

    /// Changes how one charge stands, whatever it was.
    pub fn settle_charge(&mut self, charge_id: &str, outcome: Outcome) -> bool {
        let mut charges = self.book.charges.iter_mut();
        let Some(charge) = charges.find(|charge| charge.charge_id == charge_id) else {
            return false;
        };
        charge.outcome = outcome;
        self.tell_charge(charge_id);
        true
    }

    /// Changes how one refund stands, whatever it was.
    pub fn settle_refund(&mut self, refund_id: &str, outcome: Outcome) -> bool {
        let mut refunds = self.book.refunds.iter_mut();
        let Some(refund) = refunds.find(|refund| refund.refund_id == refund_id) else {
            return false;
        };
        refund.outcome = outcome;
        self.tell_refund(refund_id);
        true
    }
}
