//! Accepts connections, plays the script, and lets the surfaces answer.

use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;

use crate::book::Outcome;
use crate::events::{Event, Surface};
use crate::request::{Asked, Reply, answer};
use crate::script::{Call, Fault, Manner};
use crate::state::State;
use crate::{Config, contract, control, stripe};

/// What a call does, in one go.
pub(crate) type Act = fn(&mut State, &Asked, Outcome) -> Reply;

/// The connection ends without an answer.
#[derive(Debug)]
struct Lost;

impl std::fmt::Display for Lost {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("the answer is lost on purpose")
    }
}

impl std::error::Error for Lost {}

/// Whether the channel can be reached, and where to say that it is so.
pub(crate) struct Reachable(pub bool, pub mpsc::SyncSender<std::io::Result<()>>);

pub(crate) struct Shared {
    pub config: Config,
    state: Mutex<State>,
    /// Counts the releases.
    releases: watch::Sender<u64>,
    runtime: Handle,
}

/// A call that is held until the next release, whether or not its caller waits.
pub(crate) struct Held {
    surface: Surface,
    act: Act,
    asked: Arc<Asked>,
    outcome: Outcome,
}

impl Shared {
    pub fn new(config: Config, runtime: Handle) -> Self {
        Self {
            config,
            state: Mutex::default(),
            releases: watch::Sender::new(0),
            runtime,
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes something, and returns the events that came of it; they are delivered, if that happens by
    /// itself.
    pub fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut State) -> T) -> (T, Vec<Event>) {
        let mut state = self.state();
        let before = state.events.len();
        let changed = change(&mut state);
        let events = state.events.get(before..).unwrap_or_default().to_vec();
        if self.config.webhooks_by_themselves {
            for event in events.clone() {
                let shared = Arc::clone(self);
                self.runtime
                    .spawn(async move { shared.insist(&event).await });
            }
        }
        (changed, events)
    }

    /// Lets every call that is held go on: those that were not done are done when this returns.
    pub fn release(self: &Arc<Self>) {
        self.change(|state| {
            for held in std::mem::take(&mut state.held) {
                if held.surface == Surface::Stripe {
                    stripe::resume(state, &held.asked);
                }
                (held.act)(state, &held.asked, held.outcome);
            }
        });
        self.releases.send_modify(|count| *count += 1);
    }

    /// Delivers an event, if there is somebody to deliver it to; returns the status of the answer.
    pub async fn deliver(&self, event: &Event, manner: Manner) -> Option<u16> {
        let payonce = self.state().payonce.clone()?;
        let delivered = event.deliver(&payonce, &self.config.webhook_secret, manner);
        delivered.await.ok()
    }

    async fn deliver_all(&self, events: &[Event]) {
        for event in events {
            self.deliver(event, Manner::Proper).await;
        }
    }

    /// Delivers an event until it is taken, as channels do; theirs are hours, these are seconds.
    async fn insist(&self, event: &Event) {
        for pause in [0, 1, 2, 4, 8, 16] {
            tokio::time::sleep(Duration::from_secs(pause)).await;
            if matches!(self.deliver(event, Manner::Proper).await, Some(200..300)) {
                return;
            }
        }
    }
}

/// Serves until the handle is gone.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    listener: TcpListener,
    mut reachable: UnboundedReceiver<Reachable>,
) {
    let Ok(address) = listener.local_addr() else {
        return;
    };
    let mut listener = Some(listener);
    // Ends the connections with the value.
    let mut open = watch::Sender::new(());
    loop {
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => pending().await,
            }
        };
        tokio::select! {
            accepted = accepted => {
                if let Ok((stream, _)) = accepted {
                    tokio::spawn(converse(Arc::clone(&shared), stream, open.subscribe()));
                }
            }
            change = reachable.recv() => match change {
                None => return,
                Some(Reachable(false, done)) => {
                    listener = None;
                    open = watch::Sender::new(());
                    done.send(Ok(())).ok();
                }
                Some(Reachable(true, done)) => {
                    let bound = TcpListener::bind(address).await;
                    done.send(bound.map(|bound| listener = Some(bound))).ok();
                }
            }
        }
    }
}

async fn converse(
    shared: Arc<Shared>,
    stream: tokio::net::TcpStream,
    mut open: watch::Receiver<()>,
) {
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { respond(&shared, request).await }
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // A caller that hangs up, or is hung up on, is what this is for.
        _ = connection => {}
        _ = open.changed() => {}
    }
}

