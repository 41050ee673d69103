//! Delivering events: at least once, each under one identifier (invariant 12).
//!
//! An event is in the outbox by the statement of its operation. A dispatcher claims what is due, sends it
//! and records what became of it; each step may be lost. What was claimed and not settled is due again
//! when the lease is over, so a crash, a failed write or a second dispatcher costs at most a repetition.
//! Nothing here holds an operation up: it is answered by then.

mod pause;
mod request;
mod signature;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::join_all;
use http::Uri;
use serde::Serialize;
use spin_sdk::wasip3;

use self::pause::pause_ms;
use crate::config::{Config, Notify};
use crate::domain::{Horizon, Problem, Timestamp};
use crate::pace::Pace;
use crate::runtime;
use crate::store::outbox::{self, Attempt, Destination, Event, Revive};
use crate::store::{Database, DatabaseError};

/// How many events are claimed by one statement, and then sent at the same time.
const BATCH: u32 = 32;

/// How much longer than an attempt may take an event stays claimed, milliseconds: time to record it.
const LEASE_MARGIN_MS: u64 = 20_000;

/// How long a dispatch goes on to claim events.
const BUDGET_NANOS: u64 = 20_000_000_000;

/// How often the result of attempts is written before the lease has to run out instead, and the pause
/// between two times in milliseconds.
const WRITES: u32 = 3;
const PAUSE_MS: u64 = 50;

/// The least pause before background deliveries, milliseconds: what arrives meanwhile shares a claim.
const LEAST_PAUSE_MS: u64 = 10;

/// Sends events.
pub struct Dispatcher {
    notify: Notify,
    database: Arc<Database>,
    drain: Mutex<DrainState>,
}

#[derive(Default)]
struct DrainState {
    /// Whether there may be something to send.
    woken: bool,
    /// Whether a task sends it.
    running: bool,
}

/// How many events a dispatch claimed, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dispatched {
    pub claimed: u32,
    pub sent: u32,
    /// To be tried again.
    pub failed: u32,
    /// Given up.
    pub dead: u32,
}

impl Dispatcher {
    /// A dispatcher that uses `database`. With a fault in its configuration it leaves events alone.
    pub fn new(config: &Config, database: Arc<Database>) -> Self {
        let notify = match config.check_delivery() {
            Ok(()) => config.notify.clone(),
            Err(_) => Notify::default(),
        };
        Self {
            notify,
            database,
            drain: Mutex::default(),
        }
    }

    /// Sends what is due, soon and in the background. One task of an instance does that.
    pub fn wake(self: &Arc<Self>) {
        if self.receivers().next().is_none() {
            return;
        }
        let start = {
            let mut state = self.drain();
            state.woken = true;
            !std::mem::replace(&mut state.running, true)
        };
        if start {
            let drain = Drain(Arc::clone(self));
            wasip3::spawn(async move { drain.run().await });
        }
    }

    /// Makes events due that were given up; returns how many.
    ///
    /// # Errors
    ///
    /// A 503 where the database cannot answer.
    pub async fn revive(&self, which: Revive<'_>, limit: u32) -> Result<usize, Problem> {
        let revived = outbox::revive(&self.database, which, runtime::now(), limit).await?;
        Ok(revived.len())
    }

    /// Sends what is due, at most `limit` events. Without a receiver they wait.
    ///
    /// # Errors
    ///
    /// A 503 where the database cannot answer. What was claimed by then is sent again after its lease.
    pub async fn dispatch(&self, limit: u32) -> Result<Dispatched, Problem> {
        let started = runtime::monotonic_nanos();
        let mut total = Dispatched::default();
        while total.claimed < limit
            && runtime::monotonic_nanos().saturating_sub(started) < BUDGET_NANOS
        {
            let room = limit.saturating_sub(total.claimed);
            let Some(batch) = self.batch(room.min(BATCH)).await? else {
                break;
            };
            total.claimed = total.claimed.saturating_add(batch.claimed);
            total.sent = total.sent.saturating_add(batch.sent);
            total.failed = total.failed.saturating_add(batch.failed);
            total.dead = total.dead.saturating_add(batch.dead);
        }
        Ok(total)
    }

    /// By which events that are due are told; no lease is as long as the longest pause.
    pub fn horizon(&self) -> Horizon {
        Horizon::new(runtime::now(), pause::MOST_MS)
    }

