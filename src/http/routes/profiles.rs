//! `/v1/users/{user_id}/profile`: what a merchant keeps about a customer.

use crate::domain::Code;
use crate::domain::commands::UpdateProfile;
use crate::http::body::Body;
use crate::http::extract::{PathId, Submission};
use crate::http::intent::Intent;
use crate::http::respond::Result;

/// Reads `profile.update`.
pub(in crate::http) fn update_intent(user_id: PathId, body: &Body) -> Result<Intent> {
    let user_id = user_id.or(Code::NotFound)?;
    let command = UpdateProfile {
        user_id: user_id.clone(),
        patch: body.required()?,
    };
    Ok(Intent::about(user_id, command))
}

/// `PATCH /v1/users/{user_id}/profile`: 200 with the profile.
pub(crate) async fn update(user_id: PathId, submission: Submission) -> Result {
    let intent = update_intent(user_id, &submission.body)?;
    submission.perform(intent).await
}
