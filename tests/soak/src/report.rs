//! What the run says in the end: intervals as they were measured, and what they make together.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::tally::Sample;
use crate::world::World;

/// One interval.
pub struct Interval {
    /// When it ended.
    pub at: Duration,
    /// How long it was.
    pub length: Duration,
    pub sample: Sample,
    /// The memory of each host that ran, in bytes.
    pub memory: Vec<u64>,
    /// The sizes of the database, of its log and of the key-value store, in bytes.
    pub sizes: [u64; 3],
}

impl Interval {
    /// Ends an interval now.
    pub fn take(world: &World, at: Duration, length: Duration) -> Self {
        Self {
            at,
            length,
            sample: world.tally.take(),
            memory: world.fleet.memory(),
            sizes: world.fleet.sizes(),
        }
    }

    /// A count of the interval as so many a second.
    pub fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.length.as_secs_f64()
    }

    fn json(&self) -> Value {
        let mut interval = self.sample.json();
        let [database, log, key_value] = self.sizes;
        interval["at_seconds"] = json!(self.at.as_secs_f64());
        interval["host_rss_bytes"] = json!(self.memory);
        interval["database_bytes"] = json!(database);
        interval["wal_bytes"] = json!(log);
        interval["key_value_bytes"] = json!(key_value);
        interval
    }
}

impl std::fmt::Display for Interval {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "{:>5.0} s, {:>6.0} requests/s, p99 {:>7.1} ms, {} kills, {:>6.1} MB in memory",
            self.at.as_secs_f64(),
            self.per_second(self.sample.requests()),
            self.sample.latency_ms(0.99),
            self.sample.kills,
            self.memory.iter().sum::<u64>() as f64 / 1e6,
        )
    }
}

/// Everything that was found out.
pub struct Report {
    /// What was asked for.
    pub settings: Value,
    pub intervals: Vec<Interval>,
    /// What came of all of them.
    pub load: Value,
    /// What came of the keys.
    pub keys: Value,
    /// What the books say.
    pub audit: Value,
}

impl Report {
    /// All of it.
    pub fn json(&self, world: &World) -> Value {
        let mut totals = self.load.clone();
        totals["keys"] = self.keys.clone();
        totals["audit"] = self.audit.clone();
        totals["violations"] = json!(world.violations.count());
        let intervals: Vec<Value> = self.intervals.iter().map(Interval::json).collect();
        json!({
            "settings": self.settings,
            "totals": totals,
            "violations": world.violations.shown(),
            "intervals": intervals,
        })
    }
}

/// Writes a file.
///
/// # Errors
/// When it cannot be written.
pub fn write(file: &Path, text: &str) -> Result<()> {
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}