async fn respond(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Lost> {
    let asked = Asked::read(request).await.map_err(|_| Lost)?;
    if let Some(reply) = control::respond(shared, &asked).await {
        return Ok(reply.response());
    }
    let (surface, call, act) = match (contract::route(&asked), stripe::route(&asked)) {
        (Some((call, act)), _) => (Surface::Http, call, act),
        (_, Some((call, act))) => (Surface::Stripe, call, act),
        (None, None) => {
            let reply = contract::problem(404, "not_found", "there is no such route");
            return Ok(reply.response());
        }
    };
    if !asked.bears(&shared.config.key) {
        let reply = match surface {
            Surface::Http => contract::problem(401, "unauthorized", "another key is expected"),
            Surface::Stripe => stripe::error(
                401,
                "invalid_request_error",
                None,
                "Invalid API Key provided",
            ),
        };
        return Ok(reply.response());
    }
    let refusal = match surface {
        Surface::Http => None,
        Surface::Stripe => stripe::refuse_version(&asked),
    };
    if let Some(refusal) = refusal {
        return Ok(refusal.response());
    }
    let step = shared.state().next(call);
    let play = Play {
        shared,
        surface,
        call,
        act,
        asked: &Arc::new(asked),
        outcome: step.outcome,
    };
    play.run(step.fault).await
}

/// Makes every amount one more.
fn misstate(body: &mut Value) {
    match body {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_u64().filter(|_| name == "amount") {
                    Some(amount) => *value = (amount + 1).into(),
                    None => misstate(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(misstate),
        _ => {}
    }
}

/// One call, and what it does.
struct Play<'a> {
    shared: &'a Arc<Shared>,
    surface: Surface,
    call: Call,
    act: Act,
    asked: &'a Arc<Asked>,
    outcome: Outcome,
}

impl Play<'_> {
    async fn run(self, fault: Option<Fault>) -> Result<Response<Full<Bytes>>, Lost> {
        let mut releases = self.shared.releases.subscribe();
        let done = fault.is_none_or(Fault::acts).then(|| {
            let act = |state: &mut State| (self.act)(state, self.asked, self.outcome.clone());
            self.shared.change(act)
        });
        if fault == Some(Fault::LateAct) {
            self.hold();
        }
        // Who sees the call counted can rely on what was done, and on the next release.
        self.shared.state().count(self.call);
        let Some((mut reply, events)) = done else {
            return self.undone(fault).await;
        };
        match fault {
            Some(Fault::Late) => {
                releases.changed().await.ok();
            }
            Some(Fault::Slow(milliseconds)) => {
                tokio::time::sleep(Duration::from_millis(milliseconds)).await;
            }
            Some(Fault::WebhookFirst) => self.shared.deliver_all(&events).await,
            Some(Fault::WebhookMeanwhile) => {
                let shared = Arc::clone(self.shared);
                tokio::spawn(async move { shared.deliver_all(&events).await });
            }
            Some(Fault::Drop) => return Err(Lost),
            Some(Fault::FailAfter) => {
                let reply = match self.surface {
                    Surface::Http => contract::problem(500, "internal", "something went wrong"),
                    // A repeated key keeps the answer that it has.
                    Surface::Stripe => {
                        stripe::fail(&mut self.shared.state(), self.asked, !events.is_empty())
                    }
                };
                return Ok(reply.response());
            }
            Some(Fault::Garble) => {
                let page = "<title>Checking your browser</title>";
                return Ok(answer(200, "text/html", page.to_owned()));
            }
            Some(Fault::Misstate) => misstate(&mut reply.body),
            _ => {}
        }
        Ok(reply.response())
    }

    /// The faults that keep a call from being done, or from being done now.
    async fn undone(&self, fault: Option<Fault>) -> Result<Response<Full<Bytes>>, Lost> {
        match fault {
            Some(Fault::FailBefore) => {
                let page = "no healthy upstream".to_owned();
                Ok(answer(503, "text/plain", page))
            }
            Some(Fault::RateLimit) => {
                let reply = match self.surface {
                    Surface::Http => contract::problem(429, "rate_limited", "too many requests"),
                    Surface::Stripe => {
                        let code = Some("rate_limit");
                        stripe::error(429, "invalid_request_error", code, "Too many requests")
                    }
                };
                Ok(reply.response())
            }
            Some(Fault::Refuse) => Err(Lost),
            _ => pending().await,
        }
    }

    /// Leaves it to the next release.
    fn hold(&self) {
        let mut state = self.shared.state();
        if self.surface == Surface::Stripe {
            stripe::start(&mut state, self.asked);
        }
        state.held.push(Held {
            surface: self.surface,
            act: self.act,
            asked: Arc::clone(self.asked),
            outcome: self.outcome.clone(),
        });
    }
}
