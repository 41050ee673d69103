//! Requests in, answers out. A request goes to an instance that has room, or to a new one.
//!
//! The request is prepared as Spin does it: scheme and authority in its URI, no `Connection` header,
//! and the `spin-*` headers.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use http::uri::{Authority, Scheme};
use http::{HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty, Full};
use wasmtime_wasi_http::WasiBody;
use wasmtime_wasi_http::handler::ProxyHandler;

use crate::app::App;
use crate::instances::{Instances, Lifetimes, Limits};
use crate::routes::{self, Route};

/// Serves the requests of an application.
#[derive(Clone)]
pub struct Handler {
    proxy: ProxyHandler<Instances>,
}

impl Handler {
    /// No instance is made before the first request.
    pub fn new(app: Arc<App>, limits: Limits) -> Self {
        let lifetimes = Lifetimes::default();
        Self {
            proxy: ProxyHandler::new(Instances {
                app,
                limits,
                lifetimes,
            }),
        }
    }

    /// Answers a request of `client`. The component goes on with it also when the returned future is
    /// dropped.
    pub async fn handle(
        &self,
        mut request: Request<WasiBody>,
        client: SocketAddr,
    ) -> Response<WasiBody> {
        if let Some(answer) = prepare(self.proxy.state().app.routes(), &mut request, client) {
            return answer;
        }
        let path = request.uri().path().to_owned();
        match self.proxy.handle((), request).await {
            Ok(response) => response,
            Err(error) => {
                eprintln!("A request to {path} failed: {error:#}");
                empty(StatusCode::INTERNAL_SERVER_ERROR)
            }
        }
    }

    /// Drops every instance as soon as it has finished what it does, also after its answers.
    pub fn close(&self) {
        self.proxy.state().lifetimes.close();
    }

    /// Waits until there is no instance.
    pub async fn closed(&self) {
        self.proxy.state().lifetimes.closed().await;
    }
}

/// Makes the component's request of one that came in, or answers it where the component is not asked.
pub(crate) fn prepare(
    routes: &[Route],
    request: &mut Request<WasiBody>,
    client: SocketAddr,
) -> Option<Response<WasiBody>> {
    let path = request.uri().path().to_owned();
    if let Some(name) = path.strip_prefix("/.well-known/spin/") {
        return Some(match name {
            "health" => full(StatusCode::OK, "OK"),
            _ => empty(StatusCode::NOT_FOUND),
        });
    }
    let Some((route, rest)) = routes::find(routes, &path) else {
        return Some(empty(StatusCode::NOT_FOUND));
    };
    if let Err(error) = set_host(request) {
        return Some(full(StatusCode::BAD_REQUEST, format!("{error:#}\n")));
    }
    if let Err(error) = set_headers(request, route, rest, client) {
        eprintln!("A request to {path} failed: {error:#}");
        return Some(empty(StatusCode::INTERNAL_SERVER_ERROR));
    }
    None
}

/// Puts scheme and host into the request's URI, which has only the path.
fn set_host(request: &mut Request<WasiBody>) -> Result<()> {
    let header: Option<Authority> = match request.headers().get(header::HOST) {
        Some(value) => {
            let value = value.to_str().context("the Host header is not ASCII")?;
            Some(value.parse().context("the Host header is not a host")?)
        }
        None => None,
    };
    let mut parts = request.uri().clone().into_parts();
    parts.authority = Some(match (header, parts.authority) {
        (None, None) => bail!("there is no Host header"),
        (Some(header), Some(uri)) if header != uri => {
            bail!("the Host header and the URI name different hosts")
        }
        (_, Some(host)) | (Some(host), None) => host,
    });
    parts.scheme = Some(Scheme::HTTP);
    *request.uri_mut() = Uri::from_parts(parts).context("the request's URI is not valid")?;
    Ok(())
}

fn set_headers(
    request: &mut Request<WasiBody>,
    route: &Route,
    rest: &str,
    client: SocketAddr,
) -> Result<()> {
    let url = request.uri().to_string();
    let headers = request.headers_mut();
    headers.remove(header::CONNECTION);
    // Spin takes text only.
    for (name, value) in headers.iter() {
        ensure!(
            std::str::from_utf8(value.as_bytes()).is_ok(),
            "the header {name} is not UTF-8"
        );
    }
    let rest = if rest == "/" { "" } else { rest };
    let client = client.to_string();
    for (name, value) in [
        ("spin-path-info", rest),
        ("spin-full-url", &url),
        ("spin-matched-route", &route.raw),
        ("spin-base-path", "/"),
        ("spin-raw-component-route", &route.raw),
        ("spin-component-route", route.prefix()),
        ("spin-client-addr", &client),
    ] {
        // Beside what a client may have sent under the same name, as Spin does it.
        headers.append(name, HeaderValue::from_bytes(value.as_bytes())?);
    }
    Ok(())
}

fn empty(status: StatusCode) -> Response<WasiBody> {
    let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response
}

fn full(status: StatusCode, text: impl Into<bytes::Bytes>) -> Response<WasiBody> {
    let body = Full::new(text.into()).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    response
}
