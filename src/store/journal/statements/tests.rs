//! The statements and the triggers, on a real SQLite database: each row of a batch stands or falls by
//! its own guard, and whatever is decided on whatever stale snapshot, the books stay right.

mod channel;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::domain::commands::{
    CancelOrder, CompleteOrder, CreateOrder, DepositMoney, GrantCoupon, LimitCoupon, PayOrder,
    RefundOrder, SendMessage, ShipOrder, UpdateProfile,
};
use crate::domain::{Command, Decision, Given, MAX_AMOUNT, Metadata, PaymentMethod, Timestamp};
use crate::store::migrations;

/// Each rule with a query that counts what breaks it and shares nothing with the triggers.
const RULES: [(&str, &str); 14] = [
    (
        "the ledger sums to zero",
        "SELECT count(*) FROM (SELECT 1 FROM ledger_entries GROUP BY merchant_id, currency \
         HAVING sum(amount) <> 0)",
    ),
    (
        "a balance is the sum of its entries",
        "SELECT count(*) FROM accounts AS a WHERE balance <> (SELECT coalesce(sum(amount), 0) \
         FROM ledger_entries AS l WHERE l.merchant_id = a.merchant_id \
         AND l.account = 'wallet:' || a.user_id AND l.currency = a.currency)",
    ),
    (
        "no balance is negative",
        "SELECT count(*) FROM accounts WHERE balance < 0",
    ),
    (
        "an order has one live payment",
        "SELECT count(*) FROM (SELECT 1 FROM payments WHERE status <> 'failed' \
         GROUP BY merchant_id, order_no HAVING count(*) > 1)",
    ),
    (
        "a paid order has its payment",
        "SELECT count(*) FROM orders AS o \
         WHERE (status IN ('paid', 'shipped', 'completed', 'refunded')) <> EXISTS (SELECT 1 \
         FROM payments AS p WHERE p.merchant_id = o.merchant_id AND p.order_no = o.order_no \
         AND p.status = 'succeeded' AND p.amount = o.amount)",
    ),
    (
        "what was refunded is the sum of the refunds",
        "SELECT count(*) FROM orders AS o WHERE refunded_amount NOT BETWEEN 0 AND amount \
         OR (status = 'refunded') <> (refunded_amount = amount) \
         OR refunded_amount <> (SELECT coalesce(sum(r.amount), 0) FROM refunds AS r \
         JOIN payments AS p ON p.payment_id = r.payment_id \
         WHERE r.merchant_id = o.merchant_id AND r.order_no = o.order_no \
         AND r.status = 'succeeded' AND p.status = 'succeeded')",
    ),
    (
        "what was sold and not refunded is in sales",
        "SELECT (SELECT coalesce(sum(amount), 0) FROM ledger_entries WHERE account = 'sales') \
         <> (SELECT coalesce(sum(amount - refunded_amount), 0) FROM orders \
         WHERE status IN ('paid', 'shipped', 'completed', 'refunded'))",
    ),
    (
        "the version counts the moves",
        "SELECT count(*) FROM orders AS o WHERE version <> (SELECT count(*) FROM operations AS p \
         WHERE p.merchant_id = o.merchant_id AND p.order_no = o.order_no AND p.outcome = 'applied' \
         AND p.to_status IS NOT NULL)",
    ),
    (
        "an activity counts its grants, and each kept to the limit",
        "SELECT count(*) FROM activities AS c WHERE \
         (granted, granted) IS NOT (SELECT count(*), coalesce(max(number), 0) FROM grants AS g \
         WHERE g.merchant_id = c.merchant_id AND g.activity_id = c.activity_id \
         AND number <= coalesce(g.grant_limit, number))",
    ),
    (
        "every grant has one journal row that made it",
        "SELECT (SELECT count(*) FROM grants) <> (SELECT count(*) FROM operations AS p \
         JOIN grants AS g ON g.grant_id = p.subject_id AND g.user_id = p.user_id \
         AND g.activity_id = p.reference WHERE p.response_status = 201)",
    ),
    (
        "a profile is what its last update made of it",
        "SELECT count(*) FROM profiles AS p WHERE \
         version <> (SELECT count(*) FROM operations AS o \
         WHERE o.operation = 'profile.update' AND o.user_id = p.user_id) \
         OR (version, fields, updated_at) IS NOT (SELECT o.version, o.details ->> '$.fields', \
         o.created_at FROM operations AS o WHERE o.operation = 'profile.update' \
         AND o.user_id = p.user_id ORDER BY o.version DESC LIMIT 1)",
    ),
    (
        "what is under way has an open call, and the other way round",
        "SELECT count(*) FROM (SELECT merchant_id, idempotency_key FROM operations \
         WHERE response_status = 102) AS o \
         FULL JOIN (SELECT * FROM channel_calls WHERE settled_at IS NULL \
         AND idempotency_key IS NOT NULL) AS c \
         ON c.merchant_id = o.merchant_id AND c.idempotency_key = o.idempotency_key \
         WHERE o.merchant_id IS NULL OR c.merchant_id IS NULL",
    ),
    (
        "what came through channels and did not go back is in their account",
        "SELECT (SELECT -coalesce(sum(amount), 0) FROM ledger_entries WHERE account = 'channel') \
         <> (SELECT coalesce(sum(p.amount), 0) FROM payments AS p WHERE p.channel <> 'wallet' \
         AND (p.status = 'succeeded' OR EXISTS (SELECT 1 FROM operations AS o \
         WHERE o.operation = 'payment.late' AND o.subject_id = p.payment_id))) \
         - (SELECT coalesce(sum(r.amount), 0) FROM refunds AS r JOIN channel_calls AS c \
         ON c.subject_id = r.refund_id WHERE r.status = 'succeeded')",
    ),
    (
        "an operation with an event has it",
        "SELECT (SELECT count(*) FROM outbox) <> \
         (SELECT count(*) FROM operations WHERE event_type IS NOT NULL)",
    ),
];

