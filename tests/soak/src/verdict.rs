//! Afterwards: every key once more, until nothing is left to be done, and then the books.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::StreamExt as _;
use futures::stream;
use payonce_channel::{Manner, Step};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::chaos::{self, CALLS};
use crate::promise::{Operation, Promise, Reading};
use crate::world::{PATIENCE, World};

/// How many keys are asked for at the same time.
const AT_ONCE: usize = 32;
/// How long a single thing may take when nothing goes wrong any more.
const LIMIT: Duration = Duration::from_secs(300);

/// What came of the keys.
#[derive(Debug, Default)]
pub struct Kept {
    pub keys: usize,
    /// Those that had a final answer and gave it again.
    pub repeated: usize,
    /// Those that got their first final answer now.
    pub answered: usize,
    /// Those that were refused as things stand; nothing was recorded for them.
    pub refused: usize,
}

impl Kept {
    /// As the report shows it.
    pub fn json(&self) -> Value {
        json!({
            "used": self.keys,
            "repeated": self.repeated,
            "answered_now": self.answered,
            "refused": self.refused,
        })
    }
}

/// Nothing goes wrong from here on.
///
/// # Errors
/// When a host does not start.
pub async fn calm(world: &World, seed: u64) -> Result<()> {
    if let Some(disk) = &world.disk {
        disk.free()?;
    }
    for seat in 0..world.fleet.size() {
        world.fleet.set_clock(seat, 0)?;
    }
    world.fleet.start_all().await?;
    world.receiver.recover();
    for call in CALLS {
        world.channel.otherwise(call, Step::default());
    }
    world.channel.release();
    world.channel.webhooks_to(&world.fleet.base(0));
    let mut dice = StdRng::seed_from_u64(seed);
    let (told, _) = chaos::settle(&world.channel, &mut dice, |_, _| false);
    world
        .told
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .extend(told);
    Ok(())
}

/// Delivers the events of what the channel settled afterwards, until each is taken.
pub async fn tell(world: &World) {
    let told = world.told.lock().map(|told| told.clone());
    let told = told.unwrap_or_else(|poisoned| poisoned.into_inner().clone());
    let events = told
        .iter()
        .flat_map(|order_no| world.channel.events_of(order_no));
    stream::iter(events)
        .for_each_concurrent(AT_ONCE, async |event| {
            let end = Instant::now() + LIMIT;
            while world.channel.deliver(&event, Manner::Proper).await != Some(200) {
                if Instant::now() > end {
                    let what = format!("the webhook {} is not taken", event.body);
                    return world.violations.add(what);
                }
                sleep(Duration::from_millis(200)).await;
            }
        })
        .await;
}

/// Reconciles and dispatches until nothing is left.
pub async fn finish(world: &World) {
    let end = Instant::now() + LIMIT;
    let mut left = Value::Null;
    while Instant::now() < end {
        let payments = world.operate("reconcile", &json!({}), 0).await;
        let events = world.operate("dispatch", &json!({"dead": true}), 0).await;
        if let (Some(payments), Some(events)) = (payments, events) {
            left = json!({"channel": payments["left"], "events": events["left"]});
            let counts = [&payments["left"], &events["left"]];
            let mut counts = counts.into_iter().filter_map(Value::as_object);
            if counts.all(|counts| counts.values().all(|count| *count == 0)) {
                return;
            }
        }
        sleep(Duration::from_millis(500)).await;
    }
    world
        .violations
        .add(format!("work is left when nothing goes wrong: {left}"));
}

/// Sends every request again, twice where it gets its first final answer.
pub async fn retry(world: &World, promises: &[Arc<Promise>]) -> Kept {
    let before: Vec<bool> = promises
        .iter()
        .map(|promise| promise.status().is_some())
        .collect();
    let all: Vec<&Promise> = promises.iter().map(Arc::as_ref).collect();
    ask_all(world, &all).await;
    let pairs = promises.iter().zip(&before);
    let new: Vec<&Promise> = pairs
        .filter(|(promise, before)| !**before && promise.status().is_some())
        .map(|(promise, _)| promise.as_ref())
        .collect();
    ask_all(world, &new).await;
    let repeated = before.iter().filter(|before| **before).count();
    Kept {
        keys: promises.len(),
        repeated,
        answered: new.len(),
        refused: promises.len() - repeated - new.len(),
    }
}

