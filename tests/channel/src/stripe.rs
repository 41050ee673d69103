//! As much of Stripe's API as payonce uses, with the habits that matter to whoever recovers a payment:
//!
//! - The first answer of an idempotency key is saved and given again, whatever became of the payment
//!   since; also if it was a 500.
//! - The same key with other parameters is a 400, and a 409 while the first request is in flight.
//! - Lists have ten entries unless asked for more.
//! - The version of the API is that of the account unless a request names one. Here it is another one than the
//!   only one that is played, so every request has to name that.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::book::{Book, Charge, ChargeRequest, Outcome, Refund, RefundRequest};
use crate::events::Surface;
use crate::request::{Asked, Reply};
use crate::script::Call;
use crate::server::Act;
use crate::state::{Saved, State};

type Form = BTreeMap<String, String>;

/// The version that is played.
const VERSION: &str = "2025-03-31.basil";

/// The call that a request is. Creating again what is known is how payonce looks up within Stripe's 24
/// hours: it counts as a charge.
pub(crate) fn route(asked: &Asked) -> Option<(Call, Act)> {
    let (method, path) = asked.target();
    match (method, path.as_slice()) {
        ("POST", ["v1", "payment_intents"]) => Some((Call::Charge, create_intent)),
        ("GET", ["v1", "payment_intents"]) => Some((Call::Lookup, list_intents)),
        ("GET", ["v1", "payment_intents", "search"]) => Some((Call::Lookup, search_intents)),
        ("GET", ["v1", "payment_intents", _]) => Some((Call::Lookup, show_intent)),
        ("POST", ["v1", "payment_intents", _, "cancel"]) => Some((Call::Cancel, cancel_intent)),
        ("POST", ["v1", "refunds"]) => Some((Call::Refund, create_refund)),
        ("GET", ["v1", "refunds"]) => Some((Call::LookupRefund, list_refunds)),
        ("GET", ["v1", "refunds", _]) => Some((Call::LookupRefund, show_refund)),
        _ => None,
    }
}

/// Refuses a request that does not name the version that is played.
pub(crate) fn refuse_version(asked: &Asked) -> Option<Reply> {
    let version = asked.header("stripe-version").unwrap_or_default();
    let message = format!("Invalid Stripe API version: {version}");
    (version != VERSION).then(|| error(400, "invalid_request_error", None, &message))
}

/// Marks a key as in flight: it will act later.
pub(crate) fn start(state: &mut State, asked: &Asked) {
    if let Some(key) = asked.key() {
        state.saved.entry(key).or_insert_with(|| Saved {
            request: asked.fingerprint(),
            reply: None,
        });
    }
}

/// A failure of the API itself, which is the answer of its key from now on if that is `new`.
pub(crate) fn fail(state: &mut State, asked: &Asked, new: bool) -> Reply {
    let reply = error(500, "api_error", None, "An unknown error occurred.");
    let key = asked.key().filter(|_| new);
    let saved = key.and_then(|key| state.saved.get_mut(&key));
    if let Some(saved) = saved {
        saved.reply = Some(reply.clone());
    }
    reply
}

/// The request that was in flight goes on.
pub(crate) fn resume(state: &mut State, asked: &Asked) {
    if let Some(key) = asked.key() {
        let flying = |saved: &Saved| saved.reply.is_none() && saved.request == asked.fingerprint();
        if state.saved.get(&key).is_some_and(flying) {
            state.saved.remove(&key);
        }
    }
}

/// Answers a repeated key with its first answer; the first answer of a key is kept.
fn once(
    state: &mut State,
    asked: &Asked,
    act: impl FnOnce(&mut State, &Form) -> Result<Reply, Reply>,
) -> Reply {
    let request = asked.fingerprint();
    let known = asked.key().and_then(|key| state.saved.get(&key));
    match known {
        Some(saved) if saved.request != request => {
            let message = "Keys for idempotent requests can only be used with the same parameters \
                           they were first used with.";
            error(400, "idempotency_error", None, message)
        }
        Some(Saved { reply: None, .. }) => {
            let message = "There is currently another in-progress request using this key.";
            let code = Some("idempotency_key_in_use");
            error(409, "idempotency_error", code, message)
        }
        Some(Saved {
            reply: Some(reply), ..
        }) => reply.clone(),
        None => match act(state, &asked.form()) {
            Ok(reply) => {
                if let Some(key) = asked.key() {
                    let reply = Some(reply.clone());
                    state.saved.insert(key, Saved { request, reply });
                }
                reply
            }
            // Nothing began to execute: nothing is kept.
            Err(refusal) => refusal,
        },
    }
}

