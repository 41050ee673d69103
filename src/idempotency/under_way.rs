//! Operations that a channel works on: the walk of a request goes on until the channel has answered, or the
//! client has waited long enough.

use serde::Serialize;

use super::{Idempotency, Reply};
use crate::domain::{Answer, CallKind, ChannelCall, Code, Identifier, Problem};
use crate::runtime::{self, Deadline};
use crate::settlement::{Ending, Progress};
use crate::store::{channel_calls, queries};

/// The pause before the journal is read again, milliseconds: the first one, and the longest.
const FIRST_PAUSE_MS: u64 = 20;
const LONGEST_PAUSE_MS: u64 = 1_000;

/// An operation that is in the journal without a final answer.
pub(super) struct UnderWay<'a> {
    pub merchant: &'a Identifier,
    pub key: &'a str,
    pub fingerprint: &'a str,
    /// Whether this request put it there, and so owns the call.
    pub begun_here: bool,
    /// How long to wait for its end, milliseconds.
    pub wait_ms: u64,
}

impl Idempotency {
    /// Brings an operation to its end, or tells how far it has come.
    ///
    /// Whoever began it answers 202 as soon as the channel's answer is lost; whoever retries waits for what
    /// others do, and takes over where nobody does anything.
    pub(super) async fn finish(
        &self,
        under_way: UnderWay<'_>,
        waited: &mut bool,
    ) -> Result<Reply, Problem> {
        let UnderWay { merchant, key, .. } = under_way;
        let give_up = Deadline::after_millis(under_way.wait_ms);
        let mut pause = FIRST_PAUSE_MS;
        loop {
            let call = channel_calls::of_key(&self.database, merchant, key).await?;
            let call = call.ok_or_else(inconsistent)?;
            let progress = if under_way.begun_here {
                self.settler.begin(&call).await?
            } else {
                self.settler.go_on(&call).await?
            };
            if let Progress::Settled(ending) = progress {
                let answer = self.ended(&under_way).await?.ok_or_else(inconsistent)?;
                // Who heard of it second may still be the first to answer.
                return Ok(if under_way.begun_here || ending != Ending::Before {
                    Reply::first(answer)
                } else {
                    Reply::replay(answer)
                });
            }
            let left = give_up.left_millis();
            if under_way.begun_here || left == 0 {
                // Somebody else may have heard of its end meanwhile.
                return match self.ended(&under_way).await? {
                    Some(answer) if under_way.begun_here => Ok(Reply::first(answer)),
                    Some(answer) => Ok(Reply::replay(answer)),
                    None => self.state(&call, progress).await,
                };
            }
            *waited = true;
            runtime::sleep_millis(pause.min(left)).await;
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE_MS);
        }
    }

    /// The final answer, once there is one.
    async fn ended(&self, under_way: &UnderWay<'_>) -> Result<Option<Answer>, Problem> {
        let UnderWay { merchant, key, .. } = under_way;
        let recorded = queries::recorded(&self.database, merchant, key).await?;
        let answer = recorded
            .filter(|recorded| !recorded.answer.is_under_way())
            .filter(|recorded| recorded.fingerprint == under_way.fingerprint)
            .map(|recorded| recorded.answer);
        Ok(answer)
    }

    /// 202 with the payment or refund as it is.
    async fn state(&self, call: &ChannelCall, progress: Progress) -> Result<Reply, Problem> {
        let (database, id) = (&self.database, &call.subject_id);
        let (body, location) = match call.kind {
            CallKind::Charge => {
                let payment = queries::payment(database, &call.merchant, id).await?;
                (json(&payment)?, format!("/v1/payments/{id}"))
            }
            CallKind::Refund => {
                let refund = queries::refund(database, &call.merchant, id).await?;
                let order_no = call.order_no.as_str();
                (json(&refund)?, format!("/v1/orders/{order_no}/refunds"))
            }
        };
        let lease_left = match progress {
            Progress::Owned { lease_until } => {
                let now = runtime::now().as_millis();
                lease_until.as_millis().saturating_sub(now)
            }
            Progress::Open | Progress::Settled(_) => 0,
        };
        let seconds = lease_left.saturating_add(999).div_euclid(1000).max(1);
        Ok(Reply {
            answer: Answer {
                status: 202,
                location: Some(location),
                body,
            },
            replayed: false,
            retry_after: Some(u32::try_from(seconds).unwrap_or(1)),
        })
    }
}

fn json(object: &Option<impl Serialize>) -> Result<String, Problem> {
    let object = object.as_ref().ok_or_else(inconsistent)?;
    // Derived from plain structs: this cannot fail.
    Ok(serde_json::to_string(object).unwrap_or_default())
}

/// What the journal begins is there.
fn inconsistent() -> Problem {
    let mut problem = Problem::new(Code::StorageUnavailable, "the database did not answer");
    problem.cause = Some("an operation under way has no call of a channel".to_owned());
    problem
}
