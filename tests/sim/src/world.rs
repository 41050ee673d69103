//! What the component sees of the outside: stores, clock, timers and network, none of which does anything
//! by itself. A call of the component waits here until the simulation decides that it takes effect, and
//! how.

mod file;
mod seat;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::channel::oneshot;
use http::{Method, Request};
use payonce_channel::{Desk, Outcome};
use payonce_host::Services;
use payonce_host::sqlite::{RowResult, Value};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use wasmtime_wasi::p2::pipe::MemoryOutputPipe;
use wasmtime_wasi::{HostMonotonicClock, HostWallClock};

pub use self::file::{File, Line};
use self::seat::Seat;

/// The wall clock at the start of everything: 2026-01-01.
const EPOCH_SECONDS: u64 = 1_767_225_600;

/// Where the payment channel is.
pub const CHANNEL_HOST: &str = "channel.test";

/// One life of one instance: an instance that died has a successor in its slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstanceId {
    pub slot: u8,
    pub life: u8,
}

impl fmt::Display for InstanceId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}{}", char::from(b'A' + self.slot), self.life + 1)
    }
}

/// A call of the component, as far as the outside has to do it.
#[derive(Clone)]
pub enum What {
    Open,
    Get(String),
    Set(String, Vec<u8>),
    Delete(String),
    Exists(String),
    Keys,
    Sql(Arc<Line>, String, Vec<Value>),
    /// A webhook to the merchant's server.
    Deliver(Delivery),
    /// A request to the payment channel.
    Channel(Request<Bytes>),
}

/// A webhook on its way to the merchant's server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Delivery {
    pub event_id: String,
    pub timestamp: String,
    pub signature: String,
    pub payload: String,
}

impl What {
    /// Whether it goes to the key-value store.
    pub fn is_key_value(&self) -> bool {
        !matches!(self, Self::Sql(..)) && !self.is_outbound()
    }

    /// Whether it goes to somebody's server.
    pub fn is_outbound(&self) -> bool {
        matches!(self, Self::Deliver(_) | Self::Channel(_))
    }

    /// Whether nobody can tell when it takes effect: from now on it always does and answers the same. Where
    /// the `schema_stays` as it is, that holds for reading it.
    pub fn is_private(&self, schema_stays: bool) -> bool {
        match self {
            Self::Open => true,
            Self::Sql(line, sql, _) => {
                let reads_schema =
                    sql.contains("FROM sqlite_schema") || sql.contains("FROM schema_migrations");
                sql.starts_with("PRAGMA busy_timeout")
                    || (schema_stays && reads_schema)
                    // Nothing is ever dropped.
                    || created_if_missing(sql).is_some_and(|name| line.has(name))
                    || recorded_version(sql).is_some_and(|version| line.is_at(version))
                    || (sql.ends_with("PRAGMA journal_mode = WAL;") && line.has_wal())
            }
            _ => false,
        }
    }

    /// Whether it can change the database.
    pub fn writes_database(&self) -> bool {
        matches!(self, Self::Sql(_, sql, _) if !only_reads(sql))
    }
}

/// Whether a statement of payonce changes nothing.
fn only_reads(sql: &str) -> bool {
    ["SELECT", "WITH"].iter().any(|word| sql.starts_with(word))
}

/// What a statement creates unless it is there.
fn created_if_missing(sql: &str) -> Option<&str> {
    let (_, rest) = sql.split_once(" IF NOT EXISTS ")?;
    rest.split([' ', '\n', '(']).next()
}

/// The version of the schema that a statement records unless it is recorded.
fn recorded_version(sql: &str) -> Option<u32> {
    let (version, _) = sql
        .strip_prefix("INSERT INTO schema_migrations (version) VALUES (")?
        .split_once(") ON CONFLICT DO NOTHING")?;
    version.parse().ok()
}

/// How a call ends.
#[derive(Clone, Debug)]
pub enum Answer {
    Done,
    Value(Option<Vec<u8>>),
    Exists(bool),
    Keys(Vec<String>),
    Rows(Vec<String>, Vec<RowResult>),
    /// The status of a response, and its body.
    Http(u16, String),
    Failed(String),
}