fn create_intent(state: &mut State, asked: &Asked, outcome: Outcome) -> Reply {
    once(state, asked, |state, form| {
        check(form, "payment_intents")?;
        if form.get("confirm").map(String::as_str) != Some("true") {
            return Err(invalid(
                "confirm",
                "Only confirmed PaymentIntents are played here.",
            ));
        }
        let payment_method = text(form, "payment_method")?;
        let outcome = match outcome {
            Outcome::Succeeded => of_test_method(&payment_method),
            scripted => scripted,
        };
        let request = ChargeRequest {
            request_no: metadata(form, "request_no"),
            order_no: metadata(form, "order_no"),
            merchant_id: metadata(form, "merchant_id"),
            amount: amount(form)?,
            currency: currency(form)?,
            payment_method: Some(payment_method),
        };
        let charge = state
            .book
            .charge(Surface::Stripe, asked.key(), request, outcome);
        let charge = charge.clone();
        state.tell_charge(&charge.charge_id);
        Ok(match charge.outcome {
            Outcome::Declined(_) => card_error(&charge),
            _ => Reply::new(200, intent(&charge)),
        })
    })
}

/// The test payment methods of Stripe that do not succeed.
fn of_test_method(payment_method: &str) -> Outcome {
    let code = match payment_method {
        "pm_card_chargeDeclined" => "generic_decline",
        "pm_card_chargeDeclinedInsufficientFunds" => "insufficient_funds",
        "pm_card_authenticationRequired" => return Outcome::RequiresAction,
        _ => return Outcome::Succeeded,
    };
    Outcome::Declined(code.to_owned())
}

fn show_intent(state: &mut State, asked: &Asked, _: Outcome) -> Reply {
    match state.book.charge_by_id(&asked.segments[2]) {
        Some(charge) => Reply::new(200, intent(charge)),
        None => missing("payment_intent", &asked.segments[2]),
    }
}

/// What waits for its customer, or for another means of payment, can be canceled.
fn cancel_intent(state: &mut State, asked: &Asked, _: Outcome) -> Reply {
    once(state, asked, |state, form| {
        check(form, "cancel")?;
        let reasons = [
            "abandoned",
            "duplicate",
            "fraudulent",
            "requested_by_customer",
        ];
        let reason = form.get("cancellation_reason").map(String::as_str);
        if reason.is_some_and(|reason| !reasons.contains(&reason)) {
            return Err(invalid(
                "cancellation_reason",
                "Invalid cancellation_reason",
            ));
        }
        let id = &asked.segments[2];
        let Some(charge) = state.book.charge_by_id(id) else {
            return Err(missing("payment_intent", id));
        };
        if !matches!(
            charge.outcome,
            Outcome::RequiresAction | Outcome::Declined(_)
        ) {
            let intent = intent(charge);
            let message = format!(
                "You cannot cancel this PaymentIntent because it has a status of {}.",
                intent["status"].as_str().unwrap_or_default()
            );
            let code = Some("payment_intent_unexpected_state");
            let mut reply = error(400, "invalid_request_error", code, &message);
            reply.body["error"]["payment_intent"] = intent;
            return Ok(reply);
        }
        state.settle_charge(id, Outcome::Canceled);
        let charge = state.book.charge_by_id(id);
        Ok(Reply::new(200, charge.map(intent).unwrap_or_default()))
    })
}

fn list_intents(state: &mut State, asked: &Asked, _: Outcome) -> Reply {
    let all = state.book.charges.iter().rev().map(intent);
    page("list", "/v1/payment_intents", all.collect(), &asked.query)
}

/// `metadata['name']:'value'`, the only clause that is played here.
fn search_intents(state: &mut State, asked: &Asked, _: Outcome) -> Reply {
    let query = asked.query.get("query").map(String::as_str);
    let Some((name, value)) = query.and_then(clause) else {
        return invalid("query", "Only metadata['name']:'value' is played here.");
    };
    let charges = state.book.charges.iter().rev().map(intent);
    let found = charges.filter(|intent| intent["metadata"][&name] == value.as_str());
    let url = "/v1/payment_intents/search";
    page("search_result", url, found.collect(), &asked.query)
}