struct Native(rusqlite::Connection);

impl Native {
    fn new() -> Self {
        Self(migrations::tests::migrated())
    }

    /// What Spin does with a statement and a text.
    fn execute(&self, statement: &str, parameter: Value) -> Vec<RowResult> {
        let Value::Text(parameter) = parameter else {
            panic!("a JSON text")
        };
        let mut statement = self.0.prepare_cached(statement).unwrap();
        let columns = statement.column_count();
        let rows = statement.query_map([parameter], |row| {
            let value = |column| match row.get_unwrap(column) {
                rusqlite::types::Value::Null => Value::Null,
                rusqlite::types::Value::Integer(number) => Value::Integer(number),
                rusqlite::types::Value::Text(text) => Value::Text(text),
                other => panic!("{other:?}"),
            };
            Ok(RowResult {
                values: (0..columns).map(value).collect(),
            })
        });
        rows.unwrap().collect::<rusqlite::Result<_>>().unwrap()
    }

    fn read(&self, entries: &[&Entry]) -> Vec<Seen> {
        let rows = self.execute(&read_statement(), wanted(entries));
        rows.iter().map(|row| seen(row).unwrap()).collect()
    }

    fn write(&self, operations: &[(&Entry, &Operation)]) -> BTreeSet<Id> {
        let rows = self.execute(WRITE, new_rows(operations));
        rows.iter().map(|row| key_of(row).unwrap()).collect()
    }

    /// Reads, decides and writes one entry; the status of its answer.
    fn perform(&self, entry: &Entry) -> u16 {
        let (recorded, snapshot) = self.read(&[entry]).pop().unwrap();
        assert!(recorded.is_none());
        let operation = decide(entry, &snapshot).unwrap();
        assert!(self.write(&[(entry, &operation)]).contains(&entry.id()));
        operation.answer.status
    }

    /// An order that its user has paid.
    fn paid(&self, order_no: &str, user_id: &str, amount: i64) {
        let name = order_no
            .bytes()
            .fold(1_000, |n, byte| n * 256 + u128::from(byte));
        let perform = |kind: u128, command: Box<dyn Command>| {
            let key = format!("{} {order_no}", command.operation());
            self.perform(&boxed("m", &key, 3 * name + kind, command));
        };
        perform(0, Box::new(create(order_no, user_id, amount)));
        perform(1, Box::new(deposit(user_id, amount)));
        perform(2, Box::new(pay(order_no, amount, None)));
    }

