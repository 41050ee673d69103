//! Requests in, answers out. A request goes to an instance that has room, or to a new one.
//!
//! The request is prepared as Spin does it: scheme and authority in its URI, no `Connection` header,
//! and the `spin-*` headers.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, header};
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
        Self { proxy: ProxyHandler::new(Instances { app, limits, lifetimes }) }
    }

    /// Answers a request of `client`. The component goes on with it also when the returned future is
    /// dropped.
    pub async fn handle(&self, mut request: Request<WasiBody>, client: SocketAddr) -> Response<WasiBody> {
        let path = request.uri().path().to_owned();
        if let Some(name) = path.strip_prefix("/.well-known/spin/") {
            return match name {
                "health" => full(StatusCode::OK, "OK"),
                _ => empty(StatusCode::NOT_FOUND),
            };
        }
        let Some((route, rest)) = routes::find(self.proxy.state().app.routes(), &path) else {
            return empty(StatusCode::NOT_FOUND);
        };
        if let Err(error) = prepare(&mut request, route, rest, client) {
            return full(StatusCode::BAD_REQUEST, format!("{error:#}\n"));
        }
        match self.proxy.handle((), request).await {
            Ok(response) => response,
            Err(error) => {
                eprintln!("A request to {path} failed: {error:?}");
                empty(StatusCode::INTERNAL_SERVER_ERROR)
            }
        }
    }

    /// Lets every instance finish what it does, also after its answers, and drops it.
    pub async fn close(&self) {
        self.proxy.state().lifetimes.close().await;
    }
}

fn prepare(
    request: &mut Request<WasiBody>,
    route: &Route,
    rest: &str,
    client: SocketAddr,
) -> Result<()> {
    let authority = authority(request)?;
    let mut parts = request.uri().clone().into_parts();
    let path = parts.path_and_query.as_ref().context("the request has no path")?.clone();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(authority.clone());
    *request.uri_mut() = Uri::from_parts(parts)?;

    let headers = request.headers_mut();
    headers.remove(header::CONNECTION);
    // The guest sees text only.
    for (name, value) in headers.iter() {
        ensure!(std::str::from_utf8(value.as_bytes()).is_ok(), "the header {name} is not UTF-8");
    }
    let rest = if rest == "/" { "" } else { rest };
    add(headers, "spin-path-info", rest)?;
    add(headers, "spin-full-url", &format!("http://{authority}{path}"))?;
    add(headers, "spin-matched-route", &route.raw)?;
    add(headers, "spin-base-path", "/")?;
    add(headers, "spin-raw-component-route", &route.raw)?;
    add(headers, "spin-component-route", route.prefix())?;
    add(headers, "spin-client-addr", &client.to_string())
}

/// Adds a header beside what a client may have sent under the same name, as Spin does.
fn add(headers: &mut HeaderMap, name: &'static str, value: &str) -> Result<()> {
    headers.append(name, HeaderValue::from_bytes(value.as_bytes())?);
    Ok(())
}

/// The host a request is for.
fn authority(request: &Request<WasiBody>) -> Result<Authority> {
    let header = match request.headers().get(header::HOST) {
        Some(value) => {
            let value = value.to_str().context("the Host header is not ASCII")?;
            Some(value.parse().context("the Host header is not a host")?)
        }
        None => None,
    };
    Ok(match (header, request.uri().authority()) {
        (None, None) => bail!("there is no Host header"),
        (Some(header), Some(uri)) if header != *uri => {
            bail!("the Host header and the URI name different hosts")
        }
        (_, Some(uri)) => uri.clone(),
        (Some(header), None) => header,
    })
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
