//! The auditor itself: books that were tampered with do not pass it.

use std::panic::catch_unwind;

use serde_json::json;

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
    DROP TRIGGER undelivered_events_are_kept;
    DROP INDEX payments_one_live;";

/// What somebody may do to the books of an order that was paid and refunded in part, a coupon, a profile
/// and a message.
const TAMPERING: [&str; 30] = [
    "UPDATE accounts SET balance = balance + 1",
    "UPDATE accounts SET balance = -1",
    "DELETE FROM accounts",
    "UPDATE ledger_entries SET amount = amount + 1 WHERE amount > 0",
    "DELETE FROM ledger_entries WHERE account LIKE 'wallet:%'",
    "DELETE FROM ledger_entries WHERE source_id IN (SELECT payment_id FROM payments)",
    "INSERT INTO ledger_entries SELECT 'x' || source_id, account, merchant_id, currency, amount,
       created_at FROM ledger_entries",
    "INSERT INTO payments SELECT 'x' || payment_id, merchant_id, order_no, 'x' || request_no,
       channel, amount, currency, status, failure_code, created_at, updated_at FROM payments",
    "DELETE FROM payments",
    "UPDATE payments SET amount = amount - 1",
    "UPDATE orders SET status = 'pending'",
    "UPDATE orders SET version = version + 1",
    "UPDATE orders SET refunded_amount = -1",
    "UPDATE operations SET response_status = 422 WHERE operation = 'order.pay'",
    "UPDATE orders SET refunded_amount = refunded_amount + 1",
    "UPDATE orders SET status = 'refunded'",
    "DELETE FROM refunds",
    "UPDATE refunds SET amount = amount - 1",
    "UPDATE refunds SET payment_id = 'pay_0'",
    "UPDATE ledger_entries SET amount = -amount WHERE source_id IN (SELECT refund_id FROM refunds)",
    "DELETE FROM grants",
    "UPDATE grants SET user_id = 'x'",
    "UPDATE grants SET number = number + 1",
    "UPDATE activities SET granted = granted + 1",
    "UPDATE grants SET grant_limit = 0",
    "UPDATE profiles SET fields = '{}'",
    "UPDATE profiles SET updated_at = updated_at + 1",
    "UPDATE outbox SET subject = 'x' WHERE type = 'message.queued'",
    "DELETE FROM outbox WHERE type = 'order.refunded'",
    "INSERT INTO outbox SELECT 'x' || event_id, merchant_id, type, subject, version, data,
       created_at, delivered_at FROM outbox",
];

/// An auditor that finds nothing wrong anywhere would prove nothing.
#[tokio::test]
async fn tampered_books_do_not_pass_the_audit() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(10).await;
    shop.pay(&order_no, &fresh("k"), 10).await.first(200);
    let refund = shop.refund_call(&order_no, &fresh("k"), 4);
    refund.send().await.first(201);
    let grant = shop.grant_call(&fresh("activity"), &fresh("k"), "u");
    grant.send().await.first(201);
    let patch = json!({"name": "x"});
    let profile = shop.profile_call("u", &fresh("k"), &patch);
    profile.send().await.first(200);
    let message = json!({"kind": "sms", "to": "1", "text": "x"});
    let message = shop.command("/v1/messages", &fresh("k"), &message);
    message.send().await.first(202);
    server.stop();
    audit(&site);
    let books = site.connect();
    books.execute_batch(OPEN_THE_GATES).unwrap();
    let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
    books.query_row(checkpoint, [], |_| Ok(())).unwrap();
    drop(books);
    let honest = std::fs::read(site.database()).unwrap();
    audit(&site);
    for tampering in TAMPERING {
        let other = Site::new();
        std::fs::write(other.database(), &honest).unwrap();
        let books = other.connect();
        books
            .execute_batch("PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF;")
            .unwrap();
        books.execute_batch(tampering).unwrap();
        drop(books);
        let passed = catch_unwind(|| audit(&other)).is_ok();
        assert!(!passed, "the audit does not notice: {tampering}");
    }
}