    fn number(&self, query: &str) -> i64 {
        self.0.query_row(query, [], |row| row.get(0)).unwrap()
    }

    fn check(&self) {
        for (rule, query) in RULES {
            assert_eq!(self.number(query), 0, "{rule}");
        }
    }
}

fn decide(entry: &Entry, snapshot: &Snapshot) -> Option<Box<Operation>> {
    match entry.command.decide(snapshot, &entry.given) {
        Decision::Append(operation) => Some(operation),
        Decision::Refuse(_) => None,
    }
}

fn id(text: &str) -> Identifier {
    text.to_owned().try_into().unwrap()
}

/// An entry under `key`; `number` tells its identifiers from those of others.
fn entry(merchant: &str, key: &str, number: u128, command: impl Command + 'static) -> Entry {
    boxed(merchant, key, number, Box::new(command))
}

fn boxed(merchant: &str, key: &str, number: u128, command: Box<dyn Command>) -> Entry {
    let uuid = |kind: u128| Uuid::from_u128(number * 10 + kind);
    let now = Timestamp::from_millis(1_796_057_155_120);
    Entry {
        merchant: id(merchant),
        key: key.to_owned(),
        fingerprint: format!("{number:064x}"),
        command,
        given: Given {
            now,
            subject: uuid(1),
            event: uuid(2),
            instance: uuid(3),
            channel: None,
        },
    }
}

fn create(order_no: &str, user_id: &str, amount: i64) -> CreateOrder {
    CreateOrder {
        order_no: Some(id(order_no)),
        user_id: id(user_id),
        amount: amount.try_into().unwrap(),
        currency: "EUR".to_owned().try_into().unwrap(),
        metadata: Metadata::default(),
    }
}

fn deposit(user_id: &str, amount: i64) -> DepositMoney {
    DepositMoney {
        user_id: id(user_id),
        amount: amount.try_into().unwrap(),
        currency: "EUR".to_owned().try_into().unwrap(),
        reference: None,
    }
}

fn pay(order_no: &str, amount: i64, request_no: Option<&str>) -> PayOrder {
    PayOrder {
        order_no: id(order_no),
        amount: amount.try_into().unwrap(),
        currency: None,
        request_no: request_no.map(id),
        payment_method: Some(PaymentMethod::wallet()),
    }
}

fn ship(order_no: &str) -> ShipOrder {
    ShipOrder {
        order_no: id(order_no),
        tracking_no: Some("T 1".to_owned().try_into().unwrap()),
    }
}

fn refund(order_no: &str, amount: Option<i64>, refund_no: Option<&str>) -> RefundOrder {
    RefundOrder {
        order_no: id(order_no),
        amount: amount.map(|amount| amount.try_into().unwrap()),
        refund_no: refund_no.map(id),
        reason: None,
    }
}

fn grant(activity_id: &str, user_id: &str) -> GrantCoupon {
    GrantCoupon {
        activity_id: id(activity_id),
        user_id: id(user_id),
    }
}

fn limit(activity_id: &str, limit: Option<i64>) -> LimitCoupon {
    LimitCoupon {
        activity_id: id(activity_id),
        limit: limit.map(|limit| limit.try_into().unwrap()),
    }
}

