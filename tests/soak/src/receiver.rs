//! The merchant's receiver of events: keeps which came, and fails at random.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac as _};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;

use crate::violations::Violations;

/// What events are signed with, encoded as operators configure it behind `whsec_`.
const SECRET: [u8; 32] = [0x53; 32];

/// What operators configure.
pub fn secret() -> String {
    format!("whsec_{}", STANDARD.encode(SECRET))
}

/// What came, and whether to fail.
pub struct Receiver {
    origin: String,
    /// The digest of each event's bytes, by identifier.
    events: Mutex<HashMap<String, [u8; 32]>>,
    deliveries: AtomicU64,
    /// Whether some deliveries fail.
    faulty: AtomicBool,
    violations: Arc<Violations>,
}

impl Receiver {
    /// Starts a receiver.
    ///
    /// # Errors
    /// Without a port.
    pub async fn start(violations: Arc<Violations>) -> Result<Arc<Self>> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let receiver = Arc::new(Self {
            origin: format!("http://{}", listener.local_addr()?),
            events: Mutex::default(),
            deliveries: AtomicU64::new(0),
            faulty: AtomicBool::new(true),
            violations,
        });
        tokio::spawn(Arc::clone(&receiver).serve(listener));
        Ok(receiver)
    }

    /// Scheme, host and port.
    pub fn origin(&self) -> String {
        self.origin.clone()
    }

    /// Where events go.
    pub fn url(&self) -> String {
        format!("{}/hooks/payonce", self.origin)
    }

    /// Takes everything from now on.
    pub fn recover(&self) {
        self.faulty.store(false, Ordering::Relaxed);
    }

    /// How often an event came, repetitions and failed deliveries among them.
    pub fn deliveries(&self) -> u64 {
        self.deliveries.load(Ordering::Relaxed)
    }

    /// The identifiers of the events that were taken.
    pub fn taken(&self) -> Vec<String> {
        self.events().keys().cloned().collect()
    }

    fn events(&self) -> MutexGuard<'_, HashMap<String, [u8; 32]>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(self: Arc<Self>, listener: TcpListener) {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                continue;
            };
            let receiver = Arc::clone(&self);
            let service = service_fn(move |request| {
                let receiver = Arc::clone(&receiver);
                async move { Ok::<_, Infallible>(receiver.receive(request).await) }
            });
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // A host that dies hangs up.
            tokio::spawn(async move { drop(connection.await) });
        }
    }

    async fn receive(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let status = match body.collect().await {
            Ok(body) => self.take(&head.headers, &body.to_bytes()).await,
            Err(_) => StatusCode::BAD_REQUEST,
        };
        let mut response = Response::new(Full::default());
        *response.status_mut() = status;
        response
    }

    async fn take(&self, headers: &hyper::HeaderMap, body: &[u8]) -> StatusCode {
        let count = self.deliveries.fetch_add(1, Ordering::Relaxed);
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let signed = ["webhook-id", "webhook-timestamp", "webhook-signature"].map(header);
        let [Some(id), Some(timestamp), Some(signature)] = signed else {
            self.violations.add("an event without its headers");
            return StatusCode::BAD_REQUEST;
        };
        if signature != sign(id, timestamp, body) {
            self.violations
                .add(format!("event {id} has another signature"));
            return StatusCode::BAD_REQUEST;
        }
        let faulty = self.faulty.load(Ordering::Relaxed);
        match count % 40 {
            7 if faulty => return StatusCode::INTERNAL_SERVER_ERROR,
            // Taken, and the sender has given up by then.
            23 if faulty => tokio::time::sleep(Duration::from_secs(3)).await,
            _ => {}
        }
        let digest: [u8; 32] = Sha256::digest(body).into();
        let before = *self.events().entry(id.to_owned()).or_insert(digest);
        if before != digest {
            self.violations
                .add(format!("event {id} came with other bytes than before"));
        }
        StatusCode::OK
    }
}

/// The signature of the Standard Webhooks specification.
fn sign(id: &str, timestamp: &str, body: &[u8]) -> String {
    let mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&SECRET);
    let mut mac = mac.expect("a key of any length");
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        mac.update(part);
    }
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}
