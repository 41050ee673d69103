//! What is simulated: who sends what to which instance, and what may go wrong.

mod catalogue;

use std::fmt;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

pub use self::catalogue::exhaustive;
use crate::model::Fulfilment;
use crate::operations::{
    Key, Request, checkout, create, deposit, dispatch, fulfil, grant, limit, pay, pay_from_wallet,
    profile, reconcile, refund, webhook,
};

/// How much may go wrong in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Instances that die.
    pub crashes: u8,
    /// Calls of the key-value store that go wrong, and times that it is wiped.
    pub store_faults: u8,
    /// Statements that fail.
    pub database_faults: u8,
    /// Sleepers that wake up although a call is on its way: the call is slow.
    pub early_timers: u8,
    /// Times that a call is slower than a lease.
    pub leaps: u8,
    /// Requests to a server that go wrong, or that the channel declines or puts off.
    pub network_faults: u8,
    /// Charges that the channel takes the money of after it has declined them.
    pub reversals: u8,
}

/// What is wrong with the key-value store all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreMode {
    Good,
    /// Every call fails.
    Down,
    /// Nothing that is written is kept.
    Forgets,
    /// Reads see the value before the last write.
    Lags,
    /// Reads see garbage.
    Garbage,
}

/// A client: sends a request, and repeats it until it has a final answer.
#[derive(Clone, Debug)]
pub struct Client {
    pub request: Request,
    pub key: Key,
    /// Index of its merchant.
    pub merchant: usize,
    /// Which instance it talks to.
    pub slot: u8,
    pub comes: Comes,
    /// Whether it never asks again.
    pub once: bool,
}

/// When a client sends its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comes {
    AtOnce,
    /// When that client has its answer.
    After(usize),
    /// When the channel has that event; maybe never.
    OnEvent(usize),
    /// When something waits for the channel and belongs to nobody; maybe never.
    WhenDue,
}

impl Comes {
    /// Whether the time for it may never come.
    pub fn is_optional(self) -> bool {
        matches!(self, Self::OnEvent(_) | Self::WhenDue)
    }
}

impl Client {
    fn new(request: &Request, key: &Key, slot: u8) -> Self {
        Self {
            request: request.clone(),
            key: key.clone(),
            merchant: 0,
            slot,
            comes: Comes::AtOnce,
            once: false,
        }
    }

    /// The same client, who never asks again.
    fn gives_up(&self) -> Self {
        Self {
            once: true,
            ..self.clone()
        }
    }

    /// The channel, that tells of an event once there is one with this index.
    fn telling(event: usize, slot: u8) -> Self {
        Self {
            comes: Comes::OnEvent(event),
            ..Self::new(&webhook(), &Key::Channel(event), slot)
        }
    }

    /// The operator's timer, when there is something for it to do.
    fn reconciling(slot: u8) -> Self {
        Self {
            comes: Comes::WhenDue,
            ..Self::new(&reconcile(), &Key::Operator, slot)
        }
    }

    /// Whether the two use one idempotency key.
    pub fn same_key(&self, other: &Self) -> bool {
        self.merchant == other.merchant && self.key == other.key && self.key.is_recorded()
    }
}

/// What the runs of a scenario are counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    CrashPoints,
    CrashPairs,
    Schedules,
    StoreFaults,
    DatabaseFaults,
    NetworkFaults,
}

/// Whom the component speaks to over the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    Nobody,
    /// A server of the merchant that takes the events.
    Receiver,
    /// A payment channel, which takes what is not from the wallet.
    Channel,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: String,
    pub kind: Kind,
    pub clients: Vec<Client>,
    pub limits: Limits,
    pub store: StoreMode,
    /// Whether calls take effect in any order, or in the order in which they are made.
    pub any_order: bool,
    /// Whether a call takes effect in one step and its instance hears of it in another. It makes a
    /// difference to requests that share an instance only.
    pub split: bool,
    /// Whether clients share an instance, so that it matters when a request comes in.
    pub shared_instance: bool,
    /// Whether the database is empty at first, without a schema.
    pub empty: bool,
    pub outside: Outside,
    /// Whether what was there at first is past its retention.
    pub aged: bool,
    /// Whether calls that nobody waits for any more may still be on their way.
    pub orphans: bool,
    /// Whether instances have served a request before.
    pub warm: bool,
    /// What was done before, by an instance that is gone.
    pub before: Vec<Request>,
}

impl fmt::Display for Scenario {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)
    }
}

impl Scenario {
    /// Whether it is two clients that differ in nothing but their keys and their instances: what happens to the
    /// first may as well happen to the second.
    pub fn is_mirrored(&self) -> bool {
        let [first, second] = &self.clients[..] else {
            return false;
        };
        let asks = |client: &Client| (client.request.path.clone(), client.request.body.clone());
        let given = |client: &Client| matches!(client.key, Key::Given(_));
        let manner = |client: &Client| (client.merchant, client.comes, client.once);
        let alike = asks(first) == asks(second) && manner(first) == manner(second);
        let named = first.key == second.key || given(first) && given(second);
        self.any_order && first.slot != second.slot && alike && named
    }

    /// Calls in the order in which they are made, and nothing goes wrong.
    fn new(name: impl Into<String>, kind: Kind, clients: &[Client]) -> Self {
        Self {
            name: name.into(),
            kind,
            clients: clients.to_vec(),
            limits: Limits::default(),
            store: StoreMode::Good,
            any_order: false,
            split: false,
            shared_instance: false,
            empty: false,
            outside: Outside::Nobody,
            aged: false,
            orphans: true,
            warm: false,
            before: Vec::new(),
        }
    }

