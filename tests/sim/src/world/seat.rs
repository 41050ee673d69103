//! The interfaces of the host, as an instance finds them: each call is registered in the world, at once,
//! and waits for its answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::channel::oneshot;
use futures::future::BoxFuture;
use http_body_util::{BodyExt as _, Full};
use payonce_host::key_value::{KeyValue, Outcome};
use payonce_host::sqlite::{Connection, Database, Query, Value};
use tokio::sync::mpsc;
use wasmtime_wasi_http::WasiBody;

use super::file::Line;
use super::{Answer, CHANNEL_HOST, Call, Delivery, InstanceId, Shared, Sleeper, What};

/// Where an instance sits in the world.
#[derive(Clone)]
pub(super) struct Seat {
    world: Shared,
    instance: InstanceId,
}

impl Seat {
    pub(super) fn new(world: Shared, instance: InstanceId) -> Self {
        Self { world, instance }
    }

    /// Registers a call, at once, and waits for its answer.
    fn call(&self, what: What) -> BoxFuture<'static, Answer> {
        let (reply, answer) = oneshot::channel();
        let mut world = self.world.lock();
        let known = world.instances.entry(self.instance).or_default();
        known.calls += 1;
        let number = known.calls;
        world.calls.push(Call {
            instance: self.instance,
            number,
            what,
            answer: None,
            reply: Some(reply),
        });
        let gone = |_| Answer::Failed("the simulation has ended".to_owned());
        async move { answer.await.unwrap_or_else(gone) }.boxed()
    }

    pub(super) fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let sleeper = Sleeper::Instance(self.instance);
        let woken = self.world.lock().sleep(sleeper, duration);
        async { _ = woken.await }.boxed()
    }

    /// Sends a request to the channel or to the merchant's server.
    pub(super) async fn request(
        self,
        request: http::Request<WasiBody>,
    ) -> Result<http::Response<WasiBody>, wasmtime_wasi_http::Error> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let what = match head.uri.host() {
            Some(CHANNEL_HOST) => What::Channel(http::Request::from_parts(head, body)),
            _ => What::Deliver(delivery(&head.headers, &body)),
        };
        match self.call(what).await {
            Answer::Http(status, body) => {
                let body = Full::new(Bytes::from(body)).map_err(|never| match never {});
                let mut response = http::Response::new(WasiBody::new(body));
                *response.status_mut() =
                    http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::BAD_GATEWAY);
                Ok(response)
            }
            _ => Err(wasmtime_wasi_http::Error::ConnectionTerminated),
        }
    }

    fn ask<T: Send + 'static>(&self, what: What, pick: fn(Answer) -> Option<T>) -> Outcome<T> {
        let answer = self.call(what);
        async move {
            match answer.await {
                Answer::Failed(error) => Err(error),
                answer => pick(answer).ok_or_else(|| "an answer to another call".to_owned()),
            }
        }
        .boxed()
    }
}

fn delivery(headers: &http::HeaderMap, payload: &[u8]) -> Delivery {
    let text = |name: &str| {
        let value = headers.get(name).map(|value| value.as_bytes());
        String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
    };
    Delivery {
        event_id: text("webhook-id"),
        timestamp: text("webhook-timestamp"),
        signature: text("webhook-signature"),
        payload: String::from_utf8_lossy(payload).into_owned(),
    }
}

fn done(answer: Answer) -> Option<()> {
    matches!(answer, Answer::Done).then_some(())
}

impl KeyValue for Seat {
    fn open(&self) -> Outcome<()> {
        self.ask(What::Open, done)
    }

    fn get(&self, key: String) -> Outcome<Option<Vec<u8>>> {
        self.ask(What::Get(key), |answer| match answer {
            Answer::Value(value) => Some(value),
            _ => None,
        })
    }

    fn set(&self, key: String, value: Vec<u8>) -> Outcome<()> {
        self.ask(What::Set(key, value), done)
    }

    fn delete(&self, key: String) -> Outcome<()> {
        self.ask(What::Delete(key), done)
    }

    fn exists(&self, key: String) -> Outcome<bool> {
        self.ask(What::Exists(key), |answer| match answer {
            Answer::Exists(exists) => Some(exists),
            _ => None,
        })
    }

    fn keys(&self) -> Outcome<Vec<String>> {
        self.ask(What::Keys, |answer| match answer {
            Answer::Keys(keys) => Some(keys),
            _ => None,
        })
    }
}

impl Database for Seat {
    fn connect(&self) -> Arc<dyn Connection> {
        Arc::new(LineOf {
            seat: self.clone(),
            line: Arc::new(Line::new(Arc::clone(&self.world.lock().file))),
        })
    }
}

/// One connection of an instance.
struct LineOf {
    seat: Seat,
    line: Arc<Line>,
}

impl Connection for LineOf {
    fn query(
        &self,
        sql: String,
        parameters: Vec<Value>,
    ) -> BoxFuture<'static, Result<Query, String>> {
        let answer = self
            .seat
            .call(What::Sql(Arc::clone(&self.line), sql, parameters));
        async move {
            let (columns, found, ended) = match answer.await {
                Answer::Rows(columns, rows) => (columns, rows, Ok(())),
                Answer::Failed(error) => (Vec::new(), Vec::new(), Err(error)),
                _ => (
                    Vec::new(),
                    Vec::new(),
                    Err("an answer to another call".to_owned()),
                ),
            };
            let (rows_in, rows) = mpsc::channel(found.len().max(1));
            for row in found {
                // There is room for all of them.
                _ = rows_in.try_send(row);
            }
            let (result_in, result) = tokio::sync::oneshot::channel();
            // The other end is in our hands.
            _ = result_in.send(ended);
            Ok(Query {
                columns,
                rows,
                result,
            })
        }
        .boxed()
    }

    fn execute_batch(&self, _: String) -> BoxFuture<'static, Result<(), String>> {
        unsupported()
    }

    fn changes(&self) -> BoxFuture<'static, Result<u64, String>> {
        unsupported()
    }

    fn last_insert_rowid(&self) -> BoxFuture<'static, Result<i64, String>> {
        unsupported()
    }
}

/// What payonce may not use: there is nothing to build on it (a second call on a shared connection).
fn unsupported<T: Send + 'static>() -> BoxFuture<'static, Result<T, String>> {
    async { Err("the simulation does not have this call".to_owned()) }.boxed()
}
