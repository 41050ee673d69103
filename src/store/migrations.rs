//! Applies the files of `migrations/`, once, whoever comes first.
//!
//! Every statement of a migration can be repeated and commits by itself, and the row in
//! `schema_migrations` comes last: instances that start together do the same work side by side, and
//! one that dies half-way leaves the rest to the next. A database that a later version has migrated is left
//! alone.

use spin_sdk::sqlite::{Connection, Value};

use super::database::{DatabaseError, run};
use super::row::Row;
use crate::runtime;

/// A migration's version, and its script.
const MIGRATIONS: &[(i64, &str)] = &[
    (1, include_str!("../../migrations/0001_checkout.sql")),
    (2, include_str!("../../migrations/0002_operations.sql")),
    (3, include_str!("../../migrations/0003_delivery.sql")),
    (4, include_str!("../../migrations/0004_channels.sql")),
];

/// How often a statement of a migration is tried while another instance is in the way, and the pause
/// between two attempts in milliseconds.
const ATTEMPTS: u32 = 20;
const PAUSE_MS: u64 = 25;

/// Brings the database up to date.
pub(super) async fn apply(connection: &Connection) -> Result<(), DatabaseError> {
    let applied = applied_version(connection).await?;
    let known = MIGRATIONS.last().map_or(0, |(version, _)| *version);
    if applied > known {
        return Err(DatabaseError::Newer {
            found: applied,
            known,
        });
    }
    for (version, script) in MIGRATIONS {
        if *version > applied {
            for statement in statements(script) {
                apply_statement(connection, statement).await?;
            }
        }
    }
    Ok(())
}

/// The version of the last migration that was applied to the end, 0 for an empty database.
async fn applied_version(connection: &Connection) -> Result<i64, DatabaseError> {
    let table = "SELECT name FROM sqlite_schema WHERE name = 'schema_migrations'";
    if run(connection, table, []).await?.is_empty() {
        return Ok(0);
    }
    let version = "SELECT coalesce(max(version), 0) FROM schema_migrations";
    let rows = run(connection, version, []).await?;
    rows.first().map_or(Ok(0), |row| Row::new(row).integer())
}

async fn apply_statement(connection: &Connection, statement: &str) -> Result<(), DatabaseError> {
    let mut attempts = 0..ATTEMPTS;
    loop {
        attempts.next();
        match run(connection, statement, std::iter::empty::<Value>()).await {
            // Two instances that both want to change the file from a shared lock: SQLite refuses one of
            // them at once, without the wait that other statements get.
            Err(error) if error.is_busy() && !attempts.is_empty() => {
                runtime::sleep_millis(PAUSE_MS).await
            }
            // A remote database may not let its clients choose how it writes; it has its own way then.
            Err(error) if is_pragma(statement) && !error.is_busy() => return Ok(()),
            result => return result.map(drop),
        }
    }
}

fn is_pragma(statement: &str) -> bool {
    statement.lines().any(|line| line.starts_with("PRAGMA "))
}

/// The statements of a script: a blank line ends one.
fn statements(script: &str) -> impl Iterator<Item = &str> {
    let is_code = |line: &str| !line.starts_with("--") && !line.trim().is_empty();
    script
        .split("\n\n")
        .filter(move |part| part.lines().any(is_code))
}

#[cfg(test)]
pub(super) mod tests {
    use rusqlite::fallible_iterator::FallibleIterator;

    use super::*;
    use crate::domain::{OrderEvent, OrderStatus};

    /// An empty database with the schema in place.
    pub(in crate::store) fn migrated() -> rusqlite::Connection {
        let db = rusqlite::Connection::open_in_memory().unwrap();
        for (_, script) in MIGRATIONS {
            // As the component runs them, and twice, as instances that start together do.
            for statement in statements(script).chain(statements(script)) {
                let mut prepared = db.prepare(statement).unwrap();
                let mut rows = prepared.query([]).unwrap();
                while rows.next().unwrap().is_some() {}
            }
        }
        db
    }

    #[test]
    fn a_part_of_a_script_is_one_statement_and_can_be_repeated() {
        let db = migrated();
        for (version, script) in MIGRATIONS {
            for statement in statements(script) {
                let mut batch = rusqlite::Batch::new(&db, statement);
                assert!(batch.next().unwrap().is_some(), "{statement}");
                assert!(batch.next().unwrap().is_none(), "{statement}");
            }
            let found: i64 = db
                .query_row(
                    "SELECT count(*) FROM schema_migrations WHERE version = ?",
                    [version],
                    |row| row.get(0),
                )
                .unwrap();
            assert_eq!(found, 1);
        }
    }

    /// Invariant 6: the state machine in Rust and the one in SQL allow the same moves.
    #[test]
    fn the_trigger_and_the_domain_hold_one_state_machine() {
        let db = migrated();
        for from in OrderStatus::ALL {
            for to in OrderStatus::ALL {
                for refunds in [false, true] {
                    let events = OrderEvent::ALL.into_iter().filter(|event| {
                        matches!(event, OrderEvent::RefundPart | OrderEvent::RefundRest) == refunds
                    });
                    let in_rust = events
                        .into_iter()
                        .any(|event| from.after(event) == Some(to));
                    assert_eq!(
                        trigger_allows(&db, from, to, refunds),
                        in_rust,
                        "{from:?} {to:?} {refunds}"
                    );
                }
            }
        }
    }

    fn trigger_allows(
        db: &rusqlite::Connection,
        from: OrderStatus,
        to: OrderStatus,
        refunds: bool,
    ) -> bool {
        // Put the order into `from` behind the back of the triggers.
        let refunded_before = if from == OrderStatus::Refunded { 10 } else { 0 };
        let refunded_after = match (refunds, to) {
            (false, _) => refunded_before,
            (true, OrderStatus::Refunded) => 10,
            (true, _) => 4,
        };
        let transaction = db.unchecked_transaction().unwrap();
        transaction
            .execute_batch("DROP TRIGGER orders_begin_pending")
            .unwrap();
        transaction
            .execute(
                "INSERT INTO orders (merchant_id, order_no, user_id, amount, currency, status, refunded_amount, \
                 version, metadata, created_at, updated_at) \
                 VALUES ('m', 'o', 'u', 10, 'EUR', ?1, ?2, 3, '{}', 0, 0)",
                rusqlite::params![from.name(), refunded_before],
            )
            .unwrap();
        transaction
            .execute(
                "UPDATE orders SET status = ?1, refunded_amount = ?2, version = 4",
                rusqlite::params![to.name(), refunded_after],
            )
            .is_ok()
    }
}
