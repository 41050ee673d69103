//! Coupons: an activity grants one to a user, and at most as many as its limit.

use serde::{Deserialize, Serialize};

use super::{Identifier, MAX_AMOUNT, Timestamp};

/// The most grants of an activity, 0 to 2^53 - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "i64")]
pub struct GrantLimit(i64);

impl GrantLimit {
    /// The number of grants.
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl TryFrom<i64> for GrantLimit {
    type Error = &'static str;

    fn try_from(limit: i64) -> Result<Self, Self::Error> {
        if (0..=MAX_AMOUNT).contains(&limit) {
            Ok(Self(limit))
        } else {
            Err("a limit is a whole number from 0 to 9007199254740991")
        }
    }
}

/// What grants coupons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    pub activity_id: Identifier,
    /// Without one, every user gets a grant.
    pub limit: Option<GrantLimit>,
    /// How many grants there are; more than the limit if that was lowered.
    pub granted: i64,
}

impl Activity {
    /// Whether it grants nothing more.
    pub fn is_exhausted(&self) -> bool {
        self.limit.is_some_and(|limit| self.granted >= limit.get())
    }
}

/// A user's coupon, complete as clients see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Grant {
    pub grant_id: String,
    pub activity_id: Identifier,
    pub user_id: Identifier,
    pub created_at: Timestamp,
}
