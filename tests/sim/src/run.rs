//! One run: clients send their requests and repeat them until they have a final answer, while a
//! [`Chooser`] decides what happens next wherever more than one thing can.

mod close;
mod moves;

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::channel::oneshot;
use futures::future::FutureExt as _;
use payonce_channel::Outcome;

pub use self::moves::{Event, Fate};
use crate::operations::{self, Key, MERCHANTS, Request};
use crate::oracle::Oracle;
use crate::scenario::{Limits, Scenario};
use crate::stage::{Answer, MOST_EVENTS, Pending, Stage, Wire};
use crate::trace::describe;
use crate::world::{Call, Chain, Effect, Shared, Sleeper, What};

/// How often a client sends its request before it calls it stuck.
const MOST_ATTEMPTS: u8 = 25;

/// How long a leap of the clock is: longer than any lease.
pub const LEAP: Duration = Duration::from_secs(4);

/// What the channel signs its webhooks with.
pub const CHANNEL_SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// Decides what happens next.
pub trait Chooser {
    /// One of `options` things, of which the first is what would happen without any trouble; nothing to
    /// end the run. `state` is everything the rest of the run depends on.
    fn choose(&mut self, options: usize, state: &dyn Fn() -> Chain) -> Option<usize>;
}

/// What the database files held that were found in order: whether they were empty at first, and what has changed
/// them since.
pub type Audited = HashSet<(bool, Chain)>;

/// What came of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// What was wrong, if anything was.
    pub violation: Option<String>,
    /// Whether the chooser ended it.
    pub cut: bool,
    /// What happened, a line each, if that was wanted.
    pub trace: String,
}

/// What a client of a scenario is at.
#[derive(Default)]
struct State {
    attempts: u8,
    /// While an attempt is on its way.
    pending: Option<Pending>,
    /// While it waits before its next attempt.
    pause: Option<oneshot::Receiver<()>>,
    /// Its last answer, `None` where it gave up without one.
    answer: Option<Answer>,
    done: bool,
}

/// A run in progress.
pub struct Run<'a> {
    scenario: &'a Scenario,
    world: Shared,
    stage: Stage,
    oracle: Oracle,
    clients: Vec<State>,
    /// What is left of them.
    limits: Limits,
    tokens: &'a [String],
    report: Report,
    /// Whether nothing but the first option was chosen so far.
    calm: bool,
    /// Whether the two clients have been the same so far, but for their names.
    mirrored: bool,
    audited: &'a mut Audited,
    /// Whether the report says what happens.
    pub traced: bool,
}

impl<'a> Run<'a> {
    /// A run of a scenario that has not begun. `tokens` are the submit tokens of the merchants.
    pub fn new(
        scenario: &'a Scenario,
        stage: Stage,
        world: Shared,
        oracle: Oracle,
        tokens: &'a [String],
        audited: &'a mut Audited,
    ) -> Self {
        Self {
            scenario,
            world,
            oracle,
            clients: scenario.clients.iter().map(|_| State::default()).collect(),
            limits: scenario.limits,
            tokens,
            stage,
            report: Report::default(),
            calm: true,
            mirrored: scenario.is_mirrored(),
            audited,
            traced: false,
        }
    }

    /// Runs.
    ///
    /// # Errors
    /// Where the simulation itself fails.
    pub fn run(mut self, chooser: &mut dyn Chooser) -> Result<Report> {
        self.prepare()?;
        if self.scenario.warm {
            self.warm_up()?;
        }
        let outcome = self.play(chooser).and_then(|()| match self.report.cut {
            true => Ok(()),
            false => self.close(),
        });
        self.report.violation = outcome.err();
        if self.traced {
            for line in self.world.lock().log().lines() {
                _ = writeln!(self.report.trace, "  component: {line}");
            }
        }
        Ok(self.report)
    }

    /// Does what was done before.
    fn prepare(&mut self) -> Result<()> {
        for (index, request) in self.scenario.before.iter().enumerate() {
            let mut wire = Wire::of(MERCHANTS[0], request);
            wire.header("idempotency-key", &format!("fixture-before-{index}"));
            let answer = self.stage.settle(0, wire)?;
            ensure!(answer.is_final(), "what was before got {answer}");
            self.stage.rest();
            let id = self.stage.instance(0).id;
            self.world.lock().forget(id, |_| false);
            self.stage.kill(0);
        }
        Ok(())
    }

