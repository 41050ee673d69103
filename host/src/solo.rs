//! One instance in the hands of its embedder, who decides which requests it gets, when it goes on and
//! when it dies. [`Handler`](crate::Handler) leaves all of that to Wasmtime and tokio; nothing here needs
//! a runtime, as long as the services do not.

use std::future::{pending, poll_fn};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures::channel::{mpsc, oneshot};
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, Stream as _, StreamExt as _};
use http::{Request, Response};
use wasmtime::AsContextMut as _;
use wasmtime::component::Accessor;
use wasmtime_wasi_http::WasiBody;
use wasmtime_wasi_http::handler::{Prepared, Proxy};

use crate::app::{App, Services};
use crate::handler::prepare;
use crate::instances::{Lifetimes, State};

type Reply = oneshot::Sender<Result<Response<WasiBody>, wasmtime::Error>>;

/// Where an instance's requests go in.
pub struct Inbox {
    app: Arc<App>,
    requests: mpsc::UnboundedSender<(Request<WasiBody>, Reply)>,
}

impl Inbox {
    /// Hands a request of `client` to the instance; without an answer it has died.
    pub async fn handle(
        &self,
        mut request: Request<WasiBody>,
        client: SocketAddr,
    ) -> Option<Response<WasiBody>> {
        if let Some(answer) = prepare(self.app.routes(), &mut request, client) {
            return Some(answer);
        }
        let (reply, answer) = oneshot::channel();
        self.requests.unbounded_send((request, reply)).ok()?;
        answer.await.ok()?.ok()
    }
}

/// Runs an instance until it traps or can get no more requests. Dropped, the instance is dead, with
/// every request in it.
pub type Running = BoxFuture<'static, wasmtime::Result<()>>;

impl App {
    /// Makes an instance that uses `services` instead of the application's. It takes requests at any
    /// time unless the component refuses them (backpressure).
    pub fn solo(self: &Arc<Self>, services: Arc<Services>) -> (Inbox, Running) {
        let (sender, requests) = mpsc::unbounded();
        let inbox = Inbox {
            app: Arc::clone(self),
            requests: sender,
        };
        let app = Arc::clone(self);
        let running = Box::pin(async move {
            let state = State::new(&services, Lifetimes::default().begin());
            let (mut store, proxy) = app.instantiate(state).await?;
            store
                .run_concurrent(async |accessor| serve(accessor, &proxy, requests).await)
                .await?
        });
        (inbox, running)
    }
}

async fn serve(
    accessor: &Accessor<State>,
    proxy: &Proxy,
    requests: mpsc::UnboundedReceiver<(Request<WasiBody>, Reply)>,
) -> wasmtime::Result<()> {
    let Proxy::P3(guest) = proxy;
    let function = *guest.wasi_http_handler().func_handle().func();
    let mut requests = pin!(requests);
    let mut running = FuturesUnordered::new();
    poll_fn(|context| {
        loop {
            match running.poll_next_unpin(context) {
                Poll::Ready(Some(Ok(_))) => continue,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(None) | Poll::Pending => {}
            }
            if accessor
                .poll_ready_for_concurrent_call(function, context)
                .is_pending()
            {
                return Poll::Pending;
            }
            match requests.as_mut().poll_next(context) {
                Poll::Ready(Some((request, reply))) => {
                    let prepared = accessor.with(|mut access| {
                        Prepared::new(
                            access.as_context_mut(),
                            proxy,
                            request,
                            State::inbound,
                            reply,
                        )
                    });
                    match prepared {
                        Ok(prepared) => running.push(prepared.run(accessor, pending())),
                        Err(error) => return Poll::Ready(Err(error)),
                    }
                }
                Poll::Ready(None) if running.is_empty() => return Poll::Ready(Ok(())),
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await
}
