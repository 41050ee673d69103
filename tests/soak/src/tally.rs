//! What is measured: requests and answers of an interval, and of the whole run.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// The label of a request that the service has no room for at the moment.
pub const BUSY: &str = "503 busy";

/// What came of requests.
pub struct Sample {
    /// By status and code, and by how they were lost.
    pub answers: BTreeMap<String, u64>,
    /// Of answered requests, in microseconds.
    latencies: Histogram<u64>,
    /// Visits that came when a client's queue was full.
    pub shed: u64,
    pub kills: u64,
    pub key_value_removals: u64,
    pub clock_steps: u64,
    /// How often the disk was full.
    pub full_disks: u64,
}

impl Default for Sample {
    fn default() -> Self {
        Self {
            answers: BTreeMap::new(),
            // From a microsecond to ten minutes, to three digits.
            latencies: Histogram::new_with_bounds(1, 600_000_000, 3).expect("bounds in order"),
            shed: 0,
            kills: 0,
            key_value_removals: 0,
            clock_steps: 0,
            full_disks: 0,
        }
    }
}

impl Sample {
    /// How many requests were sent.
    pub fn requests(&self) -> u64 {
        self.answers.values().sum()
    }

    /// The latency in milliseconds that so much of the answers did not exceed.
    pub fn latency_ms(&self, quantile: f64) -> f64 {
        self.latencies.value_at_quantile(quantile) as f64 / 1e3
    }

    /// The share of answers that were `busy`, of everything that was answered.
    pub fn busy_share(&self) -> f64 {
        let busy = self.answers.get(BUSY).copied().unwrap_or(0);
        busy as f64 / (self.latencies.len().max(1)) as f64
    }

    /// As the report shows it.
    pub fn json(&self) -> Value {
        json!({
            "requests": self.requests(),
            "answers": self.answers,
            "latency_ms": {
                "p50": self.latency_ms(0.5),
                "p95": self.latency_ms(0.95),
                "p99": self.latency_ms(0.99),
            },
            "busy_share": self.busy_share(),
            "shed": self.shed,
            "kills": self.kills,
            "key_value_removals": self.key_value_removals,
            "clock_steps": self.clock_steps,
            "full_disks": self.full_disks,
        })
    }

    fn add(&mut self, other: &Self) {
        for (label, count) in &other.answers {
            *self.answers.entry(label.clone()).or_default() += count;
        }
        self.latencies += &other.latencies;
        self.shed += other.shed;
        self.kills += other.kills;
        self.key_value_removals += other.key_value_removals;
        self.clock_steps += other.clock_steps;
        self.full_disks += other.full_disks;
    }
}

/// Counts from everywhere.
#[derive(Default)]
pub struct Tally(Mutex<[Sample; 2]>);

impl Tally {
    /// A request was answered.
    pub fn answered(&self, label: String, latency: Duration) {
        let mut samples = self.samples();
        let [now, _] = &mut *samples;
        *now.answers.entry(label).or_default() += 1;
        let latency = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        now.latencies.saturating_record(latency);
    }

    /// A request got no answer.
    pub fn lost(&self, how: &str) {
        let mut samples = self.samples();
        *samples[0].answers.entry(how.to_owned()).or_default() += 1;
    }

    /// Changes one of the counts.
    pub fn note(&self, change: impl FnOnce(&mut Sample)) {
        change(&mut self.samples()[0]);
    }

    /// Ends an interval.
    pub fn take(&self) -> Sample {
        let mut samples = self.samples();
        let [now, total] = &mut *samples;
        total.add(now);
        std::mem::take(now)
    }

    /// Everything until the last interval's end.
    pub fn total<T>(&self, read: impl FnOnce(&Sample) -> T) -> T {
        read(&self.samples()[1])
    }

    fn samples(&self) -> MutexGuard<'_, [Sample; 2]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_add_up() {
        let tally = Tally::default();
        tally.answered("200".into(), Duration::from_millis(2));
        assert_eq!(tally.take().requests(), 1);
        tally.answered(BUSY.into(), Duration::from_millis(4));
        tally.lost("timed out");
        let second = tally.take();
        assert_eq!(second.requests(), 2);
        assert!((second.latency_ms(0.99) - 4.0).abs() < 0.1);
        assert_eq!(tally.total(Sample::requests), 3);
        assert!((tally.total(Sample::busy_share) - 0.5).abs() < 1e-9);
    }
}
