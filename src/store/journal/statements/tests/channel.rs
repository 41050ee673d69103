//! Payments and refunds through a channel: two rows around one call, and what may come between them.

use super::*;
use crate::domain::commands::{ReturnPayment, SettlePayment, SettleRefund};
use crate::domain::{ChannelTerms, DeclineCode, Settlement};

/// An entry of a deployment with a channel.
fn through(key: &str, number: u128, command: impl Command + 'static) -> Entry {
    let mut entry = entry("m", key, number, command);
    entry.given.channel = Some(ChannelTerms {
        name: "http",
        lease_ms: 1_000,
        ready: true,
    });
    entry
}

fn charge(order_no: &str, amount: i64, request_no: &str) -> PayOrder {
    PayOrder {
        payment_method: None,
        ..pay(order_no, amount, Some(request_no))
    }
}

fn succeeded() -> Settlement {
    Settlement::Succeeded {
        channel_ref: Some("ch_1".to_owned()),
    }
}

fn declined() -> Settlement {
    Settlement::Declined {
        code: DeclineCode::CardDeclined,
        detail: "the channel says card_declined".to_owned(),
    }
}

fn settle(order_no: &str, request_no: &str, settlement: Settlement) -> SettlePayment {
    SettlePayment {
        order_no: id(order_no),
        request_no: id(request_no),
        settlement,
    }
}

fn late(order_no: &str, request_no: &str) -> ReturnPayment {
    ReturnPayment {
        order_no: id(order_no),
        request_no: id(request_no),
        channel_ref: None,
    }
}

impl Native {
    /// An order, and a payment of it that its channel works on.
    fn charging(&self, order_no: &str, amount: i64) {
        self.perform(&through("create", 1, create(order_no, "u", amount)));
        let begin = through("pay", 2, charge(order_no, amount, "r1"));
        assert_eq!(self.perform(&begin), 102);
        self.check();
    }

    fn text(&self, query: &str) -> String {
        self.0.query_row(query, [], |row| row.get(0)).unwrap()
    }

    /// The answer that is recorded for a key.
    fn answer(&self, key: &str) -> (i64, String) {
        let query =
            "SELECT response_status, response_body FROM operations WHERE idempotency_key = ?1";
        let row = |row: &rusqlite::Row| Ok((row.get(0)?, row.get(1)?));
        self.0.query_row(query, [key], row).unwrap()
    }

    /// The refund of that number, as it is.
    fn refund(&self, refund_no: &str) -> Option<crate::domain::Refund> {
        let statement = format!(
            "SELECT {} FROM refunds AS r WHERE r.refund_no = ?1",
            crate::store::row::REFUND_COLUMNS
        );
        let rows = self.execute(&statement, Value::Text(refund_no.to_owned()));
        rows.first().map(|row| Row::new(row).refund().unwrap())
    }

    fn settle_refund(&self, refund_no: &str, settlement: Settlement) -> SettleRefund {
        SettleRefund {
            refund: self.refund(refund_no).unwrap(),
            request_no: id("r1"),
            settlement,
        }
    }
}

/// Invariants 2 and 5: the second row moves order, payment and money, and answers the first.
#[test]
fn a_charge_that_succeeds_answers_the_request_that_began_it() {
    let db = Native::new();
    db.charging("o", 10);
    assert_eq!(db.text("SELECT status FROM orders"), "processing");
    assert_eq!(db.number("SELECT count(*) FROM ledger_entries"), 0);
    assert_eq!(
        db.number("SELECT count(*) FROM outbox WHERE type <> 'order.created'"),
        0
    );
    assert_eq!(db.text("SELECT number FROM channel_calls"), "m~r1");

    let settle = through("settle p", 3, settle("o", "r1", succeeded()));
    assert_eq!(db.perform(&settle), 200);
    assert_eq!(db.text("SELECT status FROM orders"), "paid");
    assert_eq!(db.number("SELECT version FROM orders"), 3);
    let (status, body) = db.answer("pay");
    assert_eq!(status, 200);
    assert_eq!(
        body,
        db.text("SELECT data FROM outbox WHERE type = 'order.paid'")
    );
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&body["status"], &body["channel"]),
        (&"succeeded".into(), &"http".into())
    );
    assert_eq!(db.text("SELECT channel_ref FROM channel_calls"), "ch_1");
    db.check();
}

/// Invariant 2: a decline is the final answer of its key, and the order can be paid with a new number.
#[test]
fn a_decline_is_recorded_and_leaves_the_order_payable() {
    let db = Native::new();
    db.charging("o", 10);
    db.perform(&through("settle p", 3, settle("o", "r1", declined())));
    let (status, body) = db.answer("pay");
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["code"]), (402, &"card_declined".into()));
    assert_eq!(body["payment"]["failure_code"], "card_declined");
    assert_eq!(db.text("SELECT status FROM orders"), "failed");
    db.check();
    assert_eq!(db.perform(&through("again", 4, charge("o", 10, "r2"))), 102);
    db.perform(&through("settle q", 5, settle("o", "r2", succeeded())));
    assert_eq!(db.text("SELECT status FROM orders"), "paid");
    db.check();
}