fn clause(query: &str) -> Option<(String, String)> {
    let quoted = |text: &str| {
        let text = text.trim();
        let quote = text.chars().next().filter(|first| "'\"".contains(*first))?;
        let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
        let plain = inner.replace("\\'", "").replace("\\\"", "");
        // What follows would be a second clause.
        (!plain.contains(quote)).then(|| inner.replace('\\', ""))
    };
    let (name, value) = query.trim().strip_prefix("metadata[")?.split_once("]:")?;
    Some((quoted(name)?, quoted(value)?))
}

fn create_refund(state: &mut State, asked: &Asked, outcome: Outcome) -> Reply {
    once(state, asked, |state, form| {
        check(form, "refunds")?;
        let id = text(form, "payment_intent")?;
        let Some(charge) = state.book.charge_by_id(&id) else {
            return Err(missing("payment_intent", &id));
        };
        let left = state.book.refundable(charge);
        let amount = match form.contains_key("amount") {
            true => amount(form)?,
            false => left,
        };
        if left == 0 {
            let message = "Charge has already been refunded.";
            let code = Some("charge_already_refunded");
            return Err(error(400, "invalid_request_error", code, message));
        }
        if amount > left {
            return Err(invalid(
                "amount",
                "Refund amount is greater than unrefunded amount on charge.",
            ));
        }
        let request = RefundRequest {
            refund_no: metadata(form, "refund_no"),
            charge_id: id,
            amount,
        };
        let charge = charge.clone();
        let refund = state.book.refund(asked.key(), request, outcome).clone();
        state.tell_refund(&refund.refund_id);
        Ok(Reply::new(200, refund_object(&charge, &refund)))
    })
}

fn show_refund(state: &mut State, asked: &Asked, _: Outcome) -> Reply {
    let id = &asked.segments[2];
    let book = &state.book;
    let refund = book.refund_by_id(id);
    match refund.and_then(|refund| Some((book.charge_by_id(&refund.asked.charge_id)?, refund))) {
        Some((charge, refund)) => Reply::new(200, refund_object(charge, refund)),
        None => missing("refund", id),
    }
}

fn list_refunds(state: &mut State, asked: &Asked, _: Outcome) -> Reply {
    let wanted = asked.query.get("payment_intent");
    let refunds = state.book.refunds.iter().rev().filter_map(|refund| {
        let charge = state.book.charge_by_id(&refund.asked.charge_id)?;
        let fits = wanted.is_none_or(|id| *id == charge.charge_id);
        fits.then(|| refund_object(charge, refund))
    });
    page("list", "/v1/refunds", refunds.collect(), &asked.query)
}

/// One page of a list, newest first.
fn page(object: &str, url: &str, all: Vec<Value>, query: &Form) -> Reply {
    let limit = query
        .get("limit")
        .map_or(Ok(10), |limit| limit.parse::<usize>());
    let Some(limit) = limit.ok().filter(|limit| (1..=100).contains(limit)) else {
        return invalid("limit", "Limits range between 1 and 100.");
    };
    let after = query.get("starting_after").or_else(|| query.get("page"));
    let start = after.map_or(0, |id| {
        let at = all.iter().position(|one| one["id"] == id.as_str());
        at.map_or(all.len(), |at| at + 1)
    });
    let rest = all.get(start..).unwrap_or_default();
    let data = rest.get(..limit.min(rest.len())).unwrap_or_default();
    let has_more = rest.len() > data.len();
    let mut body = json!({"object": object, "url": url, "data": data, "has_more": has_more});
    if object == "search_result" {
        let last = data.last().map(|last| last["id"].clone());
        body["next_page"] = last.filter(|_| has_more).unwrap_or_default();
    }
    Reply::new(200, body)
}

