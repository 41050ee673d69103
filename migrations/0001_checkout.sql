-- The schema of payonce: the operations journal, what it moves, and the triggers that move it.
--
-- Every statement can be repeated, and a blank line ends it: the component runs them one by one
-- (one statement a call is all that Spin's SQLite interface takes), `spin up --sqlite
-- @migrations/0001_checkout.sql` runs them all at every start. Times are milliseconds since the
-- Unix epoch, amounts are minor units of the currency.

-- A property of the file, so setting it once is enough: a commit costs one sync, readers never wait.
PRAGMA journal_mode = WAL;

CREATE TABLE IF NOT EXISTS schema_migrations (
  version    INTEGER PRIMARY KEY,
  applied_at INTEGER NOT NULL DEFAULT (unixepoch() * 1000)
) STRICT;

-- The journal. A row is an idempotency record and the operation itself: inserting it checks the
-- guards, moves the money and keeps the answer, in one statement (invariants 2 and 4).
CREATE TABLE IF NOT EXISTS operations (
  merchant_id       TEXT    NOT NULL,
  idempotency_key   TEXT    NOT NULL,
  operation         TEXT    NOT NULL,
  fingerprint       TEXT    NOT NULL,
  outcome           TEXT    NOT NULL CHECK (outcome IN ('applied', 'declined')),
  order_no          TEXT,
  user_id           TEXT,
  from_status       TEXT,
  to_status         TEXT,
  version           INTEGER,
  amount            INTEGER,
  currency          TEXT,
  balance           INTEGER,
  subject_id        TEXT,
  reference         TEXT,
  details           TEXT,
  event_id          TEXT,
  event_type        TEXT,
  response_status   INTEGER NOT NULL,
  response_location TEXT,
  response_body     TEXT    NOT NULL,
  created_at        INTEGER NOT NULL,
  PRIMARY KEY (merchant_id, idempotency_key)
) STRICT;

CREATE INDEX IF NOT EXISTS operations_by_order
  ON operations (merchant_id, order_no, version) WHERE order_no IS NOT NULL;

-- `seq` orders the list of orders by commit; it is never shown.
CREATE TABLE IF NOT EXISTS orders (
  seq             INTEGER PRIMARY KEY,
  merchant_id     TEXT    NOT NULL,
  order_no        TEXT    NOT NULL,
  user_id         TEXT    NOT NULL,
  amount          INTEGER NOT NULL CHECK (amount BETWEEN 1 AND 9007199254740991),
  currency        TEXT    NOT NULL,
  status          TEXT    NOT NULL CHECK (status IN
    ('pending', 'processing', 'paid', 'failed', 'cancelled', 'shipped', 'completed', 'refunded')),
  refunded_amount INTEGER NOT NULL DEFAULT 0 CHECK (refunded_amount BETWEEN 0 AND amount),
  version         INTEGER NOT NULL CHECK (version >= 1),
  metadata        TEXT    NOT NULL,
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  UNIQUE (merchant_id, order_no)
) STRICT;

CREATE INDEX IF NOT EXISTS orders_by_user ON orders (merchant_id, user_id);

CREATE INDEX IF NOT EXISTS orders_by_status ON orders (merchant_id, status);

CREATE TABLE IF NOT EXISTS payments (
  payment_id   TEXT    PRIMARY KEY,
  merchant_id  TEXT    NOT NULL,
  order_no     TEXT    NOT NULL,
  request_no   TEXT    NOT NULL,
  channel      TEXT    NOT NULL,
  amount       INTEGER NOT NULL CHECK (amount BETWEEN 1 AND 9007199254740991),
  currency     TEXT    NOT NULL,
  status       TEXT    NOT NULL CHECK (status IN ('processing', 'succeeded', 'failed')),
  failure_code TEXT,
  created_at   INTEGER NOT NULL,
  updated_at   INTEGER NOT NULL,
  UNIQUE (merchant_id, request_no),
  FOREIGN KEY (merchant_id, order_no) REFERENCES orders (merchant_id, order_no)
) STRICT, WITHOUT ROWID;

-- Invariant 1: the last gate. Together with the next it also finds the payments of an order.
CREATE UNIQUE INDEX IF NOT EXISTS payments_one_live
  ON payments (merchant_id, order_no) WHERE status IN ('processing', 'succeeded');

CREATE INDEX IF NOT EXISTS payments_failed
  ON payments (merchant_id, order_no) WHERE status = 'failed';

-- The wallets of customers; each balance is the sum of its ledger entries (invariant 5).
CREATE TABLE IF NOT EXISTS accounts (
  merchant_id TEXT    NOT NULL,
  user_id     TEXT    NOT NULL,
  currency    TEXT    NOT NULL,
  balance     INTEGER NOT NULL CHECK (balance BETWEEN 0 AND 9007199254740991),
  updated_at  INTEGER NOT NULL,
  PRIMARY KEY (merchant_id, user_id, currency)
) STRICT, WITHOUT ROWID;

-- Double entry: what moves money writes entries that sum to zero. Accounts are `wallet:<user_id>`,
-- `funding` (where deposits come from) and `sales` (where payments go). The primary key is the last
-- gate against booking one payment or deposit twice.
CREATE TABLE IF NOT EXISTS ledger_entries (
  source_id   TEXT    NOT NULL,
  account     TEXT    NOT NULL,
  merchant_id TEXT    NOT NULL,
  currency    TEXT    NOT NULL,
  amount      INTEGER NOT NULL CHECK (amount <> 0),
  created_at  INTEGER NOT NULL,
  PRIMARY KEY (source_id, account)
) STRICT, WITHOUT ROWID;

-- Events to deliver at least once; a consumer drops an `event_id` it has seen (invariant 12).
CREATE TABLE IF NOT EXISTS outbox (
  event_id     TEXT    PRIMARY KEY,
  merchant_id  TEXT    NOT NULL,
  type         TEXT    NOT NULL,
  subject      TEXT    NOT NULL,
  version      INTEGER,
  data         TEXT    NOT NULL,
  created_at   INTEGER NOT NULL,
  delivered_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE TRIGGER IF NOT EXISTS ledger_entries_stay BEFORE UPDATE ON ledger_entries
BEGIN
  SELECT RAISE(ABORT, 'ledger entries are never changed');
END;

CREATE TRIGGER IF NOT EXISTS ledger_entries_are_kept BEFORE DELETE ON ledger_entries
BEGIN
  SELECT RAISE(ABORT, 'ledger entries are never deleted');
END;

-- The state machine (invariant 6); `domain::order` holds the same table, and a test compares the two.
CREATE TRIGGER IF NOT EXISTS orders_state_machine BEFORE UPDATE ON orders
BEGIN
  SELECT RAISE(ABORT, 'order_state_invalid')
  WHERE new.version <> old.version + 1
    OR NOT CASE
      WHEN new.refunded_amount > old.refunded_amount THEN
        (old.status, new.status) IN (VALUES
          ('paid', 'paid'), ('shipped', 'shipped'), ('completed', 'completed'),
          ('paid', 'refunded'), ('shipped', 'refunded'), ('completed', 'refunded'))
        AND (new.status = 'refunded') = (new.refunded_amount = new.amount)
      WHEN new.refunded_amount = old.refunded_amount THEN
        (old.status, new.status) IN (VALUES
          ('pending', 'paid'), ('failed', 'paid'),
          ('pending', 'processing'), ('failed', 'processing'),
          ('processing', 'paid'), ('processing', 'failed'),
          ('pending', 'cancelled'), ('failed', 'cancelled'),
          ('paid', 'shipped'),
          ('shipped', 'completed'))
      ELSE FALSE
    END
    OR (new.merchant_id, new.order_no, new.user_id, new.amount, new.currency)
       IS NOT (old.merchant_id, old.order_no, old.user_id, old.amount, old.currency);
END;

CREATE TRIGGER IF NOT EXISTS orders_begin_pending BEFORE INSERT ON orders
BEGIN
  SELECT RAISE(ABORT, 'order_state_invalid')
  WHERE new.status <> 'pending' OR new.version <> 1 OR new.refunded_amount <> 0;
END;

CREATE TRIGGER IF NOT EXISTS orders_are_kept BEFORE DELETE ON orders
BEGIN
  SELECT RAISE(ABORT, 'orders are never deleted');
END;

-- Guards, before a row of the journal: they repeat what its decision was based on, and skip that row
-- and no other row of the statement where it no longer holds. A skipped row is decided anew.
CREATE TRIGGER IF NOT EXISTS guard_order_create BEFORE INSERT ON operations
WHEN new.operation = 'order.create'
BEGIN
  SELECT RAISE(IGNORE)
  WHERE EXISTS (SELECT 1 FROM orders
                WHERE merchant_id = new.merchant_id AND order_no = new.order_no);
END;

CREATE TRIGGER IF NOT EXISTS apply_order_create AFTER INSERT ON operations
WHEN new.operation = 'order.create' AND new.outcome = 'applied'
BEGIN
  INSERT INTO orders (merchant_id, order_no, user_id, amount, currency, status, version,
                      metadata, created_at, updated_at)
  VALUES (new.merchant_id, new.order_no, new.user_id, new.amount, new.currency, new.to_status,
          new.version, new.details ->> '$.metadata', new.created_at, new.created_at);
END;

CREATE TRIGGER IF NOT EXISTS guard_account_deposit BEFORE INSERT ON operations
WHEN new.operation = 'account.deposit'
BEGIN
  SELECT RAISE(IGNORE)
  WHERE new.balance - new.amount IS NOT coalesce(
    (SELECT balance FROM accounts
     WHERE merchant_id = new.merchant_id AND user_id = new.user_id AND currency = new.currency), 0);
END;

CREATE TRIGGER IF NOT EXISTS apply_account_deposit AFTER INSERT ON operations
WHEN new.operation = 'account.deposit' AND new.outcome = 'applied'
BEGIN
  INSERT INTO accounts (merchant_id, user_id, currency, balance, updated_at)
  SELECT new.merchant_id, new.user_id, new.currency, 0, new.created_at
  WHERE NOT EXISTS (SELECT 1 FROM accounts
    WHERE merchant_id = new.merchant_id AND user_id = new.user_id AND currency = new.currency);
  UPDATE accounts SET balance = balance + new.amount, updated_at = new.created_at
  WHERE merchant_id = new.merchant_id AND user_id = new.user_id AND currency = new.currency;
  INSERT INTO ledger_entries (source_id, account, merchant_id, currency, amount, created_at)
  VALUES (new.subject_id, 'wallet:' || new.user_id, new.merchant_id, new.currency, new.amount, new.created_at),
         (new.subject_id, 'funding', new.merchant_id, new.currency, -new.amount, new.created_at);
END;

CREATE TRIGGER IF NOT EXISTS guard_order_pay BEFORE INSERT ON operations
WHEN new.operation = 'order.pay'
BEGIN
  SELECT RAISE(IGNORE)
  WHERE NOT EXISTS (SELECT 1 FROM orders
    WHERE merchant_id = new.merchant_id AND order_no = new.order_no AND status = new.from_status
      AND version = new.version - (new.outcome = 'applied') AND user_id = new.user_id
      AND amount = new.amount AND currency = new.currency);
  SELECT RAISE(IGNORE)
  WHERE (new.outcome = 'applied') IS NOT (new.amount <= coalesce(
    (SELECT balance FROM accounts
     WHERE merchant_id = new.merchant_id AND user_id = new.user_id AND currency = new.currency), 0));
  SELECT RAISE(IGNORE)
  WHERE EXISTS (SELECT 1 FROM payments
                WHERE merchant_id = new.merchant_id AND request_no = new.reference);
END;

CREATE TRIGGER IF NOT EXISTS apply_order_pay AFTER INSERT ON operations
WHEN new.operation = 'order.pay' AND new.outcome = 'applied'
BEGIN
  UPDATE orders SET status = new.to_status, version = new.version, updated_at = new.created_at
  WHERE merchant_id = new.merchant_id AND order_no = new.order_no
    AND status = new.from_status AND version = new.version - 1;
  INSERT INTO payments (payment_id, merchant_id, order_no, request_no, channel, amount, currency,
                        status, created_at, updated_at)
  VALUES (new.subject_id, new.merchant_id, new.order_no, new.reference, new.details ->> '$.channel',
          new.amount, new.currency, 'succeeded', new.created_at, new.created_at);
  UPDATE accounts SET balance = balance - new.amount, updated_at = new.created_at
  WHERE merchant_id = new.merchant_id AND user_id = new.user_id AND currency = new.currency;
  INSERT INTO ledger_entries (source_id, account, merchant_id, currency, amount, created_at)
  VALUES (new.subject_id, 'wallet:' || new.user_id, new.merchant_id, new.currency, -new.amount, new.created_at),
         (new.subject_id, 'sales', new.merchant_id, new.currency, new.amount, new.created_at);
END;

CREATE TRIGGER IF NOT EXISTS apply_event AFTER INSERT ON operations
WHEN new.event_id IS NOT NULL
BEGIN
  INSERT INTO outbox (event_id, merchant_id, type, subject, version, data, created_at)
  VALUES (new.event_id, new.merchant_id, new.event_type, coalesce(new.order_no, new.user_id),
          new.version, new.response_body, new.created_at);
END;

INSERT INTO schema_migrations (version) VALUES (1) ON CONFLICT DO NOTHING;
