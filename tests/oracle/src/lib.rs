//! An auditor of its own: reads a database file of payonce from outside and holds it against the
//! invariants. It shares nothing with the component but the names of tables and columns.

use std::collections::BTreeMap;

use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode};

/// One rule: rows that this query finds break it.
struct Rule {
    invariant: &'static str,
    violations: &'static str,
}

const RULES: [Rule; 36] = [
    Rule {
        invariant: "1: at most one live payment for an order",
        violations: "SELECT merchant_id, order_no, count(*) FROM payments
                     WHERE status IN ('processing', 'succeeded')
                     GROUP BY merchant_id, order_no HAVING count(*) > 1",
    },
    Rule {
        invariant: "1: an order is paid if and only if a payment of its amount succeeded",
        violations: "SELECT o.merchant_id, o.order_no, o.status FROM orders o
                     WHERE (o.status IN ('paid', 'shipped', 'completed', 'refunded')) <> EXISTS (
                       SELECT 1 FROM payments p
                       WHERE p.merchant_id = o.merchant_id AND p.order_no = o.order_no
                         AND p.status = 'succeeded' AND p.amount = o.amount
                         AND p.currency = o.currency)",
    },
    Rule {
        invariant: "2: one journal row for a key",
        violations: "SELECT merchant_id, idempotency_key, count(*) FROM journal
                     GROUP BY merchant_id, idempotency_key HAVING count(*) > 1",
    },
    Rule {
        invariant: "2: one applied payment in the journal for a paid order",
        violations: "SELECT merchant_id, order_no, count(*) FROM journal
                     WHERE operation IN ('order.pay', 'payment.settle') AND to_status = 'paid'
                     GROUP BY merchant_id, order_no HAVING count(*) > 1",
    },
    Rule {
        invariant: "2: every succeeded payment has its journal row, and the other way round",
        violations: "SELECT p.payment_id FROM payments p
                     WHERE p.status = 'succeeded' AND NOT EXISTS (SELECT 1 FROM journal j
                       WHERE j.operation IN ('order.pay', 'payment.settle') AND j.to_status = 'paid'
                         AND j.subject_id = p.payment_id AND j.merchant_id = p.merchant_id
                         AND j.order_no = p.order_no)
                     UNION ALL SELECT j.subject_id FROM journal j
                     WHERE j.operation IN ('order.pay', 'payment.settle') AND j.to_status = 'paid'
                       AND NOT EXISTS (SELECT 1 FROM payments p
                         WHERE p.status = 'succeeded' AND p.payment_id = j.subject_id
                           AND p.merchant_id = j.merchant_id AND p.order_no = j.order_no)",
    },
    Rule {
        invariant: "2: only successes and final declines are recorded, and what waits for a channel",
        violations: "SELECT merchant_id, idempotency_key, response_status FROM journal
                     WHERE NOT iif(operation IN ('order.pay_begin', 'order.refund_begin'),
                       response_status IN (102, 200, 201, 402),
                       response_status IN (200, 201, 202, 402)
                         AND (outcome = 'applied') = (response_status < 300))",
    },
    Rule {
        invariant: "5: the ledger sums to zero for each merchant and currency",
        violations: "SELECT merchant_id, currency, sum(amount) FROM ledger_entries
                     GROUP BY merchant_id, currency HAVING sum(amount) <> 0",
    },
    Rule {
        invariant: "5: each booking sums to zero and has two sides",
        violations: "SELECT source_id, count(*), sum(amount) FROM ledger_entries
                     GROUP BY source_id HAVING sum(amount) <> 0 OR count(*) <> 2",
    },
    Rule {
        invariant: "5: every payment, refund and deposit is booked once",
        violations: "SELECT merchant_id, idempotency_key, subject_id FROM journal j
                     WHERE (operation IN ('order.pay', 'order.refund', 'account.deposit',
                                          'refund.settle', 'payment.late')
                            OR operation = 'payment.settle' AND to_status = 'paid')
                       AND outcome = 'applied'
                       AND (SELECT sum(amount) FROM ledger_entries l
                            WHERE l.source_id = j.subject_id AND l.amount > 0) IS NOT j.amount",
    },
    Rule {
        invariant: "5: a payment goes from the customer's wallet or the channel to sales, a refund back; \
                    what came too late is nobody's",
        violations: "WITH parties AS (
                       SELECT p.payment_id, p.merchant_id, p.order_no, p.currency, p.status, p.amount,
                         iif(p.channel = 'wallet', 'wallet:' || o.user_id, 'channel') AS payer,
                         iif(p.status = 'succeeded', 'sales', 'unclaimed') AS payee
                       FROM payments p JOIN orders o
                         ON o.merchant_id = p.merchant_id AND o.order_no = p.order_no),
                     moved (source_id, payer, payee, currency, amount) AS (
                       SELECT payment_id, payer, payee, currency, -amount FROM parties p
                       WHERE status = 'succeeded' OR EXISTS (SELECT 1 FROM journal j
                         WHERE j.operation = 'payment.late' AND j.subject_id = p.payment_id)
                       UNION ALL SELECT r.refund_id, p.payer, p.payee, p.currency, r.amount
                       FROM refunds r JOIN parties p ON p.payment_id = r.payment_id
                       WHERE r.status = 'succeeded')
                     SELECT source_id, payer, payee, amount FROM moved m
                     WHERE (SELECT l.amount FROM ledger_entries l WHERE l.source_id = m.source_id
                              AND l.account = m.payer AND l.currency = m.currency) IS NOT m.amount
                        OR (SELECT l.amount FROM ledger_entries l WHERE l.source_id = m.source_id
                              AND l.account = m.payee AND l.currency = m.currency) IS NOT -m.amount
                     UNION ALL SELECT source_id, account, currency, amount FROM ledger_entries
                     WHERE source_id IN (SELECT payment_id FROM payments
                                         UNION ALL SELECT refund_id FROM refunds)
                       AND source_id NOT IN (SELECT source_id FROM moved)",
    },
    Rule {
        invariant: "5: nothing is booked without a journal row",
        violations: "SELECT source_id FROM ledger_entries WHERE source_id NOT IN (
                       SELECT subject_id FROM journal
                       WHERE outcome = 'applied' AND subject_id IS NOT NULL)",
    },
    Rule {
        invariant: "5: each balance is the sum of its entries",
        violations: "SELECT merchant_id, user_id, currency, balance FROM accounts a
                     WHERE balance <> coalesce((SELECT sum(amount) FROM ledger_entries l
                       WHERE l.merchant_id = a.merchant_id AND l.currency = a.currency
                         AND l.account = 'wallet:' || a.user_id), 0)",
    },
    Rule {
        invariant: "5: every wallet in the ledger has an account",
        violations: "SELECT DISTINCT merchant_id, account, currency FROM ledger_entries l
                     WHERE account LIKE 'wallet:%' AND NOT EXISTS (
                       SELECT 1 FROM accounts a WHERE a.merchant_id = l.merchant_id
                         AND a.currency = l.currency AND 'wallet:' || a.user_id = l.account)",
    },
    Rule {
        invariant: "5: no customer balance is negative",
        violations: "SELECT merchant_id, user_id, balance FROM accounts WHERE balance < 0",
    },
    Rule {
        invariant: "6: the version is the number of moves, and the moves are a chain",
        violations: "SELECT merchant_id, order_no, version FROM (
                       SELECT merchant_id, order_no, version, from_status,
                         lag(to_status) OVER moves AS before, row_number() OVER moves AS number
                       FROM journal WHERE outcome = 'applied' AND to_status IS NOT NULL
                       WINDOW moves AS (PARTITION BY merchant_id, order_no ORDER BY version))
                     WHERE version <> number OR from_status IS NOT before",
    },
    Rule {
        invariant: "6: an order is where its last move left it",
        violations: "SELECT o.merchant_id, o.order_no, o.status, o.version FROM orders o
                     WHERE (o.version, o.status) IS NOT (
                       SELECT version, to_status FROM journal j
                       WHERE j.merchant_id = o.merchant_id AND j.order_no = o.order_no
                         AND j.outcome = 'applied' AND to_status IS NOT NULL ORDER BY version DESC LIMIT 1)",
    },
    Rule {
        invariant: "7: 0 <= refunded_amount <= amount",
        violations: "SELECT merchant_id, order_no, refunded_amount FROM orders
                     WHERE refunded_amount NOT BETWEEN 0 AND amount",
    },
    Rule {
        invariant: "7: what was refunded of an order is the sum of its refunds, and those under way do not \
                    exceed the rest",
        violations: "SELECT merchant_id, order_no, refunded_amount FROM orders o
                     WHERE NOT (SELECT
                         refunded_amount = coalesce(sum(r.amount) FILTER (WHERE r.status = 'succeeded'), 0)
                         AND o.amount >= coalesce(sum(r.amount) FILTER (WHERE r.status <> 'failed'), 0)
                       FROM refunds r JOIN payments p ON p.payment_id = r.payment_id
                       WHERE r.merchant_id = o.merchant_id AND r.order_no = o.order_no
                         AND p.status = 'succeeded')",
    },
    Rule {
        invariant: "7: an order is refunded if and only if all of it was",
        violations: "SELECT merchant_id, order_no, status, refunded_amount FROM orders
                     WHERE (status = 'refunded') <> (refunded_amount = amount)",
    },
    Rule {
        invariant: "7: only succeeded payments of the same order are refunded, and those that succeeded late",
        violations: "SELECT refund_id FROM refunds r WHERE NOT EXISTS (
                       SELECT 1 FROM payments p WHERE p.payment_id = r.payment_id
                         AND p.merchant_id = r.merchant_id AND p.order_no = r.order_no
                         AND p.currency = r.currency
                         AND (p.status = 'succeeded' OR EXISTS (SELECT 1 FROM journal j
                           WHERE j.operation = 'payment.late' AND j.subject_id = p.payment_id
                             AND j.reference = r.refund_no AND j.amount = r.amount)))",
    },
    Rule {
        invariant: "2: every refund has its journal row, and the other way round",
        violations: "SELECT r.refund_id FROM refunds r
                     WHERE r.status = 'succeeded' AND NOT EXISTS (SELECT 1 FROM journal j
                       WHERE j.operation IN ('order.refund', 'refund.settle') AND j.outcome = 'applied'
                         AND j.subject_id = r.refund_id AND j.merchant_id = r.merchant_id
                         AND j.order_no = r.order_no AND j.reference = r.refund_no
                         AND j.amount = r.amount)
                     UNION ALL SELECT j.subject_id FROM journal j
                     WHERE j.operation IN ('order.refund', 'refund.settle') AND j.outcome = 'applied'
                       AND NOT EXISTS (SELECT 1 FROM refunds r
                         WHERE r.status = 'succeeded' AND r.refund_id = j.subject_id
                           AND r.merchant_id = j.merchant_id AND r.order_no = j.order_no
                           AND r.refund_no = j.reference AND r.amount = j.amount)",
    },
    Rule {
        invariant: "2: what is settled was settled once, and had begun once",
        violations: "SELECT subject_id, operation, count(*) FROM journal
                     WHERE operation IN ('payment.settle', 'refund.settle', 'payment.late',
                                         'order.pay_begin', 'order.refund_begin')
                     GROUP BY subject_id, operation HAVING count(*) > 1",
    },
    Rule {
        invariant: "6: an order is processing if and only if a payment of it is",
        violations: "SELECT merchant_id, order_no, status FROM orders o
                     WHERE (status = 'processing') <> EXISTS (SELECT 1 FROM payments p
                       WHERE p.merchant_id = o.merchant_id AND p.order_no = o.order_no
                         AND p.status = 'processing')",
    },
    Rule {
        invariant: "8: every number that goes to a channel is of one payment or refund, and the other way round",
        violations: "WITH asked (id, amount) AS (
                       SELECT payment_id, amount FROM payments WHERE channel <> 'wallet'
                       UNION ALL SELECT r.refund_id, r.amount FROM refunds r
                       JOIN payments p ON p.payment_id = r.payment_id WHERE p.channel <> 'wallet')
                     SELECT subject_id, number FROM channel_calls
                     WHERE (subject_id, amount) NOT IN (SELECT id, amount FROM asked)
                     UNION ALL SELECT id, amount FROM asked
                     WHERE (id, amount) NOT IN (SELECT subject_id, amount FROM channel_calls)",
    },
    Rule {
        invariant: "9: what is processing is to be asked for at the channel, and nothing else is",
        violations: "SELECT c.subject_id, m.status, c.settled_at FROM channel_calls c
                     JOIN (SELECT payment_id AS id, status FROM payments
                           UNION ALL SELECT refund_id, status FROM refunds) m ON m.id = c.subject_id
                     WHERE (m.status = 'processing') <> (c.settled_at IS NULL)",
    },
    Rule {
        invariant: "2: whoever began something at a channel has a final answer if and only if it ended",
        violations: "SELECT o.merchant_id, o.idempotency_key, response_status FROM operations o
                     LEFT JOIN channel_calls c ON c.subject_id = o.subject_id
                     WHERE o.operation IN ('order.pay_begin', 'order.refund_begin')
                       AND (response_status = 102) IS NOT (c.settled_at IS NULL)",
    },
    Rule {
        invariant: "8: money that came too late is refunded, or its refund is under way",
        violations: "SELECT merchant_id, subject_id, reference FROM journal j
                     WHERE operation = 'payment.late' AND NOT EXISTS (SELECT 1 FROM refunds r
                       WHERE r.merchant_id = j.merchant_id AND r.refund_no = j.reference
                         AND r.payment_id = j.subject_id)",
    },
    Rule {
        invariant: "2: one grant for a user in an activity",
        violations: "SELECT merchant_id, activity_id, user_id, count(*) FROM grants
                     GROUP BY merchant_id, activity_id, user_id HAVING count(*) > 1",
    },
    Rule {
        invariant: "2: every grant has the journal row that made it, and the other way round",
        violations: "SELECT g.grant_id, j.subject_id FROM grants g
                     FULL JOIN
                       (SELECT * FROM journal
                        WHERE operation = 'coupon.grant' AND response_status = 201) j
                     ON j.subject_id = g.grant_id AND j.merchant_id = g.merchant_id
                       AND j.reference = g.activity_id AND j.user_id = g.user_id
                     WHERE g.grant_id IS NULL OR j.subject_id IS NULL",
    },
    Rule {
        invariant: "2: every answer about a grant is about the user's only one",
        violations: "SELECT merchant_id, idempotency_key, subject_id FROM operations j
                     WHERE operation = 'coupon.grant' AND NOT EXISTS (
                       SELECT 1 FROM grants g WHERE g.grant_id = j.subject_id
                         AND g.grant_id = j.response_body ->> '$.grant_id'
                         AND g.merchant_id = j.merchant_id AND g.user_id = j.user_id
                         AND g.activity_id = j.reference)",
    },
    Rule {
        invariant: "an activity counts its grants, and none was made beyond its limit",
        violations: "SELECT merchant_id, activity_id, granted FROM activities c
                     WHERE (granted, granted, TRUE) IS NOT (
                       SELECT count(*), coalesce(max(number), 0),
                         coalesce(min(number <= coalesce(g.grant_limit, number)), TRUE)
                       FROM grants g WHERE g.merchant_id = c.merchant_id
                         AND g.activity_id = c.activity_id)",
    },
    Rule {
        invariant: "2: the version of a profile counts its updates",
        violations: "SELECT merchant_id, user_id, version FROM profiles p
                     WHERE version <> (SELECT count(*) FROM journal j
                       WHERE j.operation = 'profile.update' AND j.merchant_id = p.merchant_id
                         AND j.user_id = p.user_id)",
    },
    Rule {
        invariant: "2: a profile is what its last update made of it, and when",
        violations: "SELECT merchant_id, user_id, version FROM profiles p
                     WHERE EXISTS (SELECT 1 FROM operations j
                       WHERE j.operation = 'profile.update' AND j.merchant_id = p.merchant_id
                         AND j.user_id = p.user_id AND j.version >= p.version
                         AND (j.version, j.created_at, json(j.response_body -> '$.fields'))
                           IS NOT (p.version, p.updated_at, json(p.fields)))",
    },
    Rule {
        invariant: "12: every message has one event, which carries its text",
        violations: "SELECT merchant_id, subject_id FROM operations j
                     WHERE operation = 'message.send' AND created_at >= coalesce(
                       (SELECT position FROM sweep_positions WHERE store = 'database'), 0)
                       AND 1 <> (
                       SELECT count(*) FROM outbox o WHERE o.merchant_id = j.merchant_id
                         AND o.type = 'message.queued' AND o.subject = j.subject_id
                         AND length(o.data ->> '$.text') > 0)",
    },
    Rule {
        invariant: "12: every applied operation with an event has one, and no other is there, but for \
                    those that were delivered and swept",
        violations: "SELECT type, merchant_id, created_at, sum(told) FROM (
                       SELECT event_type AS type, merchant_id, created_at, 1 AS told
                       FROM operations WHERE event_type IS NOT NULL
                       UNION ALL SELECT type, merchant_id, created_at, -1 FROM outbox)
                     WHERE created_at >= coalesce(
                       (SELECT position FROM sweep_positions WHERE store = 'database'), 0)
                     GROUP BY type, merchant_id, created_at HAVING sum(told) <> 0",
    },
    Rule {
        invariant: "12: every event has one delivery, and is delivered if that was sent",
        violations: "SELECT o.event_id, d.event_id, state FROM outbox o
                     FULL JOIN deliveries d ON d.event_id = o.event_id
                     WHERE o.event_id IS NULL OR d.event_id IS NULL
                        OR (state = 'sent') <> (delivered_at IS NOT NULL)",
    },
];