/// Invariants 1 and 2: whoever brings the answer, and whatever it says, the first one counts.
#[test]
fn a_payment_is_settled_once() {
    for (first, second) in [(succeeded(), declined()), (declined(), succeeded())] {
        let db = Native::new();
        db.charging("o", 10);
        let entries = [(3, &first), (4, &second)].map(|(number, settlement)| {
            let key = format!("settle {number}");
            through(&key, number, settle("o", "r1", settlement.clone()))
        });
        // Decided on one snapshot: a webhook against a retry.
        assert_eq!(at_once(&db, &entries), ["settle 3"]);
        let [_, second] = entries;
        let (_, seen) = db.read(&[&second]).pop().unwrap();
        assert!(decide(&second, &seen).is_none());
        assert_eq!(
            db.number("SELECT count(*) FROM outbox WHERE type <> 'order.created'"),
            1
        );
        db.check();
    }
}

/// Invariant 1: two requests decided on one snapshot begin one payment.
#[test]
fn one_payment_of_an_order_is_under_way() {
    let db = Native::new();
    db.perform(&through("create", 1, create("o", "u", 10)));
    db.perform(&through("deposit", 2, deposit("u", 10)));
    let entries = [
        through("a", 3, charge("o", 10, "r1")),
        through("b", 4, charge("o", 10, "r2")),
        through("c", 5, pay("o", 10, Some("r3"))),
        through("d", 6, CancelOrder { order_no: id("o") }),
    ];
    assert_eq!(at_once(&db, &entries), ["a"]);
    for entry in &entries[1..] {
        let (_, seen) = db.read(&[entry]).pop().unwrap();
        assert!(decide(entry, &seen).is_none(), "{}", entry.key);
    }
    db.check();
}

/// A decline that was overtaken by the truth: the order is paid by a second payment or cancelled, and the money
/// of the first is booked, once, and queued to go back.
#[test]
fn money_that_comes_late_is_booked_and_goes_back() {
    for cancelled in [true, false] {
        let db = Native::new();
        db.charging("o", 10);
        db.perform(&through("settle p", 3, settle("o", "r1", declined())));
        if cancelled {
            let cancel = CancelOrder { order_no: id("o") };
            db.perform(&through("cancel", 4, cancel));
        } else {
            db.perform(&through("again", 4, charge("o", 10, "r2")));
            db.perform(&through("settle q", 5, settle("o", "r2", succeeded())));
        }
        let before = db.text("SELECT status || version FROM orders");
        let entries = [6, 7].map(|number| through("late p", number, late("o", "r1")));
        assert_eq!(at_once(&db, &entries), ["late p"]);
        assert_eq!(db.text("SELECT status || version FROM orders"), before);
        let unclaimed = "SELECT sum(amount) FROM ledger_entries WHERE account = 'unclaimed'";
        assert_eq!(db.number(unclaimed), 10);
        let queued = "SELECT count(*) FROM channel_calls WHERE kind = 'refund' \
                      AND settled_at IS NULL AND owner IS NULL AND charge_number = 'm~r1'";
        assert_eq!(db.number(queued), 1);
        db.check();

        let refund_no = db.text("SELECT refund_no FROM refunds");
        let back = db.settle_refund(&refund_no, succeeded());
        assert_eq!(db.perform(&through("settle r", 8, back)), 201);
        assert_eq!(db.number(unclaimed), 0);
        assert_eq!(db.text("SELECT status || version FROM orders"), before);
        assert_eq!(db.text("SELECT status FROM refunds"), "succeeded");
        db.check();
    }
}

/// Invariant 7: what is being refunded is reserved, also from refunds that were decided before.
#[test]
fn refunds_under_way_reserve_their_amounts() {
    let db = Native::new();
    db.charging("o", 100);
    db.perform(&through("settle p", 3, settle("o", "r1", succeeded())));
    let refunds = [4, 5].map(|number| {
        let refund_no = format!("f{number}");
        through(&refund_no, number, refund("o", Some(60), Some(&refund_no)))
    });
    assert_eq!(at_once(&db, &refunds), ["f4"]);
    let [_, second] = refunds;
    let (_, seen) = db.read(&[&second]).pop().unwrap();
    assert!(decide(&second, &seen).is_none());
    assert_eq!(db.number("SELECT refunded_amount FROM orders"), 0);
    assert_eq!(
        db.perform(&through("rest", 6, refund("o", None, Some("f6")))),
        102
    );
    assert_eq!(db.number("SELECT sum(amount) FROM refunds"), 100);
    db.check();

    // The order moves meanwhile; the first refund is refused, and its amount is free again.
    db.perform(&through("ship", 7, ship("o")));
    let refused = db.settle_refund("f4", declined());
    assert_eq!(db.perform(&through("settle f4", 8, refused)), 402);
    assert_eq!(db.answer("f4").0, 402);
    db.check();
    let made = db.settle_refund("f6", succeeded());
    assert_eq!(db.perform(&through("settle f6", 9, made)), 201);
    assert_eq!(db.answer("rest").0, 201);
    db.perform(&through("f10", 10, refund("o", None, Some("f10"))));
    assert_eq!(
        db.number("SELECT amount FROM refunds WHERE refund_no = 'f10'"),
        60
    );
    let made = db.settle_refund("f10", succeeded());
    db.perform(&through("settle f10", 11, made));
    assert_eq!(db.text("SELECT status FROM orders"), "refunded");
    db.check();
}