/// The PaymentIntent that stands for a charge.
fn intent(charge: &Charge) -> Value {
    let asked = &charge.asked;
    let status = match charge.outcome {
        Outcome::Succeeded => "succeeded",
        Outcome::Declined(_) => "requires_payment_method",
        Outcome::Processing => "processing",
        Outcome::RequiresAction => "requires_action",
        Outcome::Canceled => "canceled",
    };
    let id = &charge.charge_id;
    let received = if charge.outcome.is_success() {
        asked.amount
    } else {
        0
    };
    let next_action = (charge.outcome == Outcome::RequiresAction)
        .then(|| json!({"type": "use_stripe_sdk", "use_stripe_sdk": {}}));
    let method = match charge.outcome {
        // Stripe takes a method that was declined off the PaymentIntent.
        Outcome::Declined(_) => None,
        _ => asked.payment_method.as_deref(),
    };
    json!({
        "id": id,
        "object": "payment_intent",
        "amount": asked.amount,
        "amount_received": received,
        "capture_method": "automatic",
        "client_secret": format!("{id}_secret_simulated"),
        "confirmation_method": "automatic",
        "currency": asked.currency.to_lowercase(),
        "last_payment_error": decline(charge),
        "latest_charge": id.replacen("pi_", "ch_", 1),
        "livemode": false,
        "metadata": {
            "request_no": asked.request_no,
            "order_no": asked.order_no,
            "merchant_id": asked.merchant_id,
        },
        "next_action": next_action,
        "payment_method": method,
        "status": status,
    })
}

/// The error of a declined card.
fn decline(charge: &Charge) -> Option<Value> {
    let Outcome::Declined(code) = &charge.outcome else {
        return None;
    };
    let code = code.as_str();
    // Codes of their own at Stripe; everything else is one kind of `card_declined`.
    let kind = match code {
        "expired_card" | "incorrect_cvc" | "processing_error" | "incorrect_number" => code,
        _ => "card_declined",
    };
    let mut error = json!({
        "type": "card_error",
        "code": kind,
        "message": "Your card was declined.",
        "charge": charge.charge_id.replacen("pi_", "ch_", 1),
    });
    if kind == "card_declined" {
        error["decline_code"] = code.into();
    }
    Some(error)
}

fn card_error(charge: &Charge) -> Reply {
    let mut error = decline(charge).unwrap_or_default();
    error["payment_intent"] = intent(charge);
    Reply::new(402, json!({"error": error}))
}

fn refund_object(charge: &Charge, refund: &Refund) -> Value {
    let status = match refund.outcome {
        Outcome::Succeeded => "succeeded",
        Outcome::Declined(_) => "failed",
        Outcome::Processing => "pending",
        Outcome::RequiresAction => "requires_action",
        Outcome::Canceled => "canceled",
    };
    let mut object = json!({
        "id": refund.refund_id,
        "object": "refund",
        "amount": refund.asked.amount,
        "charge": charge.charge_id.replacen("pi_", "ch_", 1),
        "currency": charge.asked.currency.to_lowercase(),
        "metadata": {"refund_no": refund.asked.refund_no},
        "payment_intent": charge.charge_id,
        "status": status,
    });
    if let Outcome::Declined(code) = &refund.outcome {
        object["failure_reason"] = code.as_str().into();
    }
    object
}

fn charge_object(book: &Book, charge: &Charge) -> Value {
    let amount = charge.asked.amount;
    let refunded = amount - book.kept_of(charge);
    json!({
        "id": charge.charge_id.replacen("pi_", "ch_", 1),
        "object": "charge",
        "amount": amount,
        "amount_refunded": refunded,
        "currency": charge.asked.currency.to_lowercase(),
        "payment_intent": charge.charge_id,
        "refunded": refunded == amount,
        "status": "succeeded",
        // Stripe copies the metadata of the PaymentIntent.
        "metadata": intent(charge)["metadata"],
    })
}

pub(crate) fn charge_events(charge: &Charge) -> Vec<(&'static str, Value)> {
    let event_type = match charge.outcome {
        Outcome::Succeeded => "payment_intent.succeeded",
        Outcome::Declined(_) => "payment_intent.payment_failed",
        Outcome::Processing => "payment_intent.processing",
        Outcome::RequiresAction => "payment_intent.requires_action",
        Outcome::Canceled => "payment_intent.canceled",
    };
    vec![(event_type, intent(charge))]
}

pub(crate) fn refund_events(
    book: &Book,
    charge: &Charge,
    refund: &Refund,
) -> Vec<(&'static str, Value)> {
    let told = ("refund.updated", refund_object(charge, refund));
    match refund.outcome {
        Outcome::Succeeded => vec![("charge.refunded", charge_object(book, charge)), told],
        Outcome::Declined(_) => vec![told, ("refund.failed", refund_object(charge, refund))],
        Outcome::Processing | Outcome::RequiresAction | Outcome::Canceled => vec![told],
    }
}

