//! Everything that clients and chaos share.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use payonce_channel::Channel;
use rand::RngExt as _;
use rand::rngs::StdRng;
use reqwest::Client;
use serde_json::Value;

use crate::disk::Disk;
use crate::fleet::{ADMIN_KEY, API_KEY, Fleet};
use crate::promise::{Answer, Promise, Reading};
use crate::receiver::Receiver;
use crate::tally::Tally;
use crate::violations::Violations;

/// How many keys and orders are remembered for others to come back to.
const RECENT: usize = 64;

/// How long who is patient waits for an answer.
pub const PATIENCE: Duration = Duration::from_secs(15);

/// The hosts, their surroundings, and what is known of them.
pub struct World {
    pub http: Client,
    pub fleet: Fleet,
    /// Where the data is, if that can be filled.
    pub disk: Option<Disk>,
    /// Held by whoever fills the disk, and by whoever needs room.
    pub room: tokio::sync::Mutex<()>,
    pub channel: Channel,
    pub receiver: Arc<Receiver>,
    pub tally: Tally,
    pub violations: Arc<Violations>,
    /// Keys that others repeat.
    pub keys: Recent<Arc<Promise>>,
    /// Orders that everybody wants to pay, and their amounts.
    pub hot: Recent<(String, u64)>,
    /// Orders that were paid at the channel.
    pub charged: Recent<String>,
    /// Orders whose charges or refunds were settled afterwards: their events must arrive.
    pub told: Mutex<BTreeSet<String>>,
}

impl World {
    /// Sends a request and reads the answer; nothing where none came, or one that must not be.
    pub async fn ask(&self, promise: &Promise, host: usize, patience: Duration) -> Option<Reading> {
        let known = promise.status().is_some();
        let request = promise.request.to(&self.fleet.base(host), &self.http);
        let began = Instant::now();
        let exchange = async { Answer::read(request.send().await?).await };
        let answer = match tokio::time::timeout(patience, exchange).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => {
                self.tally.lost("no answer");
                return None;
            }
            Err(_) => {
                self.tally.lost("gave up");
                return None;
            }
        };
        self.tally.answered(answer.label(), began.elapsed());
        match promise.read(&answer, known) {
            Ok(reading) => Some(reading),
            Err(wrong) => {
                self.violations.add(wrong);
                None
            }
        }
    }

    /// Looks at something; a look has no effect and is not repeated.
    pub async fn look(&self, path: &str, host: usize) {
        let url = format!("{}{path}", self.fleet.base(host));
        let request = self.http.get(url).bearer_auth(API_KEY);
        let began = Instant::now();
        let exchange = async { Answer::read(request.send().await?).await };
        match tokio::time::timeout(PATIENCE, exchange).await {
            Ok(Ok(answer)) => {
                self.tally.answered(answer.label(), began.elapsed());
                if !matches!(answer.status, 200 | 404 | 503) {
                    self.violations.add(format!("GET {path} got {answer}"));
                }
            }
            Ok(Err(_)) => self.tally.lost("no answer"),
            Err(_) => self.tally.lost("gave up"),
        }
    }

    /// Calls what the operator's timers call; nothing where no answer came, or 503.
    pub async fn operate(&self, what: &str, body: &Value, host: usize) -> Option<Value> {
        let url = format!("{}/admin/{what}", self.fleet.base(host));
        let request = self.http.post(url).bearer_auth(ADMIN_KEY).json(body);
        let exchange = async { Answer::read(request.send().await?).await };
        let limit = Duration::from_secs(60);
        let answer = tokio::time::timeout(limit, exchange).await.ok()?.ok()?;
        if !matches!(answer.status, 200 | 503) {
            self.violations.add(format!("/admin/{what} got {answer}"));
        }
        (answer.status == 200).then(|| answer.json())
    }
}

/// The last few of something.
pub struct Recent<T>(Mutex<VecDeque<T>>);

impl<T: Clone> Recent<T> {
    /// Remembers one more.
    pub fn add(&self, new: T) {
        let mut all = self.all();
        if all.len() == RECENT {
            all.pop_front();
        }
        all.push_back(new);
    }

    /// One of the last few.
    pub fn any(&self, dice: &mut StdRng) -> Option<T> {
        let all = self.all();
        let index = dice.random_range(0..all.len().max(1));
        all.get(index).cloned()
    }

    /// The last one.
    pub fn last(&self) -> Option<T> {
        self.all().back().cloned()
    }

    fn all(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}
