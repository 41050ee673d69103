//! Waiting for a condition. The deadline only ends a test that would otherwise hang; no test asserts
//! how long anything took.

use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);

/// Asks `probe` until it has something to say.
///
/// # Panics
/// When nothing came within a minute; `what` says what was waited for.
pub async fn eventually<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}
