//! One run: clients send their requests and repeat them until they have a final answer, while a
//! [`Chooser`] decides what happens next wherever more than one thing can.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use futures::executor::{LocalPool, LocalSpawner};
use futures::future::{FutureExt as _, poll_fn};
use futures::task::LocalSpawnExt as _;
use http::Method;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, LOCATION};
use http_body_util::{BodyExt as _, Full};
use payonce_host::solo::{Inbox, Running};
use payonce_host::{App, Services};
use wasmtime_wasi_http::WasiBody;

use crate::operations::{self, Key, MERCHANTS, Request};
use crate::oracle::Oracle;
use crate::scenario::{Limits, Scenario, StoreMode};
use crate::world::{
    Chain, Effect, Entries, File, InstanceId, Shared, Sleeper, Trouble, What, World,
};

/// The most things that happen in one run.
const MOST_EVENTS: usize = 5_000;

/// How often a client sends its request before it calls it stuck.
const MOST_ATTEMPTS: u8 = 25;

/// How long a leap of the clock is: longer than any lease.
const LEAP: Duration = Duration::from_secs(4);

/// How old a shop is that is past its retention, nanoseconds.
const AGE: u64 = 8 * 24 * 3_600_000_000_000;

/// How often what is due is dispatched at the end, until nothing is.
const MOST_DISPATCHES: usize = 14;

/// Decides what happens next.
pub trait Chooser {
    /// One of `options` things, of which the first is what would happen without any trouble; nothing to
    /// end the run. `state` is everything the rest of the run depends on.
    fn choose(&mut self, options: usize, state: &dyn Fn() -> Chain) -> Option<usize>;
}

/// What came of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// What was wrong, if anything was.
    pub violation: Option<String>,
    /// Whether the chooser ended it.
    pub cut: bool,
    pub events: usize,
    /// What happened, a line each, if that was wanted.
    pub trace: String,
}

/// An answer as a client gets it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Answer {
    pub status: u16,
    pub content_type: String,
    pub location: Option<String>,
    pub replayed: bool,
    pub retry_after: Option<u64>,
    pub body: String,
}

impl Answer {
    /// The `code` of a problem.
    pub fn code(&self) -> String {
        let body: Option<serde_json::Value> = serde_json::from_str(&self.body).ok();
        let code = body.and_then(|body| body["code"].as_str().map(str::to_owned));
        code.unwrap_or_default()
    }

    /// Whether it is recorded and replayed.
    pub fn is_final(&self) -> bool {
        matches!(self.status, 200..=299 | 402)
    }

    /// Whether the client has to come back.
    fn asks_to_retry(&self) -> bool {
        self.status == 503 || self.code() == "idempotency_in_progress"
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let replayed = if self.replayed { " (replayed)" } else { "" };
        write!(out, "{}{replayed} {}", self.status, self.body)
    }
}

/// The shop that the runs begin with, as the component made it.
pub struct Shop {
    /// Its database file.
    database: Vec<u8>,
    /// Its key-value store.
    entries: Entries,
    now: u64,
    /// A submit token for each merchant.
    tokens: Vec<String>,
}

/// Where runs happen, one after the other.
pub struct Lab {
    app: Arc<App>,
    /// Without a receiver of events, and with one.
    services: [Services; 2],
    directory: tempfile::TempDir,
    shop: Option<Stocked>,
}

/// A shop with its files in the lab.
struct Stocked {
    shop: Arc<Shop>,
    /// As it was in the beginning.
    template: rusqlite::Connection,
    schema_version: i64,
    /// What the runs change.
    file: Arc<File>,
    restorer: rusqlite::Connection,
}

impl Stocked {
    fn new(shop: Arc<Shop>, directory: &Path) -> Result<Self> {
        let (template, file) = (directory.join("template.db"), directory.join("shop.db"));
        std::fs::write(&template, &shop.database)?;
        std::fs::write(&file, &shop.database)?;
        let template = rusqlite::Connection::open(template)?;
        let schema_version =
            template.pragma_query_value(None, "schema_version", |row| row.get(0))?;
        let restorer = rusqlite::Connection::open(&file)?;
        restorer.pragma_update(None, "synchronous", "OFF")?;
        Ok(Self {
            shop,
            template,
            schema_version,
            file: File::new(file, true),
            restorer,
        })
    }

