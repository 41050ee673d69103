//! A receiver of webhooks that does what a test tells it: answers, hangs, or closes without an answer.
//!
//! It checks every request against the Standard Webhooks specification by itself.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;

use super::wait::eventually;

/// A secret as operators configure it.
pub const SECRET: &str = "whsec_c2VjcmV0LXRlc3QtMDEyMzQ1Njc4OWFiY2RlZg==";

/// What the receiver does with a request after it has read all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    Answer(u16),
    /// Answers 200 after [`Receiver::release`] only.
    Hang,
    /// Closes the connection without an answer.
    Close,
}

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub id: String,
    /// Seconds since the Unix epoch.
    pub timestamp: u64,
    pub signature: String,
    pub bytes: Vec<u8>,
    pub body: Value,
}

impl Delivery {
    /// Whether one of the signatures is that of `secret`.
    pub fn is_signed_with(&self, secret: &str) -> bool {
        let secret = secret.strip_prefix("whsec_").expect("whsec_");
        let key = STANDARD.decode(secret).expect("base64");
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&key).expect("a key");
        mac.update(self.id.as_bytes());
        mac.update(b".");
        mac.update(self.timestamp.to_string().as_bytes());
        mac.update(b".");
        mac.update(&self.bytes);
        let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        self.signature.split(' ').any(|one| one == expected)
    }
}

#[derive(Default)]
struct State {
    script: VecDeque<Reaction>,
    otherwise: Option<Reaction>,
    received: Vec<Delivery>,
    released: bool,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A receiver on a port of its own. Without a script it answers 200.
pub struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Receiver {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::<Shared>::default();
        let of_threads = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if of_threads.state().closed {
                    break;
                }
                let shared = Arc::clone(&of_threads);
                std::thread::spawn(move || serve(&stream, &shared));
            }
        });
        Self { address, shared }
    }

    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn url(&self) -> String {
        format!("http://{}/hooks/payonce", self.address)
    }

    /// The reactions to the next requests; after them, as before.
    pub fn script(&self, reactions: impl IntoIterator<Item = Reaction>) {
        self.shared.state().script.extend(reactions);
    }

    /// The reaction to every request that no script is for.
    pub fn otherwise(&self, reaction: Reaction) {
        self.shared.state().otherwise = Some(reaction);
    }

    /// Lets every request that hangs go on, now and later.
    pub fn release(&self) {
        self.shared.state().released = true;
        self.shared.changed.notify_all();
    }

    /// Everything that came so far.
    pub fn received(&self) -> Vec<Delivery> {
        self.shared.state().received.clone()
    }

    /// The events of an order so far: type and identifier, in the order in which they came.
    pub fn events_of(&self, subject: &str) -> Vec<(String, String)> {
        let of_subject = |delivery: &Delivery| delivery.body["subject"] == subject;
        let received = self.received();
        let events = received.iter().filter(|delivery| of_subject(delivery));
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        events
            .map(|delivery| (text(&delivery.body["type"]), delivery.id.clone()))
            .collect()
    }

    /// Waits for an event of an order.
    pub async fn event(&self, subject: &str, event_type: &str) -> Delivery {
        eventually(&format!("{event_type} of {subject}"), async || {
            self.received().into_iter().find(|delivery| {
                delivery.body["subject"] == subject && delivery.body["type"] == event_type
            })
        })
        .await
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.release();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(stream: &TcpStream, shared: &Shared) {
    let mut reader = BufReader::new(stream);
    while let Some(delivery) = read(&mut reader) {
        let reaction = {
            let mut state = shared.state();
            let reaction = state.script.pop_front().or(state.otherwise);
            state.received.push(delivery);
            reaction.unwrap_or(Reaction::Answer(200))
        };
        let status = match reaction {
            Reaction::Answer(status) => status,
            Reaction::Close => return,
            Reaction::Hang => {
                let state = shared.state();
                let waiting = shared.changed.wait_while(state, |state| !state.released);
                drop(waiting);
                200
            }
        };
        let answer = format!("HTTP/1.1 {status} Scripted\r\ncontent-length: 0\r\n\r\n");
        if (&mut &*stream).write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Reads one request; `None` when the connection ends.
///
/// # Panics
/// When the request is none of the specification: the test then waits in vain and shows this.
fn read(reader: &mut BufReader<&TcpStream>) -> Option<Delivery> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    assert!(line.starts_with("POST /hooks/payonce HTTP/1.1"), "{line}");
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        let twice = headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        assert!(twice.is_none(), "{name} occurs twice");
    }
    let header = |name: &str| {
        let value: Option<&String> = headers.get(name);
        value.unwrap_or_else(|| panic!("{name} is missing")).clone()
    };
    let length = header("content-length").parse().expect("a length");
    let mut bytes = vec![0; length];
    reader.read_exact(&mut bytes).ok()?;
    assert_eq!(header("content-type"), "application/json");
    let delivery = Delivery {
        id: header("webhook-id"),
        timestamp: header("webhook-timestamp").parse().expect("seconds"),
        signature: header("webhook-signature"),
        body: serde_json::from_slice(&bytes).expect("JSON"),
        bytes,
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let apart = now.expect("a clock").as_secs().abs_diff(delivery.timestamp);
    assert!(apart < 60, "a timestamp that is {apart} s off");
    assert!(!delivery.id.contains('.'), "{}", delivery.id);
    assert_eq!(delivery.body["id"], delivery.id.as_str());
    Some(delivery)
}
