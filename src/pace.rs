//! Background work takes about a tenth of an instance's time: Spin's local key-value store blocks the
//! instance for as long as a write takes, and a write to the database keeps others out.

use crate::runtime;

/// The longest pause, milliseconds: background work keeps an instance alive that is done otherwise.
const LONGEST_MS: u64 = 100;

/// Pauses between pieces of background work.
pub(crate) struct Pace {
    least_ms: u64,
    pause_ms: u64,
}

impl Pace {
    /// With pauses of at least `least_ms` milliseconds.
    pub fn new(least_ms: u64) -> Self {
        Self {
            least_ms,
            pause_ms: least_ms,
        }
    }

    /// Pauses, nine times as long as the last work took, within bounds.
    pub async fn pause(&self) {
        runtime::sleep_millis(self.pause_ms).await;
    }

    /// Works.
    pub async fn work(&mut self, work: impl Future<Output = ()>) {
        let started = runtime::monotonic_nanos();
        work.await;
        let spent = runtime::monotonic_nanos().saturating_sub(started);
        self.pause_ms = spent
            .saturating_mul(9)
            .div_euclid(1_000_000)
            .min(LONGEST_MS)
            .max(self.least_ms);
    }
}
