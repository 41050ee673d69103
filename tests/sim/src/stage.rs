//! The instances of a run and the executor they run on, and how requests get to them.

use std::cell::RefCell;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context as _, Result};
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

use crate::operations::Request;
use crate::world::{Effect, InstanceId, Shared};

/// The most things that happen until an answer is there.
pub const MOST_EVENTS: usize = 5_000;

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
        matches!(self.status, 200..=299 | 402) && !self.is_under_way()
    }

    /// Whether the channel has not answered yet.
    fn is_under_way(&self) -> bool {
        self.status == 202 && self.retry_after.is_some()
    }

    /// Whether the client has to come back.
    pub fn asks_to_retry(&self) -> bool {
        self.status == 503 || self.is_under_way() || self.code() == "idempotency_in_progress"
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let replayed = if self.replayed { " (replayed)" } else { "" };
        write!(out, "{}{replayed} {}", self.status, self.body)
    }
}

/// A request as it is sent.
pub struct Wire {
    pub method: Method,
    pub path: String,
    headers: HeaderMap,
    pub body: String,
}

impl Wire {
    /// A request without a body, with an API key.
    pub fn new(api_key: &str, method: Method, path: &str) -> Self {
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
    pub fn of(merchant: &str, request: &Request) -> Self {
        let api_key = format!("key-{merchant}");
        let mut wire = Self::new(&api_key, request.method.clone(), &request.path);
        wire.body = request.body.to_string();
        wire.header("content-type", "application/json");
        wire
    }

    /// Sets a header; a value that cannot be one is left out.
    pub fn header(&mut self, name: &'static str, value: &str) {
        if let Ok(value) = value.parse() {
            self.headers.insert(name, value);
        }
    }
}

/// The instances and the executor they run on. Nothing on it goes on by itself.
pub struct Stage {
    pool: LocalPool,
    spawner: LocalSpawner,
    app: Arc<App>,
    services: Services,
    world: Shared,
    pub slots: Vec<Slot>,
}

/// A place for instances, one at a time.
pub struct Slot {
    pub id: InstanceId,
    inbox: Rc<Inbox>,
    running: Rc<RefCell<Option<Running>>>,
    /// Why it ended by itself.
    ended: Rc<RefCell<Option<String>>>,
}

/// Where the answer of an attempt appears: `None` inside where the connection was lost.
pub type Pending = Rc<RefCell<Option<Option<Answer>>>>;

impl Slot {
    /// Whether its instance lives.
    pub fn lives(&self) -> bool {
        self.running.borrow().is_some()
    }
}

impl Stage {
    pub fn new(app: Arc<App>, services: Services, world: Shared) -> Self {
        let pool = LocalPool::new();
        Self {
            spawner: pool.spawner(),
            pool,
            app,
            services,
            world,
            slots: Vec::new(),
        }
    }

    /// Lets everything run until it waits for the world.
    pub fn advance(&mut self) {
        self.pool.run_until_stalled();
    }

    /// The instance in a slot, a new one where there is none that lives.
    pub fn instance(&mut self, slot: u8) -> &Slot {
        let index = usize::from(slot);
        while self.slots.len() <= index {
            let number = u8::try_from(self.slots.len()).unwrap_or(u8::MAX);
            let started = self.start(InstanceId {
                slot: number,
                life: 0,
            });
            self.slots.push(started);
        }
        if !self.slots[index].lives() {
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
    pub fn send(&mut self, slot: u8, wire: Wire) -> Result<Pending> {
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
    pub fn kill(&mut self, slot: u8) {
        self.slots[usize::from(slot)].running.borrow_mut().take();
    }

    /// Why an instance ended that nobody killed.
    pub fn trapped(&self) -> Option<String> {
        self.slots.iter().find_map(|slot| {
            let ended = slot.ended.borrow();
            ended
                .as_ref()
                .map(|why| format!("instance {}: {why}", slot.id))
        })
    }

    /// Sends a request and lets everything happen as it should until its answer is there.
    pub fn settle(&mut self, slot: u8, wire: Wire) -> Result<Answer> {
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
    pub fn rest(&mut self) {
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
