-- Delivering events, and forgetting what is past its retention.
--
-- As before: every statement can be repeated, and a blank line ends it.

-- How far an event has come. `due_at` is when it may be tried next: after a failure the end of the pause,
-- while a dispatcher holds it the end of its lease. `settled_at` is when it was sent or given up.
CREATE TABLE IF NOT EXISTS deliveries (
  event_id    TEXT    PRIMARY KEY,
  destination TEXT    NOT NULL CHECK (destination IN ('notify', 'sms')),
  state       TEXT    NOT NULL CHECK (state IN ('pending', 'sent', 'dead')),
  attempts    INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  due_at      INTEGER NOT NULL,
  owner       TEXT,
  last_error  TEXT,
  settled_at  INTEGER,
  CHECK ((state = 'pending') = (settled_at IS NULL)),
  CHECK (state = 'pending' OR owner IS NULL)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS deliveries_due
  ON deliveries (destination, due_at) WHERE state = 'pending';

CREATE INDEX IF NOT EXISTS deliveries_settled
  ON deliveries (state, settled_at) WHERE state <> 'pending';

CREATE TRIGGER IF NOT EXISTS queue_event AFTER INSERT ON outbox
BEGIN
  INSERT INTO deliveries (event_id, destination, state, due_at)
  VALUES (new.event_id, iif(new.type = 'message.queued', 'sms', 'notify'), 'pending', new.created_at);
END;

-- Events from before this migration.
INSERT INTO deliveries (event_id, destination, state, due_at)
SELECT event_id, iif(type = 'message.queued', 'sms', 'notify'), 'pending', created_at
FROM outbox WHERE event_id NOT IN (SELECT event_id FROM deliveries)
ON CONFLICT DO NOTHING;

CREATE TRIGGER IF NOT EXISTS event_sent AFTER UPDATE OF state ON deliveries
WHEN new.state = 'sent'
BEGIN
  UPDATE outbox SET delivered_at = new.settled_at WHERE event_id = new.event_id;
END;

-- The last gate against a dispatcher that comes late with an old result.
CREATE TRIGGER IF NOT EXISTS sent_is_final BEFORE UPDATE ON deliveries
WHEN old.state = 'sent' AND new.state <> 'sent'
BEGIN
  SELECT RAISE(ABORT, 'a sent event stays sent');
END;

-- Invariant 12: an event is delivered at least once before it may go.
CREATE TRIGGER IF NOT EXISTS undelivered_events_are_kept BEFORE DELETE ON outbox
WHEN old.delivered_at IS NULL
BEGIN
  SELECT RAISE(ABORT, 'an undelivered event is never deleted');
END;

CREATE TRIGGER IF NOT EXISTS forget_event AFTER DELETE ON outbox
BEGIN
  DELETE FROM deliveries WHERE event_id = old.event_id;
END;

-- What stays of a journal row after its retention: the key, so that it never takes effect a second time
-- (invariant 2), and the audit trail. The answer and its fingerprint go.
CREATE TABLE IF NOT EXISTS retired_operations (
  merchant_id     TEXT    NOT NULL,
  idempotency_key TEXT    NOT NULL,
  operation       TEXT    NOT NULL,
  outcome         TEXT    NOT NULL,
  order_no        TEXT,
  user_id         TEXT,
  from_status     TEXT,
  to_status       TEXT,
  version         INTEGER,
  amount          INTEGER,
  currency        TEXT,
  subject_id      TEXT,
  reference       TEXT,
  response_status INTEGER NOT NULL,
  created_at      INTEGER NOT NULL,
  PRIMARY KEY (merchant_id, idempotency_key)
) STRICT;

CREATE INDEX IF NOT EXISTS retired_operations_by_order
  ON retired_operations (merchant_id, order_no, version) WHERE order_no IS NOT NULL;

-- Deleting a row of the journal retires it, in the same statement.
CREATE TRIGGER IF NOT EXISTS retire_operation AFTER DELETE ON operations
BEGIN
  INSERT INTO retired_operations (merchant_id, idempotency_key, operation, outcome, order_no, user_id,
                                  from_status, to_status, version, amount, currency, subject_id,
                                  reference, response_status, created_at)
  VALUES (old.merchant_id, old.idempotency_key, old.operation, old.outcome, old.order_no, old.user_id,
          old.from_status, old.to_status, old.version, old.amount, old.currency, old.subject_id,
          old.reference, old.response_status, old.created_at);
END;

-- Invariant 2, for ever: a retired key takes no further effect.
CREATE TRIGGER IF NOT EXISTS guard_retired_key BEFORE INSERT ON operations
WHEN EXISTS (SELECT 1 FROM retired_operations
             WHERE merchant_id = new.merchant_id AND idempotency_key = new.idempotency_key)
BEGIN
  SELECT RAISE(IGNORE);
END;

CREATE TRIGGER IF NOT EXISTS retired_operations_stay BEFORE UPDATE ON retired_operations
BEGIN
  SELECT RAISE(ABORT, 'retired operations are never changed');
END;

CREATE TRIGGER IF NOT EXISTS retired_operations_are_kept BEFORE DELETE ON retired_operations
BEGIN
  SELECT RAISE(ABORT, 'retired operations are never deleted');
END;

-- The whole audit trail, of whatever age.
CREATE VIEW IF NOT EXISTS journal AS
SELECT merchant_id, idempotency_key, operation, outcome, order_no, user_id, from_status, to_status,
       version, amount, currency, subject_id, reference, response_status, created_at FROM operations
UNION ALL
SELECT merchant_id, idempotency_key, operation, outcome, order_no, user_id, from_status, to_status,
       version, amount, currency, subject_id, reference, response_status, created_at
FROM retired_operations;

-- For finding payments that wait for their channel.
CREATE INDEX IF NOT EXISTS payments_processing
  ON payments (updated_at) WHERE status = 'processing';

-- How far sweeps have come: in `key_value` the name up to which entries were looked at, in `database` the
-- time before which rows of the journal and delivered events may be gone.
CREATE TABLE IF NOT EXISTS sweep_positions (
  store    TEXT PRIMARY KEY,
  position ANY NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO schema_migrations (version) VALUES (3) ON CONFLICT DO NOTHING;
