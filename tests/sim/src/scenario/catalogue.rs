//! Every scenario that is explored to its end.

use super::{Client, Comes, Kind, Outside, Scenario, StoreMode};
use crate::model::Fulfilment;
use crate::operations::{
    self, Key, Request, checkout, create, deposit, dispatch, first_deposit, first_payment, fulfil,
    grant, limit, pay, pay_event, pay_from_wallet, profile, refund, sweep,
};

/// All of them.
pub fn exhaustive() -> Vec<Scenario> {
    let mut all = Vec::new();
    for (name, request, key) in operations::each() {
        alone(&mut all, name, &Client::new(&request, &key, 0));
    }
    for (name, clients) in races() {
        race(&mut all, &name, &clients);
    }
    for (name, request, key) in operations::each() {
        let clients = [
            Client::new(&request, &key, 0),
            given(pay("o2", 100), "beside"),
        ];
        let name = format!("order-with-payment-{name}");
        all.push(
            Scenario::new(name, Kind::Schedules, &clients)
                .early_timers(1)
                .apart(),
        );
    }
    all.extend(start());
    all.extend(three());
    all.extend(delivery());
    all.extend(sweeps());
    all.extend(channel());
    all
}

/// A request with a key.
fn given(request: Request, key: &'static str) -> Client {
    Client::new(&request, &Key::Given(key), 0)
}

/// What happens to one client.
fn alone(all: &mut Vec<Scenario>, name: &str, client: &Client) {
    let one = [client.clone()];
    let scenario = |what: &str, kind| Scenario::new(format!("{what}-{name}"), kind, &one);
    // A slow call lets the claim be written, which a crash then leaves behind.
    all.push(
        scenario("crash", Kind::CrashPoints)
            .crashes(1)
            .early_timers(1),
    );
    // How claims are written depends on no operation.
    let slow = (name == "pay").into();
    all.push(
        scenario("crash-twice", Kind::CrashPairs)
            .crashes(2)
            .early_timers(slow),
    );
    let both = [client.clone(), given(deposit("poor", 3), "other")];
    let beside = Scenario::new(
        format!("crash-beside-others-{name}"),
        Kind::CrashPoints,
        &both,
    );
    all.push(Scenario {
        shared_instance: true,
        ..beside.crashes(1).without_orphans()
    });
    all.push(scenario("database-fault", Kind::DatabaseFaults).database_faults(1));
    all.push(scenario("database-two-faults", Kind::DatabaseFaults).database_faults(2));
    all.push(
        scenario("slow-and-crash", Kind::CrashPoints)
            .leaps(1)
            .crashes(1),
    );
}

/// What happens to two clients that get into each other's way.
fn race(all: &mut Vec<Scenario>, name: &str, clients: &[Client; 2]) {
    let scenario = |what: &str, kind| Scenario::new(format!("{what}-{name}"), kind, clients);
    // Slow calls add most of the states, and matter where a claim is seen by somebody.
    let claims = matches!(
        name,
        "same-key-pay" | "same-key-checkout" | "one-key-two-requests"
    );
    let claims = u8::from(claims);
    let slow = u8::from(matches!(name, "same-key-pay" | "two-keys-one-order"));
    all.push(
        scenario("order", Kind::Schedules)
            .early_timers(1 + slow)
            .apart(),
    );
    let one_instance = scenario("order-in-one-instance", Kind::Schedules);
    all.push(one_instance.early_timers(slow).together());
    all.push(scenario("order-in-a-new-instance", Kind::Schedules).together_cold());
    let crash = scenario("order-and-crash", Kind::CrashPoints).crashes(1);
    all.push(crash.early_timers(claims).apart());
    let fault = scenario("order-and-store-fault", Kind::StoreFaults).store_faults(1);
    all.push(fault.early_timers(claims).apart());
    for mode in [
        StoreMode::Down,
        StoreMode::Forgets,
        StoreMode::Lags,
        StoreMode::Garbage,
    ] {
        let what = format!("order-store-{mode:?}").to_lowercase();
        let scenario = scenario(&what, Kind::StoreFaults).with_store(mode);
        all.push(scenario.early_timers(claims).apart());
    }
    let fault = scenario("order-and-database-fault", Kind::DatabaseFaults);
    all.push(fault.database_faults(1).apart());
}

