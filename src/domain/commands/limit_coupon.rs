//! `coupon.limit`: how many coupons an activity grants.

use serde::Serialize;
use serde_json::json;

use crate::domain::{
    Command, Decision, Given, GrantLimit, Identifier, Lookup, Operation, Snapshot, Timestamp,
};

/// Set the limit of an activity. One below what was granted ends it and takes nothing back.
#[derive(Clone, Debug)]
pub struct LimitCoupon {
    pub activity_id: Identifier,
    pub limit: Option<GrantLimit>,
}

/// The limit of an activity, as clients see it.
#[derive(Serialize)]
struct Limited<'a> {
    activity_id: &'a Identifier,
    limit: Option<GrantLimit>,
    updated_at: Timestamp,
}

impl Command for LimitCoupon {
    fn operation(&self) -> &'static str {
        "coupon.limit"
    }

    /// The last one counts, whatever was there.
    fn lookup(&self) -> Lookup<'_> {
        Lookup::default()
    }

    fn subject(&self) -> Option<String> {
        Some(format!("activity/{}", self.activity_id.as_str()))
    }

    fn decide(&self, _: &Snapshot, given: &Given) -> Decision {
        let limited = Limited {
            activity_id: &self.activity_id,
            limit: self.limit,
            updated_at: given.now,
        };
        Decision::Append(Box::new(Operation {
            reference: Some(self.activity_id.as_str().to_owned()),
            details: Some(json!({ "limit": self.limit, "attempt": given.instance })),
            ..Operation::silent(self.operation(), given, 200, &limited)
        }))
    }
}
