//! The objects of the contract, complete: exactly these members, of these kinds.

use serde_json::Value;
use uuid::Uuid;

/// Every problem code of the contract that the routes built so far can answer.
pub const CODES: [&str; 35] = [
    "body_invalid",
    "query_invalid",
    "idempotency_key_missing",
    "idempotency_key_invalid",
    "token_invalid",
    "signature_invalid",
    "unauthorized",
    "forbidden",
    "insufficient_funds",
    "card_declined",
    "payment_failed",
    "not_found",
    "order_not_found",
    "payment_not_found",
    "account_not_found",
    "order_state_invalid",
    "order_already_paid",
    "order_exists",
    "request_no_used",
    "refund_no_used",
    "coupon_exhausted",
    "idempotency_in_progress",
    "token_expired",
    "body_too_large",
    "media_type_unsupported",
    "method_not_allowed",
    "idempotency_key_reused",
    "idempotency_key_expired",
    "amount_mismatch",
    "currency_mismatch",
    "refund_exceeds_payment",
    "storage_unavailable",
    "busy",
    "channel_unavailable",
    "not_configured",
];

/// Codes after which the same request may be sent again as it is.
const RETRYABLE: [&str; 4] = [
    "idempotency_in_progress",
    "storage_unavailable",
    "busy",
    "channel_unavailable",
];

#[track_caller]
pub fn order(value: &Value) {
    members(
        value,
        &[
            "order_no",
            "user_id",
            "amount",
            "currency",
            "status",
            "refunded_amount",
            "version",
            "metadata",
            "created_at",
            "updated_at",
        ],
    );
    client_id(&value["order_no"]);
    client_id(&value["user_id"]);
    money(&value["amount"]);
    currency(&value["currency"]);
    text(&value["status"]);
    assert!(value["refunded_amount"].is_u64(), "{value}");
    assert!(value["version"].is_u64(), "{value}");
    let metadata = value["metadata"].as_object().expect("metadata: an object");
    assert!(metadata.values().all(Value::is_string), "{value}");
    time(&value["created_at"]);
    time(&value["updated_at"]);
}

#[track_caller]
pub fn payment(value: &Value) {
    members(
        value,
        &[
            "payment_id",
            "order_no",
            "request_no",
            "channel",
            "amount",
            "currency",
            "status",
            "failure_code",
            "created_at",
            "updated_at",
        ],
    );
    server_id(&value["payment_id"], "pay_");
    client_id(&value["order_no"]);
    client_id(&value["request_no"]);
    text(&value["channel"]);
    money(&value["amount"]);
    currency(&value["currency"]);
    let status = text(&value["status"]);
    assert!(["processing", "succeeded", "failed"].contains(&status));
    if status == "failed" {
        text(&value["failure_code"]);
    } else {
        assert!(value["failure_code"].is_null(), "{value}");
    }
    time(&value["created_at"]);
    time(&value["updated_at"]);
}

#[track_caller]
pub fn refund(value: &Value) {
    members(
        value,
        &[
            "refund_id",
            "order_no",
            "payment_id",
            "refund_no",
            "amount",
            "currency",
            "status",
            "reason",
            "created_at",
        ],
    );
    server_id(&value["refund_id"], "ref_");
    server_id(&value["payment_id"], "pay_");
    client_id(&value["order_no"]);
    client_id(&value["refund_no"]);
    money(&value["amount"]);
    currency(&value["currency"]);
    let status = text(&value["status"]);
    assert!(["processing", "succeeded", "failed"].contains(&status));
    assert!(value["reason"].is_null() || value["reason"].is_string());
    time(&value["created_at"]);
}

#[track_caller]
pub fn grant(value: &Value) {
    members(value, &["grant_id", "activity_id", "user_id", "created_at"]);
    server_id(&value["grant_id"], "gra_");
    client_id(&value["activity_id"]);
    client_id(&value["user_id"]);
    time(&value["created_at"]);
}

#[track_caller]
pub fn profile(value: &Value) {
    members(value, &["user_id", "fields", "updated_at"]);
    client_id(&value["user_id"]);
    let fields = value["fields"].as_object().expect("fields: an object");
    assert!(fields.values().all(Value::is_string), "{value}");
    time(&value["updated_at"]);
}

#[track_caller]
pub fn message(value: &Value) {
    members(value, &["message_id", "kind", "to", "status", "created_at"]);
    server_id(&value["message_id"], "msg_");
    assert!(["sms", "email"].contains(&text(&value["kind"])));
    text(&value["to"]);
    assert_eq!(text(&value["status"]), "queued");
    time(&value["created_at"]);
}

#[track_caller]
pub fn deposit(value: &Value) {
    members(
        value,
        &[
            "deposit_id",
            "user_id",
            "amount",
            "currency",
            "balance",
            "reference",
            "created_at",
        ],
    );
    server_id(&value["deposit_id"], "dep_");
    client_id(&value["user_id"]);
    money(&value["amount"]);
    currency(&value["currency"]);
    assert!(value["balance"].is_u64(), "{value}");
    let reference = &value["reference"];
    assert!(reference.is_null() || reference.is_string(), "{value}");
    time(&value["created_at"]);
}

