//! `coupon.grant`: one coupon for a user in an activity.

use crate::domain::{
    Code, Command, Decision, Given, Grant, Identifier, Lookup, Operation, Problem, Snapshot,
};

/// Grant a coupon. Who has one gets the same one again, under whatever key.
#[derive(Clone, Debug)]
pub struct GrantCoupon {
    pub activity_id: Identifier,
    pub user_id: Identifier,
}

impl Command for GrantCoupon {
    fn operation(&self) -> &'static str {
        "coupon.grant"
    }

    fn lookup(&self) -> Lookup<'_> {
        Lookup {
            activity_id: Some(&self.activity_id),
            user_id: Some(&self.user_id),
            ..Lookup::default()
        }
    }

    /// The user's grant, and not the activity: its guard counts anew for each row of a statement.
    fn subject(&self) -> Option<String> {
        let (activity_id, user_id) = (self.activity_id.as_str(), self.user_id.as_str());
        Some(format!("grant/{activity_id}/{user_id}"))
    }

    fn decide(&self, snapshot: &Snapshot, given: &Given) -> Decision {
        self.operation_on(snapshot, given).into()
    }
}

impl GrantCoupon {
    fn operation_on(&self, snapshot: &Snapshot, given: &Given) -> Result<Operation, Problem> {
        let (grant, row) = match (&snapshot.grant, &snapshot.activity) {
            (Some(grant), _) => {
                let row = Operation::silent(self.operation(), given, 200, grant);
                (grant.clone(), row)
            }
            (None, Some(activity)) if activity.is_exhausted() => {
                let granted = activity.granted;
                let detail = format!("the activity has granted {granted} coupons, and no more");
                return Err(Problem::new(Code::CouponExhausted, detail));
            }
            (None, _) => {
                let grant = Grant {
                    grant_id: format!("gra_{}", given.subject),
                    activity_id: self.activity_id.clone(),
                    user_id: self.user_id.clone(),
                    created_at: given.now,
                };
                let operation = self.operation();
                let row = Operation::applied(operation, given, 201, &grant, "coupon.granted");
                (grant, row)
            }
        };
        Ok(Operation {
            user_id: Some(grant.user_id),
            subject_id: Some(grant.grant_id),
            reference: Some(grant.activity_id.as_str().to_owned()),
            ..row
        })
    }
}
