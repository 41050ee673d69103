//! An auditor of its own: reads a database file of payonce from outside and holds it against the
//! invariants. It shares nothing with the component but the names of tables and columns.

use rusqlite::types::Value;
use rusqlite::{Connection, ErrorCode};

/// One rule: rows that this query finds break it.
struct Rule {
    invariant: &'static str,
    violations: &'static str,
}

const RULES: &[Rule] = &[
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
                     WHERE operation = 'order.pay' AND outcome = 'applied'
                        OR operation = 'payment.settle' AND to_status = 'paid'
                     GROUP BY merchant_id, order_no HAVING count(*) > 1",
    },
    Rule {
        invariant: "2: every succeeded payment has its journal row, and the other way round",
        violations: "SELECT p.payment_id, j.subject_id FROM
                       (SELECT * FROM payments WHERE status = 'succeeded') p
                     FULL JOIN
                       (SELECT * FROM journal
                        WHERE operation = 'order.pay' AND outcome = 'applied'
                           OR operation = 'payment.settle' AND to_status = 'paid') j
                     ON j.subject_id = p.payment_id AND j.merchant_id = p.merchant_id
                       AND j.order_no = p.order_no
                     WHERE p.payment_id IS NULL OR j.subject_id IS NULL",
    },
    Rule {
        invariant: "2: only successes and final declines are recorded",
        violations: "SELECT merchant_id, idempotency_key, response_status FROM journal
                     WHERE operation NOT IN ('order.pay_begin', 'order.refund_begin')
                       AND (response_status NOT BETWEEN 200 AND 299 AND response_status <> 402
                         OR (outcome = 'applied') <> (response_status < 300))",
    },
    Rule {
        invariant: "2: what began through a channel is answered as it ended, and 102 until then",
        violations: "SELECT j.subject_id, j.response_status, p.status, r.status FROM journal j
                     LEFT JOIN payments p ON j.operation = 'order.pay_begin'
                       AND p.payment_id = j.subject_id
                     LEFT JOIN refunds r ON j.operation = 'order.refund_begin'
                       AND r.refund_id = j.subject_id
                     WHERE j.operation IN ('order.pay_begin', 'order.refund_begin')
                       AND j.response_status IS NOT CASE coalesce(p.status, r.status)
                         WHEN 'processing' THEN 102
                         WHEN 'failed' THEN 402
                         WHEN 'succeeded' THEN iif(p.payment_id IS NULL, 201, 200) END",
    },
    Rule {
        invariant: "2: every payment through a channel begins once, and ends once if it has ended",
        violations: "SELECT payment_id, status FROM payments p WHERE channel <> 'wallet' AND (
                       (SELECT count(*) FROM journal WHERE operation = 'order.pay_begin'
                          AND subject_id = p.payment_id AND reference = p.request_no) <> 1
                       OR (SELECT group_concat(to_status) FROM journal
                           WHERE operation = 'payment.settle' AND subject_id = p.payment_id)
                         IS NOT CASE status WHEN 'succeeded' THEN 'paid' WHEN 'failed' THEN 'failed' END)",
    },
    Rule {
        invariant: "9: whatever is processing has an open call of its channel, and nothing else has",
        violations: "SELECT s.id, c.subject_id FROM (
                       SELECT payment_id AS id, 'charge' AS kind, amount FROM payments
                       WHERE status = 'processing'
                       UNION ALL SELECT refund_id, 'refund', amount FROM refunds
                       WHERE status = 'processing') s
                     FULL JOIN (SELECT * FROM channel_calls WHERE settled_at IS NULL) c
                       ON c.subject_id = s.id AND c.kind = s.kind AND c.amount = s.amount
                     WHERE s.id IS NULL OR c.subject_id IS NULL",
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
                         'refund.settle', 'payment.late') AND outcome = 'applied'
                         OR operation = 'payment.settle' AND to_status = 'paid')
                       AND (SELECT sum(amount) FROM ledger_entries l
                            WHERE l.source_id = j.subject_id AND l.amount > 0) IS NOT j.amount",
    },
    Rule {
        invariant: "5: a payment goes from the customer's wallet to sales, a refund back",
        violations: "WITH moved (source_id, merchant_id, order_no, amount) AS (
                       SELECT payment_id, merchant_id, order_no, -amount FROM payments
                       WHERE status = 'succeeded' AND channel = 'wallet'
                       UNION ALL SELECT r.refund_id, r.merchant_id, r.order_no, r.amount
                       FROM refunds r JOIN payments p ON p.payment_id = r.payment_id
                       WHERE p.channel = 'wallet')
                     SELECT source_id, amount FROM moved m
                     WHERE (SELECT l.amount FROM ledger_entries l JOIN orders o
                              ON o.merchant_id = m.merchant_id AND o.order_no = m.order_no
                            WHERE l.source_id = m.source_id AND l.currency = o.currency
                              AND l.account = 'wallet:' || o.user_id) IS NOT m.amount
                        OR (SELECT l.amount FROM ledger_entries l
                            WHERE l.source_id = m.source_id AND l.account = 'sales')
                           IS NOT -m.amount",
    },
    Rule {
        invariant: "5: through a channel money goes to sales and back, and what came late is unclaimed",
        violations: "WITH moved (source_id, account, amount) AS (
                       SELECT payment_id, 'sales', amount FROM payments
                       WHERE status = 'succeeded' AND channel <> 'wallet'
                       UNION ALL SELECT subject_id, 'unclaimed', amount FROM journal
                       WHERE operation = 'payment.late'
                       UNION ALL SELECT r.refund_id, iif(p.status = 'failed', 'unclaimed', 'sales'),
                         -r.amount
                       FROM refunds r JOIN payments p ON p.payment_id = r.payment_id
                       WHERE p.channel <> 'wallet' AND r.status = 'succeeded'),
                     sides AS (
                       SELECT source_id, account, amount FROM moved
                       UNION ALL SELECT source_id, 'channel', -amount FROM moved)
                     SELECT s.source_id, s.account, s.amount, l.source_id, l.account, l.amount
                     FROM sides s FULL JOIN (
                       SELECT * FROM ledger_entries WHERE source_id IN (
                         SELECT source_id FROM ledger_entries
                         WHERE account IN ('channel', 'unclaimed'))) l
                     ON l.source_id = s.source_id AND l.account = s.account
                     WHERE s.amount IS NOT l.amount",
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
                       FROM journal WHERE outcome = 'applied' AND order_no IS NOT NULL
                         AND to_status IS NOT NULL
                       WINDOW moves AS (PARTITION BY merchant_id, order_no ORDER BY version))
                     WHERE version <> number OR from_status IS NOT before",
    },
    Rule {
        invariant: "6: an order is where its last move left it",
        violations: "SELECT o.merchant_id, o.order_no, o.status, o.version FROM orders o
                     WHERE (o.version, o.status) IS NOT (
                       SELECT version, to_status FROM journal j
                       WHERE j.merchant_id = o.merchant_id AND j.order_no = o.order_no
                         AND j.outcome = 'applied' AND j.to_status IS NOT NULL
                       ORDER BY version DESC LIMIT 1)",
    },
    Rule {
        invariant: "7: 0 <= refunded_amount <= amount",
        violations: "SELECT merchant_id, order_no, refunded_amount FROM orders
                     WHERE refunded_amount NOT BETWEEN 0 AND amount",
    },
    Rule {
        invariant: "7: what was refunded of an order is the sum of its refunds",
        violations: "SELECT merchant_id, order_no, refunded_amount FROM orders o
                     WHERE refunded_amount <> (SELECT coalesce(sum(r.amount), 0) FROM refunds r
                       JOIN payments p ON p.payment_id = r.payment_id
                       WHERE r.merchant_id = o.merchant_id AND r.order_no = o.order_no
                         AND r.status = 'succeeded' AND p.status = 'succeeded')",
    },
    Rule {
        invariant: "7: what is refunded and being refunded of a payment is at most all of it",
        violations: "SELECT payment_id, amount FROM payments p
                     WHERE amount < (SELECT sum(amount) FROM refunds r
                       WHERE r.payment_id = p.payment_id AND r.status <> 'failed')",
    },
    Rule {
        invariant: "7: an order is refunded if and only if all of it was",
        violations: "SELECT merchant_id, order_no, status, refunded_amount FROM orders
                     WHERE (status = 'refunded') <> (refunded_amount = amount)",
    },
    Rule {
        invariant: "7: only payments of the same order are refunded that succeeded, or whose money came late",
        violations: "SELECT refund_id FROM refunds r WHERE NOT EXISTS (
                       SELECT 1 FROM payments p WHERE p.payment_id = r.payment_id
                         AND p.merchant_id = r.merchant_id AND p.order_no = r.order_no
                         AND p.currency = r.currency AND (p.status = 'succeeded' OR EXISTS (
                           SELECT 1 FROM journal j WHERE j.operation = 'payment.late'
                             AND j.subject_id = p.payment_id AND j.reference = r.refund_no)))",
    },
    Rule {
        invariant: "2: every refund has its journal row, and the other way round",
        violations: "SELECT r.refund_id, j.subject_id FROM refunds r
                     FULL JOIN
                       (SELECT * FROM journal WHERE outcome = 'applied' AND operation IN
                          ('order.refund', 'order.refund_begin', 'payment.late')) j
                     ON j.subject_id = iif(j.operation = 'payment.late', r.payment_id, r.refund_id)
                       AND j.merchant_id = r.merchant_id AND j.order_no = r.order_no
                       AND j.reference = r.refund_no AND j.amount = r.amount
                     WHERE r.refund_id IS NULL OR j.subject_id IS NULL",
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

const GATES: [Gate; 6] = [
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
