//! Exactly once: the walk of a request from its key to its answer.
//!
//! The key-value store is asked first and believed only where nothing depends on it: a cached response
//! is a copy of what the journal holds, a claim only makes others wait. The journal decides.

mod backlog;
mod claims;
mod entries;
mod fingerprint;
mod key;
mod record;
mod seal;
mod sweep;
mod token;
mod under_way;

use std::sync::Arc;

pub use fingerprint::fingerprint;
pub use key::{IdempotencyKey, InvalidKey};
pub use sweep::Swept;
pub use token::{SubmitToken, TokenError};
#[cfg(any(test, fuzzing))]
pub use {entries::fuzz::cached_entry, key::fuzz::key_or_refused, token::fuzz::token};

use self::backlog::Backlog;
use self::claims::Claims;
use self::entries::Entries;
use self::record::{Claim, Record, record_key};
use self::under_way::UnderWay;
use crate::config::Config;
use crate::domain::{Answer, Code, Command, Identifier, Problem};
use crate::runtime::{self, Deadline};
use crate::settlement::Settler;
use crate::store::{Database, Entry, Journal, Recorded, Verdict, queries};

/// What the key-value store held for a key. It may be old by the time it is used, as the store may lag.
pub struct Peek {
    record_key: String,
    record: Option<Record>,
}

/// A request that must take effect at most once.
pub struct Request {
    pub merchant: Identifier,
    pub key: IdempotencyKey,
    pub peek: Peek,
    /// Hexadecimal SHA-256, see [`fingerprint`].
    pub fingerprint: String,
    pub command: Box<dyn Command>,
    /// How long to wait for the answer of a concurrent duplicate, milliseconds.
    pub wait_ms: u64,
}

/// An answer: a final one, or 202 with the state of the moment.
#[derive(Debug)]
pub struct Reply {
    pub answer: Answer,
    /// Whether it is the answer to an earlier request with this key.
    pub replayed: bool,
    /// Seconds for `Retry-After`, where it is not final.
    pub retry_after: Option<u32>,
}

impl Reply {
    fn first(answer: Answer) -> Self {
        Self {
            answer,
            replayed: false,
            retry_after: None,
        }
    }

    fn replay(answer: Answer) -> Self {
        Self {
            replayed: true,
            ..Self::first(answer)
        }
    }
}

/// What the request does next.
enum NextAction {
    /// Its answer is known.
    Reply(Reply),
    /// It executes.
    Execute,
}

/// The two stores, and what an instance keeps to use them well.
pub struct Idempotency {
    /// For reading only.
    pub database: Database,
    journal: Arc<Journal>,
    entries: Arc<Entries>,
    claims: Arc<Claims>,
    backlog: Arc<Backlog>,
    pub settler: Settler,
}

impl Idempotency {
    /// With the lifetimes of `config`.
    pub fn new(config: &Config) -> Self {
        let entries = Arc::new(Entries::new(config));
        let claims = Arc::new(Claims::new(config, Arc::clone(&entries)));
        let journal = Arc::<Journal>::default();
        Self {
            database: Database::default(),
            settler: Settler::new(config, Arc::clone(&journal)),
            journal,
            backlog: Arc::new(Backlog::new(Arc::clone(&entries), Arc::clone(&claims))),
            claims,
            entries,
        }
    }

    /// Asks the key-value store about a key.
    pub async fn peek(&self, merchant: &Identifier, key: &IdempotencyKey) -> Peek {
        let record_key = record_key(merchant, key);
        let record = self.entries.get(&record_key).await;
        Peek { record_key, record }
    }