/// How a call takes effect.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// As it should.
    Good,
    /// It fails and changes nothing.
    Fails(Trouble),
    /// It changes what it should and is reported as failed.
    FailsAfter(Trouble),
    /// It is reported as done and changes nothing.
    Lost,
    /// A read that is answered with the value before the last `n` writes of that key.
    Stale(u8),
    /// A read that is answered with garbage.
    Garbage,
    /// A request that a server answers with 500, and does nothing.
    Refused,
    /// A request that a server answers with 500 after it has done it.
    RefusedAfter,
    /// A request that is never answered, and done later or never.
    Hangs,
    /// A charge or a refund that the channel declines.
    Declined,
    /// A charge or a refund that the channel goes on to work on, until somebody looks.
    Processed,
}

/// Why a call fails.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Trouble {
    Busy,
    Full,
    Io,
    Store,
    Network,
}

impl Trouble {
    fn text(self) -> String {
        match self {
            Self::Busy => "database is locked",
            Self::Full => "database or disk is full",
            Self::Io => "disk I/O error",
            Self::Store => "the key-value store does not answer",
            Self::Network => "connection reset",
        }
        .to_owned()
    }
}

/// A call that waits for its effect or for its answer to be delivered.
pub struct Call {
    pub instance: InstanceId,
    /// Counted within the instance.
    pub number: u32,
    pub what: What,
    /// Once it has taken effect.
    pub answer: Option<Answer>,
    reply: Option<oneshot::Sender<Answer>>,
}

impl Call {
    /// Whether nobody hears of it any more: it takes effect all the same.
    pub fn is_orphan(&self) -> bool {
        self.reply.is_none()
    }
}

/// Somebody who sleeps.
pub struct Timer {
    /// An instance, or a client.
    pub sleeper: Sleeper,
    pub deadline: u64,
    number: u32,
    wake: oneshot::Sender<()>,
}

/// Who sleeps.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sleeper {
    Instance(InstanceId),
    Client(usize),
}

/// What a key-value store holds.
pub type Entries = BTreeMap<String, Vec<u8>>;

/// The values that a key had, oldest first.
type Versions = Vec<Option<Vec<u8>>>;

/// What is known of an instance.
#[derive(Default)]
struct Known {
    calls: u32,
    timers: u32,
    /// Everything that it was told.
    history: Chain,
}

/// See the module.
pub struct World {
    clock: Clock,
    pub calls: Vec<Call>,
    timers: Vec<Timer>,
    key_value: BTreeMap<String, Versions>,
    instances: BTreeMap<InstanceId, Known>,
    /// Every statement that changed the database, in order.
    database: Chain,
    file: Arc<File>,
    log: MemoryOutputPipe,
    /// What the merchants' server took, in order.
    pub received: Vec<Delivery>,
    /// The payment channel.
    pub channel: Desk,
    /// Whoever waits for what never comes.
    hung: Vec<oneshot::Sender<Answer>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The world, as the seats of the instances share it.
#[derive(Clone)]
pub struct Shared(Arc<Mutex<World>>);

impl Shared {
    /// A world with this database file and these entries in the key-value store, at a time in nanoseconds.
    pub fn new(file: Arc<File>, entries: &Entries, now: u64) -> Self {
        let only = |(key, value): (&String, &Vec<u8>)| (key.clone(), vec![Some(value.clone())]);
        Self(Arc::new(Mutex::new(World {
            clock: Clock(Arc::new(AtomicU64::new(now))),
            calls: Vec::new(),
            timers: Vec::new(),
            key_value: entries.iter().map(only).collect(),
            instances: BTreeMap::new(),
            database: Chain::default(),
            file,
            received: Vec::new(),
            channel: Desk::default(),
            hung: Vec::new(),
            log: MemoryOutputPipe::new(64 << 20),
        })))
    }

