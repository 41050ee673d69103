//! Requests, prepared before the clock runs, and the connections that send them.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// A request and the answer that it has to get.
#[derive(Clone)]
pub struct Call {
    request: Request<Full<Bytes>>,
    status: StatusCode,
    /// Whether the answer has to be a replay; any other has to be a first one.
    replay: bool,
}

impl Call {
    /// A request to `server` that has to be answered with `status`.
    pub fn new(server: SocketAddr, method: Method, path: &str, status: StatusCode) -> Result<Self> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, server.to_string())
            .body(Full::default())?;
        Ok(Self {
            request,
            status,
            replay: false,
        })
    }

    /// With an API key.
    pub fn authorized(mut self, api_key: &str) -> Result<Self> {
        let value = HeaderValue::try_from(format!("Bearer {api_key}"))?;
        self.request.headers_mut().insert(AUTHORIZATION, value);
        Ok(self)
    }

    /// With an idempotency key and a JSON body.
    pub fn body(mut self, key: &str, body: &serde_json::Value) -> Result<Self> {
        let headers = self.request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let key = HeaderValue::try_from(format!("\"{key}\""))?;
        headers.insert("idempotency-key", key);
        *self.request.body_mut() = Full::new(body.to_string().into());
        Ok(self)
    }

    /// The same request again; now the answer has to be a replay.
    pub fn replayed(&self) -> Self {
        Self {
            replay: true,
            ..self.clone()
        }
    }

    /// The same method, headers and body to another server, which answers 200 and replays nothing.
    pub fn twin(&self, server: SocketAddr, path: &'static str) -> Result<Self> {
        let mut request = self.request.clone();
        *request.uri_mut() = path.parse()?;
        let host = HeaderValue::try_from(server.to_string())?;
        request.headers_mut().insert(HOST, host);
        Ok(Self {
            request,
            status: StatusCode::OK,
            replay: false,
        })
    }
}

/// A keep-alive connection.
pub struct Client(SendRequest<Full<Bytes>>);

impl Client {
    /// Connects.
    pub async fn connect(server: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(server)
            .await
            .with_context(|| format!("cannot connect to {server}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // An error reaches the request that meets it.
        tokio::spawn(async move { drop(connection.await) });
        Ok(Self(sender))
    }

    /// Sends `call` and returns the answer's body.
    ///
    /// # Errors
    /// No answer, or another than `call` has to get; the message has the body.
    pub async fn send(&mut self, call: &Call) -> Result<Bytes> {
        let name = || format!("{} {}", call.request.method(), call.request.uri());
        self.0.ready().await.with_context(name)?;
        let response = self.0.send_request(call.request.clone());
        let (head, body) = response.await.with_context(name)?.into_parts();
        let body = body.collect().await.with_context(name)?.to_bytes();
        let replay = head.headers.contains_key("idempotent-replayed");
        if head.status != call.status || replay != call.replay {
            bail!(
                "{} was answered {}{}, expected {}{}: {}",
                name(),
                head.status.as_u16(),
                if replay { " as a replay" } else { "" },
                call.status.as_u16(),
                if call.replay { " as a replay" } else { "" },
                String::from_utf8_lossy(&body)
            );
        }
        Ok(body)
    }
}
