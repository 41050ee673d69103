//! Loads a server: some connections, each with one request after the other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;
use tokio::task::JoinSet;

use crate::client::{Call, Client};

/// What to send.
pub enum Load {
    /// Every call once.
    Once(Vec<Call>),
    /// The calls in turn, over and over.
    Cycle(Vec<Call>),
}

impl Load {
    fn call(&self, index: usize) -> Option<&Call> {
        match self {
            Self::Once(calls) => calls.get(index),
            Self::Cycle(calls) => calls.get(index % calls.len().max(1)),
        }
    }

    /// The calls that it sends.
    pub fn calls(&self) -> &[Call] {
        match self {
            Self::Once(calls) | Self::Cycle(calls) => calls,
        }
    }
}

/// What came of it.
#[derive(Clone)]
pub struct Sample {
    /// Of all requests.
    latencies: Histogram<u64>,
    /// How many were answered in time: a server that keeps a few clients waiting for seconds would
    /// otherwise be judged by the silence of the others.
    in_time: u64,
    time: Duration,
}

impl Sample {
    /// Nothing yet.
    pub fn new() -> Result<Self> {
        Ok(Self {
            // From a microsecond to ten minutes, in nanoseconds, to three digits.
            latencies: Histogram::new_with_bounds(1000, 600_000_000_000, 3)?,
            in_time: 0,
            time: Duration::ZERO,
        })
    }

    /// Adds the requests and the time of another sample.
    pub fn add(&mut self, other: &Self) -> Result<()> {
        self.latencies.add(&other.latencies)?;
        self.in_time += other.in_time;
        self.time += other.time;
        Ok(())
    }

    /// How many requests were answered.
    pub fn requests(&self) -> u64 {
        self.latencies.len()
    }

    /// Answers a second, until the time was over or everything was sent.
    pub fn throughput(&self) -> f64 {
        self.in_time as f64 / self.time.as_secs_f64()
    }

    /// The latency, in milliseconds, that `quantile` (0 to 1) of the requests did not exceed.
    pub fn latency_ms(&self, quantile: f64) -> f64 {
        self.latencies.value_at_quantile(quantile) as f64 / 1e6
    }
}

/// Sends `load` over so many connections, until `limit` or until there is nothing left to send.
///
/// # Errors
/// The first answer that is not as it has to be.
pub async fn drive(
    server: SocketAddr,
    connections: usize,
    load: &Arc<Load>,
    limit: Option<Duration>,
) -> Result<Sample> {
    let mut clients = Vec::with_capacity(connections);
    for _ in 0..connections {
        clients.push(Client::connect(server).await?);
    }
    let next = Arc::new(AtomicUsize::new(0));
    let mut sample = Sample::new()?;
    let mut tasks = JoinSet::new();
    let started = Instant::now();
    let deadline = limit.map(|limit| started + limit);
    for client in clients {
        let own = Sample::new()?;
        tasks.spawn(work(client, load.clone(), next.clone(), deadline, own));
    }
    while let Some(done) = tasks.join_next().await {
        sample.add(&done??)?;
    }
    let time = started.elapsed();
    sample.time = limit.map_or(time, |limit| limit.min(time));
    Ok(sample)
}

async fn work(
    mut client: Client,
    load: Arc<Load>,
    next: Arc<AtomicUsize>,
    deadline: Option<Instant>,
    mut sample: Sample,
) -> Result<Sample> {
    loop {
        let started = Instant::now();
        if deadline.is_some_and(|deadline| started >= deadline) {
            return Ok(sample);
        }
        let Some(call) = load.call(next.fetch_add(1, Ordering::Relaxed)) else {
            return Ok(sample);
        };
        client.send(call).await?;
        let ended = Instant::now();
        let nanoseconds = ended.duration_since(started).as_nanos();
        let nanoseconds = u64::try_from(nanoseconds).unwrap_or(u64::MAX);
        if deadline.is_none_or(|deadline| ended <= deadline) {
            sample.in_time += 1;
        }
        sample.latencies.saturating_record(nanoseconds);
    }
}

#[cfg(test)]
mod tests {
    use hyper::{Method, StatusCode};

    use super::*;

    fn calls(count: usize) -> Vec<Call> {
        let server = ([127, 0, 0, 1], 1).into();
        let call = Call::new(server, Method::GET, "/", StatusCode::OK).unwrap();
        vec![call; count]
    }

    #[test]
    fn a_load_ends_or_starts_over() {
        assert!(Load::Once(calls(2)).call(1).is_some());
        assert!(Load::Once(calls(2)).call(2).is_none());
        assert!(Load::Cycle(calls(2)).call(5).is_some());
        assert!(Load::Cycle(Vec::new()).call(0).is_none());
    }

    #[test]
    fn throughput_counts_what_came_in_time() {
        let mut one = Sample::new().unwrap();
        (one.in_time, one.time) = (30, Duration::from_secs(2));
        let mut sum = one.clone();
        sum.add(&one).unwrap();
        assert_eq!((one.throughput(), sum.throughput()), (15.0, 15.0));
    }
}