pub(crate) fn event(id: &str, event_type: &str, object: Value) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    json!({
        "id": id,
        "object": "event",
        "api_version": VERSION,
        "created": now.map_or(0, |since| since.as_secs()),
        "livemode": false,
        "type": event_type,
        "data": {"object": object},
    })
}

/// Refuses parameters that Stripe does not have.
fn check(form: &Form, route: &str) -> Result<(), Reply> {
    let known: &[&str] = match route {
        "cancel" => &["cancellation_reason"],
        "refunds" => &["amount", "payment_intent", "reason"],
        _ => &[
            "amount",
            "automatic_payment_methods[allow_redirects]",
            "automatic_payment_methods[enabled]",
            "confirm",
            "currency",
            "customer",
            "description",
            "error_on_requires_action",
            "off_session",
            "payment_method",
            "return_url",
        ],
    };
    let array =
        |name: &str| name.starts_with("payment_method_types[") || name.starts_with("expand[");
    let unknown = form.keys().find(|name| {
        !known.contains(&name.as_str()) && !name.starts_with("metadata[") && !array(name)
    });
    match unknown {
        None => Ok(()),
        Some(name) => {
            let code = Some("parameter_unknown");
            let message = format!("Received unknown parameter: {name}");
            Err(error(400, "invalid_request_error", code, &message))
        }
    }
}

fn text(form: &Form, name: &str) -> Result<String, Reply> {
    let value = form.get(name).filter(|value| !value.is_empty());
    let missing = || {
        let code = Some("parameter_missing");
        let message = format!("Missing required param: {name}.");
        error(400, "invalid_request_error", code, &message)
    };
    value.cloned().ok_or_else(missing)
}

fn amount(form: &Form) -> Result<u64, Reply> {
    let amount = text(form, "amount")?.parse().ok();
    amount
        .filter(|amount| *amount > 0)
        .ok_or_else(|| invalid("amount", "Invalid integer"))
}

fn currency(form: &Form) -> Result<String, Reply> {
    let currency = text(form, "currency")?;
    match currency.len() == 3 && currency.bytes().all(|byte| byte.is_ascii_lowercase()) {
        true => Ok(currency.to_uppercase()),
        false => Err(invalid(
            "currency",
            "Invalid currency: a code in lower case is expected.",
        )),
    }
}

fn metadata(form: &Form, name: &str) -> String {
    let value = form.get(&format!("metadata[{name}]"));
    value.cloned().unwrap_or_default()
}

fn invalid(parameter: &str, message: &str) -> Reply {
    let mut reply = error(400, "invalid_request_error", None, message);
    reply.body["error"]["param"] = parameter.into();
    reply
}

fn missing(object: &str, id: &str) -> Reply {
    let message = format!("No such {object}: '{id}'");
    error(
        404,
        "invalid_request_error",
        Some("resource_missing"),
        &message,
    )
}

pub(crate) fn error(status: u16, error_type: &str, code: Option<&str>, message: &str) -> Reply {
    let mut error = json!({"type": error_type, "message": message});
    if let Some(code) = code {
        error["code"] = code.into();
    }
    Reply::new(status, json!({"error": error}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_one_clause_with_quotes_of_either_kind() {
        let clause = |query: &str| clause(query).map(|(name, value)| format!("{name}={value}"));
        assert_eq!(clause("metadata['a']:'b'").as_deref(), Some("a=b"));
        assert_eq!(clause("metadata[\"a\"]:\"b\"").as_deref(), Some("a=b"));
        assert_eq!(clause(r"metadata['a']:'b\'c'").as_deref(), Some("a=b'c"));
        for wrong in [
            "",
            "a:'b'",
            "metadata['a']:b",
            "metadata['a']:'b' OR amount>'1'",
        ] {
            assert_eq!(clause(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_page_ends_where_the_next_begins() {
        let all: Vec<Value> = (0..25).map(|id| json!({"id": id.to_string()})).collect();
        let first = page("list", "/", all.clone(), &Form::new()).body;
        assert_eq!(first["data"].as_array().unwrap().len(), 10);
        assert_eq!(first["has_more"], true);
        let query = [("starting_after", "19"), ("limit", "100")];
        let query = query.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let last = page("list", "/", all, &query.into()).body;
        assert_eq!(last["data"].as_array().unwrap().len(), 5);
        assert_eq!(last["has_more"], false);
    }
}