    /// Every order of the calls of instances of their own.
    fn apart(mut self) -> Self {
        for (slot, client) in (0..).zip(&mut self.clients) {
            client.slot = slot;
        }
        self.any_order = true;
        self
    }

    /// Every order of the calls within one instance.
    fn together(mut self) -> Self {
        self.any_order = true;
        self.split = true;
        self.shared_instance = true;
        self.warm = true;
        self
    }

    /// The same for an instance that begins with them.
    fn together_cold(mut self) -> Self {
        self.any_order = true;
        self.shared_instance = true;
        self
    }

    /// Every order of the calls of instances where the clients say.
    fn apart_as_placed(mut self) -> Self {
        self.any_order = true;
        self
    }

    fn with_store(mut self, store: StoreMode) -> Self {
        self.store = store;
        self
    }

    fn without_orphans(mut self) -> Self {
        self.orphans = false;
        self
    }

    fn crashes(mut self, most: u8) -> Self {
        self.limits.crashes = most;
        self
    }

    fn store_faults(mut self, most: u8) -> Self {
        self.limits.store_faults = most;
        self
    }

    fn database_faults(mut self, most: u8) -> Self {
        self.limits.database_faults = most;
        self
    }

    fn network_faults(mut self, most: u8) -> Self {
        self.limits.network_faults = most;
        self
    }

    fn reversals(mut self, most: u8) -> Self {
        self.limits.reversals = most;
        self
    }

    fn early_timers(mut self, most: u8) -> Self {
        self.limits.early_timers = most;
        self
    }

    fn leaps(mut self, most: u8) -> Self {
        self.limits.leaps = most;
        self
    }
}

/// A scenario from a seed: two to four clients that like to collide, and everything may go wrong.
pub fn random(seed: u64) -> Scenario {
    let mut random = StdRng::seed_from_u64(seed);
    let requests = [
        pay("o1", 100),
        pay("o1", 100),
        pay("o2", 100),
        pay("p1", 100),
        pay("o1", 99),
        pay_from_wallet("o2", 100),
        checkout("o1", "r1"),
        checkout("o2", "r1"),
        create("new"),
        deposit("rich", 50),
        deposit("poor", 100),
        fulfil("o1", Fulfilment::Cancel),
        fulfil("paid", Fulfilment::Ship),
        refund("paid", 60),
        refund("paid", 100),
        grant("sale", "rich"),
        grant("sale", "poor"),
        limit("sale", 2),
        profile("a"),
        profile("b"),
    ];
    let keys = [
        Key::Given("k"),
        Key::Given("l"),
        Key::Given("n"),
        Key::Token,
    ];
    let outside = [Outside::Nobody, Outside::Receiver, Outside::Channel];
    let outside = outside[random.random_range(0..outside.len())];
    let mut clients: Vec<Client> = (0..random.random_range(2..=4_usize))
        .map(|index| match random.random_ratio(1, 10) {
            true => Client::new(&dispatch(), &Key::Operator, random.random_range(0..3)),
            false => Client {
                request: requests[random.random_range(0..requests.len())].clone(),
                key: keys[random.random_range(0..keys.len())].clone(),
                merchant: usize::from(random.random_ratio(1, 8)),
                slot: random.random_range(0..3),
                comes: match index > 0 && random.random_ratio(1, 4) {
                    true => Comes::After(index - 1),
                    false => Comes::AtOnce,
                },
                once: outside == Outside::Channel && random.random_ratio(1, 4),
            },
        })
        .collect();
    if outside == Outside::Channel {
        for _ in 0..random.random_range(0..=3_u8) {
            let event = random.random_range(0..3_usize);
            clients.push(Client::telling(event, random.random_range(0..3)));
        }
        for _ in 0..random.random_range(0..=2_u8) {
            clients.push(Client::reconciling(random.random_range(0..3)));
        }
    }
    let modes = [
        StoreMode::Good,
        StoreMode::Good,
        StoreMode::Good,
        StoreMode::Down,
        StoreMode::Forgets,
        StoreMode::Lags,
        StoreMode::Garbage,
    ];
    let limits = Limits {
        crashes: random.random_range(0..=3),
        store_faults: random.random_range(0..=4),
        database_faults: random.random_range(0..=3),
        early_timers: random.random_range(0..=6),
        leaps: random.random_range(0..=1),
        network_faults: random.random_range(0..=2),
        reversals: random.random_range(0..=1),
    };
    Scenario {
        limits,
        outside,
        store: modes[random.random_range(0..modes.len())],
        any_order: true,
        split: random.random(),
        shared_instance: true,
        ..Scenario::new(format!("random-{seed}"), Kind::Schedules, &clients)
    }
}

/// The scenario of that name.
pub fn named(name: &str) -> Option<Scenario> {
    if let Some(seed) = name.strip_prefix("random-") {
        return seed.parse().ok().map(random);
    }
    exhaustive()
        .into_iter()
        .find(|scenario| scenario.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations;

    #[test]
    fn a_scenario_is_found_by_its_name_and_no_other_has_it() {
        let all = exhaustive();
        for scenario in &all {
            let same = all.iter().filter(|other| other.name == scenario.name);
            assert_eq!(same.count(), 1, "{scenario}");
            assert!(named(&scenario.name).is_some());
        }
        assert!(named("random-7").is_some() && named("random-x").is_none());
    }

    #[test]
    fn every_operation_is_interrupted_doubled_and_let_down_by_both_stores() {
        let all = exhaustive();
        for (name, _, _) in operations::each() {
            for what in ["crash", "crash-twice", "database-fault", "order-same-key"] {
                let name = format!("{what}-{name}");
                assert!(all.iter().any(|scenario| scenario.name == name), "{name}");
            }
        }
    }
}