/// Two requests that get into each other's way.
fn races() -> Vec<(String, [Client; 2])> {
    let token = |request: Request| Client::new(&request, &Key::Token, 0);
    let mut races: Vec<(String, [Client; 2])> = operations::each()
        .into_iter()
        .map(|(name, request, key)| {
            let client = Client::new(&request, &key, 0);
            (format!("same-key-{name}"), [client.clone(), client])
        })
        .collect();
    let cancel = || fulfil("o1", Fulfilment::Cancel);
    let ship = || fulfil("paid", Fulfilment::Ship);
    let event = Client::new(&pay_event("o1"), &Key::Event("k"), 0);
    let mut elsewhere = given(pay("o1", 100), "k");
    elsewhere.merchant = 1;
    let named = [
        (
            "cancel-and-pay",
            given(cancel(), "k"),
            given(pay("o1", 100), "l"),
        ),
        (
            "ship-and-refund",
            given(ship(), "k"),
            given(refund("paid", 100), "l"),
        ),
        (
            "two-refunds",
            given(refund("paid", 60), "k"),
            given(refund("paid", 60), "l"),
        ),
        (
            "refund-and-pay",
            given(refund("paid", 50), "k"),
            given(pay("o2", 100), "l"),
        ),
        (
            "one-coupon-two-users",
            given(grant("sale", "rich"), "k"),
            given(grant("sale", "poor"), "l"),
        ),
        (
            "one-coupon-two-keys",
            given(grant("sale", "rich"), "k"),
            given(grant("sale", "rich"), "l"),
        ),
        (
            "grant-and-limit",
            given(grant("sale", "rich"), "k"),
            given(limit("sale", 0), "l"),
        ),
        (
            "two-profile-fields",
            given(profile("a"), "k"),
            given(profile("b"), "l"),
        ),
        ("event-and-request", event, given(pay("o1", 100), "k")),
        (
            "two-keys-one-order",
            given(pay("o1", 100), "k"),
            given(pay("o1", 100), "l"),
        ),
        (
            "two-orders-one-wallet",
            given(pay("o1", 100), "k"),
            given(pay("o2", 100), "l"),
        ),
        (
            "deposit-and-pay",
            given(deposit("poor", 100), "k"),
            given(pay("p1", 100), "l"),
        ),
        (
            "two-deposits",
            given(deposit("rich", 5), "k"),
            given(deposit("rich", 6), "l"),
        ),
        (
            "two-creations",
            given(create("new"), "k"),
            given(create("new"), "l"),
        ),
        (
            "one-key-two-requests",
            given(pay("o1", 100), "k"),
            given(deposit("rich", 1), "k"),
        ),
        (
            "one-token-two-orders",
            token(checkout("o1", "r1")),
            token(checkout("o2", "r2")),
        ),
        (
            "one-request-no",
            given(checkout("o1", "r1"), "k"),
            given(checkout("o2", "r1"), "l"),
        ),
        (
            "wrong-amount-then-right",
            given(pay("o1", 99), "k"),
            given(pay("o1", 100), "k"),
        ),
        (
            "two-merchants-one-key",
            given(pay("o1", 100), "k"),
            elsewhere,
        ),
    ];
    races.extend(named.map(|(name, first, second)| (name.to_owned(), [first, second])));
    races
}

/// Events on their way to a server: what the operation's instance sends by itself, and dispatchers.
fn delivery() -> Vec<Scenario> {
    let paying = given(pay("o1", 100), "k");
    let operator = |slot| Client {
        comes: Comes::After(0),
        ..Client::new(&dispatch(), &Key::Operator, slot)
    };
    let one = [paying.clone()];
    let two = [paying.clone(), operator(1)];
    let three = [paying, operator(1), operator(2)];
    let by_itself = |what: &str, kind| Scenario::new(format!("delivery-and-{what}"), kind, &one);
    let dispatcher =
        |what: &str, kind| Scenario::new(format!("dispatcher{what}"), kind, &two).apart_as_placed();
    // What the instance sends by itself begins after a sleep.
    let two_dispatchers = Scenario::new("two-dispatchers", Kind::Schedules, &three);
    let scenarios = [
        by_itself("crash", Kind::CrashPoints).crashes(1),
        by_itself("two-crashes", Kind::CrashPairs).crashes(2),
        by_itself("network-faults", Kind::NetworkFaults).network_faults(2),
        by_itself("database-faults", Kind::DatabaseFaults).database_faults(2),
        dispatcher("", Kind::Schedules).early_timers(2),
        two_dispatchers.early_timers(1).apart_as_placed(),
        dispatcher("-and-crash", Kind::CrashPoints).crashes(1),
        dispatcher("-and-network-fault", Kind::NetworkFaults).network_faults(1),
        dispatcher("-and-database-fault", Kind::DatabaseFaults).database_faults(1),
    ];
    let notifying = |scenario| Scenario {
        outside: Outside::Receiver,
        ..scenario
    };
    scenarios.map(notifying).into()
}