    /// Puts the file back to where a run begins.
    fn restore(&mut self) -> Result<()> {
        let backup = rusqlite::backup::Backup::new(&self.template, &mut self.restorer)?;
        ensure!(
            backup.step(-1)? == rusqlite::backup::StepResult::Done,
            "the shop is not back"
        );
        drop(backup);
        // A copy counts as a new schema; this one is the one that all connections know.
        self.restorer
            .pragma_update(None, "schema_version", self.schema_version)?;
        Ok(())
    }
}

impl Lab {
    /// A lab for an application whose services are `services`, without a receiver of events and with one.
    pub fn new(app: Arc<App>, services: [Services; 2], shop: Option<Arc<Shop>>) -> Result<Self> {
        // In memory where the system has a place for that: thousands of short-lived files.
        let directory = match tempfile::tempdir_in("/dev/shm") {
            Ok(directory) => directory,
            Err(_) => tempfile::tempdir()?,
        };
        let shop = shop.map(|shop| Stocked::new(shop, directory.path()));
        Ok(Self {
            app,
            services,
            shop: shop.transpose()?,
            directory,
        })
    }

    /// The file that a run begins with.
    fn file(&mut self, empty: bool) -> Result<Arc<File>> {
        if let Some(shop) = self.shop.as_mut().filter(|_| !empty) {
            shop.restore()?;
            return Ok(Arc::clone(&shop.file));
        }
        let path = self.directory.path().join("empty.db");
        for suffix in ["", "-wal", "-shm", "-journal"] {
            let mut name = path.clone().into_os_string();
            name.push(suffix);
            match std::fs::remove_file(name) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        Ok(File::new(path, false))
    }

    /// Makes the shop by sending its requests to the component, one after the other.
    pub fn open_shop(&mut self) -> Result<Arc<Shop>> {
        let world = Shared::new(self.file(true)?, &Entries::new(), 0);
        let mut stage = Stage::new(self, true, world.clone());
        let mut tokens = Vec::new();
        for merchant in MERCHANTS {
            let token = Wire::new(&format!("key-{merchant}"), Method::POST, "/v1/tokens");
            let token = stage.settle(0, token)?;
            ensure!(token.status == 201, "no token: {token}");
            let body: serde_json::Value = serde_json::from_str(&token.body)?;
            tokens.push(body["token"].as_str().context("no token")?.to_owned());
            for (index, request) in operations::fixture().into_iter().enumerate() {
                let mut wire = Wire::of(merchant, &request);
                wire.header("idempotency-key", &format!("fixture-{index}"));
                let answer = stage.settle(0, wire)?;
                ensure!(answer.is_final(), "the shop cannot be opened: {answer}");
                stage.rest();
            }
        }
        let entries = world.lock().entries();
        drop(stage);
        let now = world.lock().now();
        drop(world);
        let shop = Arc::new(Shop {
            database: std::fs::read(self.directory.path().join("empty.db"))?,
            entries,
            now,
            tokens,
        });
        self.shop = Some(Stocked::new(Arc::clone(&shop), self.directory.path())?);
        Ok(shop)
    }

    /// Does one run. With `traced` its report says what happened.
    pub fn run(&mut self, scenario: &Scenario, chooser: &mut dyn Chooser, traced: bool) -> Report {
        match self.try_run(scenario, chooser, traced) {
            Ok(report) => report,
            Err(error) => Report {
                violation: Some(format!("the simulation itself failed: {error:#}")),
                ..Report::default()
            },
        }
    }

    fn try_run(
        &mut self,
        scenario: &Scenario,
        chooser: &mut dyn Chooser,
        traced: bool,
    ) -> Result<Report> {
        let file = self.file(scenario.empty)?;
        let shop = self.shop.as_ref().map(|stocked| &*stocked.shop);
        let nothing = Entries::new();
        let (entries, now) = match shop {
            Some(shop) if scenario.aged => (&shop.entries, shop.now + AGE),
            Some(shop) => (&nothing, shop.now),
            None => (&nothing, 0),
        };
        let world = Shared::new(Arc::clone(&file), entries, now);
        let stage = Stage::new(self, scenario.notify, world.clone());
        let mut run = Run {
            scenario,
            world,
            oracle: Oracle::new(file, scenario.clients.len()),
            clients: scenario.clients.iter().map(|_| State::default()).collect(),
            limits: scenario.limits,
            tokens: shop.map_or(&[], |shop| &shop.tokens),
            stage,
            report: Report::default(),
            calm: true,
            traced,
        };
        if scenario.warm {
            run.warm_up()?;
        }
        let outcome = run.play(chooser).and_then(|()| match run.report.cut {
            true => Ok(()),
            false => run.close(),
        });
        let mut report = std::mem::take(&mut run.report);
        report.violation = outcome.err();
        if traced {
            let log = run.world.lock().log();
            for line in log.lines() {
                _ = writeln!(report.trace, "  component: {line}");
            }
        }
        Ok(report)
    }
}

/// A request as it is sent.
struct Wire {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: String,
}

impl Wire {
    /// A request without a body, with an API key.
    fn new(api_key: &str, method: Method, path: &str) -> Self {
        let mut wire = Self {
            method,
            path: path.to_owned(),
            headers: HeaderMap::new(),
            body: String::new(),
        };
        wire.header("host", "payonce.test");
        wire.header("authorization", &format!("Bearer {api_key}"));
        wire
    }