    /// The world. Nobody else runs meanwhile: a simulation has one thread.
    pub fn lock(&self) -> MutexGuard<'_, World> {
        lock(&self.0)
    }

    /// The services of a new instance: those of the application, with this world in them.
    pub fn services(&self, application: &Services, instance: InstanceId) -> Arc<Services> {
        let mut services = application.clone();
        let (clock, log) = {
            let mut world = self.lock();
            world.instances.insert(instance, Known::default());
            (world.clock.clone(), world.log.clone())
        };
        let seat = Seat::new(self.clone(), instance);
        for store in services.key_value.values_mut() {
            *store = Arc::new(seat.clone());
        }
        for database in services.databases.values_mut() {
            *database = Arc::new(seat.clone());
        }
        services.wasi = Some(Arc::new(move |wasi| {
            let seed = u64::from(instance.slot) << 8 | u64::from(instance.life);
            wasi.wall_clock(clock.clone())
                .monotonic_clock(clock.clone())
                .secure_random(StdRng::seed_from_u64(seed))
                .insecure_random(StdRng::seed_from_u64(seed + (1 << 16)))
                .insecure_random_seed(u128::from(seed))
                .stdout(log.clone())
                .stderr(log.clone());
        }));
        let sleeper = seat.clone();
        services.sleep = Some(Arc::new(move |duration| sleeper.sleep(duration)));
        services.network = Some(Arc::new(move |request| {
            seat.clone().request(request).boxed()
        }));
        Arc::new(services)
    }
}

impl World {
    /// The time since the start of everything, nanoseconds.
    pub fn now(&self) -> u64 {
        self.clock.0.load(Ordering::Relaxed)
    }

    /// The wall clock, seconds since 1970.
    pub fn seconds(&self) -> u64 {
        EPOCH_SECONDS + self.now() / 1_000_000_000
    }

    /// The wall clock, milliseconds since 1970.
    pub fn millis(&self) -> i64 {
        let millis = EPOCH_SECONDS * 1_000 + self.now() / 1_000_000;
        i64::try_from(millis).unwrap_or(i64::MAX)
    }

    /// Lets time pass while nothing else happens.
    pub fn leap(&mut self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.clock.0.fetch_add(nanos, Ordering::Relaxed);
    }

