-- Payments and refunds through an outside channel: two rows of the journal around one call.
--
-- As before: every statement can be repeated, and a blank line ends it.
--
-- The first row (`order.pay_begin`, `order.refund_begin`) answers 102, which is no final answer: its key is
-- taken and its work is under way. The second (`payment.settle`, `refund.settle`) has the key `settle <id>`,
-- which no client can send, so a payment is settled once, whoever hears of it first. It moves the order and
-- the money, and gives the first row its final answer, in one statement. A row that does not move its order
-- has no `to_status`.

-- What a channel is asked to do. `number` is what the channel knows it by, and never changes: `request_no`
-- behind the merchant and `~`, or `refund_no` behind the merchant and `~refund~`. Neither has a `~` itself.
-- Until `lease_until` its `owner` is at work.
CREATE TABLE IF NOT EXISTS channel_calls (
  subject_id      TEXT    PRIMARY KEY,
  kind            TEXT    NOT NULL CHECK (kind IN ('charge', 'refund')),
  channel         TEXT    NOT NULL,
  number          TEXT    NOT NULL,
  charge_number   TEXT    NOT NULL,
  merchant_id     TEXT    NOT NULL,
  order_no        TEXT    NOT NULL,
  idempotency_key TEXT,
  amount          INTEGER NOT NULL CHECK (amount BETWEEN 1 AND 9007199254740991),
  currency        TEXT    NOT NULL,
  payment_method  TEXT,
  channel_ref     TEXT,
  client_secret   TEXT,
  owner           TEXT,
  lease_until     INTEGER NOT NULL,
  attempts        INTEGER NOT NULL CHECK (attempts >= 0),
  last_error      TEXT,
  created_at      INTEGER NOT NULL,
  settled_at      INTEGER,
  UNIQUE (channel, kind, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS channel_calls_open
  ON channel_calls (lease_until, attempts) WHERE settled_at IS NULL;

CREATE UNIQUE INDEX IF NOT EXISTS channel_calls_of_key
  ON channel_calls (merchant_id, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- The amounts that refunds under way have reserved.
CREATE INDEX IF NOT EXISTS refunds_processing
  ON refunds (payment_id) WHERE status = 'processing';

-- Events of channels that were dealt with.
CREATE TABLE IF NOT EXISTS channel_events (
  channel     TEXT    NOT NULL,
  event_id    TEXT    NOT NULL,
  received_at INTEGER NOT NULL,
  PRIMARY KEY (channel, event_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS channel_events_by_time ON channel_events (received_at);

CREATE TRIGGER IF NOT EXISTS guard_order_pay_begin BEFORE INSERT ON operations
WHEN new.operation = 'order.pay_begin'
BEGIN
  SELECT RAISE(IGNORE)
  WHERE NOT EXISTS (SELECT 1 FROM orders
    WHERE merchant_id = new.merchant_id AND order_no = new.order_no AND status = new.from_status
      AND version = new.version - 1 AND user_id = new.user_id
      AND amount = new.amount AND currency = new.currency);
  SELECT RAISE(IGNORE)
  WHERE EXISTS (SELECT 1 FROM payments
                WHERE merchant_id = new.merchant_id AND request_no = new.reference);
END;

CREATE TRIGGER IF NOT EXISTS apply_order_pay_begin AFTER INSERT ON operations
WHEN new.operation = 'order.pay_begin'
BEGIN
  UPDATE orders SET status = new.to_status, version = new.version, updated_at = new.created_at
  WHERE merchant_id = new.merchant_id AND order_no = new.order_no
    AND status = new.from_status AND version = new.version - 1;
  INSERT INTO payments (payment_id, merchant_id, order_no, request_no, channel, amount, currency,
                        status, created_at, updated_at)
  VALUES (new.subject_id, new.merchant_id, new.order_no, new.reference, new.details ->> '$.channel',
          new.amount, new.currency, 'processing', new.created_at, new.created_at);
  INSERT INTO channel_calls (subject_id, kind, channel, number, charge_number, merchant_id, order_no,
                             idempotency_key, amount, currency, payment_method, owner, lease_until,
                             attempts, created_at)
  VALUES (new.subject_id, 'charge', new.details ->> '$.channel',
          new.merchant_id || '~' || new.reference, new.merchant_id || '~' || new.reference,
          new.merchant_id, new.order_no, new.idempotency_key, new.amount, new.currency,
          new.details ->> '$.payment_method', new.subject_id, new.details ->> '$.lease_until',
          1, new.created_at);
END;

CREATE TRIGGER IF NOT EXISTS guard_payment_settle BEFORE INSERT ON operations
WHEN new.operation = 'payment.settle'
BEGIN
  SELECT RAISE(IGNORE)
  WHERE NOT EXISTS (SELECT 1 FROM payments
    WHERE payment_id = new.subject_id AND merchant_id = new.merchant_id AND order_no = new.order_no
      AND status = 'processing' AND amount = new.amount AND currency = new.currency);
  SELECT RAISE(IGNORE)
  WHERE NOT EXISTS (SELECT 1 FROM orders
    WHERE merchant_id = new.merchant_id AND order_no = new.order_no AND status = new.from_status
      AND version = new.version - 1);
END;

CREATE TRIGGER IF NOT EXISTS apply_payment_settle AFTER INSERT ON operations
WHEN new.operation = 'payment.settle'
BEGIN
  UPDATE payments SET status = new.details ->> '$.status',
    failure_code = new.details ->> '$.failure_code', updated_at = new.created_at
  WHERE payment_id = new.subject_id AND status = 'processing';
  UPDATE orders SET status = new.to_status, version = new.version, updated_at = new.created_at
  WHERE merchant_id = new.merchant_id AND order_no = new.order_no
    AND status = new.from_status AND version = new.version - 1;
  INSERT INTO ledger_entries (source_id, account, merchant_id, currency, amount, created_at)
  SELECT new.subject_id, side.value ->> '$[0]', new.merchant_id, new.currency,
         new.amount * (side.value ->> '$[1]'), new.created_at
  FROM json_each('[["channel", -1], ["sales", 1]]') AS side
  WHERE new.details ->> '$.status' = 'succeeded';
END;

-- A refund reserves its amount and moves nothing until the channel has made it.
CREATE TRIGGER IF NOT EXISTS guard_order_refund_begin BEFORE INSERT ON operations
WHEN new.operation = 'order.refund_begin'
BEGIN
  SELECT RAISE(IGNORE)
  WHERE NOT EXISTS (SELECT 1 FROM orders
    WHERE merchant_id = new.merchant_id AND order_no = new.order_no AND version = new.version
      AND status IN ('paid', 'shipped', 'completed') AND currency = new.currency
      AND new.amount <= amount - refunded_amount - coalesce(
        (SELECT sum(amount) FROM refunds
         WHERE payment_id = new.details ->> '$.payment_id' AND status = 'processing'), 0));
  SELECT RAISE(IGNORE)
  WHERE NOT EXISTS (SELECT 1 FROM payments AS p
    JOIN channel_calls AS c ON c.subject_id = p.payment_id
    WHERE p.payment_id = new.details ->> '$.payment_id' AND p.merchant_id = new.merchant_id
      AND p.order_no = new.order_no AND p.status = 'succeeded');
  SELECT RAISE(IGNORE)
  WHERE EXISTS (SELECT 1 FROM refunds
                WHERE merchant_id = new.merchant_id AND refund_no = new.reference);
END;

CREATE TRIGGER IF NOT EXISTS apply_order_refund_begin AFTER INSERT ON operations
WHEN new.operation = 'order.refund_begin'
BEGIN
  INSERT INTO refunds (refund_id, merchant_id, order_no, payment_id, refund_no, amount, currency,
                       status, reason, created_at)
  VALUES (new.subject_id, new.merchant_id, new.order_no, new.details ->> '$.payment_id',
          new.reference, new.amount, new.currency, 'processing', new.details ->> '$.reason',
          new.created_at);
  INSERT INTO channel_calls (subject_id, kind, channel, number, charge_number, merchant_id, order_no,
                             idempotency_key, amount, currency, channel_ref, owner, lease_until,
                             attempts, created_at)
  SELECT new.subject_id, 'refund', channel, new.merchant_id || '~refund~' || new.reference, number,
         new.merchant_id, new.order_no, new.idempotency_key, new.amount, new.currency, channel_ref,
         new.subject_id, new.details ->> '$.lease_until', 1, new.created_at
  FROM channel_calls WHERE subject_id = new.details ->> '$.payment_id';
END;

-- The refund of money that came too late moves no order.
CREATE TRIGGER IF NOT EXISTS guard_refund_settle BEFORE INSERT ON operations
WHEN new.operation = 'refund.settle'
BEGIN
  SELECT RAISE(IGNORE)
  WHERE NOT EXISTS (SELECT 1 FROM refunds AS r JOIN payments AS p ON p.payment_id = r.payment_id
    WHERE r.refund_id = new.subject_id AND r.merchant_id = new.merchant_id
      AND r.order_no = new.order_no AND r.status = 'processing' AND r.amount = new.amount
      AND (new.outcome = 'declined'
        OR p.status = iif(new.to_status IS NULL, 'failed', 'succeeded')));
  SELECT RAISE(IGNORE)
  WHERE new.to_status IS NOT NULL AND NOT EXISTS (SELECT 1 FROM orders
    WHERE merchant_id = new.merchant_id AND order_no = new.order_no AND status = new.from_status
      AND version = new.version - 1 AND new.amount <= amount - refunded_amount);
END;

CREATE TRIGGER IF NOT EXISTS apply_refund_settle AFTER INSERT ON operations
WHEN new.operation = 'refund.settle'
BEGIN
  UPDATE refunds SET status = iif(new.outcome = 'applied', 'succeeded', 'failed')
  WHERE refund_id = new.subject_id AND status = 'processing';
  UPDATE orders SET status = new.to_status, version = new.version, updated_at = new.created_at,
    refunded_amount = refunded_amount + new.amount
  WHERE merchant_id = new.merchant_id AND order_no = new.order_no
    AND status = new.from_status AND version = new.version - 1;
  INSERT INTO ledger_entries (source_id, account, merchant_id, currency, amount, created_at)
  SELECT new.subject_id, coalesce(side.value ->> '$[0]', iif(new.to_status IS NULL, 'unclaimed', 'sales')),
         new.merchant_id, new.currency, new.amount * (side.value ->> '$[1]'), new.created_at
  FROM json_each('[["channel", 1], [null, -1]]') AS side
  WHERE new.outcome = 'applied';
END;

-- What was asked is answered, and so is the client.
CREATE TRIGGER IF NOT EXISTS complete_channel_call AFTER INSERT ON operations
WHEN new.operation IN ('payment.settle', 'refund.settle')
BEGIN
  UPDATE channel_calls SET settled_at = new.created_at, owner = NULL,
    channel_ref = coalesce(new.details ->> '$.channel_ref', channel_ref)
  WHERE subject_id = new.subject_id;
  UPDATE operations SET response_status = new.details ->> '$.answer.status',
    response_body = new.details ->> '$.answer.body'
  WHERE merchant_id = new.merchant_id AND response_status = 102
    AND idempotency_key = (SELECT idempotency_key FROM channel_calls WHERE subject_id = new.subject_id);
END;

-- Money for a payment that has failed already: it is booked, and queued to go back.
CREATE TRIGGER IF NOT EXISTS guard_payment_late BEFORE INSERT ON operations
WHEN new.operation = 'payment.late'
BEGIN
  SELECT RAISE(IGNORE)
  WHERE NOT EXISTS (SELECT 1 FROM payments AS p JOIN channel_calls AS c ON c.subject_id = p.payment_id
    WHERE p.payment_id = new.subject_id AND p.merchant_id = new.merchant_id
      AND p.order_no = new.order_no AND p.status = 'failed' AND p.amount = new.amount);
  SELECT RAISE(IGNORE)
  WHERE EXISTS (SELECT 1 FROM refunds
                WHERE merchant_id = new.merchant_id AND refund_no = new.reference);
END;

CREATE TRIGGER IF NOT EXISTS apply_payment_late AFTER INSERT ON operations
WHEN new.operation = 'payment.late'
BEGIN
  INSERT INTO ledger_entries (source_id, account, merchant_id, currency, amount, created_at)
  VALUES (new.subject_id, 'channel', new.merchant_id, new.currency, -new.amount, new.created_at),
         (new.subject_id, 'unclaimed', new.merchant_id, new.currency, new.amount, new.created_at);
  UPDATE channel_calls SET channel_ref = coalesce(new.details ->> '$.channel_ref', channel_ref)
  WHERE subject_id = new.subject_id;
  INSERT INTO refunds (refund_id, merchant_id, order_no, payment_id, refund_no, amount, currency,
                       status, reason, created_at)
  VALUES (new.details ->> '$.refund_id', new.merchant_id, new.order_no, new.subject_id,
          new.reference, new.amount, new.currency, 'processing', new.details ->> '$.reason',
          new.created_at);
  INSERT INTO channel_calls (subject_id, kind, channel, number, charge_number, merchant_id, order_no,
                             amount, currency, channel_ref, lease_until, attempts, created_at)
  SELECT new.details ->> '$.refund_id', 'refund', channel, new.merchant_id || '~refund~' || new.reference,
         number, new.merchant_id, new.order_no, new.amount, new.currency, channel_ref,
         new.created_at, 0, new.created_at
  FROM channel_calls WHERE subject_id = new.subject_id;
END;

-- The last gates: what is over stays as it ended.
CREATE TRIGGER IF NOT EXISTS payments_end_once BEFORE UPDATE ON payments
WHEN old.status <> 'processing' AND new.status <> old.status
BEGIN
  SELECT RAISE(ABORT, 'a payment ends once');
END;

CREATE TRIGGER IF NOT EXISTS refunds_end_once BEFORE UPDATE ON refunds
WHEN old.status <> 'processing' AND new.status <> old.status
BEGIN
  SELECT RAISE(ABORT, 'a refund ends once');
END;

CREATE TRIGGER IF NOT EXISTS channel_calls_end_once BEFORE UPDATE OF settled_at ON channel_calls
WHEN old.settled_at IS NOT NULL
BEGIN
  SELECT RAISE(ABORT, 'a call of a channel ends once');
END;

-- Invariant 9: what has no final answer is not retired.
CREATE TRIGGER IF NOT EXISTS unfinished_operations_are_kept BEFORE DELETE ON operations
WHEN old.response_status = 102
BEGIN
  SELECT RAISE(IGNORE);
END;

INSERT INTO schema_migrations (version) VALUES (4) ON CONFLICT DO NOTHING;