    /// Sends a request to each instance that no client is about, and lets everything come to rest.
    fn warm_up(&mut self) -> Result<()> {
        let request = operations::deposit("nobody", 1);
        let slots: BTreeSet<u8> = self
            .scenario
            .clients
            .iter()
            .map(|client| client.slot)
            .collect();
        for slot in slots {
            let mut wire = Wire::of(MERCHANTS[0], &request);
            wire.header("idempotency-key", &format!("fixture-warm-{slot}"));
            self.stage.settle(slot, wire)?;
            self.stage.rest();
        }
        Ok(())
    }

    /// Plays until nothing is left to happen.
    fn play(&mut self, chooser: &mut dyn Chooser) -> Result<(), String> {
        for _ in 0..MOST_EVENTS {
            self.stage.advance();
            if let Some(why) = self.stage.trapped() {
                return Err(format!("the component trapped: {why}"));
            }
            self.answers()?;
            let mut events = self.events();
            if self.mirrored && events.len() > 1 {
                let world = self.world.lock();
                let first = self.scenario.clients[0].slot;
                let is_second =
                    |event: &Event| event.slot(&world).is_some_and(|slot| slot != first);
                events.retain(|event| !is_second(event));
                self.mirrored = false;
            }
            let chosen = match events.len() {
                0 => return self.settled(),
                1 => Some(0),
                options => chooser.choose(options, &|| self.state()),
            };
            let Some(chosen) = chosen else {
                self.report.cut = true;
                return Ok(());
            };
            self.calm &= chosen == 0;
            self.happen(&events[chosen])?;
        }
        Err("invariant 9: it does not come to an end".to_owned())
    }

    /// Everybody has a final answer.
    fn settled(&self) -> Result<(), String> {
        match self
            .clients
            .iter()
            .zip(&self.scenario.clients)
            .position(|(state, client)| !state.done && !client.comes.is_optional())
        {
            Some(stuck) => Err(format!(
                "invariant 9: client {stuck} has no answer, and nothing happens any more"
            )),
            None => Ok(()),
        }
    }

    /// Takes the answers that have come in.
    fn answers(&mut self) -> Result<(), String> {
        for index in 0..self.clients.len() {
            let state = &mut self.clients[index];
            if let Some(pause) = &mut state.pause
                && pause.now_or_never().is_some()
            {
                state.pause = None;
                self.send(index)?;
                // The request goes on its way.
                self.stage.advance();
            }
            let pending = &self.clients[index].pending;
            let arrived = pending
                .as_ref()
                .and_then(|pending| pending.borrow_mut().take());
            let Some(arrived) = arrived else { continue };
            self.clients[index].pending = None;
            self.trace(|| match &arrived {
                Some(answer) => format!("client {index} gets {answer}"),
                None => format!("client {index} loses its connection"),
            });
            let client = &self.scenario.clients[index];
            let pause = match &arrived {
                Some(answer) => {
                    self.oracle.answered(self.scenario, index, answer)?;
                    let asked = answer.retry_after.unwrap_or(1);
                    answer.asks_to_retry().then(|| Duration::from_secs(asked))
                }
                None => Some(Duration::from_millis(100)),
            };
            let pause = pause.filter(|_| !client.once);
            let Some(pause) = pause else {
                self.clients[index].answer = arrived;
                self.clients[index].done = true;
                continue;
            };
            if self.clients[index].attempts >= MOST_ATTEMPTS {
                let key = &client.key;
                return Err(format!(
                    "invariant 9: client {index} got no final answer for {key:?} in {MOST_ATTEMPTS} attempts"
                ));
            }
            let woken = self.world.lock().sleep(Sleeper::Client(index), pause);
            self.clients[index].pause = Some(woken);
        }
        Ok(())
    }

    fn send(&mut self, index: usize) -> Result<(), String> {
        let client = &self.scenario.clients[index];
        let wire = self.wire(client.merchant, &client.key, &client.request);
        self.trace(|| {
            format!(
                "client {index} sends {} {} {:?} {} to instance slot {}",
                wire.method,
                wire.path,
                client.key,
                wire.body,
                char::from(b'A' + client.slot)
            )
        });
        self.oracle.sent(index);
        let sent = self.stage.send(client.slot, wire);
        let id = self.stage.instance(client.slot).id;
        let state = &mut self.clients[index];
        state.attempts += 1;
        self.world
            .lock()
            .tell(id, &("request", index, state.attempts));
        state.pending = Some(sent.map_err(|error| format!("{error:#}"))?);
        Ok(())
    }