    fn receivers(&self) -> impl Iterator<Item = (Destination, &Uri)> {
        let receivers = [
            (Destination::Sms, &self.notify.sms_gateway_url),
            (Destination::Notify, &self.notify.url),
        ];
        receivers
            .into_iter()
            .filter_map(|(destination, url)| Some((destination, url.as_ref()?)))
    }

    /// Claims up to `most` events and sends them; `None` where nothing is due. Others may have been faster
    /// with all that was.
    async fn batch(&self, most: u32) -> Result<Option<Dispatched>, DatabaseError> {
        let horizon = self.horizon();
        let mut events = Vec::new();
        let mut room = most;
        for (destination, _) in self.receivers() {
            // A receiver that is down must not keep the other one's events out.
            let share = match destination {
                Destination::Sms => most.div_ceil(2),
                Destination::Notify => room,
            };
            let due = outbox::due(&self.database, destination, horizon, share).await?;
            room = room.saturating_sub(u32::try_from(due.len()).unwrap_or(u32::MAX));
            events.extend(due);
        }
        if events.is_empty() {
            return Ok(None);
        }
        let owner = runtime::uuid(horizon.now);
        let lease = self.notify.timeout_ms.saturating_add(LEASE_MARGIN_MS);
        let lease_until = horizon
            .now
            .plus_millis(i64::try_from(lease).unwrap_or(i64::MAX));
        let claimed = outbox::claim(&self.database, &events, owner, horizon, lease_until).await?;
        events.retain(|event| claimed.contains(&event.event_id));
        if events.is_empty() {
            return Ok(Some(Dispatched::default()));
        }

        let attempts = join_all(events.iter().map(|event| self.attempt(event))).await;
        let mut batch = Dispatched::default();
        for (_, attempt) in &attempts {
            batch.claimed = batch.claimed.saturating_add(1);
            let count = match attempt {
                Attempt::Sent => &mut batch.sent,
                Attempt::Pending { .. } => &mut batch.failed,
                Attempt::Dead { .. } => &mut batch.dead,
            };
            *count = count.saturating_add(1);
        }
        let mut writes = 1..WRITES;
        loop {
            let settled = outbox::settle(&self.database, &attempts, owner, runtime::now()).await;
            match settled {
                Err(_) if writes.next().is_some() => runtime::sleep_millis(PAUSE_MS).await,
                settled => return settled.map(|_| Some(batch)),
            }
        }
    }

    async fn attempt(&self, event: &Event) -> (String, Attempt) {
        let receiver = self
            .receivers()
            .find(|(destination, _)| *destination == event.destination);
        let Notify {
            secrets,
            timeout_ms,
            ..
        } = &self.notify;
        let result = match receiver {
            Some((_, url)) => request::send(url, secrets, *timeout_ms, event).await,
            None => Err("there is no receiver".to_owned()),
        };
        let attempt = self.outcome(event, result, runtime::now(), runtime::random());
        (event.event_id.clone(), attempt)
    }

    fn outcome(
        &self,
        event: &Event,
        result: Result<(), String>,
        now: Timestamp,
        random: u64,
    ) -> Attempt {
        let attempts = event.attempts.saturating_add(1);
        match result {
            Ok(()) => Attempt::Sent,
            Err(last_error) if attempts >= self.notify.max_attempts => Attempt::Dead { last_error },
            Err(last_error) => {
                let pause = pause_ms(self.notify.pause_ms, attempts, random);
                let due_at = now.plus_millis(pause).as_millis();
                Attempt::Pending { due_at, last_error }
            }
        }
    }

    fn drain(&self) -> MutexGuard<'_, DrainState> {
        self.drain.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the background task goes on, because somebody woke it or because there is `more`.
    fn goes_on(&self, more: bool) -> bool {
        let mut state = self.drain();
        let woken = std::mem::take(&mut state.woken);
        state.running = woken || more;
        state.running
    }
}

/// The task that sends in the background.
struct Drain(Arc<Dispatcher>);

impl Drain {
    async fn run(self) {
        let mut pace = Pace::new(LEAST_PAUSE_MS);
        let mut more = false;
        while self.0.goes_on(more) {
            pace.pause().await;
            let batch = async {
                more = match self.0.batch(BATCH).await {
                    // Where every attempt fails there is no use in going on.
                    Ok(Some(batch)) => batch.sent > 0 || batch.claimed == 0,
                    Ok(None) | Err(_) => false,
                };
            };
            pace.work(batch).await;
        }
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        // Where the host cancelled it, the next event starts another.
        self.0.drain().running = false;
    }
}