const PATCHES: [&str; 3] = [r#"{"a":"1"}"#, r#"{"a":null,"b":"2"}"#, r#"{"b":null}"#];

fn update(user_id: &str, patch: &str) -> UpdateProfile {
    UpdateProfile {
        user_id: id(user_id),
        patch: serde_json::from_str(patch).unwrap(),
    }
}

fn message() -> SendMessage {
    SendMessage {
        kind: crate::domain::MessageKind::Sms,
        to: "+491511234567".to_owned().try_into().unwrap(),
        text: "Hello".to_owned().try_into().unwrap(),
    }
}

/// Invariants 2 and 5: one statement, five rows; a stale version, a duplicate key and two uncovered
/// balances are skipped, and the other stands.
#[test]
fn each_row_of_a_batch_stands_or_falls_by_its_own_guard() {
    let db = Native::new();
    let orders = ["o1", "o2", "o3", "o4", "o5"];
    for (number, order_no) in (1..).zip(orders) {
        assert_eq!(
            db.perform(&entry("m", order_no, number, create(order_no, "u", 10))),
            201
        );
    }
    db.perform(&entry("m", "deposit", 10, deposit("u", 35)));
    let pays: Vec<_> = (20..)
        .zip(orders)
        .map(|(number, order_no)| {
            entry(
                "m",
                &format!("pay {order_no}"),
                number,
                pay(order_no, 10, None),
            )
        })
        .collect();
    let pays: Vec<_> = pays.iter().collect();
    let seen = pays.iter().zip(db.read(&pays));
    let operations: Vec<_> = seen
        .map(|(pay, (_, seen))| decide(pay, &seen).unwrap())
        .collect();
    let rows: Vec<_> = pays
        .into_iter()
        .zip(operations.iter().map(AsRef::as_ref))
        .collect();

    // Meanwhile another key pays o2, and the key of the third row is used.
    db.perform(&entry("m", "other", 30, pay("o2", 10, None)));
    assert_eq!(db.write(&[rows[2]]).len(), 1);

    let appended = db.write(&rows);
    let keys: Vec<_> = appended.iter().map(|(_, key)| key.as_str()).collect();
    assert_eq!(keys, ["pay o1"]);
    assert_eq!(db.number("SELECT balance FROM accounts"), 5);
    db.check();
}

/// Invariant 2, after the retention: a key whose row was swept has no further effect, and is told apart from
/// one that lost its guard.
#[test]
fn a_retired_key_is_skipped_and_known() {
    let db = Native::new();
    let (old, new) = (
        entry("m", "old", 1, deposit("u", 10)),
        entry("m", "new", 2, deposit("v", 10)),
    );
    let foreign = entry("other", "old", 3, deposit("u", 10));
    assert_eq!(db.perform(&old), 201);
    db.0.execute("DELETE FROM operations", []).unwrap();
    let entries = [&old, &new, &foreign];
    let operations: Vec<_> = entries
        .iter()
        .zip(db.read(&entries))
        .map(|(entry, (recorded, seen))| {
            assert!(recorded.is_none());
            decide(entry, &seen).unwrap()
        })
        .collect();
    let rows: Vec<_> = entries
        .into_iter()
        .zip(operations.iter().map(AsRef::as_ref))
        .collect();
    assert_eq!(db.write(&rows), BTreeSet::from([new.id(), foreign.id()]));
    let retired = db.execute(RETIRED, wanted(&[&old, &new, &foreign]));
    let retired: Vec<_> = retired.iter().map(|row| key_of(row).unwrap()).collect();
    assert_eq!(retired, [old.id()]);
    assert_eq!(
        db.number("SELECT balance FROM accounts WHERE merchant_id = 'm' AND user_id = 'u'"),
        10
    );
}

/// Invariant 10: the same numbers, keys and users with two merchants are different things.
#[test]
fn merchants_share_nothing() {
    let db = Native::new();
    for (number, merchant) in [(1, "a"), (2, "b")] {
        db.perform(&entry(merchant, "create", number, create("o", "u", 10)));
    }
    db.perform(&entry("a", "deposit", 3, deposit("u", 10)));
    assert_eq!(
        db.perform(&entry("b", "pay", 4, pay("o", 10, Some("r")))),
        402
    );
    assert_eq!(
        db.perform(&entry("a", "pay", 5, pay("o", 10, Some("r")))),
        200
    );
    db.check();
}

/// A decline is as final as a payment: it is skipped where the money has come meanwhile.
#[test]
fn a_decline_is_recorded_only_while_it_is_true() {
    let db = Native::new();
    db.perform(&entry("m", "create", 1, create("o", "u", 10)));
    let late = entry("m", "pay", 2, pay("o", 10, None));
    let (_, snapshot) = db.read(&[&late]).pop().unwrap();
    let decline = decide(&late, &snapshot).unwrap();
    assert_eq!(decline.answer.status, 402);
    db.perform(&entry("m", "deposit", 3, deposit("u", 10)));
    assert!(db.write(&[(&late, &decline)]).is_empty());
    assert_eq!(db.perform(&late), 200);
    db.check();
}

/// Decides all entries on one snapshot and writes them in one statement; the keys that were appended.
fn at_once(db: &Native, entries: &[Entry]) -> Vec<String> {
    let entries: Vec<_> = entries.iter().collect();
    let operations: Vec<_> = db
        .read(&entries)
        .iter()
        .zip(&entries)
        .map(|((_, seen), entry)| decide(entry, seen).unwrap())
        .collect();
    let rows: Vec<_> = entries
        .into_iter()
        .zip(operations.iter().map(AsRef::as_ref))
        .collect();
    db.write(&rows).into_iter().map(|(_, key)| key).collect()
}

/// Invariant 7: refunds decided on one snapshot. The first stands, and each of the others is decided anew,
/// whether it would exceed the payment or not.
#[test]
fn refunds_decided_at_once_never_exceed_the_payment() {
    for part in [60, 40] {
        let db = Native::new();
        db.paid("o", "u", 100);
        let refunds = [4, 5, 6].map(|number| {
            let key = format!("refund {number}");
            entry("m", &key, number, refund("o", Some(part), None))
        });
        assert_eq!(at_once(&db, &refunds), ["refund 4"]);
        db.check();
        let [_, second, third] = refunds;
        for refund in [second, third] {
            let (_, seen) = db.read(&[&refund]).pop().unwrap();
            if let Some(row) = decide(&refund, &seen) {
                assert_eq!(db.write(&[(&refund, &row)]).len(), 1);
            }
            db.check();
        }
        let refunded = 100 / part * part;
        assert_eq!(db.number("SELECT refunded_amount FROM orders"), refunded);
        assert_eq!(db.number("SELECT balance FROM accounts"), refunded);
    }
}

/// Two orders, one refund number, one statement: one refund.
#[test]
fn a_refund_number_is_used_once() {
    let db = Native::new();
    db.paid("o1", "u", 10);
    db.paid("o2", "u", 10);
    let refunds = [(1, "o1"), (2, "o2")]
        .map(|(number, order_no)| entry("m", order_no, number, refund(order_no, None, Some("f"))));
    assert_eq!(at_once(&db, &refunds), ["o1"]);
    assert_eq!(db.number("SELECT count(*) FROM refunds"), 1);
    db.check();
}

/// Invariant 5: two refunds into a wallet with room for one: the other is skipped and not an error, which
/// would take the whole statement along.
#[test]
fn a_wallet_that_became_full_takes_no_refund() {
    let db = Native::new();
    db.paid("o1", "u", 10);
    db.paid("o2", "u", 10);
    db.perform(&entry("m", "fill", 1, deposit("u", MAX_AMOUNT - 15)));
    let refunds = [(2, "o1"), (3, "o2")]
        .map(|(number, order_no)| entry("m", order_no, number, refund(order_no, None, None)));
    assert_eq!(at_once(&db, &refunds), ["o1"]);
    db.check();
}

/// Invariant 12: the event of a shipment carries the tracking number, which the order does not.
#[test]
fn the_event_of_a_shipment_says_more_than_its_answer() {
    let db = Native::new();
    db.paid("o", "u", 10);
    assert_eq!(db.perform(&entry("m", "ship", 4, ship("o"))), 200);
    let told = "SELECT count(*) FROM outbox WHERE type = 'order.shipped' AND subject = 'o' \
                AND data ->> '$.tracking_no' = 'T 1' AND data ->> '$.status' = 'shipped' \
                AND event_id LIKE 'evt_%' AND version = 3";
    assert_eq!(db.number(told), 1);
    db.check();
}

/// The last coupon, wanted by many in one statement, goes to the first of them.
#[test]
fn grants_in_one_statement_keep_to_the_limit() {
    let db = Native::new();
    db.perform(&entry("m", "limit", 1, limit("c", Some(3))));
    let grants: Vec<_> = (2..8)
        .map(|number| {
            let key = format!("grant {number}");
            entry("m", &key, number, grant("c", &format!("u{number}")))
        })
        .collect();
    assert_eq!(at_once(&db, &grants), ["grant 2", "grant 3", "grant 4"]);
    let late = entry("m", "late", 9, grant("c", "u9"));
    let (_, seen) = db.read(&[&late]).pop().unwrap();
    assert!(decide(&late, &seen).is_none());
    // Who has one gets it again.
    assert_eq!(db.perform(&entry("m", "again", 10, grant("c", "u2"))), 200);
    db.check();
}

/// A grant that was decided before another key made it is decided anew, and answers that one.
#[test]
fn a_second_grant_for_a_user_repeats_the_first() {
    let db = Native::new();
    let late = entry("m", "late", 1, grant("c", "u"));
    let (_, seen) = db.read(&[&late]).pop().unwrap();
    let made = decide(&late, &seen).unwrap();
    assert_eq!(db.perform(&entry("m", "first", 2, grant("c", "u"))), 201);
    assert!(db.write(&[(&late, &made)]).is_empty());
    assert_eq!(db.perform(&late), 200);
    let answers = "SELECT count(DISTINCT response_body) FROM operations";
    assert_eq!(db.number(answers), 1);
    assert_eq!(db.number("SELECT count(*) FROM outbox"), 1);
    db.check();
}

/// A message's event carries its text, which the answer does not.
#[test]
fn the_event_of_a_message_carries_its_text() {
    let db = Native::new();
    assert_eq!(db.perform(&entry("m", "send", 1, message())), 202);
    let told = "SELECT count(*) FROM outbox JOIN operations ON subject = subject_id \
                WHERE type = 'message.queued' AND outbox.event_id LIKE 'evt_%' \
                AND data ->> '$.text' = 'Hello' AND data ->> '$.to' = '+491511234567' \
                AND data ->> '$.message_id' = subject AND response_body NOT LIKE '%Hello%'";
    assert_eq!(db.number(told), 1);
    db.check();
}

#[derive(Clone, Debug)]
enum Step {
    /// Read and decide a command, and keep the row.
    Decide { key: u8, wish: Wish },
    /// Write some rows that were kept, however stale, in one statement.
    Write { rows: usize },
}

#[derive(Clone, Copy, Debug)]
enum Wish {
    Create {
        order: u8,
        user: u8,
        amount: i64,
    },
    Deposit {
        user: u8,
        amount: i64,
    },
    Pay {
        order: u8,
        amount: i64,
        request_no: Option<u8>,
    },
    Ship {
        order: u8,
    },
    Complete {
        order: u8,
    },
    Cancel {
        order: u8,
    },
    Refund {
        order: u8,
        amount: Option<i64>,
        refund_no: Option<u8>,
    },
    Grant {
        activity: u8,
        user: u8,
    },
    Limit {
        activity: u8,
        limit: Option<i64>,
    },
    Update {
        user: u8,
        patch: &'static str,
    },
    Send,
}

impl Wish {
    fn entry(self, key: u8, number: u128) -> Entry {
        let key = format!("k{key}");
        match self {
            Self::Create {
                order,
                user,
                amount,
            } => {
                let command = create(&format!("o{order}"), &format!("u{user}"), amount);
                entry("m", &key, number, command)
            }
            Self::Deposit { user, amount } => {
                entry("m", &key, number, deposit(&format!("u{user}"), amount))
            }
            Self::Pay {
                order,
                amount,
                request_no,
            } => {
                let request_no = request_no.map(|request_no| format!("r{request_no}"));
                let command = pay(&format!("o{order}"), amount, request_no.as_deref());
                entry("m", &key, number, command)
            }
            Self::Ship { order } => entry("m", &key, number, ship(&format!("o{order}"))),
            Self::Complete { order } => {
                let order_no = id(&format!("o{order}"));
                entry("m", &key, number, CompleteOrder { order_no })
            }
            Self::Cancel { order } => {
                let order_no = id(&format!("o{order}"));
                entry("m", &key, number, CancelOrder { order_no })
            }
            Self::Refund {
                order,
                amount,
                refund_no,
            } => {
                let refund_no = refund_no.map(|refund_no| format!("f{refund_no}"));
                let command = refund(&format!("o{order}"), amount, refund_no.as_deref());
                entry("m", &key, number, command)
            }
            Self::Grant { activity, user } => {
                let command = grant(&format!("c{activity}"), &format!("u{user}"));
                entry("m", &key, number, command)
            }
            Self::Limit {
                activity: number_of,
                limit: wanted,
            } => entry("m", &key, number, limit(&format!("c{number_of}"), wanted)),
            Self::Update { user, patch } => {
                entry("m", &key, number, update(&format!("u{user}"), patch))
            }
            Self::Send => entry("m", &key, number, message()),
        }
    }
}

fn wish() -> impl Strategy<Value = Wish> {
    prop_oneof![
        2 => (0u8..3, 0u8..2, 1i64..3)
            .prop_map(|(order, user, amount)| Wish::Create { order, user, amount }),
        3 => (0u8..2, 1i64..4).prop_map(|(user, amount)| Wish::Deposit { user, amount }),
        5 => (0u8..3, 1i64..3, proptest::option::of(0u8..2))
            .prop_map(|(order, amount, request_no)| Wish::Pay { order, amount, request_no }),
        2 => (0u8..3).prop_map(|order| Wish::Ship { order }),
        1 => (0u8..3).prop_map(|order| Wish::Complete { order }),
        1 => (0u8..3).prop_map(|order| Wish::Cancel { order }),
        4 => (0u8..3, proptest::option::of(1i64..3), proptest::option::of(0u8..2))
            .prop_map(|(order, amount, refund_no)| Wish::Refund { order, amount, refund_no }),
        4 => (0u8..2, 0u8..4).prop_map(|(activity, user)| Wish::Grant { activity, user }),
        1 => (0u8..2, proptest::option::of(0i64..4))
            .prop_map(|(activity, limit)| Wish::Limit { activity, limit }),
        2 => (0u8..2, proptest::sample::select(PATCHES.to_vec()))
            .prop_map(|(user, patch)| Wish::Update { user, patch }),
        1 => Just(Wish::Send),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0u8..20, wish()).prop_map(|(key, wish)| Step::Decide { key, wish }),
        1 => (1usize..5).prop_map(|rows| Step::Write { rows }),
    ];
    proptest::collection::vec(step, 1..60)
}