#[track_caller]
pub fn account(value: &Value) {
    members(value, &["user_id", "balances"]);
    client_id(&value["user_id"]);
    for entry in value["balances"].as_array().expect("balances") {
        members(entry, &["currency", "balance"]);
        currency(&entry["currency"]);
        assert!(entry["balance"].is_u64(), "{value}");
    }
}

#[track_caller]
pub fn token(value: &Value) {
    members(value, &["token", "expires_at"]);
    text(&value["token"]);
    time(&value["expires_at"]);
}

#[track_caller]
pub fn event(value: &Value) {
    members(
        value,
        &[
            "operation",
            "idempotency_key",
            "from_status",
            "to_status",
            "version",
            "at",
        ],
    );
    text(&value["operation"]);
    text(&value["idempotency_key"]);
    text(&value["to_status"]);
    assert!(value["version"].is_u64(), "{value}");
    time(&value["at"]);
}

/// RFC 9457 with the members that the contract adds.
#[track_caller]
pub fn problem(value: &Value) {
    let code = text(&value["code"]);
    assert!(CODES.contains(&code), "unknown code: {value}");
    assert_eq!(value["type"], format!("/problems/{code}"));
    assert!(!text(&value["title"]).is_empty(), "{value}");
    assert!(!text(&value["detail"]).is_empty(), "{value}");
    assert!(value["status"].is_u64(), "{value}");
    let instance = text(&value["instance"]);
    let uuid = instance.strip_prefix("urn:uuid:").expect("urn:uuid:");
    Uuid::parse_str(uuid).expect("a UUID");
    let retryable = value["retryable"].as_bool().expect("retryable: a bool");
    // Whether an operator's omission is worth a retry, the contract leaves open.
    if code != "not_configured" {
        assert_eq!(retryable, RETRYABLE.contains(&code), "{value}");
    }
    for member in value.as_object().expect("an object").keys() {
        let known = [
            "type",
            "title",
            "status",
            "detail",
            "instance",
            "code",
            "retryable",
            "errors",
            "payment",
        ];
        assert!(known.contains(&member.as_str()), "{member} in {value}");
    }
    if let Some(errors) = value.get("errors") {
        for error in errors.as_array().expect("errors: a list") {
            members(error, &["pointer", "detail"]);
            text(&error["pointer"]);
            text(&error["detail"]);
        }
    }
    if let Some(existing) = value.get("payment") {
        payment(existing);
    }
}

/// Whether a problem points at a body field, or at least names it.
pub fn names_field(problem: &Value, field: &str) -> bool {
    let tail = format!("/{field}");
    let pointed = problem["errors"].as_array().is_some_and(|errors| {
        errors
            .iter()
            .any(|error| error["pointer"].as_str().unwrap_or("").ends_with(&tail))
    });
    pointed || problem["detail"].as_str().unwrap_or("").contains(field)
}

/// Exactly these members, in any order.
#[track_caller]
pub fn members(value: &Value, expected: &[&str]) {
    let object = value.as_object();
    let object = object.unwrap_or_else(|| panic!("an object expected: {value}"));
    let mut found: Vec<&str> = object.keys().map(String::as_str).collect();
    let mut expected = expected.to_vec();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[track_caller]
fn text(value: &Value) -> &str {
    let text = value.as_str();
    text.unwrap_or_else(|| panic!("a string expected: {value}"))
}

/// 1 to 9007199254740991, an integer.
#[track_caller]
fn money(value: &Value) {
    let amount = value.as_u64();
    let amount = amount.unwrap_or_else(|| panic!("an amount expected: {value}"));
    assert!((1..=9_007_199_254_740_991).contains(&amount));
}

#[track_caller]
fn currency(value: &Value) {
    let code = text(value);
    assert!(code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_uppercase()));
}

/// An identifier as clients may choose it.
#[track_caller]
fn client_id(value: &Value) {
    let id = text(value);
    assert!((1..=64).contains(&id.len()), "{id}");
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    assert!(id.bytes().all(allowed), "{id}");
}

/// A prefix and a UUID of version 7.
#[track_caller]
fn server_id(value: &Value, prefix: &str) {
    let id = text(value);
    let uuid = id.strip_prefix(prefix);
    let uuid = uuid.unwrap_or_else(|| panic!("{prefix} expected: {id}"));
    let uuid = Uuid::parse_str(uuid).expect("a UUID");
    assert_eq!(uuid.get_version_num(), 7, "{id}");
}

/// RFC 3339 in UTC with milliseconds: `2026-08-01T12:00:00.000Z`.
#[track_caller]
pub fn time(value: &Value) {
    let time = text(value);
    let pattern = "dddd-dd-ddTdd:dd:dd.dddZ";
    let fits = |(byte, wanted): (u8, u8)| match wanted {
        b'd' => byte.is_ascii_digit(),
        other => byte == other,
    };
    assert!(
        time.len() == pattern.len() && time.bytes().zip(pattern.bytes()).all(fits),
        "not RFC 3339 with milliseconds and Z: {time}"
    );
    time.parse::<jiff::Timestamp>().expect("a moment");
}
