//! The `http` contract of `docs/channels.md`.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::book::{Charge, ChargeRequest, Outcome, Refund, RefundRequest};
use crate::events::Surface;
use crate::request::{Asked, Reply};
use crate::script::Call;
use crate::server::Act;
use crate::state::State;

/// The call that a request is.
pub(crate) fn route(asked: &Asked) -> Option<(Call, Act)> {
    let (method, path) = asked.target();
    match (method, path.as_slice()) {
        ("POST", ["charges"]) => Some((Call::Charge, create_charge)),
        ("GET", ["charges", _]) => Some((Call::Lookup, show_charge)),
        ("POST", ["refunds"]) => Some((Call::Refund, create_refund)),
        ("GET", ["refunds", _]) => Some((Call::LookupRefund, show_refund)),
        _ => None,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChargeBody {
    request_no: String,
    order_no: String,
    merchant_id: String,
    amount: u64,
    currency: String,
    payment_method: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RefundBody {
    refund_no: String,
    request_no: String,
    amount: u64,
    currency: String,
}

fn create_charge(state: &mut State, asked: &Asked, outcome: Outcome) -> Reply {
    let body: ChargeBody = match asked.json() {
        Ok(body) => body,
        Err(reason) => return problem(400, "body_invalid", &reason),
    };
    if body.amount == 0 {
        return problem(400, "body_invalid", "amount is 0");
    }
    let request = ChargeRequest {
        request_no: body.request_no,
        order_no: body.order_no,
        merchant_id: body.merchant_id,
        amount: body.amount,
        currency: body.currency,
        payment_method: body.payment_method,
    };
    let key = asked.key();
    if let Some(known) = key.as_deref().and_then(|key| state.book.charge_by_key(key)) {
        return match known.asked == request {
            true => show(200, known),
            false => reused(),
        };
    }
    let charge = state.book.charge(Surface::Http, key, request, outcome);
    let (reply, charge_id) = (show(201, charge), charge.charge_id.clone());
    state.tell_charge(&charge_id);
    reply
}

fn show_charge(state: &mut State, asked: &Asked, _: Outcome) -> Reply {
    match state.book.charge_by_number(&asked.segments[1]) {
        Some(charge) => Reply::new(200, charge_body(charge)),
        None => problem(404, "not_found", "there is no such charge"),
    }
}

fn create_refund(state: &mut State, asked: &Asked, outcome: Outcome) -> Reply {
    let body: RefundBody = match asked.json() {
        Ok(body) => body,
        Err(reason) => return problem(400, "body_invalid", &reason),
    };
    let Some(charge) = state.book.charge_by_number(&body.request_no) else {
        return problem(404, "not_found", "there is no charge to refund");
    };
    let request = RefundRequest {
        refund_no: body.refund_no,
        charge_id: charge.charge_id.clone(),
        amount: body.amount,
    };
    let key = asked.key();
    if let Some(known) = key.as_deref().and_then(|key| state.book.refund_by_key(key)) {
        return match known.asked == request {
            true => show_of(200, charge, known),
            false => reused(),
        };
    }
    if body.amount == 0 || body.currency != charge.asked.currency {
        return problem(400, "body_invalid", "not an amount of the charge");
    }
    if body.amount > state.book.refundable(charge) {
        return problem(
            422,
            "refund_exceeds_charge",
            "so much is not left of the charge",
        );
    }
    let charge = charge.clone();
    let refund = state.book.refund(key, request, outcome);
    let (reply, refund_id) = (show_of(201, &charge, refund), refund.refund_id.clone());
    state.tell_refund(&refund_id);
    reply
}

fn show_refund(state: &mut State, asked: &Asked, _: Outcome) -> Reply {
    let book = &state.book;
    let refund = book.refund_by_number(&asked.segments[1]);
    let found =
        refund.and_then(|refund| Some((book.charge_by_id(&refund.asked.charge_id)?, refund)));
    match found {
        Some((charge, refund)) => Reply::new(200, refund_body(charge, refund)),
        None => problem(404, "not_found", "there is no such refund"),
    }
}

/// A decline is a 402 with the same body, whether it is new or repeated.
fn status(success: u16, outcome: &Outcome) -> u16 {
    match outcome.code() {
        Some(_) => 402,
        None => success,
    }
}

fn show(success: u16, charge: &Charge) -> Reply {
    Reply::new(status(success, &charge.outcome), charge_body(charge))
}

fn show_of(success: u16, charge: &Charge, refund: &Refund) -> Reply {
    Reply::new(
        status(success, &refund.outcome),
        refund_body(charge, refund),
    )
}

fn charge_body(charge: &Charge) -> Value {
    let asked = &charge.asked;
    let mut body = json!({
        "request_no": asked.request_no,
        "charge_id": charge.charge_id,
        "order_no": asked.order_no,
        "merchant_id": asked.merchant_id,
        "amount": asked.amount,
        "currency": asked.currency,
        "status": charge.outcome.word(),
    });
    if let Some(code) = charge.outcome.code() {
        body["code"] = code.into();
    }
    body
}

fn refund_body(charge: &Charge, refund: &Refund) -> Value {
    let mut body = json!({
        "refund_no": refund.asked.refund_no,
        "request_no": charge.asked.request_no,
        "amount": refund.asked.amount,
        "currency": charge.asked.currency,
        "status": refund.outcome.word(),
    });
    if let Some(code) = refund.outcome.code() {
        body["code"] = code.into();
    }
    body
}

fn reused() -> Reply {
    problem(
        422,
        "idempotency_key_reused",
        "this key came with another request",
    )
}

pub(crate) fn problem(status: u16, code: &str, message: &str) -> Reply {
    Reply::new(status, json!({"code": code, "message": message}))
}

pub(crate) fn charge_events(charge: &Charge) -> Vec<(&'static str, Value)> {
    vec![("charge.updated", charge_body(charge))]
}

pub(crate) fn refund_events(charge: &Charge, refund: &Refund) -> Vec<(&'static str, Value)> {
    vec![("refund.updated", refund_body(charge, refund))]
}

pub(crate) fn event(event_type: &str, data: Value) -> Value {
    json!({"type": event_type, "data": data})
}