/// Payments and refunds through a channel: two rows of the journal around one call.
fn channel() -> Vec<Scenario> {
    let charge = given(pay("o1", 100), "k");
    let refund = given(refund("o1", 60), "l");
    let mut all = Vec::new();
    for (name, client) in [
        ("charge", charge.clone()),
        ("charge-given-up", charge.gives_up()),
        ("refund-of-charge", refund.clone()),
        ("refund-of-charge-given-up", refund.gives_up()),
    ] {
        interrupted_call(&mut all, name, &client);
    }
    for (name, clients) in call_races() {
        race_of_calls(&mut all, name, &clients);
    }
    all.push(reconcilers());
    all.extend(late_money());
    all.into_iter().map(charging).collect()
}

/// A scenario with a channel, and with the charge that a refund needs.
fn charging(scenario: Scenario) -> Scenario {
    let refunds = |client: &Client| client.request.path.ends_with("/refunds");
    let before = match scenario.clients.iter().any(refunds) {
        true => vec![pay("o1", 100)],
        false => Vec::new(),
    };
    Scenario {
        outside: Outside::Channel,
        before,
        ..scenario
    }
}

/// What happens to one charge or refund.
fn interrupted_call(all: &mut Vec<Scenario>, name: &str, client: &Client) {
    let one = [client.clone()];
    let scenario = |what: &str, kind| Scenario::new(format!("{what}-{name}"), kind, &one);
    let twice = scenario("crash-twice", Kind::CrashPairs).crashes(2);
    let slow = scenario("slow-and-crash", Kind::CrashPoints).leaps(1);
    let faults = |what: &str, kind, most| scenario(what, kind).network_faults(most);
    let two_faults = faults("channel-two-faults", Kind::NetworkFaults, 2);
    let and_crash = faults("channel-fault-and-crash", Kind::NetworkFaults, 1);
    let and_database = faults("database-and-channel-fault", Kind::DatabaseFaults, 1);
    all.extend([
        scenario("crash", Kind::CrashPoints).crashes(1),
        twice.without_orphans(),
        slow.crashes(1).without_orphans(),
        faults("channel-fault", Kind::NetworkFaults, 1),
        two_faults.without_orphans(),
        and_crash.crashes(1).without_orphans(),
        scenario("database-fault", Kind::DatabaseFaults).database_faults(1),
        and_database.database_faults(1).without_orphans(),
    ]);
}

