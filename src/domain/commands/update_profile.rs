//! `profile.update`: change what is kept about a customer.

use serde_json::json;

use crate::domain::{
    Code, Command, Decision, Given, Identifier, Lookup, Metadata, Operation, Problem, Profile,
    ProfilePatch, Snapshot,
};

/// Merge a patch into a profile; the first one makes it.
#[derive(Clone, Debug)]
pub struct UpdateProfile {
    pub user_id: Identifier,
    pub patch: ProfilePatch,
}

impl Command for UpdateProfile {
    fn operation(&self) -> &'static str {
        "profile.update"
    }

    fn lookup(&self) -> Lookup<'_> {
        Lookup {
            profile_of: Some(&self.user_id),
            ..Lookup::default()
        }
    }

    fn subject(&self) -> Option<String> {
        Some(format!("profile/{}", self.user_id.as_str()))
    }

    fn decide(&self, snapshot: &Snapshot, given: &Given) -> Decision {
        self.operation_on(snapshot, given).into()
    }
}

impl UpdateProfile {
    fn operation_on(&self, snapshot: &Snapshot, given: &Given) -> Result<Operation, Problem> {
        let nothing = Metadata::default();
        let (fields, version) = match &snapshot.profile {
            Some(profile) => (&profile.fields, profile.version),
            None => (&nothing, 0),
        };
        let fields = self.patch.apply(fields);
        let fields = fields.map_err(|detail| Problem::at(Code::BodyInvalid, "", detail))?;
        let profile = Profile {
            user_id: self.user_id.clone(),
            fields,
            version: version.saturating_add(1),
            updated_at: given.now,
        };
        let row = Operation::applied(self.operation(), given, 200, &profile, "profile.updated");
        Ok(Operation {
            user_id: Some(profile.user_id),
            version: Some(profile.version),
            details: Some(json!({ "fields": profile.fields })),
            ..row
        })
    }
}
