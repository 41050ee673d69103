//! Dispatchers that read, claim and settle in any order, late or twice, on a real SQLite database.

use proptest::prelude::*;

use super::*;
use crate::store::migrations::tests::migrated;

const LEASE_MS: i64 = 100;
const EVENTS: i64 = 3;
/// Later than anything here.
const LONGEST_MS: i64 = 1_000_000;

/// What a dispatcher does next.
#[derive(Clone, Debug)]
enum Step {
    Read(usize),
    Claim(usize),
    /// With this result for everything it believes to hold.
    Settle(usize, Attempt),
    Wait(i64),
}

/// What a dispatcher believes.
#[derive(Clone, Default)]
struct Dispatcher {
    owner: Uuid,
    seen: Vec<(String, i64)>,
    held: BTreeSet<String>,
}

struct World {
    db: rusqlite::Connection,
    now: i64,
    owners: u128,
}

impl World {
    fn new() -> Self {
        let db = migrated();
        for number in 0..EVENTS {
            let sql = "INSERT INTO outbox (event_id, merchant_id, type, subject, data, created_at) \
                       VALUES ('evt_' || ?1, 'm', 'order.paid', 'o', '{}', 0)";
            db.execute(sql, [number]).unwrap();
        }
        Self {
            db,
            now: 1,
            owners: 0,
        }
    }

    fn read(&self) -> Vec<(String, i64)> {
        let mut due = self.db.prepare(DUE).unwrap();
        let rows = due.query_map(
            rusqlite::params!["notify", self.now, 10, LONGEST_MS],
            |row| Ok((row.get(0)?, row.get(7)?)),
        );
        rows.unwrap().map(Result::unwrap).collect()
    }

    fn claim(&mut self, dispatcher: &mut Dispatcher) {
        self.owners += 1;
        dispatcher.owner = Uuid::from_u128(self.owners);
        let seen = dispatcher.seen.iter();
        let seen = seen.map(
            |(event_id, attempts)| serde_json::json!({"event_id": event_id, "attempts": attempts}),
        );
        let Value::Text(seen) = json_array(seen) else {
            panic!("a text")
        };
        let owner = dispatcher.owner.to_string();
        let parameters = rusqlite::params![seen, owner, self.now, self.now + LEASE_MS, LONGEST_MS];
        dispatcher.held = self.changed(CLAIM, parameters);
    }

    fn settle(&self, dispatcher: &Dispatcher, attempt: &Attempt) -> BTreeSet<String> {
        let settled = dispatcher.held.iter().map(|event_id| {
            let mut settled = serde_json::to_value(attempt).unwrap();
            settled["event_id"] = event_id.as_str().into();
            settled
        });
        let Value::Text(settled) = json_array(settled) else {
            panic!("a text")
        };
        let parameters = rusqlite::params![settled, dispatcher.owner.to_string(), self.now];
        self.changed(SETTLE, parameters)
    }

    fn changed(&self, statement: &str, parameters: &[&dyn rusqlite::ToSql]) -> BTreeSet<String> {
        let mut statement = self.db.prepare(statement).unwrap();
        let rows = statement.query_map(parameters, |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    /// State, owner and due time of every event.
    fn states(&self) -> Vec<(String, String, Option<String>, i64)> {
        let sql = "SELECT event_id, state, owner, due_at FROM deliveries ORDER BY event_id";
        let mut states = self.db.prepare(sql).unwrap();
        let rows = states.query_map([], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        });
        rows.unwrap().map(Result::unwrap).collect()
    }
}

fn attempts() -> impl Strategy<Value = Attempt> {
    let last_error = || "status 500".to_owned();
    prop_oneof![
        Just(Attempt::Sent),
        (0_i64..500).prop_map(move |due_at| Attempt::Pending {
            due_at,
            last_error: last_error()
        }),
        Just(Attempt::Dead {
            last_error: last_error()
        }),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = 0_usize..3;
    let step = prop_oneof![
        who.clone().prop_map(Step::Read),
        who.clone().prop_map(Step::Claim),
        (who, attempts()).prop_map(|(who, attempt)| Step::Settle(who, attempt)),
        (1_i64..150).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    /// Invariant 12, whatever dispatchers do when: a claim that is not over is nobody else's, only its
    /// owner settles an event, and what is settled for good stays so.
    #[test]
    fn a_stale_dispatcher_changes_nothing(steps in steps()) {
        let mut world = World::new();
        let mut dispatchers = vec![Dispatcher::default(); 3];
        for step in steps {
            let before = world.states();
            match step {
                Step::Wait(millis) => world.now += millis,
                Step::Read(who) => dispatchers[who].seen = world.read(),
                Step::Claim(who) => {
                    let mut dispatcher = dispatchers[who].clone();
                    world.claim(&mut dispatcher);
                    for (event_id, state, owner, due_at) in &before {
                        let claimed = dispatcher.held.contains(event_id);
                        let live = owner.is_some() && *due_at > world.now;
                        prop_assert!(!claimed || (state == "pending" && !live));
                    }
                    dispatchers[who] = dispatcher;
                }
                Step::Settle(who, attempt) => {
                    let settled = world.settle(&dispatchers[who], &attempt);
                    let me = dispatchers[who].owner.to_string();
                    for (event_id, state, owner, _) in &before {
                        let mine = state == "pending" && owner.as_deref() == Some(me.as_str())
                            && dispatchers[who].held.contains(event_id);
                        prop_assert_eq!(settled.contains(event_id), mine);
                    }
                }
            }
            for (old, new) in before.iter().zip(world.states()) {
                prop_assert!(old.1 != "sent" || new.1 == "sent");
                prop_assert!(old.1 != "dead" || new.1 == "dead");
            }
            let sql = "SELECT count(*) FROM outbox AS o JOIN deliveries AS d ON d.event_id = o.event_id \
                       WHERE (d.state = 'sent') = (o.delivered_at IS NOT NULL)";
            let agree: i64 = world.db.query_row(sql, [], |row| row.get(0)).unwrap();
            prop_assert_eq!(agree, EVENTS);
        }
    }
}
