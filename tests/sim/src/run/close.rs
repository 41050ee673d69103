//! How a run ends: everything is asked once more, and the files are audited.

use std::time::Duration;

use super::{LEAP, Run};
use crate::operations::{self, Key};
use crate::scenario::Outside;
use crate::stage::{Answer, Wire};

/// How often what is due is dispatched at the end, until nothing is.
const MOST_DISPATCHES: usize = 14;

impl Run<'_> {
    /// Ends a run that came to its end: asks everything once more, and audits the files.
    pub(super) fn close(&mut self) -> Result<(), String> {
        for slot in 0..self.stage.slots.len() {
            let id = self.stage.slots[slot].id;
            self.world.lock().forget(id, |_| false);
            self.stage.kill(u8::try_from(slot).unwrap_or(u8::MAX));
        }
        let witness = u8::try_from(self.stage.slots.len()).unwrap_or(u8::MAX);
        if self.scenario.outside == Outside::Channel {
            self.close_channel(witness)?;
        }
        self.trace(|| "everybody asks once more, in a new instance".to_owned());
        for index in 0..self.clients.len() {
            let client = &self.scenario.clients[index];
            let answer = self.clients[index].answer.clone();
            let recorded = |answer: &Answer| answer.is_final() && client.key.is_recorded();
            let Some(answer) = answer.filter(recorded) else {
                continue;
            };
            let wire = self.wire(client.merchant, &client.key, &client.request);
            let again = self.ask(witness, wire)?;
            self.trace(|| format!("client {index} gets {again}"));
            self.oracle
                .replayed(self.scenario, index, &answer, &again)?;
            let other = match client.key {
                Key::Event(_) => operations::pay_event("prober"),
                _ => operations::deposit("prober", 1),
            };
            let wire = self.wire(client.merchant, &client.key, &other);
            let reused = self.ask(witness, wire)?;
            self.trace(|| {
                format!("client {index}, with its key on another request, gets {reused}")
            });
            self.oracle.reused(self.scenario, index, &answer, &reused)?;
        }
        if self.scenario.outside == Outside::Receiver {
            for _ in 0..MOST_DISPATCHES {
                if self.oracle.undelivered()? == 0 {
                    break;
                }
                // Longer than any pause and any lease.
                self.world.lock().leap(Duration::from_secs(8 * 3600));
                let wire = self.wire(0, &Key::Operator, &operations::dispatch());
                let answer = self.ask(witness, wire)?;
                self.trace(|| format!("a dispatcher gets {answer}"));
            }
            let world = self.world.lock();
            self.oracle.delivered(&world.received)?;
        }
        let contents = (self.scenario.empty, self.world.lock().database());
        if self.calm || !self.audited.contains(&contents) {
            self.oracle.audit(self.scenario, self.calm)?;
            self.audited.insert(contents);
        }
        self.oracle.finish(self.scenario)
    }

    /// One reconcile sweep ends every payment, whoever gave up on it, and the channel tells of everything
    /// once more. Then a second sweep sends back what came too late.
    fn close_channel(&mut self, witness: u8) -> Result<(), String> {
        self.world.lock().end_what_is_processing();
        self.reconcile(witness)?;
        self.oracle.nothing_waits("charge")?;
        for index in 0..self.clients.len() {
            let client = &self.scenario.clients[index];
            if !client.once || !client.key.is_recorded() {
                continue;
            }
            let wire = self.wire(client.merchant, &client.key, &client.request);
            self.oracle.sent(index);
            let answer = self.ask(witness, wire)?;
            self.trace(|| format!("client {index}, who had given up, gets {answer}"));
            if answer.asks_to_retry() {
                return Err(format!("invariant 9: client {index} gets {answer}"));
            }
            self.oracle.answered(self.scenario, index, &answer)?;
            self.clients[index].answer = Some(answer);
        }
        let told = self.world.lock().channel.events().len();
        for index in 0..told {
            let wire = self.wire(0, &Key::Channel(index), &operations::webhook());
            let answer = self.ask(witness, wire)?;
            self.trace(|| format!("the channel tells of event {index} and gets {answer}"));
            if answer.status != 200 {
                return Err(format!("a webhook got {answer}"));
            }
        }
        self.reconcile(witness)?;
        self.oracle.nothing_waits("charge")?;
        self.oracle.nothing_waits("refund")?;
        let reversed = self.limits.reversals < self.scenario.limits.reversals;
        let world = self.world.lock();
        self.oracle.same_money(world.channel.book(), reversed)
    }

    fn reconcile(&mut self, witness: u8) -> Result<(), String> {
        // Longer than any lease.
        self.world.lock().leap(LEAP);
        let wire = self.wire(0, &Key::Operator, &operations::reconcile());
        let answer = self.ask(witness, wire)?;
        self.trace(|| format!("the reconcile sweep gets {answer}"));
        match answer.status {
            200 => Ok(()),
            _ => Err(format!("the reconcile sweep got {answer}")),
        }
    }

    /// Sends a request and lets everything happen as it should.
    fn ask(&mut self, slot: u8, wire: Wire) -> Result<Answer, String> {
        let settled = self.stage.settle(slot, wire);
        settled.map_err(|error| format!("invariant 9: asked again: {error:#}"))
    }
}