    /// What the component has written to its standard output and standard error.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&self.log.contents()).into_owned()
    }

    /// Makes somebody sleep.
    pub fn sleep(&mut self, sleeper: Sleeper, duration: Duration) -> oneshot::Receiver<()> {
        let (wake, woken) = oneshot::channel();
        let number = match sleeper {
            Sleeper::Client(_) => 0,
            Sleeper::Instance(instance) => {
                let known = self.instances.entry(instance).or_default();
                known.timers += 1;
                known.timers
            }
        };
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.timers.push(Timer {
            sleeper,
            deadline: self.now().saturating_add(nanos),
            number,
            wake,
        });
        woken
    }

    /// Whoever wakes up next.
    pub fn next_timer(&self) -> Option<&Timer> {
        self.timers
            .iter()
            .filter(|timer| !timer.wake.is_canceled())
            .min_by_key(|timer| timer.deadline)
    }

    /// Wakes up whoever is next, when it is time; returns who.
    pub fn tick(&mut self) -> Option<Sleeper> {
        self.timers.retain(|timer| !timer.wake.is_canceled());
        let index = (0..self.timers.len()).min_by_key(|index| self.timers[*index].deadline)?;
        let timer = self.timers.remove(index);
        let now = self.now().max(timer.deadline);
        self.clock.0.store(now, Ordering::Relaxed);
        if let Sleeper::Instance(instance) = timer.sleeper {
            self.tell(instance, &("woken", timer.number));
        }
        // Its future is waiting.
        _ = timer.wake.send(());
        Some(timer.sleeper)
    }

    /// Notes that an instance was told something, now.
    pub fn tell(&mut self, instance: InstanceId, what: &impl Hash) {
        let now = self.now();
        let known = self.instances.entry(instance).or_default();
        known.history.add(&(now, what));
    }

    /// The calls of an instance that it waits for.
    pub fn calls_of(&self, instance: InstanceId) -> impl Iterator<Item = &Call> {
        let mine = move |call: &&Call| call.instance == instance && !call.is_orphan();
        self.calls.iter().filter(mine)
    }

    /// Lets a call take effect.
    pub fn effect(&mut self, index: usize, effect: Effect) {
        if effect == Effect::Hangs {
            let reply = self.calls[index].reply.take();
            self.hung.extend(reply);
            return;
        }
        let what = self.calls[index].what.clone();
        let answer = self.execute(&what, effect);
        let call = &mut self.calls[index];
        if call.is_orphan() {
            self.calls.remove(index);
        } else {
            call.answer = Some(answer);
        }
    }

    /// Tells the instance how its call ended.
    pub fn deliver(&mut self, index: usize) {
        let call = self.calls.remove(index);
        if let (Some(answer), Some(reply)) = (call.answer, call.reply) {
            self.tell(call.instance, &(call.number, format!("{answer:?}")));
            // An instance may have given up on it.
            _ = reply.send(answer);
        }
    }

    /// An instance is dead. Its calls that have not taken effect go on only where `orphaned` says so.
    pub fn forget(&mut self, instance: InstanceId, orphaned: impl Fn(u32) -> bool) {
        self.instances.remove(&instance);
        self.timers
            .retain(|timer| timer.sleeper != Sleeper::Instance(instance));
        self.calls.retain_mut(|call| {
            if call.instance != instance || call.is_orphan() {
                return true;
            }
            call.reply = None;
            call.answer.is_none() && orphaned(call.number)
        });
    }

    /// Empties the key-value store.
    pub fn wipe(&mut self) {
        self.key_value.clear();
    }

    /// What the key-value store holds.
    pub fn entries(&self) -> Entries {
        let keys = self.keys().into_iter();
        keys.filter_map(|key| Some((key.clone(), self.value(&key, 0)?)))
            .collect()
    }

    /// Whether there is anything in the key-value store.
    pub fn has_entries(&self) -> bool {
        self.key_value
            .values()
            .any(|versions| matches!(versions.last(), Some(Some(_))))
    }

    /// How many values a key had before the one it has, for stale reads.
    pub fn versions(&self, key: &str) -> u8 {
        let versions = self.key_value.get(key).map_or(0, Vec::len);
        u8::try_from(versions).unwrap_or(u8::MAX)
    }

    /// Everything that the database file depends on, besides what it was at first.
    pub fn database(&self) -> Chain {
        self.database
    }

    /// Everything that what happens next can depend on.
    pub fn state(&self, state: &mut Chain) {
        state.add(&self.now());
        for (instance, known) in &self.instances {
            state.add(&(instance, &known.history));
        }
        for call in &self.calls {
            state.add(&(call.instance, call.number, call.is_orphan()));
            state.add(&call.answer.as_ref().map(|answer| format!("{answer:?}")));
        }
        for timer in &self.timers {
            state.add(&(timer.sleeper, timer.deadline, timer.number));
        }
        state.add(&self.key_value);
        state.add(&self.received);
        state.add(&(
            format!("{:?}", self.channel.book()),
            self.channel.events().len(),
        ));
        state.add(&self.database);
    }

    fn execute(&mut self, what: &What, effect: Effect) -> Answer {
        let result = match (what, effect) {
            (_, Effect::Fails(trouble)) => return Answer::Failed(trouble.text()),
            (_, Effect::Lost) => return Answer::Done,
            (What::Get(_), Effect::Garbage) => return Answer::Value(Some(b"\x00{\"resp".to_vec())),
            (What::Deliver(_) | What::Channel(_), Effect::Refused) => {
                return Answer::Http(500, String::new());
            }
            (What::Get(key), Effect::Stale(by)) => return Answer::Value(self.value(key, by)),
            (What::Deliver(delivery), _) => {
                self.received.push(delivery.clone());
                Answer::Http(204, String::new())
            }
            (What::Channel(request), _) => self.ask_channel(request.clone(), effect),
            (What::Open, _) => Answer::Done,
            (What::Get(key), _) => Answer::Value(self.value(key, 0)),
            (What::Exists(key), _) => Answer::Exists(self.value(key, 0).is_some()),
            (What::Keys, _) => Answer::Keys(self.keys()),
            (What::Set(key, value), _) => self.write(key, Some(value.clone())),
            (What::Delete(key), _) => self.write(key, None),
            (What::Sql(line, sql, parameters), _) => {
                let (changed, answer) = line.run(sql, parameters.clone());
                if changed {
                    self.database.add(&(sql, format!("{parameters:?}")));
                }
                answer
            }
        };
        match effect {
            Effect::FailsAfter(trouble) => Answer::Failed(trouble.text()),
            Effect::RefusedAfter => Answer::Http(500, String::new()),
            Effect::Garbage => Answer::Http(200, "<title>a proxy</title>".to_owned()),
            _ => result,
        }
    }

    fn ask_channel(&mut self, request: Request<Bytes>, effect: Effect) -> Answer {
        if request.method() == Method::GET {
            self.end_what_is_processing();
        }
        let outcome = match effect {
            Effect::Declined => Outcome::Declined("card_declined".to_owned()),
            Effect::Processed => Outcome::Processing,
            _ => Outcome::Succeeded,
        };
        let (status, body) = self.channel.answer(request, outcome);
        Answer::Http(status, body.to_string())
    }

    /// The channel ends what it was working on.
    pub fn end_what_is_processing(&mut self) {
        let book = self.channel.book();
        let charges = book.charges.iter();
        let charges = charges.filter(|charge| charge.outcome == Outcome::Processing);
        let charges: Vec<String> = charges.map(|charge| charge.charge_id.clone()).collect();
        let refunds = book.refunds.iter();
        let refunds = refunds.filter(|refund| refund.outcome == Outcome::Processing);
        let refunds: Vec<String> = refunds.map(|refund| refund.refund_id.clone()).collect();
        for charge in charges {
            self.channel.settle_charge(&charge, Outcome::Succeeded);
        }
        for refund in refunds {
            self.channel.settle_refund(&refund, Outcome::Succeeded);
        }
    }

    /// A charge that the channel has declined, and has got the money of all the same.
    pub fn declined_charge(&self) -> Option<String> {
        let mut charges = self.channel.book().charges.iter();
        let declined = charges.find(|charge| charge.outcome.code().is_some());
        declined.map(|charge| charge.charge_id.clone())
    }

    fn value(&self, key: &str, before: u8) -> Option<Vec<u8>> {
        let versions = self.key_value.get(key)?;
        let index = versions.len().checked_sub(1 + usize::from(before))?;
        versions[index].clone()
    }

    fn keys(&self) -> Vec<String> {
        let set = |key: &&String| self.value(key, 0).is_some();
        self.key_value.keys().filter(set).cloned().collect()
    }

    fn write(&mut self, key: &str, value: Option<Vec<u8>>) -> Answer {
        self.key_value
            .entry(key.to_owned())
            .or_default()
            .push(value);
        Answer::Done
    }
}

/// A hash over things that happened one after the other.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Chain([u64; 2]);

impl Chain {
    /// Adds what happened next.
    pub fn add(&mut self, what: &impl Hash) {
        for (index, half) in self.0.iter_mut().enumerate() {
            let mut hasher = DefaultHasher::new();
            (index, *half).hash(&mut hasher);
            what.hash(&mut hasher);
            *half = hasher.finish();
        }
    }
}

/// The clock of the world, nanoseconds since the start of everything.
#[derive(Clone)]
struct Clock(Arc<AtomicU64>);

impl HostWallClock for Clock {
    fn resolution(&self) -> Duration {
        Duration::from_nanos(1)
    }

    fn now(&self) -> Duration {
        Duration::from_secs(EPOCH_SECONDS) + Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

impl HostMonotonicClock for Clock {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
