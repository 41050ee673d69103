//! The channel's own routes, for whoever plays with it by `curl`: its book, and its script.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::book::Outcome;
use crate::contract::problem;
use crate::request::{Asked, Reply};
use crate::script::{Call, Fault, Manner, Step};
use crate::server::Shared;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Script {
    call: Call,
    #[serde(default)]
    outcome: Outcome,
    fault: Option<Fault>,
    /// For so many calls.
    #[serde(default = "one")]
    times: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settle {
    charge_id: Option<String>,
    refund_id: Option<String>,
    outcome: Outcome,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Deliver {
    /// Of one order; otherwise every event so far.
    order_no: Option<String>,
    #[serde(default)]
    manner: Manner,
    #[serde(default)]
    reversed: bool,
    #[serde(default = "one")]
    times: usize,
}

fn one() -> usize {
    1
}

/// Answers a control route; `None` where it is none.
pub(crate) async fn respond(shared: &Arc<Shared>, asked: &Asked) -> Option<Reply> {
    let (method, path) = asked.target();
    let outcome = match (method, path.as_slice()) {
        ("GET", ["book"]) => {
            let book = shared.state().book.clone();
            Ok(Reply::new(200, json!(book)))
        }
        ("GET", ["events"]) => {
            let events = shared.state().events.clone();
            Ok(Reply::new(200, json!({"events": events})))
        }
        ("POST", ["control", "script"]) => read(asked).map(|script| plan(shared, script)),
        ("POST", ["control", "settle"]) => read(asked).map(|wish| settle(shared, wish)),
        ("POST", ["control", "release"]) => {
            shared.release();
            Ok(Reply::new(200, json!({})))
        }
        ("POST", ["control", "webhooks"]) => match read(asked) {
            Ok(wish) => Ok(deliver(shared, wish).await),
            Err(reply) => Err(reply),
        },
        _ => return None,
    };
    Some(outcome.unwrap_or_else(|refusal| refusal))
}

fn read<T: DeserializeOwned>(asked: &Asked) -> Result<T, Reply> {
    asked
        .json()
        .map_err(|reason| problem(400, "body_invalid", &reason))
}

fn plan(shared: &Shared, script: Script) -> Reply {
    let step = Step {
        outcome: script.outcome,
        fault: script.fault,
    };
    let steps = std::iter::repeat_n(step, script.times);
    shared.state().script(script.call, steps);
    Reply::new(200, json!({}))
}

fn settle(shared: &Arc<Shared>, wish: Settle) -> Reply {
    let outcome = wish.outcome;
    let (settled, _) = match (wish.charge_id, wish.refund_id) {
        (Some(id), None) => shared.change(|state| state.settle_charge(&id, outcome)),
        (None, Some(id)) => shared.change(|state| state.settle_refund(&id, outcome)),
        _ => {
            return problem(
                400,
                "body_invalid",
                "one of charge_id and refund_id is needed",
            );
        }
    };
    match settled {
        true => Reply::new(200, json!({})),
        false => problem(404, "not_found", "there is no such charge or refund"),
    }
}

async fn deliver(shared: &Shared, wish: Deliver) -> Reply {
    let mut events = shared.state().events.clone();
    if let Some(order_no) = wish.order_no {
        events.retain(|event| event.order_no == order_no);
    }
    if wish.reversed {
        events.reverse();
    }
    let mut answers = Vec::new();
    for event in events {
        for _ in 0..wish.times {
            let status = shared.deliver(&event, wish.manner).await;
            answers.push(json!({"id": event.id, "status": status}));
        }
    }
    Reply::new(200, json!({"answers": answers}))
}