    /// A merchant's request, without a key.
    fn of(merchant: &str, request: &Request) -> Self {
        let api_key = format!("key-{merchant}");
        let mut wire = Self::new(&api_key, request.method.clone(), &request.path);
        wire.body = request.body.to_string();
        wire.header("content-type", "application/json");
        wire
    }

    fn header(&mut self, name: &'static str, value: &str) {
        if let Ok(value) = value.parse() {
            self.headers.insert(name, value);
        }
    }
}

/// The instances and the executor they run on. Nothing on it goes on by itself.
struct Stage {
    pool: LocalPool,
    spawner: LocalSpawner,
    app: Arc<App>,
    services: Services,
    world: Shared,
    slots: Vec<Slot>,
}

/// A place for instances, one at a time.
struct Slot {
    id: InstanceId,
    inbox: Rc<Inbox>,
    running: Rc<RefCell<Option<Running>>>,
    /// Why it ended by itself.
    ended: Rc<RefCell<Option<String>>>,
}

/// Where the answer of an attempt appears: `None` inside where the connection was lost.
type Pending = Rc<RefCell<Option<Option<Answer>>>>;

impl Stage {
    fn new(lab: &Lab, notify: bool, world: Shared) -> Self {
        let pool = LocalPool::new();
        Self {
            spawner: pool.spawner(),
            pool,
            app: Arc::clone(&lab.app),
            services: lab.services[usize::from(notify)].clone(),
            world,
            slots: Vec::new(),
        }
    }

    /// Lets everything run until it waits for the world.
    fn advance(&mut self) {
        self.pool.run_until_stalled();
    }

    fn instance(&mut self, slot: u8) -> &Slot {
        let index = usize::from(slot);
        while self.slots.len() <= index {
            let number = u8::try_from(self.slots.len()).unwrap_or(u8::MAX);
            let started = self.start(InstanceId {
                slot: number,
                life: 0,
            });
            self.slots.push(started);
        }
        if self.slots[index].running.borrow().is_none() {
            let InstanceId { slot, life } = self.slots[index].id;
            self.slots[index] = self.start(InstanceId {
                slot,
                life: life + 1,
            });
        }
        &self.slots[index]
    }