    fn wire(&self, merchant: usize, key: &Key, request: &Request) -> Wire {
        let mut wire = Wire::of(MERCHANTS[merchant], request);
        match key {
            Key::Channel(index) => {
                let world = self.world.lock();
                // It comes when there is one.
                if let Some(event) = world.channel.events().get(*index) {
                    wire.body = event.body.to_string();
                    for (name, value) in event.headers(CHANNEL_SECRET, world.seconds(), &wire.body)
                    {
                        wire.header(name, &value);
                    }
                }
            }
            Key::Given(key) => wire.header("idempotency-key", &format!("\"{key}\"")),
            Key::Token => wire.header("submit-token", &self.tokens[merchant]),
            Key::Event(id) => {
                let mut event = request.body.clone();
                event["id"] = (*id).into();
                wire.body = event.to_string();
                wire.header("content-type", "application/cloudevents+json");
            }
            Key::Operator => wire.header("authorization", "Bearer key-admin"),
        }
        wire
    }

    /// Lets something happen.
    fn happen(&mut self, event: &Event) -> Result<(), String> {
        if self.traced {
            let line = describe(event, &self.world.lock(), &self.stage.slots);
            self.trace(|| line);
        }
        let shared = self.world.clone();
        let mut world = shared.lock();
        match event {
            Event::Send(index) => {
                drop(world);
                self.send(*index)?;
            }
            Event::Call(index, effect) => {
                self.spend(
                    &world.calls[*index].what,
                    *effect,
                    self.usual(&world, *index),
                );
                world.effect(*index, *effect);
                if *effect != Effect::Hangs {
                    world.deliver(*index);
                }
            }
            Event::Effect(index, effect) => {
                if !world.calls[*index].is_orphan() {
                    self.spend(
                        &world.calls[*index].what,
                        *effect,
                        self.usual(&world, *index),
                    );
                }
                world.effect(*index, *effect);
            }
            Event::Deliver(index) => world.deliver(*index),
            Event::Tick => {
                if world.calls.iter().any(|call| !call.is_orphan()) {
                    self.limits.early_timers -= 1;
                }
                world.tick();
            }
            Event::Leap => {
                self.limits.leaps -= 1;
                world.leap(LEAP);
            }
            Event::Reversal => {
                self.limits.reversals -= 1;
                if let Some(charge) = world.declined_charge() {
                    world.channel.settle_charge(&charge, Outcome::Succeeded);
                }
            }
            Event::Wipe => {
                self.limits.store_faults -= 1;
                world.wipe();
            }
            Event::Crash(slot, fates) => {
                self.limits.crashes -= 1;
                let id = self.stage.slots[usize::from(*slot)].id;
                for (number, fate) in fates {
                    let of_fate = |call: &Call| call.instance == id && call.number == *number;
                    let index = world.calls.iter().position(of_fate);
                    if let (Fate::Done, Some(index)) = (fate, index) {
                        let usual = self.usual(&world, index);
                        world.effect(index, usual);
                    }
                }
                world.forget(id, |number| fates.contains(&(number, Fate::Orphaned)));
                drop(world);
                self.stage.kill(*slot);
            }
        }
        Ok(())
    }

    /// Counts a call that goes wrong.
    fn spend(&mut self, what: &What, effect: Effect, usual: Effect) {
        if effect == usual {
            return;
        }
        let limit = if what.is_key_value() {
            &mut self.limits.store_faults
        } else if what.is_outbound() {
            &mut self.limits.network_faults
        } else {
            self.oracle.database_trouble();
            &mut self.limits.database_faults
        };
        *limit = limit.saturating_sub(1);
    }

    /// Everything that the rest of the run depends on.
    fn state(&self) -> Chain {
        let mut state = Chain::default();
        self.world.lock().state(&mut state);
        for (index, client) in self.clients.iter().enumerate() {
            let phase = (client.pending.is_some(), client.pause.is_some());
            state.add(&(
                client.attempts,
                phase,
                &client.answer,
                client.done,
                self.oracle.window(index),
            ));
        }
        for slot in &self.stage.slots {
            state.add(&(slot.id, slot.lives()));
        }
        state.add(&self.limits);
        state
    }

    fn trace(&mut self, line: impl FnOnce() -> String) {
        if self.traced {
            let now = self.world.lock().now() / 1_000_000;
            _ = writeln!(self.report.trace, "{now:>8} ms  {}", line());
        }
    }
}
