//! What can happen next in a run.

use http::Method;

use super::Run;
use crate::scenario::{Comes, StoreMode};
use crate::world::{Effect, InstanceId, Trouble, What, World};

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
    pub(super) fn slot(&self, world: &World) -> Option<u8> {
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

impl Run<'_> {
    /// Everything that can happen now; the first is what would without any trouble.
    pub(super) fn events(&self) -> Vec<Event> {
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
    pub(super) fn usual(&self, world: &World, index: usize) -> Effect {
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