async fn ask_all(world: &World, promises: &[&Promise]) {
    stream::iter(promises.iter().enumerate())
        .for_each_concurrent(AT_ONCE, async |(number, promise)| {
            let end = Instant::now() + LIMIT;
            loop {
                match world.ask(promise, number, PATIENCE).await {
                    Some(Reading::Final(_) | Reading::Refused) => return,
                    _ if Instant::now() > end => {
                        return world.violations.add(format!("no final answer: {promise}"));
                    }
                    _ => sleep(Duration::from_millis(200)).await,
                }
            }
        })
        .await;
}

/// Holds the files against the invariants, the answers, the channel and the receiver.
///
/// # Errors
/// When the database cannot be read.
pub fn audit(world: &World, promises: &[Arc<Promise>]) -> Result<Value> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let database = Connection::open_with_flags(world.fleet.database(), flags)?;
    // What the auditor looks things up by; the component never sees this file again.
    database.execute_batch(
        "CREATE INDEX soak_by_subject ON operations (subject_id, operation);
         CREATE INDEX soak_by_user ON operations (user_id, operation);
         CREATE INDEX soak_by_account ON ledger_entries (account, currency, merchant_id);
         CREATE INDEX soak_by_order ON payments (merchant_id, order_no);
         CREATE INDEX soak_by_event ON outbox (subject, type)",
    )?;
    database.pragma_update(None, "query_only", true)?;
    let violations = &world.violations;
    violations.check(payonce_oracle::integrity(&database));
    let books = payonce_oracle::audit(&database);
    violations.check(books.as_ref().map(drop));

    let book = world.channel.book();
    if let Some(number) = book.number_used_twice() {
        violations.add(format!("{number} is there twice at the channel"));
    }
    let kept = payonce_oracle::kept_at_channel(&database);
    violations.check(kept.and_then(|kept| same("orders kept", kept, book.kept())));
    violations.check(journal(&database, promises));
    let events = column(&database, "SELECT event_id FROM outbox")?;
    let taken: BTreeSet<String> = world.receiver.taken().into_iter().collect();
    violations.check(same("events", &events, &taken));
    let books = books.map_or(Value::Null, |books| {
        json!({
            "journal": books.journal, "orders": books.orders, "succeeded": books.succeeded,
        })
    });
    Ok(json!({
        "books": books,
        "charges": book.charges.len(),
        "refunds": book.refunds.len(),
        "events": events.len(),
        "deliveries": world.receiver.deliveries(),
    }))
}

/// As many operations as final answers, and as much money as the deposits that were answered.
fn journal(database: &Connection, promises: &[Arc<Promise>]) -> Result<(), String> {
    let number = |sql: &str| -> Result<i64, String> {
        let number = database.query_row(sql, [], |row| row.get(0));
        number.map_err(|error| error.to_string())
    };
    let operations = number(
        "SELECT count(*) FROM operations
         WHERE idempotency_key NOT LIKE 'settle %' AND idempotency_key NOT LIKE 'late %'
           AND operation <> 'coupon.limit'",
    )?;
    let finals = promises.iter().filter(|promise| promise.status().is_some());
    let finals = finals.count();
    if usize::try_from(operations) != Ok(finals) {
        return Err(format!(
            "{operations} operations for {finals} final answers"
        ));
    }
    let funded =
        number("SELECT -coalesce(sum(amount), 0) FROM ledger_entries WHERE account = 'funding'")?;
    let deposits = promises.iter().filter(|promise| {
        promise.request.operation == Operation::Deposit && promise.status() == Some(201)
    });
    let amount = |promise: &Arc<Promise>| {
        let body: Value = serde_json::from_str(&promise.request.body).ok()?;
        body["amount"].as_i64()
    };
    let deposited: i64 = deposits.filter_map(amount).sum();
    match funded == deposited {
        true => Ok(()),
        false => Err(format!(
            "{funded} in the ledger for deposits of {deposited}"
        )),
    }
}

fn column(database: &Connection, sql: &str) -> Result<BTreeSet<String>> {
    let mut statement = database.prepare(sql)?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Whether ours and theirs are the same; otherwise the first that differs.
fn same<T: PartialEq + std::fmt::Debug>(
    what: &str,
    ours: impl IntoIterator<Item = T>,
    theirs: impl IntoIterator<Item = T>,
) -> Result<(), String> {
    let (mut ours, mut theirs) = (ours.into_iter(), theirs.into_iter());
    loop {
        match (ours.next(), theirs.next()) {
            (None, None) => return Ok(()),
            (ours, theirs) if ours == theirs => {}
            (ours, theirs) => {
                return Err(format!("{what}: {ours:?} of ours is {theirs:?} of theirs"));
            }
        }
    }
}
