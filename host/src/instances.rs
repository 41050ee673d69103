//! Instances of the component: what belongs to one, and how long it lives.
//!
//! As in Spin 4.1 an instance serves up to 128 requests, up to 16 of them at the same time, and is
//! dropped after a second without any. When it traps, every request in it fails, and no other.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::Sleep;
use wasmtime::component::{GuestTaskId, ResourceTable};
use wasmtime::{ResourceLimiter, Store, StoreContextMut};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::handler::{
    HandlerState, Instance, ShouldAccept, WorkerExpiration, WorkerState, WorkerStatus,
};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::app::{App, Services};
use crate::outbound::{Inbound, Outbound};

/// How instances are reused; the defaults are Spin's.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests that one instance serves in its life.
    pub reuse: usize,
    /// Requests that one instance serves at the same time.
    pub concurrent_reuse: usize,
    /// How long an instance is kept without a request.
    pub idle_timeout: Duration,
    /// How long a request may take until its answer begins.
    pub request_timeout: Option<Duration>,
    /// Whether to say on stderr, when an instance is dropped, what it used.
    pub print_stats: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            reuse: 128,
            concurrent_reuse: 16,
            idle_timeout: Duration::from_secs(1),
            request_timeout: None,
            print_stats: false,
        }
    }
}

/// What belongs to one instance on the host's side.
pub struct State {
    pub(crate) services: Arc<Services>,
    pub(crate) table: ResourceTable,
    /// SQLite connections that are open.
    pub(crate) connections: usize,
    pub(crate) usage: Usage,
    wasi: WasiCtx,
    http: WasiHttpCtx,
    outbound: Outbound,
    inbound: Inbound,
    // Held until the instance is gone.
    _alive: Alive,
}

impl State {
    pub(crate) fn new(services: &Arc<Services>, alive: Alive) -> Self {
        // The network, the file system and the host's environment stay out of reach.
        let mut wasi = WasiCtx::builder();
        wasi.inherit_stdout()
            .inherit_stderr()
            .envs(&services.environment);
        if let Some(change) = &services.wasi {
            change(&mut wasi);
        }
        Self {
            services: services.clone(),
            table: ResourceTable::new(),
            connections: 0,
            usage: Usage {
                limit: services.max_instance_memory,
                ..Usage::default()
            },
            wasi: wasi.build(),
            http: WasiHttpCtx::new(),
            outbound: Outbound {
                allowed: services.allowed_hosts.clone(),
                network: services.network.clone(),
            },
            inbound: Inbound,
            _alive: alive,
        }
    }

    /// What Wasmtime needs to hand a request to the instance.
    pub(crate) fn inbound(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView {
            hooks: &mut self.inbound,
            table: &mut self.table,
            ctx: &mut self.http,
        }
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}

impl WasiHttpView for State {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView {
            hooks: &mut self.outbound,
            table: &mut self.table,
            ctx: &mut self.http,
        }
    }
}

/// What an instance used.
#[derive(Default)]
pub(crate) struct Usage {
    requests: u64,
    memory: usize,
    peak_memory: usize,
    limit: Option<usize>,
}

impl ResourceLimiter for Usage {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if self.limit.is_some_and(|limit| desired > limit) {
            return Ok(false);
        }
        self.memory += desired - current;
        self.peak_memory = self.peak_memory.max(self.memory);
        Ok(true)
    }

    fn table_growing(&mut self, _: usize, _: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(true)
    }
}

/// Knows how many instances there are, and tells them when the host wants to end.
#[derive(Clone)]
pub(crate) struct Lifetimes {
    alive: watch::Sender<usize>,
    closing: watch::Sender<bool>,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            alive: watch::Sender::new(0),
            closing: watch::Sender::new(false),
        }
    }
}

impl Lifetimes {
    /// Lets every instance end as soon as it has nothing to do.
    pub(crate) fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Waits until there is no instance.
    pub(crate) async fn closed(&self) {
        // The sender is `self`, so that waiting cannot fail.
        let _ = self.alive.subscribe().wait_for(|alive| *alive == 0).await;
    }

    pub(crate) fn begin(&self) -> Alive {
        self.alive.send_modify(|alive| *alive += 1);
        Alive(self.alive.clone())
    }
}

