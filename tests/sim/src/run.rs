//! One run: clients send their requests and repeat them until they have a final answer, while a
//! [`Chooser`] decides what happens next wherever more than one thing can.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::channel::oneshot;
use futures::future::FutureExt as _;
use http::Method;
use payonce_channel::Outcome;

use crate::operations::{self, Key, MERCHANTS, Request};
use crate::oracle::Oracle;
use crate::scenario::{Comes, Limits, Outside, Scenario, StoreMode};
use crate::stage::{Answer, MOST_EVENTS, Pending, Stage, Wire};
use crate::trace::describe;
use crate::world::{Call, Chain, Effect, InstanceId, Shared, Sleeper, Trouble, What, World};

/// How often a client sends its request before it calls it stuck.
const MOST_ATTEMPTS: u8 = 25;

/// How long a leap of the clock is: longer than any lease.
pub const LEAP: Duration = Duration::from_secs(4);

/// What the channel signs its webhooks with.
pub const CHANNEL_SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

/// How often what is due is dispatched at the end, until nothing is.
const MOST_DISPATCHES: usize = 14;

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

/// Something that can happen.
#[derive(Clone, Debug)]
pub enum Event {
    /// A client sends its request.
    Send(usize),
    /// A call takes effect, and its instance hears of it.
    Call(usize, Effect),
    /// A call takes effect.
    Effect(usize, Effect),
    /// An instance hears of a call that has taken effect.
    Deliver(usize),
    /// Whoever sleeps for the shortest wakes up.
    Tick,
    /// The channel gets the money of a charge that it has declined.
    Reversal,
    /// Time passes while calls are on their way.
    Leap,
    /// The key-value store loses everything.
    Wipe,
    /// An instance dies. For each of its calls that have not taken effect: what becomes of it.
    Crash(u8, Vec<(u32, Fate)>),
}

impl Event {
    /// Where the instance is that it happens to.
    fn slot(&self, world: &World) -> Option<u8> {
        match self {
            Self::Call(index, _) | Self::Effect(index, _) | Self::Deliver(index) => {
                Some(world.calls[*index].instance.slot)
            }
            Self::Crash(slot, _) => Some(*slot),
            _ => None,
        }
    }
}

