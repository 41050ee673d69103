//! The auditor's rules for channels: books that were tampered with do not pass them.

use std::panic::catch_unwind;

use payonce_channel::{Call, Fault, Outcome, Surface};
use serde_json::json;

use super::till::Till;
use crate::support::names::fresh;
use crate::support::oracle::audit;
use crate::support::site::Site;

/// Takes the database's own gates away, so that wrong books can be written.
const OPEN_THE_GATES: &str = "
    PRAGMA ignore_check_constraints = ON;
    PRAGMA foreign_keys = OFF;
    DROP TRIGGER orders_state_machine;
    DROP TRIGGER ledger_entries_stay;
    DROP TRIGGER ledger_entries_are_kept;
    DROP TRIGGER payments_end_once;
    DROP TRIGGER refunds_end_once;
    DROP TRIGGER channel_calls_end_once;
    DROP INDEX payments_one_live;";

/// What somebody may do to the books of payments and refunds that succeeded, failed, are under way, and came
/// too late.
const TAMPERING: [&str; 20] = [
    "UPDATE payments SET status = 'failed' WHERE status = 'succeeded'",
    "UPDATE payments SET status = 'failed' WHERE status = 'processing'",
    "UPDATE payments SET status = 'succeeded' WHERE status = 'processing'",
    "UPDATE payments SET channel = 'wallet'",
    "UPDATE orders SET status = 'paid' WHERE status = 'processing'",
    "UPDATE orders SET status = 'processing' WHERE status = 'failed'",
    "UPDATE refunds SET status = 'failed' WHERE status = 'succeeded'",
    "UPDATE refunds SET status = 'succeeded' WHERE status = 'processing'",
    "UPDATE refunds SET status = 'succeeded' WHERE status = 'failed'",
    "UPDATE refunds SET amount = 100 WHERE status = 'processing'",
    "UPDATE ledger_entries SET account = 'sales' WHERE account = 'unclaimed'",
    "UPDATE ledger_entries SET account = 'wallet:x' WHERE account = 'channel'",
    "UPDATE ledger_entries SET amount = -amount WHERE account IN ('channel', 'unclaimed')",
    "DELETE FROM ledger_entries WHERE source_id IN (
       SELECT source_id FROM ledger_entries WHERE account = 'unclaimed')",
    "DELETE FROM refunds WHERE payment_id IN (SELECT payment_id FROM payments WHERE status = 'failed')",
    "DELETE FROM channel_calls WHERE settled_at IS NULL",
    "UPDATE channel_calls SET settled_at = 1 WHERE settled_at IS NULL",
    "UPDATE channel_calls SET settled_at = NULL WHERE settled_at IS NOT NULL",
    "UPDATE operations SET response_status = 102 WHERE operation = 'order.pay_begin'",
    "UPDATE operations SET response_status = 503 WHERE operation = 'order.refund_begin'",
];

#[tokio::test]
async fn tampered_books_of_a_channel_do_not_pass_the_audit() {
    let mut till = Till::open(Surface::Http);
    let order_no = till.paid(100).await;
    let refunds = [
        Outcome::Succeeded,
        Outcome::Declined("closed".into()),
        Outcome::Processing,
    ];
    for outcome in refunds {
        till.channel.script(Call::Refund, [outcome]);
        let refund = till.shop().refund_call(&order_no, &fresh("k"), 10);
        refund.send().await;
    }
    let open = till.order(100).await;
    till.channel.script(Call::Charge, [Fault::Refuse]);
    till.pay_call(&open, 100).send().await.ok(202);
    for kept in [false, true] {
        let late = till.declined(100).await;
        let charge_id = till
            .channel
            .book()
            .charges_of(&late)
            .next()
            .unwrap()
            .charge_id
            .clone();
        till.channel.settle_charge(&charge_id, Outcome::Succeeded);
        till.deliver(&till.channel.events_of(&late)[1..]).await;
        if !kept {
            till.channel.script(Call::Charge, [Fault::Refuse]);
            till.reconcile(json!({})).await;
        }
    }
    till.stop();
    audit(&till.site);
    let books = till.site.connect();
    books.execute_batch(OPEN_THE_GATES).unwrap();
    let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
    books.query_row(checkpoint, [], |_| Ok(())).unwrap();
    drop(books);
    let honest = std::fs::read(till.site.database()).unwrap();
    for tampering in TAMPERING {
        let other = Site::new();
        std::fs::write(other.database(), &honest).unwrap();
        let books = other.connect();
        let unchecked = "PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF;";
        books.execute_batch(unchecked).unwrap();
        books.execute_batch(tampering).unwrap();
        assert!(books.changes() > 0, "nothing to tamper with: {tampering}");
        drop(books);
        let passed = catch_unwind(|| audit(&other)).is_ok();
        assert!(!passed, "the audit does not notice: {tampering}");
    }
}