proptest! {
    /// Invariants 1, 2, 5, 6 and 12 for any decisions on any stale snapshots, in batches of any size.
    #[test]
    fn stale_decisions_never_break_the_books(steps in steps()) {
        let db = Native::new();
        // Paid orders to begin with, so that much can be refunded; others come and go.
        for order in ["o0", "o1"] {
            db.paid(order, "u0", 5);
        }
        let mut kept: Vec<(Entry, Box<Operation>)> = Vec::new();
        for (number, step) in (1..).zip(steps) {
            match step {
                Step::Decide { key, wish } => {
                    let entry = wish.entry(key, number);
                    let (recorded, snapshot) = db.read(&[&entry]).pop().unwrap();
                    if let (None, Some(operation)) = (recorded, decide(&entry, &snapshot)) {
                        kept.push((entry, operation));
                    }
                }
                Step::Write { rows } => {
                    let rows: Vec<_> = kept.drain(..rows.min(kept.len())).collect();
                    let rows: Vec<_> = rows.iter().map(|(entry, row)| (entry, row.as_ref())).collect();
                    for id in db.write(&rows) {
                        let mine: Vec<_> = rows.iter().filter(|(entry, _)| entry.id() == id).collect();
                        let (recorded, _) = db.read(&[mine[0].0]).pop().unwrap();
                        let recorded = recorded.unwrap().answer;
                        prop_assert!(mine.iter().any(|(_, row)| row.answer == recorded));
                    }
                    db.check();
                }
            }
        }
    }
}
