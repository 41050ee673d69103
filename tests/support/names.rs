//! Names that no other run has used, so that a suite may meet a database full of earlier runs.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

/// Eight hexadecimal digits, drawn once for a test process.
static RUN: LazyLock<String> = LazyLock::new(|| {
    let mut digits = Uuid::new_v4().simple().to_string();
    digits.truncate(8);
    digits
});

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A name that was never used before: `prefix-<run>-<number>`.
///
/// It is valid as a client's identifier and as an idempotency key.
pub fn fresh(prefix: &str) -> String {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{}-{number}", *RUN)
}