/// What an audit counted, for tests that know how much there must be.
#[derive(Debug, PartialEq, Eq)]
pub struct Books {
    pub journal: i64,
    pub orders: i64,
    pub succeeded: i64,
}

/// Checks every invariant that a database can show.
///
/// # Errors
/// The first rule that is broken, with the rows that break it.
pub fn audit(database: &Connection) -> Result<Books, String> {
    for rule in RULES {
        let found = rows(database, rule.violations)?;
        if !found.is_empty() {
            return Err(format!("invariant {}: {found:#?}", rule.invariant));
        }
    }
    Ok(Books {
        journal: count(database, "journal")?,
        orders: count(database, "orders")?,
        succeeded: count(database, "payments WHERE status = 'succeeded'")?,
    })
}

/// Checks the file itself: its pages, its indexes and its references.
///
/// # Errors
/// What SQLite finds wrong.
pub fn integrity(database: &Connection) -> Result<(), String> {
    for check in ["integrity_check", "foreign_key_check"] {
        let found = rows(database, &format!("PRAGMA {check}"))?;
        if !found.is_empty() && found != ["ok"] {
            return Err(format!("{check}: {found:?}"));
        }
    }
    Ok(())
}

/// What is left at the channel of each order, by merchant and order number, as the ledger has it; orders of which that
/// is nothing are left out.
///
/// # Errors
/// When more was refunded than charged, or the database cannot be read.
pub fn kept_at_channel(database: &Connection) -> Result<BTreeMap<(String, String), u64>, String> {
    let sql = "SELECT moved.merchant_id, moved.order_no, -sum(amount) FROM ledger_entries
               JOIN (SELECT payment_id AS id, merchant_id, order_no FROM payments
                     UNION ALL SELECT refund_id, merchant_id, order_no FROM refunds) AS moved
                 ON moved.id = source_id
               WHERE account = 'channel'
               GROUP BY moved.merchant_id, moved.order_no HAVING sum(amount) <> 0";
    let failed = |error: rusqlite::Error| error.to_string();
    let mut statement = database.prepare_cached(sql).map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    let mut kept = BTreeMap::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let order: (String, String) = (row.get(0).map_err(failed)?, row.get(1).map_err(failed)?);
        let amount: i64 = row.get(2).map_err(failed)?;
        let amount = u64::try_from(amount)
            .map_err(|_| format!("{order:?}: more was refunded than charged"))?;
        kept.insert(order, amount);
    }
    Ok(kept)
}

