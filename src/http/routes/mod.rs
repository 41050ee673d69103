//! The routes, one file for each thing of the contract.

pub(super) mod accounts;
pub(super) mod admin;
pub(super) mod coupons;
pub(super) mod events;
pub(super) mod messages;
pub(super) mod orders;
pub(super) mod payments;
pub(super) mod profiles;
pub(super) mod refunds;
pub(super) mod service;
pub(super) mod tokens;
pub(super) mod webhooks;

use std::sync::Arc;

use axum::extract::State;
use serde::Deserialize;

use super::App;

/// The application, as handlers get it.
type Shared = State<Arc<App>>;

/// A body that is `{}` or none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}