    fn start(&self, id: InstanceId) -> Slot {
        let services = self.world.services(&self.services, id);
        let (inbox, running) = self.app.solo(services);
        let running = Rc::new(RefCell::new(Some(running)));
        let ended: Rc<RefCell<Option<String>>> = Rc::default();
        let (slot, end) = (Rc::clone(&running), Rc::clone(&ended));
        let task = poll_fn(move |context| {
            let mut slot = slot.borrow_mut();
            let Some(running) = slot.as_mut() else {
                return std::task::Poll::Ready(());
            };
            let result = std::task::ready!(running.poll_unpin(context));
            *slot = None;
            *end.borrow_mut() = Some(match result {
                Ok(()) => "it ended".to_owned(),
                Err(error) => format!("{error:#}"),
            });
            std::task::Poll::Ready(())
        });
        // The pool is not shut down.
        _ = self.spawner.spawn_local(task);
        Slot {
            id,
            inbox: Rc::new(inbox),
            running,
            ended,
        }
    }

    /// Sends a request to the instance in a slot, whose answer will appear.
    fn send(&mut self, slot: u8, wire: Wire) -> Result<Pending> {
        let mut headers = wire.headers;
        headers.insert(CONTENT_LENGTH, wire.body.len().into());
        let body = Full::new(Bytes::from(wire.body)).map_err(|never| match never {});
        let mut request = http::Request::new(WasiBody::new(body));
        *request.method_mut() = wire.method;
        *request.uri_mut() = wire.path.parse()?;
        *request.headers_mut() = headers;
        let inbox = Rc::clone(&self.instance(slot).inbox);
        let pending = Pending::default();
        let appears = Rc::clone(&pending);
        self.spawner.spawn_local(async move {
            let client = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
            let answer = match inbox.handle(request, client).await {
                Some(response) => read(response).await,
                None => None,
            };
            *appears.borrow_mut() = Some(answer);
        })?;
        Ok(pending)
    }

    /// Kills the instance in a slot.
    fn kill(&mut self, slot: u8) {
        self.slots[usize::from(slot)].running.borrow_mut().take();
    }

    /// Why an instance ended that nobody killed.
    fn trapped(&self) -> Option<String> {
        self.slots.iter().find_map(|slot| {
            let ended = slot.ended.borrow();
            ended
                .as_ref()
                .map(|why| format!("instance {}: {why}", slot.id))
        })
    }

    /// Sends a request and lets everything happen as it should until its answer is there.
    fn settle(&mut self, slot: u8, wire: Wire) -> Result<Answer> {
        let pending = self.send(slot, wire)?;
        for _ in 0..MOST_EVENTS {
            self.advance();
            let answer = pending.borrow_mut().take();
            if let Some(answer) = answer {
                return answer.context("the instance died");
            }
            if !self.step() {
                break;
            }
        }
        anyhow::bail!("there is no answer")
    }

    /// Lets everything come to rest.
    fn rest(&mut self) {
        self.advance();
        while self.step() {
            self.advance();
        }
    }

    /// Lets the next thing happen as it should; whether there was one.
    fn step(&mut self) -> bool {
        let mut world = self.world.lock();
        if world.calls.is_empty() {
            return world.tick().is_some();
        }
        world.effect(0, Effect::Good);
        world.deliver(0);
        true
    }
}

async fn read(response: http::Response<WasiBody>) -> Option<Answer> {
    let (parts, body) = response.into_parts();
    let text = |name: http::HeaderName| {
        let value = parts.headers.get(name)?;
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let body = body.collect().await.ok()?.to_bytes();
    Some(Answer {
        status: parts.status.as_u16(),
        content_type: text(CONTENT_TYPE).unwrap_or_default(),
        location: text(LOCATION),
        replayed: parts.headers.contains_key("idempotent-replayed"),
        retry_after: text(http::header::RETRY_AFTER).and_then(|seconds| seconds.parse().ok()),
        body: String::from_utf8_lossy(&body).into_owned(),
    })
}

/// What a client of a scenario is at.
#[derive(Default)]
struct State {
    attempts: u8,
    /// While an attempt is on its way.
    pending: Option<Pending>,
    /// While it waits before its next attempt.
    pause: Option<futures::channel::oneshot::Receiver<()>>,
    answer: Option<Answer>,
}

/// Something that can happen.
#[derive(Clone, Debug)]
enum Event {
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
    /// Time passes while calls are on their way.
    Leap,
    /// The key-value store loses everything.
    Wipe,
    /// An instance dies. For each of its calls that have not taken effect: what becomes of it.
    Crash(u8, Vec<(u32, Fate)>),
}

/// What becomes of a call when its instance dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It never takes effect.
    Dropped,
    /// It has taken effect.
    Done,
    /// It is still on its way.
    Orphaned,
}

struct Run<'a> {
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
    traced: bool,
}