/// Counts an instance while it lives.
pub(crate) struct Alive(watch::Sender<usize>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.send_modify(|alive| *alive -= 1);
    }
}

/// Makes instances for Wasmtime's `ProxyHandler`.
pub(crate) struct Instances {
    pub(crate) app: Arc<App>,
    pub(crate) limits: Limits,
    pub(crate) lifetimes: Lifetimes,
}

impl HandlerState for Instances {
    type StoreData = State;
    type WorkerExpiration = Expiration;
    type WorkerState = Life;

    async fn instantiate(&self) -> wasmtime::Result<Instance<State, Expiration, Life>> {
        let state = State::new(self.app.services(), self.lifetimes.begin());
        let (store, proxy) = self.app.instantiate(state).await?;
        let mut closing = self.lifetimes.closing.subscribe();
        let closed = async move {
            // An error means that the host is gone already.
            let _ = closing.wait_for(|closing| *closing).await;
        };
        Ok(Instance {
            store,
            proxy,
            view: State::inbound,
            expiration: Expiration {
                limits: self.limits,
                closed: Mutex::new(Some(Box::pin(closed))),
                sleep: Box::pin(tokio::time::sleep(self.limits.idle_timeout)),
            },
            state: Life {
                limits: self.limits,
                lifetimes: self.lifetimes.clone(),
            },
        })
    }
}

/// Decides which requests an instance takes, and sees its end.
pub(crate) struct Life {
    limits: Limits,
    lifetimes: Lifetimes,
}

impl WorkerState for Life {
    type StoreData = State;
    type RequestData = ();

    fn should_accept_request(&self, concurrent: usize, total: usize) -> ShouldAccept {
        if total >= self.limits.reuse {
            ShouldAccept::Never
        } else if concurrent >= self.limits.concurrent_reuse {
            ShouldAccept::No
        } else {
            ShouldAccept::Yes
        }
    }

    fn on_request_start(
        &self,
        mut store: StoreContextMut<'_, State>,
        (): (),
        _: GuestTaskId,
    ) -> Pin<Box<dyn Future<Output = ()> + 'static + Send + Sync>> {
        store.data_mut().usage.requests += 1;
        match self.limits.request_timeout {
            Some(timeout) => Box::pin(tokio::time::sleep(timeout)),
            None => Box::pin(futures::future::pending()),
        }
    }

    fn drop(&self, store: Store<State>, result: Result<(), wasmtime::Error>) {
        match &result {
            Ok(()) => {}
            Err(_) if *self.lifetimes.closing.borrow() => {
                eprintln!("An instance of the component was stopped before it had finished.");
            }
            Err(error) => eprintln!("An instance of the component failed: {error:#}"),
        }
        if self.limits.print_stats {
            let usage = &store.data().usage;
            let stats = serde_json::json!({
                "instance": {
                    "requests": usage.requests,
                    "peak_memory_bytes": usage.peak_memory,
                    "failed": result.is_err(),
                }
            });
            eprintln!("{stats}");
        }
    }
}

/// Ends an instance that is idle for too long, whose request takes too long, or that is idle when the
/// host wants to end.
pub(crate) struct Expiration {
    limits: Limits,
    // The mutex is never locked; it makes the future `Sync`. `None` once the host wants to end.
    closed: Mutex<Option<BoxFuture<'static, ()>>>,
    sleep: Pin<Box<Sleep>>,
}

impl WorkerExpiration for Expiration {
    fn poll(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        status: WorkerStatus,
        start: Instant,
    ) -> Poll<()> {
        let this = &mut *self;
        if let Ok(closed) = this.closed.get_mut()
            && closed
                .as_mut()
                .is_none_or(|closed| closed.as_mut().poll(context).is_ready())
        {
            *closed = None;
            if status == WorkerStatus::Idle {
                return Poll::Ready(());
            }
        }
        let timeout = match status {
            WorkerStatus::Idle => Some(this.limits.idle_timeout),
            WorkerStatus::Requests | WorkerStatus::PostReturn => this.limits.request_timeout,
        };
        let Some(deadline) = timeout.and_then(|timeout| start.checked_add(timeout)) else {
            return Poll::Pending;
        };
        if this.sleep.deadline() != deadline.into() {
            this.sleep.as_mut().reset(deadline.into());
        }
        this.sleep.as_mut().poll(context)
    }
}
