//! How far ahead something can have been put off.

use super::Timestamp;

/// How far the clocks of two instances may be apart, milliseconds.
const CLOCKS_DIFFER_MS: i64 = 2_000;

/// A moment, and the latest to which a clock that is right can have put something off by then.
///
/// Leases and pauses end at a time of the wall clock, which may be set back, or may have been ahead when they
/// began. What ends behind the horizon was put off by a clock that was wrong, and counts as over: otherwise
/// it would stand in the way for as long as the clock was ahead. Who still holds it does no harm by going on: what
/// leases save is work, and it is invariants 1 and 8 that keep effects single.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon {
    pub now: Timestamp,
    pub end: Timestamp,
}

impl Horizon {
    /// The horizon of what lasts at most `longest_ms`.
    pub fn new(now: Timestamp, longest_ms: i64) -> Self {
        Self {
            now,
            end: now.plus_millis(longest_ms.saturating_add(CLOCKS_DIFFER_MS)),
        }
    }

    /// Whether a lease or a pause until then is over.
    pub fn is_over(self, until: Timestamp) -> bool {
        until <= self.now || until > self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_clock_can_have_put_off_is_over() {
        let at = Timestamp::from_millis;
        let horizon = Horizon::new(at(1_000), 500);
        for (until, over) in [
            (0, true),
            (1_000, true),
            (1_001, false),
            (3_500, false),
            (3_501, true),
            (i64::MAX, true),
        ] {
            assert_eq!(horizon.is_over(at(until)), over, "{until}");
        }
    }
}