/// What becomes of a call when its instance dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It never takes effect.
    Dropped,
    /// It has taken effect.
    Done,
    /// It is still on its way.
    Orphaned,
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

    /// Everything that can happen now; the first is what would without any trouble.
    fn events(&self) -> Vec<Event> {
        let unsent = |index: &usize| {
            self.clients[*index].attempts == 0 && self.is_time(self.scenario.clients[*index].comes)
        };
        let unsent: Vec<usize> = (0..self.clients.len()).filter(unsent).collect();
        if !self.scenario.shared_instance
            && let Some(index) = unsent.first()
        {
            return vec![Event::Send(*index)];
        }
        let world = self.world.lock();
        let ready = |index: &usize| !world.calls[*index].is_orphan();
        let mut calls: Vec<usize> = (0..world.calls.len()).filter(ready).collect();
        let waiting = !calls.is_empty();
        if !self.scenario.any_order {
            calls.truncate(1);
        }
        let step = |index: usize, effect| match (&world.calls[index].answer, self.scenario.split) {
            (Some(_), _) => Event::Deliver(index),
            (None, true) => Event::Effect(index, effect),
            (None, false) => Event::Call(index, effect),
        };
        let usual = |index| self.usual(&world, index);
        // What nobody else can tell has no order.
        let private = |index: &&usize| {
            let call = &world.calls[**index];
            call.answer.is_none()
                && call.what.is_private(!self.scenario.empty)
                && self.troubles(&world, &call.what).is_empty()
        };
        if self.scenario.any_order
            && let Some(index) = calls.iter().find(private)
        {
            return vec![step(*index, usual(*index))];
        }
        let mut events: Vec<Event> = unsent.into_iter().map(Event::Send).collect();
        events.extend(calls.iter().map(|index| step(*index, usual(*index))));
        let sleeps = world.next_timer().is_some();
        if sleeps && (!waiting || self.limits.early_timers > 0) {
            events.push(Event::Tick);
        }
        let orphans = (0..world.calls.len()).filter(|index| world.calls[*index].is_orphan());
        events.extend(orphans.map(|index| Event::Effect(index, Effect::Good)));
        if self.limits.reversals > 0 && world.declined_charge().is_some() {
            events.push(Event::Reversal);
        }
        if waiting && self.limits.leaps > 0 {
            events.push(Event::Leap);
        }
        for index in calls {
            let call = &world.calls[index];
            if call.answer.is_none() {
                let effects = self.troubles(&world, &call.what);
                events.extend(effects.into_iter().map(|effect| step(index, effect)));
            }
        }
        if waiting && self.limits.store_faults > 0 && world.has_entries() {
            events.push(Event::Wipe);
        }
        if self.limits.crashes > 0 {
            for slot in &self.stage.slots {
                events.extend(crashes(&world, slot.id, self.scenario.orphans));
            }
        }
        events
    }

    /// Whether the time has come for a client that has not sent its request.
    fn is_time(&self, comes: Comes) -> bool {
        match comes {
            Comes::AtOnce => true,
            Comes::After(other) => self.clients[other].done,
            Comes::OnEvent(index) => index < self.world.lock().channel.events().len(),
            Comes::WhenDue => {
                let now = self.world.lock().millis();
                self.oracle.is_due(now)
            }
        }
    }

    /// How a call takes effect where nothing is wrong but what is wrong all the time.
    fn usual(&self, world: &World, index: usize) -> Effect {
        let what = &world.calls[index].what;
        match (self.scenario.store, what) {
            (StoreMode::Good, _) | (_, What::Sql(..) | What::Deliver(_) | What::Channel(_)) => {
                Effect::Good
            }
            (StoreMode::Down, _) => Effect::Fails(Trouble::Store),
            (StoreMode::Forgets, What::Set(..)) => Effect::Lost,
            (StoreMode::Lags, What::Get(_) | What::Exists(_)) => Effect::Stale(1),
            (StoreMode::Garbage, What::Get(_)) => Effect::Garbage,
            _ => Effect::Good,
        }
    }

    /// The ways in which a call can go wrong, within what is left of the limits.
    fn troubles(&self, world: &World, what: &What) -> Vec<Effect> {
        let mut effects = Vec::new();
        if what.is_key_value() {
            if self.limits.store_faults == 0 {
                return effects;
            }
            effects.push(Effect::Fails(Trouble::Store));
            match what {
                What::Get(key) => {
                    effects.push(Effect::Garbage);
                    effects.extend((1..=world.versions(key)).map(Effect::Stale));
                }
                What::Set(..) | What::Delete(_) => {
                    effects.push(Effect::FailsAfter(Trouble::Store));
                    effects.push(Effect::Lost);
                }
                _ => {}
            }
        } else if what.is_outbound() {
            if self.limits.network_faults == 0 {
                return effects;
            }
            effects.extend([
                Effect::Fails(Trouble::Network),
                Effect::FailsAfter(Trouble::Network),
                Effect::Refused,
            ]);
            if let What::Channel(request) = what {
                effects.extend([Effect::RefusedAfter, Effect::Garbage]);
                if self.scenario.orphans {
                    effects.push(Effect::Hangs);
                }
                if request.method() == Method::POST {
                    effects.extend([Effect::Declined, Effect::Processed]);
                }
            }
        } else if self.limits.database_faults > 0 {
            effects.extend([Trouble::Busy, Trouble::Full, Trouble::Io].map(Effect::Fails));
            if what.writes_database() {
                effects.push(Effect::FailsAfter(Trouble::Io));
            }
        }
        effects
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

    /// Ends a run that came to its end: asks everything once more, and audits the files.
    fn close(&mut self) -> Result<(), String> {
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

/// The ways in which an instance can die with calls on their way.
fn crashes(world: &World, id: InstanceId, orphans: bool) -> Vec<Event> {
    let calls: Vec<_> = world.calls_of(id).collect();
    if calls.is_empty() {
        return Vec::new();
    }
    let mut ways: Vec<Vec<(u32, Fate)>> = vec![Vec::new()];
    for call in calls.iter().filter(|call| call.answer.is_none()) {
        let fates: &[Fate] = match &call.what {
            // Whether they are done makes no difference.
            What::Open | What::Get(_) | What::Exists(_) | What::Keys => &[Fate::Dropped],
            What::Sql(..) if !call.what.writes_database() => &[Fate::Dropped],
            _ if !orphans => &[Fate::Dropped, Fate::Done],
            _ => &[Fate::Dropped, Fate::Done, Fate::Orphaned],
        };
        let longer = ways.iter().flat_map(|way| {
            fates.iter().map(|fate| {
                let mut way = way.clone();
                way.push((call.number, *fate));
                way
            })
        });
        ways = longer.collect();
    }
    ways.into_iter()
        .map(|fates| Event::Crash(id.slot, fates))
        .collect()
}