    /// Executes a request, or answers it with what was recorded for its key.
    ///
    /// # Errors
    ///
    /// Answers that are not final and that nothing was recorded for: the refusal of the command,
    /// `idempotency_key_reused`, `idempotency_in_progress`, `token_expired`, or a 503.
    pub async fn perform(&self, mut request: Request, waited: &mut bool) -> Result<Reply, Problem> {
        let record = request.peek.record.take();
        if let NextAction::Reply(reply) = self.follow(&request, record, waited).await? {
            return Ok(reply);
        }
        let record_key = request.peek.record_key;
        if request.key.is_expired_token(runtime::now()) {
            // Redeemed in time, it keeps replaying.
            let recorded =
                queries::recorded(&self.database, &request.merchant, request.key.as_str()).await?;
            let recorded = recorded.ok_or_else(|| {
                Problem::new(Code::TokenExpired, "the token was not redeemed in time")
            })?;
            if !recorded.answer.is_under_way() {
                return self.replay(recorded, &request.fingerprint, record_key);
            }
            // Redeemed in time, it is brought to its end.
        }

        let pending = self
            .claims
            .register(record_key.clone(), request.fingerprint.clone());
        let given = self.settler.given();
        let entry = Entry {
            merchant: request.merchant.clone(),
            key: request.key.as_str().to_owned(),
            fingerprint: request.fingerprint.clone(),
            command: request.command,
            given,
        };
        let verdict = self.journal.append(entry).await;
        let under_way = |begun_here| UnderWay {
            merchant: &request.merchant,
            key: request.key.as_str(),
            fingerprint: &request.fingerprint,
            begun_here,
            wait_ms: request.wait_ms,
        };
        let reply = match verdict {
            Ok(Verdict::Appended(answer)) if !answer.is_under_way() => Ok(Reply::first(answer)),
            Ok(Verdict::Recorded(recorded)) if !recorded.answer.is_under_way() => {
                return self.replay(recorded, &request.fingerprint, record_key);
            }
            Ok(Verdict::Appended(_)) => self.finish(under_way(true), waited).await,
            Ok(Verdict::Recorded(recorded)) => {
                same_request(&recorded.fingerprint, &request.fingerprint)?;
                self.finish(under_way(false), waited).await
            }
            Err(problem) => Err(problem),
        };
        match reply {
            Ok(reply) if reply.retry_after.is_none() => {
                let answer = reply.answer.clone();
                let record = Record::response(request.fingerprint, answer, runtime::now());
                self.backlog.remember(record_key, record);
                Ok(reply)
            }
            // Not final: a retry runs at once.
            reply => {
                pending.release().await;
                reply
            }
        }
    }

    /// Follows what the key-value store knows: a replay, or a wait for a request that is still running.
    async fn follow(
        &self,
        request: &Request,
        mut record: Option<Record>,
        waited: &mut bool,
    ) -> Result<NextAction, Problem> {
        const FIRST_PAUSE_MS: u64 = 5;
        const LONGEST_PAUSE_MS: u64 = 200;

        let give_up = Deadline::after_millis(request.wait_ms);
        let mut pause = FIRST_PAUSE_MS;
        loop {
            let claim = match record {
                Some(Record::Response {
                    fingerprint,
                    answer,
                    ..
                }) => {
                    same_request(&fingerprint, &request.fingerprint)?;
                    return Ok(NextAction::Reply(Reply::replay(answer)));
                }
                Some(Record::Claim(claim)) if self.claims.is_live(&claim) => claim,
                _ => return Ok(NextAction::Execute),
            };
            // The first answer may be in the journal before it is in the cache, or only there.
            let recorded =
                queries::recorded(&self.database, &request.merchant, request.key.as_str()).await;
            match recorded {
                // The journal knows more than the claim.
                Ok(Some(recorded)) if recorded.answer.is_under_way() => {
                    return Ok(NextAction::Execute);
                }
                Ok(Some(recorded)) => {
                    let record_key = request.peek.record_key.clone();
                    let reply = self.replay(recorded, &request.fingerprint, record_key)?;
                    return Ok(NextAction::Reply(reply));
                }
                // A claim is no proof of whose key this is: one that was written late may be of a request
                // that came to nothing.
                Err(error) if claim.fingerprint != request.fingerprint => return Err(error.into()),
                Ok(None) | Err(_) => same_request(&claim.fingerprint, &request.fingerprint)?,
            }
            let now = runtime::now().as_millis();
            let left = give_up.left_millis();
            if left == 0 {
                return Err(in_progress(&claim, now));
            }
            *waited = true;
            let lease_left = claim.lease_until.saturating_sub(now).max(0).unsigned_abs();
            let lease_end = lease_left.saturating_add(1);
            runtime::sleep_millis(pause.min(left).min(lease_end)).await;
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE_MS);
            record = self.peek(&request.merchant, &request.key).await.record;
        }
    }

    /// Answers with what the journal holds, and repairs the cache.
    fn replay(
        &self,
        recorded: Recorded,
        fingerprint: &str,
        record_key: String,
    ) -> Result<Reply, Problem> {
        same_request(&recorded.fingerprint, fingerprint)?;
        let record = Record::response(
            recorded.fingerprint,
            recorded.answer.clone(),
            runtime::now(),
        );
        self.backlog.repair(record_key, record);
        Ok(Reply::replay(recorded.answer))
    }
}

/// Invariant 3: the same key with another fingerprint gets nothing but this refusal.
fn same_request(recorded: &str, fingerprint: &str) -> Result<(), Problem> {
    if recorded == fingerprint {
        return Ok(());
    }
    let detail = "the key was used with another route, path or body";
    Err(Problem::new(Code::IdempotencyKeyReused, detail))
}

fn in_progress(claim: &Claim, now: i64) -> Problem {
    let detail = "the first request with this key is still running";
    let mut problem = Problem::new(Code::IdempotencyInProgress, detail);
    let seconds = claim
        .lease_until
        .saturating_sub(now)
        .saturating_add(999)
        .saturating_div(1000);
    problem.retry_after = Some(u32::try_from(seconds).unwrap_or(1).max(1));
    problem
}