/// Every row a query finds, as text.
fn rows(database: &Connection, sql: &str) -> Result<Vec<String>, String> {
    let failed = |error| format!("{error}: {sql}");
    let mut statement = database.prepare_cached(sql).map_err(failed)?;
    let width = statement.column_count();
    let found = statement.query_map([], |row| {
        let cells = (0..width).map(|index| row.get::<_, Value>(index));
        cells.collect::<Result<Vec<_>, _>>()
    });
    let text = |cells: Vec<Value>| match cells.as_slice() {
        [Value::Text(only)] => only.clone(),
        many => format!("{many:?}"),
    };
    found
        .map_err(failed)?
        .map(|cells| cells.map(text).map_err(failed))
        .collect()
}

fn count(database: &Connection, from: &str) -> Result<i64, String> {
    let sql = format!("SELECT count(*) FROM {from}");
    let count = database.query_row(&sql, [], |row| row.get(0));
    count.map_err(|error| format!("{error}: {sql}"))
}

/// The last gates: what the schema itself must refuse, whatever the component does. Each is tried on
/// rows of this database and rolled back.
struct Gate {
    name: &'static str,
    /// Rows to try on; a gate without rows cannot be tried.
    rows: &'static str,
    attempt: &'static str,
}

const GATES: [Gate; 9] = [
    Gate {
        name: "1: a second live payment for an order",
        rows: "SELECT 1 FROM payments WHERE status = 'succeeded'",
        attempt:
            "INSERT INTO payments SELECT 'pay_second', merchant_id, order_no, 'second', channel,
                    amount, currency, status, failure_code, created_at, updated_at
                  FROM payments WHERE status = 'succeeded' LIMIT 1",
    },
    Gate {
        name: "1: a second payment with a request_no",
        rows: "SELECT 1 FROM payments",
        attempt:
            "INSERT INTO payments SELECT 'pay_second', merchant_id, order_no, request_no, channel,
                    amount, currency, 'failed', failure_code, created_at, updated_at
                  FROM payments LIMIT 1",
    },
    Gate {
        name: "2: a payment that ends twice",
        rows: "SELECT 1 FROM payments WHERE status = 'succeeded'",
        attempt: "UPDATE payments SET status = 'failed' WHERE status = 'succeeded'",
    },
    Gate {
        name: "2: a refund that ends twice",
        rows: "SELECT 1 FROM refunds WHERE status = 'succeeded'",
        attempt: "UPDATE refunds SET status = 'failed' WHERE status = 'succeeded'",
    },
    Gate {
        name: "8: a second call with a number at a channel",
        rows: "SELECT 1 FROM channel_calls",
        attempt: "INSERT INTO channel_calls SELECT 'second', kind, channel, number, charge_number,
                    merchant_id, order_no, NULL, amount, currency, payment_method, channel_ref,
                    client_secret, owner, lease_until, attempts, last_error, created_at, settled_at
                  FROM channel_calls LIMIT 1",
    },
    Gate {
        name: "2: a second operation with a key",
        rows: "SELECT 1 FROM operations",
        attempt: "INSERT INTO operations (merchant_id, idempotency_key, operation, fingerprint,
                    outcome, response_status, response_body, created_at)
                  SELECT merchant_id, idempotency_key, 'other', 'other', outcome, 402, '{}', 0
                  FROM operations LIMIT 1",
    },
    Gate {
        name: "5: a negative balance",
        rows: "SELECT 1 FROM accounts",
        attempt: "UPDATE accounts SET balance = -1",
    },
    Gate {
        name: "6: an order that moves backwards",
        rows: "SELECT 1 FROM orders WHERE status = 'paid'",
        attempt: "UPDATE orders SET status = 'pending', version = version + 1 WHERE status = 'paid'",
    },
    Gate {
        name: "6: a version that does not grow by one",
        rows: "SELECT 1 FROM orders WHERE status = 'pending'",
        attempt: "UPDATE orders SET status = 'paid', version = version + 2 WHERE status = 'pending'",
    },
];

/// Tries the last gates.
///
/// # Errors
/// The first one that stands open.
pub fn gates(database: &Connection) -> Result<(), String> {
    let failed = |error: rusqlite::Error| error.to_string();
    for gate in GATES {
        if rows(database, gate.rows)?.is_empty() {
            continue;
        }
        database.execute_batch("SAVEPOINT gate").map_err(failed)?;
        let passed = database.execute(gate.attempt, []);
        let back = "ROLLBACK TO gate; RELEASE gate";
        database.execute_batch(back).map_err(failed)?;
        match passed {
            Ok(_) => return Err(format!("the last gate against {} is open", gate.name)),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {}
            Err(error) => return Err(format!("{}: {error}", gate.name)),
        }
    }
    Ok(())
}
