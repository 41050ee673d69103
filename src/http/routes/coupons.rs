//! `/v1/coupons`: activities and their grants.

use serde::Deserialize;

use crate::domain::commands::{GrantCoupon, LimitCoupon};
use crate::domain::{Code, GrantLimit, Identifier};
use crate::http::body::Body;
use crate::http::extract::{PathId, Submission};
use crate::http::intent::Intent;
use crate::http::respond::Result;
use crate::idempotency::IdempotencyKey;
use crate::runtime;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantBody {
    user_id: Identifier,
}

/// Reads `coupon.grant`.
pub(in crate::http) fn grant_intent(activity_id: PathId, body: &Body) -> Result<Intent> {
    let activity_id = activity_id.or(Code::NotFound)?;
    let GrantBody { user_id } = body.required()?;
    let command = GrantCoupon {
        activity_id: activity_id.clone(),
        user_id,
    };
    Ok(Intent::about(activity_id, command))
}

/// `POST /v1/coupons/{activity_id}/grants`: 201 with the grant, 200 with the one that the user has.
pub(crate) async fn grant(activity_id: PathId, submission: Submission) -> Result {
    let intent = grant_intent(activity_id, &submission.body)?;
    submission.perform(intent).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitBody {
    // Without this, a body that lacks the field would lift the limit.
    #[serde(deserialize_with = "Option::deserialize")]
    limit: Option<GrantLimit>,
}

/// Reads `coupon.limit`.
pub(in crate::http) fn limit_intent(activity_id: PathId, body: &Body) -> Result<Intent> {
    let activity_id = activity_id.or(Code::NotFound)?;
    let LimitBody { limit } = body.required()?;
    let command = LimitCoupon {
        activity_id: activity_id.clone(),
        limit,
    };
    Ok(Intent::about(activity_id, command))
}

/// `PUT /v1/coupons/{activity_id}`: 200 with the limit.
pub(crate) async fn limit(activity_id: PathId, submission: Submission) -> Result {
    let key = IdempotencyKey::unnamed(runtime::uuid(runtime::now()));
    let intent = limit_intent(activity_id, &submission.body)?.or_key(Some(key));
    submission.perform(intent).await
}
