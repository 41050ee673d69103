//! A point in time with the resolution of the contract: milliseconds.

use serde::{Serialize, Serializer};

/// 9999-12-30T22:00:00Z: RFC 3339 has four digits for the year, and the time zones of the world need their room.
const LATEST: i64 = 253_402_207_200_000;

/// Milliseconds since the Unix epoch; RFC 3339 in UTC with milliseconds where it is shown.
///
/// Every value can be shown. A clock that is wrong beyond that says the first or the last moment that can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(i64);

impl Timestamp {
    /// A point in time, in milliseconds since the Unix epoch, from 1970 to 9999.
    pub const fn from_millis(millis: i64) -> Self {
        Self(match millis {
            ..0 => 0,
            0..=LATEST => millis,
            _ => LATEST,
        })
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// This point in time, later by `millis`.
    pub const fn plus_millis(self, millis: i64) -> Self {
        Self::from_millis(self.0.saturating_add(millis))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let time = jiff::Timestamp::from_millisecond(self.0).map_err(serde::ser::Error::custom)?;
        serializer.collect_str(&format_args!("{time:.3}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339_in_utc_with_milliseconds() {
        let shown = |millis| serde_json::to_string(&Timestamp::from_millis(millis)).unwrap();
        assert_eq!(shown(0), "\"1970-01-01T00:00:00.000Z\"");
        assert_eq!(shown(1_796_057_155_120), "\"2026-11-30T16:45:55.120Z\"");
        assert_eq!(shown(i64::MIN), shown(0));
        assert_eq!(shown(i64::MAX), "\"9999-12-30T22:00:00.000Z\"");
    }
}
