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
use tokio::net::TcpListener;
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
}

impl Shared {
    pub fn new(config: Config) -> Self {
        Self {
            config,
            state: Mutex::default(),
            releases: watch::Sender::new(0),
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets every call that is held go on.
    pub fn release(&self) {
        self.releases.send_modify(|count| *count += 1);
    }

    async fn released(&self) {
        let mut releases = self.releases.subscribe();
        releases.mark_unchanged();
        releases.changed().await.ok();
    }

    /// Delivers an event, if there is somebody to deliver it to; returns the status of the answer.
    pub async fn deliver(&self, event: &Event, manner: Manner) -> Option<u16> {
        let payonce = self.state().payonce.clone()?;
        let delivered = event.deliver(&payonce, &self.config.webhook_secret, manner);
        delivered.await.ok()
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
        let Some(fault) = fault else {
            return Ok(self.done().response());
        };
        match fault {
            Fault::Refuse => Err(Lost),
            Fault::Hang => pending().await,
            Fault::Late => {
                let reply = self.done();
                self.shared.released().await;
                Ok(reply.response())
            }
            Fault::LateAct => {
                self.done_late();
                pending().await
            }
            Fault::Drop => {
                self.done();
                Err(Lost)
            }
            Fault::FailBefore => Ok(answer(503, "text/plain", "upstream is down".into())),
            Fault::FailAfter => {
                self.done();
                let reply = match self.surface {
                    Surface::Http => contract::problem(500, "internal", "something went wrong"),
                    Surface::Stripe => stripe::fail(&mut self.shared.state(), self.asked),
                };
                Ok(reply.response())
            }
            Fault::RateLimit => {
                let reply = match self.surface {
                    Surface::Http => contract::problem(429, "rate_limited", "too many requests"),
                    Surface::Stripe => {
                        let code = Some("rate_limit");
                        stripe::error(429, "invalid_request_error", code, "Too many requests")
                    }
                };
                Ok(reply.response())
            }
            Fault::Garble => {
                self.done();
                Ok(answer(
                    200,
                    "text/html",
                    "<title>Checking your browser</title>".into(),
                ))
            }
            Fault::Slow(milliseconds) => {
                let reply = self.done();
                tokio::time::sleep(Duration::from_millis(milliseconds)).await;
                Ok(reply.response())
            }
            Fault::WebhookFirst => {
                let (reply, events) = self.done_with_events();
                for event in &events {
                    self.shared.deliver(event, Manner::Proper).await;
                }
                Ok(reply.response())
            }
            Fault::WebhookMeanwhile => {
                let (reply, events) = self.done_with_events();
                let shared = Arc::clone(self.shared);
                tokio::spawn(async move {
                    for event in &events {
                        shared.deliver(event, Manner::Proper).await;
                    }
                });
                Ok(reply.response())
            }
        }
    }

    /// Does what was asked for.
    fn done(&self) -> Reply {
        let (reply, events) = self.done_with_events();
        if self.shared.config.webhooks_by_themselves {
            for event in events {
                let shared = Arc::clone(self.shared);
                tokio::spawn(async move { shared.insist(&event).await });
            }
        }
        reply
    }

    fn done_with_events(&self) -> (Reply, Vec<Event>) {
        let mut state = self.shared.state();
        let before = state.events.len();
        let reply = (self.act)(&mut state, self.asked, self.outcome.clone());
        let events = state.events.get(before..).unwrap_or_default().to_vec();
        (reply, events)
    }

    /// Does it after the next release, whether or not the caller waits.
    fn done_late(&self) {
        let stripe =
            self.surface == Surface::Stripe && matches!(self.call, Call::Charge | Call::Refund);
        if stripe {
            stripe::start(&mut self.shared.state(), self.asked);
        }
        let (shared, asked) = (Arc::clone(self.shared), Arc::clone(self.asked));
        let (act, outcome) = (self.act, self.outcome.clone());
        tokio::spawn(async move {
            shared.released().await;
            let mut state = shared.state();
            if stripe {
                stripe::resume(&mut state, &asked);
            }
            act(&mut state, &asked, outcome);
        });
    }
}