/// Invariant 9: what has no final answer outlives every sweep.
#[test]
fn what_is_under_way_is_not_retired() {
    let db = Native::new();
    db.charging("o", 10);
    db.0.execute("DELETE FROM operations", []).unwrap();
    assert_eq!(db.number("SELECT count(*) FROM operations"), 1);
    let settle = through("settle p", 3, settle("o", "r1", succeeded()));
    assert_eq!(db.perform(&settle), 200);
    assert_eq!(db.answer("pay").0, 200);
}

#[derive(Clone, Copy, Debug)]
enum Wish {
    Charge { request: u8 },
    Wallet { request: u8 },
    Settle { request: u8, succeeds: bool },
    Late { request: u8 },
    Refund { amount: i64, refund: u8 },
    SettleRefund { refund: u8, succeeds: bool },
    Cancel,
    Ship,
}

impl Wish {
    fn entry(self, db: &Native, key: u8, number: u128) -> Option<Entry> {
        let settlement = |succeeds| if succeeds { succeeded() } else { declined() };
        let request = |request: u8| format!("r{request}");
        let key = format!("k{key}");
        Some(match self {
            Self::Charge { request: no } => through(&key, number, charge("o", 5, &request(no))),
            Self::Wallet { request: no } => through(&key, number, pay("o", 5, Some(&request(no)))),
            Self::Settle {
                request: no,
                succeeds,
            } => {
                let command = settle("o", &request(no), settlement(succeeds));
                through(&format!("settle r{no}"), number, command)
            }
            Self::Late { request: no } => {
                through(&format!("late r{no}"), number, late("o", &request(no)))
            }
            Self::Refund { amount, refund: no } => {
                let command = refund("o", Some(amount), Some(&format!("f{no}")));
                through(&key, number, command)
            }
            Self::SettleRefund {
                refund: no,
                succeeds,
            } => {
                let refund = db.refund(&format!("f{no}"))?;
                let payment = format!(
                    "SELECT request_no FROM payments WHERE payment_id = '{}'",
                    refund.payment_id
                );
                let command = SettleRefund {
                    request_no: id(&db.text(&payment)),
                    refund,
                    settlement: settlement(succeeds),
                };
                through(&format!("settle f{no}"), number, command)
            }
            Self::Cancel => through(&key, number, CancelOrder { order_no: id("o") }),
            Self::Ship => through(&key, number, ship("o")),
        })
    }
}

fn wish() -> impl Strategy<Value = Wish> {
    let succeeds = || proptest::bool::weighted(0.6);
    prop_oneof![
        3 => (0u8..3).prop_map(|request| Wish::Charge { request }),
        1 => (3u8..5).prop_map(|request| Wish::Wallet { request }),
        5 => (0u8..3, succeeds()).prop_map(|(request, succeeds)| Wish::Settle { request, succeeds }),
        2 => (0u8..3).prop_map(|request| Wish::Late { request }),
        3 => (1i64..6, 0u8..3).prop_map(|(amount, refund)| Wish::Refund { amount, refund }),
        3 => (0u8..3, succeeds())
            .prop_map(|(refund, succeeds)| Wish::SettleRefund { refund, succeeds }),
        1 => Just(Wish::Cancel),
        1 => Just(Wish::Ship),
    ]
}

proptest! {
    /// Invariants 1, 2, 5, 6, 7 and 12 for any decisions on any stale snapshots, in batches of any size.
    #[test]
    fn stale_decisions_about_channels_never_break_the_books(
        steps in proptest::collection::vec((0u8..20, wish(), 0usize..4), 1..40),
    ) {
        let db = Native::new();
        db.perform(&through("create", 1, create("o", "u", 5)));
        db.perform(&through("deposit", 2, deposit("u", 7)));
        let mut kept: Vec<(Entry, Box<Operation>)> = Vec::new();
        for (number, (key, wish, writes)) in (3..).zip(steps) {
            if let Some(entry) = wish.entry(&db, key, number) {
                let (recorded, snapshot) = db.read(&[&entry]).pop().unwrap();
                if let (None, Some(operation)) = (recorded, decide(&entry, &snapshot)) {
                    kept.push((entry, operation));
                }
            }
            let rows: Vec<_> = kept.drain(..writes.min(kept.len())).collect();
            let rows: Vec<_> = rows.iter().map(|(entry, row)| (entry, row.as_ref())).collect();
            db.write(&rows);
            db.check();
        }
    }
}
