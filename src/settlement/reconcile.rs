//! The reconcile sweep: whatever waits for its channel and belongs to nobody is looked up and finished, or asked
//! for again under the same number. It can stop anywhere and run beside itself and beside live requests.

use futures::future::join_all;
use serde::Serialize;

use super::{Approach, Ending, Progress, Settler};
use crate::domain::{Horizon, Problem};
use crate::runtime;
use crate::store::channel_calls;

/// How many calls are taken over by one statement, and then made at the same time.
const BATCH: u32 = 16;

/// How long a sweep goes on to take calls over.
const BUDGET_NANOS: u64 = 20_000_000_000;

/// How many calls a sweep took over, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reconciled {
    pub taken_over: u32,
    pub succeeded: u32,
    pub declined: u32,
    /// Charges that succeeded although their payments had failed: refunds of them are queued.
    pub returned: u32,
    /// Settled by somebody else meanwhile.
    pub settled_before: u32,
    /// The channel did not say. They are looked up again by the next sweep.
    pub unknown: u32,
    /// The database did not take the result. They are looked up again when their leases are over.
    pub failed: u32,
}

impl Settler {
    /// Takes over what is due, at most `limit` calls, each once.
    ///
    /// # Errors
    ///
    /// A 503 where the database cannot answer. What was taken over by then is due again after its lease.
    pub async fn reconcile(&self, limit: u32) -> Result<Reconciled, Problem> {
        let started = runtime::monotonic_nanos();
        let began = runtime::now();
        let mut total = Reconciled::default();
        while total.taken_over < limit
            && runtime::monotonic_nanos().saturating_sub(started) < BUDGET_NANOS
        {
            let horizon = self.horizon();
            let owner = runtime::uuid(horizon.now);
            let lease_until = horizon.now.plus_millis(self.lease_ms());
            // What is given back is due later than when the sweep began.
            let due = Horizon {
                now: began,
                ..horizon
            };
            let room = limit.saturating_sub(total.taken_over).min(BATCH);
            let calls =
                channel_calls::take_over_due(&self.database, due, owner, lease_until, room).await?;
            if calls.is_empty() {
                break;
            }
            let owner = owner.to_string();
            let work = calls
                .iter()
                .map(|call| self.work(call, &owner, Approach::LookUpFirst));
            for progress in join_all(work).await {
                total.count(progress);
            }
        }
        Ok(total)
    }
}

impl Reconciled {
    /// Whether there is something to tell.
    pub const fn settled(&self) -> bool {
        self.succeeded > 0 || self.declined > 0 || self.returned > 0
    }

    fn count(&mut self, progress: Result<Progress, Problem>) {
        self.taken_over = self.taken_over.saturating_add(1);
        let count = match progress {
            Ok(Progress::Settled(Ending::Succeeded)) => &mut self.succeeded,
            Ok(Progress::Settled(Ending::Declined)) => &mut self.declined,
            Ok(Progress::Settled(Ending::Returned)) => &mut self.returned,
            Ok(Progress::Settled(Ending::Before)) => &mut self.settled_before,
            Ok(Progress::Open | Progress::Owned { .. }) => &mut self.unknown,
            Err(_) => &mut self.failed,
        };
        *count = count.saturating_add(1);
    }
}
