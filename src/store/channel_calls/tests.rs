//! The statements, on a real SQLite database: of those who try to take a call over, one wins.

use rusqlite::{Connection, params};

use super::*;
use crate::store::migrations::tests::migrated;

const STATE: &str = "SELECT owner || ' ' || lease_until || ' ' || attempts FROM channel_calls \
                     WHERE subject_id = 'pay_1'";

fn database() -> Connection {
    let db = migrated();
    for number in 1..=3 {
        db.execute(
            "INSERT INTO channel_calls (subject_id, kind, channel, number, charge_number, merchant_id, \
             order_no, amount, currency, owner, lease_until, attempts, created_at) \
             VALUES (?1, 'charge', 'http', ?2, ?2, 'm', 'o', 1, 'EUR', 'first', ?3, 1, 0)",
            params![format!("pay_{number}"), format!("m~r{number}"), 100 * number],
        )
        .unwrap();
    }
    db
}

fn text(db: &Connection, query: &str) -> String {
    db.query_row(query, [], |row| row.get(0)).unwrap()
}

fn take_over(db: &Connection, seen: &str, now: i64, owner: &str) -> bool {
    let mut statement = db.prepare(TAKE_OVER).unwrap();
    let parameters = params!["pay_1", seen, now, owner, now + 50, now + 50];
    let mut rows = statement.query(parameters).unwrap();
    rows.next().unwrap().is_some()
}

#[test]
fn a_call_is_taken_over_by_one_when_its_lease_is_over() {
    let db = database();
    assert!(!take_over(&db, "first", 99, "a"));
    assert!(take_over(&db, "first", 100, "b"));
    // Who saw it before loses, and who comes after waits.
    assert!(!take_over(&db, "first", 100, "c"));
    assert!(!take_over(&db, "b", 149, "c"));
    assert_eq!(text(&db, STATE), "b 150 2");
    db.execute("UPDATE channel_calls SET settled_at = 1", [])
        .unwrap();
    assert!(!take_over(&db, "b", 150, "c"));
}

/// 50 ms after now is the most that a clock that is right can give.
#[test]
fn a_lease_that_no_right_clock_can_have_given_is_over() {
    let db = database();
    assert!(!take_over(&db, "first", 50, "a"));
    assert!(take_over(&db, "first", 49, "b"));
}

#[test]
fn a_call_that_is_given_back_is_due_and_keeps_what_was_said() {
    let db = database();
    let release = |owner: &str, secret: Option<&str>| {
        db.execute(RELEASE, params!["pay_1", owner, 7, "why", secret])
            .unwrap()
    };
    assert_eq!(release("other", None), 0);
    assert_eq!(release("first", Some("secret")), 1);
    assert_eq!(release("first", None), 1);
    assert_eq!(text(&db, STATE), "first 7 1");
    let said = "SELECT last_error || client_secret FROM channel_calls WHERE subject_id = 'pay_1'";
    assert_eq!(text(&db, said), "whysecret");
}

#[test]
fn a_sweep_takes_what_was_due_when_it_began_and_each_once() {
    let db = database();
    let statement = format!("{TAKE_OVER_DUE} RETURNING {COLUMNS}");
    let take = |due: i64, owner: &str, limit: i64| {
        let mut statement = db.prepare(&statement).unwrap();
        let mut rows = statement
            .query(params![due, owner, 900, limit, 900])
            .unwrap();
        let mut taken = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            assert_eq!(row.get_unwrap::<_, String>(7).len(), 2);
            taken.push(row.get_unwrap::<_, String>(0));
        }
        taken
    };
    assert_eq!(take(200, "a", 1), ["pay_1"]);
    assert_eq!(take(200, "b", 9), ["pay_2"]);
    assert!(take(200, "c", 9).is_empty());
    db.execute(
        "UPDATE channel_calls SET lease_until = 901 WHERE subject_id = 'pay_3'",
        [],
    )
    .unwrap();
    assert_eq!(take(200, "c", 9), ["pay_3"]);
    assert_eq!(text(&db, STATE), "a 900 2");
}