/// Two requests of which one at least goes to the channel, or the channel itself.
fn call_races() -> [(&'static str, [Client; 2]); 8] {
    let charge = || given(pay("o1", 100), "k");
    let refund = |key| given(refund("o1", 60), key);
    let cancel = given(fulfil("o1", Fulfilment::Cancel), "l");
    let wallet = given(pay_from_wallet("o1", 100), "l");
    let other_charge = given(pay("o1", 100), "l");
    let other_refund = refund("n");
    [
        ("same-key-charge", [charge(), charge()]),
        ("two-charges-one-order", [charge(), other_charge]),
        ("charge-and-wallet", [charge(), wallet]),
        ("charge-and-cancel", [charge(), cancel]),
        ("charge-and-webhook", [charge(), Client::telling(0, 0)]),
        ("two-refunds-of-charge", [refund("l"), other_refund]),
        ("same-key-refund-of-charge", [refund("l"), refund("l")]),
        (
            "refund-of-charge-and-webhook",
            [refund("l"), Client::telling(1, 0)],
        ),
    ]
}

/// What happens to two requests that meet at the channel.
fn race_of_calls(all: &mut Vec<Scenario>, name: &str, clients: &[Client; 2]) {
    let scenario = |what: &str, kind, clients: &[Client]| {
        Scenario::new(format!("{what}-{name}"), kind, clients).apart()
    };
    // Who comes back adds most of the states, and nothing to what the sweep has to mend.
    let once = clients.each_ref().map(Client::gives_up);
    let crash = scenario("order-and-crash", Kind::CrashPoints, &once);
    let fault = scenario("order-and-channel-fault", Kind::NetworkFaults, &once);
    all.extend([
        scenario("order", Kind::Schedules, clients),
        crash.crashes(1).without_orphans(),
        fault.network_faults(1).without_orphans(),
    ]);
    if name == "same-key-charge" {
        let together = format!("order-in-a-new-instance-{name}");
        all.push(Scenario::new(together, Kind::Schedules, clients).together_cold());
    }
}

/// Sweeps that go for a charge whose instance died, beside each other and the retry.
fn reconcilers() -> Scenario {
    let sweep = Client::reconciling(0);
    let clients = [given(pay("o1", 100), "k"), sweep.clone(), sweep];
    let scenario = Scenario::new("two-reconcilers-and-retry", Kind::CrashPoints, &clients);
    scenario.apart().crashes(1).without_orphans()
}

/// The channel declines a charge and gets its money all the same.
fn late_money() -> [Scenario; 3] {
    let charge = given(pay("o1", 100), "k");
    let told = Client::telling(1, 0);
    let scenario = |what: &str, clients: &[Client]| {
        let name = format!("late-money-and-{what}");
        let scenario = Scenario::new(name, Kind::NetworkFaults, clients);
        scenario.network_faults(1).reversals(1).without_orphans()
    };
    let before_it = |request: Request| {
        let client = Client {
            comes: Comes::After(0),
            ..given(request, "l")
        };
        [charge.gives_up(), client, told.clone()]
    };
    let cancelled = before_it(fulfil("o1", Fulfilment::Cancel));
    [
        scenario("other-charge", &before_it(pay("o1", 100))),
        scenario("cancel", &cancelled).apart(),
        scenario("crash", &[charge.clone(), told.clone()]).crashes(1),
    ]
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
    // A sweep sleeps after each statement.
    let alone = |what: &str, kind| {
        Scenario::new(format!("sweep-and-{what}"), kind, &[operator(0)]).early_timers(2)
    };
    let beside = |name: &str, clients: &[Client]| {
        Scenario::new(name, Kind::Schedules, clients).apart_as_placed()
    };
    // Where the key-value store does not answer for old keys.
    let in_journal =
        |name: &str, clients: &[Client]| beside(name, clients).with_store(StoreMode::Down);
    let old_key = [operator(0), again.clone()];
    let old_deposit = [operator(0), deposit];
    let scenarios = [
        alone("crash", Kind::CrashPoints).crashes(1),
        alone("database-fault", Kind::DatabaseFaults).database_faults(1),
        alone("two-crashes", Kind::CrashPairs)
            .crashes(2)
            .without_orphans(),
        beside("sweep-and-old-key", &old_key).early_timers(2),
        beside("sweep-and-old-deposit", &old_deposit).early_timers(2),
        in_journal("sweep-and-old-key-in-journal", &old_key).early_timers(2),
        in_journal("sweep-and-old-deposit-in-journal", &old_deposit).early_timers(2),
        beside("sweep-and-payment", &[short(0), fresh]).early_timers(2),
        beside("two-sweeps", &[short(0), short(1)]).early_timers(1),
        in_journal("two-sweeps-and-old-key", &[operator(0), again, operator(2)]),
    ];
    let aged = |scenario| Scenario {
        aged: true,
        ..scenario
    };
    scenarios.map(aged).into()
}

/// Instances that meet a database without a schema.
fn start() -> Vec<Scenario> {
    let create = |key| given(create("new"), key);
    let one = [create("k")];
    let two = [create("k"), create("l")];
    let scenario = |what: &str, kind, clients: &[Client]| {
        Scenario::new(format!("{what}-first-start"), kind, clients)
    };
    // Orphans of statements that can be repeated add nothing but runs.
    let twice = scenario("crash-twice", Kind::CrashPairs, &one).without_orphans();
    let once = scenario("crash", Kind::CrashPoints, &one).without_orphans();
    let scenarios = [
        twice.crashes(2),
        once.crashes(1),
        scenario("database-fault", Kind::DatabaseFaults, &one).database_faults(1),
        scenario("order", Kind::Schedules, &two).apart(),
    ];
    let empty = |scenario| Scenario {
        empty: true,
        ..scenario
    };
    scenarios.map(empty).into()
}

/// Three requests at once, without timers that are early.
fn three() -> Vec<Scenario> {
    let paying = |key| given(pay("o1", 100), key);
    let sets = [
        ("three-times-one-key", ["k", "k", "k"].map(paying)),
        ("three-keys-one-order", ["k", "l", "n"].map(paying)),
        (
            "three-for-one-wallet",
            [
                paying("k"),
                given(pay("o2", 100), "l"),
                given(deposit("rich", 50), "n"),
            ],
        ),
    ];
    let scenarios = sets.into_iter().flat_map(|(name, clients)| {
        let scenario =
            |what: &str| Scenario::new(format!("{what}-{name}"), Kind::Schedules, &clients);
        [
            scenario("order").apart(),
            scenario("order-in-a-new-instance").together_cold(),
        ]
    });
    scenarios.collect()
}
