//! What is simulated: who sends what to which instance, and what may go wrong.

use std::fmt;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::model::Fulfilment;
use crate::operations::{
    self, Key, Request, checkout, create, deposit, dispatch, first_deposit, first_payment, fulfil,
    grant, limit, pay, pay_event, profile, refund, sweep,
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
    /// Requests to a server that go wrong.
    pub network_faults: u8,
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
    /// The client that must have its answer before.
    pub after: Option<usize>,
}

impl Client {
    fn new(request: &Request, key: &Key, slot: u8) -> Self {
        Self {
            request: request.clone(),
            key: key.clone(),
            merchant: 0,
            slot,
            after: None,
        }
    }

    /// Whether the two use one idempotency key.
    pub fn same_key(&self, other: &Self) -> bool {
        self.merchant == other.merchant && self.key == other.key && self.key != Key::Operator
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
    /// Whether events are delivered.
    pub notify: bool,
    /// Whether what was there at first is past its retention.
    pub aged: bool,
    /// Whether calls of a dead instance may still be on their way.
    pub orphans: bool,
    /// Whether instances have served a request before.
    pub warm: bool,
}

impl fmt::Display for Scenario {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)
    }
}

impl Scenario {
    fn new(name: String, kind: Kind, clients: Vec<Client>, limits: Limits) -> Self {
        Self {
            name,
            kind,
            clients,
            limits,
            store: StoreMode::Good,
            any_order: false,
            split: false,
            shared_instance: false,
            empty: false,
            notify: false,
            aged: false,
            orphans: true,
            warm: false,
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
}

/// Two requests that get into each other's way.
fn races() -> Vec<(String, [Client; 2])> {
    let given = |key| Key::Given(key);
    let two = |first: Request, first_key, second: Request, second_key| {
        [
            Client::new(&first, &first_key, 0),
            Client::new(&second, &second_key, 0),
        ]
    };
    let mut races: Vec<(String, [Client; 2])> = operations::each()
        .into_iter()
        .map(|(name, request, key)| {
            (
                format!("same-key-{name}"),
                two(request.clone(), key.clone(), request, key),
            )
        })
        .collect();
    let named = [
        (
            "two-keys-one-order",
            two(pay("o1", 100), given("k"), pay("o1", 100), given("l")),
        ),
        (
            "two-orders-one-wallet",
            two(pay("o1", 100), given("k"), pay("o2", 100), given("l")),
        ),
        (
            "deposit-and-pay",
            two(deposit("poor", 100), given("k"), pay("p1", 100), given("l")),
        ),
        (
            "two-deposits",
            two(
                deposit("rich", 5),
                given("k"),
                deposit("rich", 6),
                given("l"),
            ),
        ),
        (
            "two-creations",
            two(create("new"), given("k"), create("new"), given("l")),
        ),
        (
            "one-key-two-requests",
            two(pay("o1", 100), given("k"), deposit("rich", 1), given("k")),
        ),
        (
            "one-token-two-orders",
            two(
                checkout("o1", "r1"),
                Key::Token,
                checkout("o2", "r2"),
                Key::Token,
            ),
        ),
        (
            "one-request-no",
            two(
                checkout("o1", "r1"),
                given("k"),
                checkout("o2", "r1"),
                given("l"),
            ),
        ),
        (
            "wrong-amount-then-right",
            two(pay("o1", 99), given("k"), pay("o1", 100), given("k")),
        ),
    ];
    let more = [
        (
            "cancel-and-pay",
            two(
                fulfil("o1", Fulfilment::Cancel),
                given("k"),
                pay("o1", 100),
                given("l"),
            ),
        ),
        (
            "ship-and-refund",
            two(
                fulfil("paid", Fulfilment::Ship),
                given("k"),
                refund("paid", 100),
                given("l"),
            ),
        ),
        (
            "two-refunds",
            two(
                refund("paid", 60),
                given("k"),
                refund("paid", 60),
                given("l"),
            ),
        ),
        (
            "refund-and-pay",
            two(refund("paid", 50), given("k"), pay("o2", 100), given("l")),
        ),
        (
            "one-coupon-two-users",
            two(
                grant("sale", "rich"),
                given("k"),
                grant("sale", "poor"),
                given("l"),
            ),
        ),
        (
            "one-coupon-two-keys",
            two(
                grant("sale", "rich"),
                given("k"),
                grant("sale", "rich"),
                given("l"),
            ),
        ),
        (
            "grant-and-limit",
            two(
                grant("sale", "rich"),
                given("k"),
                limit("sale", 0),
                given("l"),
            ),
        ),
        (
            "two-profile-fields",
            two(profile("a"), given("k"), profile("b"), given("l")),
        ),
        (
            "event-and-request",
            two(pay_event("o1"), Key::Event("k"), pay("o1", 100), given("k")),
        ),
    ];
    races.extend(more.map(|(name, clients)| (name.to_owned(), clients)));
    races.extend(named.map(|(name, clients)| (name.to_owned(), clients)));
    let mut merchants = two(pay("o1", 100), given("k"), pay("o1", 100), given("k"));
    merchants[1].merchant = 1;
    races.push(("two-merchants-one-key".to_owned(), merchants));
    races
}

/// Every scenario that is explored to its end.
pub fn exhaustive() -> Vec<Scenario> {
    let none = Limits::default();
    // A slow call lets the claim be written, which a crash then leaves behind.
    let crashes = |crashes| Limits {
        crashes,
        early_timers: 1,
        ..none
    };
    let early = |early_timers| Limits {
        early_timers,
        ..none
    };
    let mut all = Vec::new();
    for (name, request, key) in operations::each() {
        let one = vec![Client::new(&request, &key, 0)];
        let scenario = |what: &str, kind, clients: &Vec<Client>, limits| {
            Scenario::new(format!("{what}-{name}"), kind, clients.clone(), limits)
        };
        all.push(scenario("crash", Kind::CrashPoints, &one, crashes(1)));
        // How claims are written depends on no operation.
        let pairs = Limits {
            crashes: 2,
            ..early((name == "pay").into())
        };
        all.push(scenario("crash-twice", Kind::CrashPairs, &one, pairs));
        let other = Client::new(&deposit("poor", 3), &Key::Given("other"), 0);
        let mut both = one.clone();
        both.push(other);
        let one_crash = Limits { crashes: 1, ..none };
        let mut beside = scenario("crash-beside-others", Kind::CrashPoints, &both, one_crash);
        beside.shared_instance = true;
        all.push(beside);
        for database_faults in 1..=2 {
            let limits = Limits {
                database_faults,
                ..none
            };
            let what = ["database-fault", "database-two-faults"][usize::from(database_faults) - 1];
            all.push(scenario(what, Kind::DatabaseFaults, &one, limits));
        }
        let slow = Limits {
            leaps: 1,
            crashes: 1,
            ..none
        };
        all.push(scenario("slow-and-crash", Kind::CrashPoints, &one, slow));
    }
    for (name, clients) in races() {
        let scenario = |what: &str, kind, limits| {
            Scenario::new(format!("{what}-{name}"), kind, clients.to_vec(), limits)
        };
        // Slow calls add most of the states, and matter where a claim is seen by somebody.
        let claims = matches!(
            name.as_str(),
            "same-key-pay" | "same-key-checkout" | "one-key-two-requests"
        );
        let slow = matches!(name.as_str(), "same-key-pay" | "two-keys-one-order");
        all.push(scenario("order", Kind::Schedules, early(1 + u8::from(slow))).apart());
        let together = scenario("order-in-one-instance", Kind::Schedules, early(slow.into()));
        all.push(together.together());
        all.push(scenario("order-in-a-new-instance", Kind::Schedules, none).together_cold());
        let crash = Limits {
            crashes: 1,
            ..early(claims.into())
        };
        all.push(scenario("order-and-crash", Kind::CrashPoints, crash).apart());
        let store = Limits {
            store_faults: 1,
            ..early(claims.into())
        };
        all.push(scenario("order-and-store-fault", Kind::StoreFaults, store).apart());
        for mode in [
            StoreMode::Down,
            StoreMode::Forgets,
            StoreMode::Lags,
            StoreMode::Garbage,
        ] {
            let what = format!("order-store-{mode:?}").to_lowercase();
            let scenario = scenario(&what, Kind::StoreFaults, early(claims.into()));
            all.push(scenario.apart().with_store(mode));
        }
        let database = Limits {
            database_faults: 1,
            ..none
        };
        all.push(scenario("order-and-database-fault", Kind::DatabaseFaults, database).apart());
    }
    for (name, request, key) in operations::each() {
        let clients = vec![
            Client::new(&request, &key, 0),
            Client::new(&pay("o2", 100), &Key::Given("beside"), 0),
        ];
        let name = format!("order-with-payment-{name}");
        all.push(Scenario::new(name, Kind::Schedules, clients, early(1)).apart());
    }
    all.extend(start());
    all.extend(three());
    all.extend(delivery());
    all.extend(sweeps());
    all
}

/// Events on their way to a server: what the operation's instance sends by itself, and dispatchers.
fn delivery() -> Vec<Scenario> {
    let paying = Client::new(&pay("o1", 100), &Key::Given("k"), 0);
    let operator = |slot| Client::new(&dispatch(), &Key::Operator, slot);
    let after = |mut client: Client| {
        client.after = Some(0);
        client
    };
    let limits = |crashes, network_faults, database_faults| Limits {
        crashes,
        network_faults,
        database_faults,
        ..Limits::default()
    };
    // What the instance sends by itself begins after a sleep.
    let early = |early_timers| Limits {
        early_timers,
        ..Limits::default()
    };
    let one = vec![paying.clone()];
    let two = vec![paying.clone(), after(operator(1))];
    let three = vec![paying, after(operator(1)), after(operator(2))];
    let scenario = |name: &str, kind, clients: &Vec<Client>, limits| Scenario {
        notify: true,
        ..Scenario::new(name.to_owned(), kind, clients.clone(), limits)
    };
    let mut scenarios = vec![
        scenario(
            "delivery-and-crash",
            Kind::CrashPoints,
            &one,
            limits(1, 0, 0),
        ),
        scenario(
            "delivery-and-two-crashes",
            Kind::CrashPairs,
            &one,
            limits(2, 0, 0),
        ),
        scenario(
            "delivery-and-network-faults",
            Kind::NetworkFaults,
            &one,
            limits(0, 2, 0),
        ),
        scenario(
            "delivery-and-database-faults",
            Kind::DatabaseFaults,
            &one,
            limits(0, 0, 2),
        ),
    ];
    scenarios.extend(
        [
            scenario("dispatcher", Kind::Schedules, &two, early(2)),
            scenario("two-dispatchers", Kind::Schedules, &three, early(1)),
            scenario(
                "dispatcher-and-crash",
                Kind::CrashPoints,
                &two,
                limits(1, 0, 0),
            ),
            scenario(
                "dispatcher-and-network-fault",
                Kind::NetworkFaults,
                &two,
                limits(0, 1, 0),
            ),
            scenario(
                "dispatcher-and-database-fault",
                Kind::DatabaseFaults,
                &two,
                limits(0, 0, 1),
            ),
        ]
        .map(Scenario::apart_as_placed),
    );
    scenarios
}

/// Sweeps beside each other and beside requests with keys that are past their retention.
fn sweeps() -> Vec<Scenario> {
    let operator = |slot| Client::new(&sweep(1000), &Key::Operator, slot);
    let short = |slot| Client::new(&sweep(2), &Key::Operator, slot);
    let (request, key) = first_payment();
    let again = Client::new(&request, &key, 1);
    let (request, key) = first_deposit();
    let deposit = Client::new(&request, &key, 1);
    let fresh = Client::new(&pay("o1", 100), &Key::Given("k"), 1);
    let limits = |crashes, database_faults| Limits {
        crashes,
        database_faults,
        // A sweep sleeps after each statement.
        early_timers: 2,
        ..Limits::default()
    };
    let early = |early_timers| Limits {
        early_timers,
        ..Limits::default()
    };
    let scenario = |name: &str, kind, clients: &[&Client], limits| Scenario {
        aged: true,
        ..Scenario::new(
            name.to_owned(),
            kind,
            clients.iter().copied().cloned().collect(),
            limits,
        )
    };
    let alone = [
        scenario(
            "sweep-and-crash",
            Kind::CrashPoints,
            &[&operator(0)],
            limits(1, 0),
        ),
        scenario(
            "sweep-and-database-fault",
            Kind::DatabaseFaults,
            &[&operator(0)],
            limits(0, 1),
        ),
        Scenario {
            orphans: false,
            ..scenario(
                "sweep-and-two-crashes",
                Kind::CrashPairs,
                &[&operator(0)],
                limits(2, 0),
            )
        },
    ];
    let beside = [
        scenario(
            "sweep-and-old-key",
            Kind::Schedules,
            &[&operator(0), &again],
            limits(0, 0),
        ),
        scenario(
            "sweep-and-old-deposit",
            Kind::Schedules,
            &[&operator(0), &deposit],
            limits(0, 0),
        ),
        // Where the key-value store does not answer for them.
        scenario(
            "sweep-and-old-key-in-journal",
            Kind::Schedules,
            &[&operator(0), &again],
            limits(0, 0),
        )
        .with_store(StoreMode::Down),
        scenario(
            "sweep-and-old-deposit-in-journal",
            Kind::Schedules,
            &[&operator(0), &deposit],
            limits(0, 0),
        )
        .with_store(StoreMode::Down),
        scenario(
            "sweep-and-payment",
            Kind::Schedules,
            &[&short(0), &fresh],
            limits(0, 0),
        ),
        scenario(
            "two-sweeps",
            Kind::Schedules,
            &[&short(0), &short(1)],
            early(1),
        ),
        scenario(
            "two-sweeps-and-old-key",
            Kind::Schedules,
            &[&operator(0), &again, &operator(2)],
            Limits::default(),
        )
        .with_store(StoreMode::Down),
    ];
    let beside = beside.map(Scenario::apart_as_placed);
    alone.into_iter().chain(beside).collect()
}

/// Instances that meet a database without a schema.
fn start() -> Vec<Scenario> {
    let create = |order_no, key| Client::new(&create(order_no), &Key::Given(key), 0);
    let one = vec![create("new", "k")];
    let two = vec![create("new", "k"), create("new", "l")];
    let limits = |crashes, database_faults| Limits {
        crashes,
        database_faults,
        ..Limits::default()
    };
    let twice = Scenario {
        // Orphans of statements that can be repeated add nothing but runs.
        orphans: false,
        ..Scenario::new(
            "crash-twice-first-start".to_owned(),
            Kind::CrashPairs,
            one.clone(),
            limits(2, 0),
        )
    };
    let scenarios = [
        twice,
        Scenario {
            orphans: false,
            ..Scenario::new(
                "crash-first-start".to_owned(),
                Kind::CrashPoints,
                one.clone(),
                limits(1, 0),
            )
        },
        Scenario::new(
            "database-fault-first-start".to_owned(),
            Kind::DatabaseFaults,
            one,
            limits(0, 1),
        ),
        Scenario::new(
            "order-first-start".to_owned(),
            Kind::Schedules,
            two,
            limits(0, 0),
        )
        .apart(),
    ];
    scenarios
        .into_iter()
        .map(|scenario| Scenario {
            empty: true,
            ..scenario
        })
        .collect()
}

/// Three requests at once, without timers that are early.
fn three() -> Vec<Scenario> {
    let given = |key| Key::Given(key);
    let client = |request: Request, key| Client::new(&request, &key, 0);
    let sets = [
        (
            "three-times-one-key",
            [given("k"), given("k"), given("k")].map(|key| client(pay("o1", 100), key)),
        ),
        (
            "three-keys-one-order",
            [given("k"), given("l"), given("n")].map(|key| client(pay("o1", 100), key)),
        ),
        (
            "three-for-one-wallet",
            [
                client(pay("o1", 100), given("k")),
                client(pay("o2", 100), given("l")),
                client(deposit("rich", 50), given("n")),
            ],
        ),
    ];
    let scenarios = sets.into_iter().flat_map(|(name, clients)| {
        let scenario = |what: &str| {
            let limits = Limits::default();
            Scenario::new(
                format!("{what}-{name}"),
                Kind::Schedules,
                clients.to_vec(),
                limits,
            )
        };
        [
            scenario("order").apart(),
            scenario("order-in-one-instance").together(),
        ]
    });
    scenarios.collect()
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
    let clients: Vec<Client> = (0..random.random_range(2..=4_usize))
        .map(|index| match random.random_ratio(1, 10) {
            true => Client::new(&dispatch(), &Key::Operator, random.random_range(0..3)),
            false => Client {
                request: requests[random.random_range(0..requests.len())].clone(),
                key: keys[random.random_range(0..keys.len())].clone(),
                merchant: usize::from(random.random_ratio(1, 8)),
                slot: random.random_range(0..3),
                after: (index > 0 && random.random_ratio(1, 4)).then(|| index - 1),
            },
        })
        .collect();
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
    };
    Scenario {
        notify: random.random(),
        store: modes[random.random_range(0..modes.len())],
        any_order: true,
        split: random.random(),
        shared_instance: true,
        ..Scenario::new(format!("random-{seed}"), Kind::Schedules, clients, limits)
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