impl Run<'_> {
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
        loop {
            self.stage.advance();
            if let Some(why) = self.stage.trapped() {
                return Err(format!("the component trapped: {why}"));
            }
            self.answers()?;
            let events = self.events();
            let chosen = match events.len() {
                0 => break,
                1 => Some(0),
                options => chooser.choose(options, &|| self.state()),
            };
            let Some(chosen) = chosen else {
                self.report.cut = true;
                return Ok(());
            };
            self.calm &= chosen == 0;
            self.report.events += 1;
            if self.report.events > MOST_EVENTS {
                return Err("invariant 9: it does not come to an end".to_owned());
            }
            self.happen(&events[chosen])?;
        }
        match self
            .clients
            .iter()
            .position(|client| client.answer.is_none())
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
            let Some(pause) = pause else {
                self.clients[index].answer = arrived;
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
            let state = &self.clients[*index];
            let after = self.scenario.clients[*index].after;
            let free = after.is_none_or(|other| self.clients[other].answer.is_some());
            state.attempts == 0 && free
        };
        let mut unsent = (0..self.clients.len()).filter(unsent);
        if !self.scenario.shared_instance
            && let Some(index) = unsent.next()
        {
            return vec![Event::Send(index)];
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
        let mut events: Vec<Event> = unsent.map(Event::Send).collect();
        events.extend(calls.iter().map(|index| step(*index, usual(*index))));
        let sleeps = world.next_timer().is_some();
        if sleeps && (!waiting || self.limits.early_timers > 0) {
            events.push(Event::Tick);
        }
        let orphans = (0..world.calls.len()).filter(|index| world.calls[*index].is_orphan());
        events.extend(orphans.map(|index| Event::Effect(index, Effect::Good)));
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

    /// How a call takes effect where nothing is wrong but what is wrong all the time.
    fn usual(&self, world: &World, index: usize) -> Effect {
        let what = &world.calls[index].what;
        match (self.scenario.store, what) {
            (StoreMode::Good, _) | (_, What::Sql(..) | What::Http(_)) => Effect::Good,
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
        } else if matches!(what, What::Http(_)) {
            if self.limits.network_faults > 0 {
                effects.extend([
                    Effect::Fails(Trouble::Network),
                    Effect::FailsAfter(Trouble::Network),
                    Effect::Refused,
                ]);
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
            let line = self.describe(event);
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
                world.deliver(*index);
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
            Event::Wipe => {
                self.limits.store_faults -= 1;
                world.wipe();
            }
            Event::Crash(slot, fates) => {
                self.limits.crashes -= 1;
                let id = self.stage.slots[usize::from(*slot)].id;
                for (number, fate) in fates {
                    let of_fate =
                        |call: &crate::world::Call| call.instance == id && call.number == *number;
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
        } else if matches!(what, What::Http(_)) {
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
        self.trace(|| "everybody asks once more, in a new instance".to_owned());
        let witness = u8::try_from(self.stage.slots.len()).unwrap_or(u8::MAX);
        for index in 0..self.clients.len() {
            let client = &self.scenario.clients[index];
            let answer = self.clients[index].answer.clone();
            let recorded = |answer: &Answer| answer.is_final() && client.key != Key::Operator;
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
        if self.scenario.notify {
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
        self.oracle.finish(self.scenario, self.calm)
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
                self.oracle.window(index),
            ));
        }
        for slot in &self.stage.slots {
            state.add(&(slot.id, slot.running.borrow().is_some()));
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

    /// An event in words.
    fn describe(&self, event: &Event) -> String {
        let world = self.world.lock();
        let call = |index: usize| {
            let call = &world.calls[index];
            format!("{} #{} {}", call.instance, call.number, call.what)
        };
        match event {
            Event::Send(index) => format!("client {index} comes"),
            Event::Call(index, effect) => format!("{}: {}", call(*index), words(*effect)),
            Event::Effect(index, effect) if world.calls[*index].is_orphan() => {
                format!(
                    "{}: {}, after its instance died",
                    call(*index),
                    words(*effect)
                )
            }
            Event::Effect(index, effect) => {
                format!("{}: {}, not told yet", call(*index), words(*effect))
            }
            Event::Deliver(index) => format!("{}: told", call(*index)),
            Event::Tick => match world.next_timer().map(|timer| timer.sleeper) {
                Some(Sleeper::Client(index)) => format!("client {index} has waited"),
                Some(Sleeper::Instance(id)) => format!("{id} wakes up"),
                None => "nobody wakes up".to_owned(),
            },
            Event::Leap => format!("{} s pass", LEAP.as_secs()),
            Event::Wipe => "the key-value store loses everything".to_owned(),
            Event::Crash(slot, fates) => {
                let id = self.stage.slots[usize::from(*slot)].id;
                let mine = |call: &&crate::world::Call| call.instance == id && !call.is_orphan();
                let calls = world.calls.iter().filter(mine).map(|call| {
                    let fate = fates.iter().find(|(number, _)| *number == call.number);
                    let fate = match fate {
                        Some((_, Fate::Dropped)) => "never done",
                        Some((_, Fate::Orphaned)) => "still on its way",
                        Some((_, Fate::Done)) | None => "done, not told",
                    };
                    format!("#{} {}: {fate}", call.number, call.what)
                });
                let fates: Vec<String> = calls.collect();
                format!("{id} DIES; {}", fates.join(", "))
            }
        }
    }
}

fn words(effect: Effect) -> String {
    match effect {
        Effect::Good => "done".to_owned(),
        Effect::Fails(trouble) => format!("FAILS ({trouble:?}), nothing done"),
        Effect::FailsAfter(trouble) => format!("done, but REPORTED AS FAILED ({trouble:?})"),
        Effect::Lost => "REPORTED AS DONE, but lost".to_owned(),
        Effect::Stale(by) => format!("reads a STALE value, {by} writes old"),
        Effect::Garbage => "reads GARBAGE".to_owned(),
        Effect::Refused => "is answered with 500".to_owned(),
    }
}

impl fmt::Display for What {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |text: &str| {
            let words: Vec<&str> = text.split_whitespace().collect();
            let text = words.join(" ");
            match text.char_indices().nth(60) {
                Some((end, _)) => format!("{}…", &text[..end]),
                None => text,
            }
        };
        let key = |key: &String| key.chars().take(18).collect::<String>();
        match self {
            Self::Open => write!(out, "key-value open"),
            Self::Get(name) => write!(out, "key-value get {}", key(name)),
            Self::Set(name, value) => {
                let value = String::from_utf8_lossy(value);
                write!(out, "key-value set {} {}", key(name), short(&value))
            }
            Self::Delete(name) => write!(out, "key-value delete {}", key(name)),
            Self::Exists(name) => write!(out, "key-value exists {}", key(name)),
            Self::Keys => write!(out, "key-value keys"),
            Self::Sql(_, sql, _) => write!(out, "sqlite {}", short(sql)),
            Self::Http(delivery) => {
                write!(
                    out,
                    "webhook {} {}",
                    delivery.event_id,
                    short(&delivery.payload)
                )
            }
        }
    }
}

/// The ways in which an instance can die with calls on their way.
fn crashes(world: &World, id: InstanceId, orphans: bool) -> Vec<Event> {
    let mine = |call: &&crate::world::Call| call.instance == id && !call.is_orphan();
    let calls: Vec<_> = world.calls.iter().filter(mine).collect();
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
