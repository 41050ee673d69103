-- Every operation beside the checkout: what becomes of a paid order, refunds, coupons, profiles, messages.
--
-- The rules for this file are those at the top of 0001_checkout.sql. An operation has two triggers: its
-- guard repeats what the decision was based on, its effect applies it.

CREATE TABLE IF NOT EXISTS refunds (
  refund_id   TEXT    PRIMARY KEY,
  merchant_id TEXT    NOT NULL,
  order_no    TEXT    NOT NULL,
  payment_id  TEXT    NOT NULL REFERENCES payments (payment_id),
  refund_no   TEXT    NOT NULL,
  amount      INTEGER NOT NULL CHECK (amount BETWEEN 1 AND 9007199254740991),
  currency    TEXT    NOT NULL,
  status      TEXT    NOT NULL CHECK (status IN ('processing', 'succeeded', 'failed')),
  reason      TEXT,
  created_at  INTEGER NOT NULL,
  UNIQUE (merchant_id, refund_no)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS refunds_by_order ON refunds (merchant_id, order_no);

-- Activities that hand out coupons. Without a limit everybody gets one.
CREATE TABLE IF NOT EXISTS activities (
  merchant_id TEXT    NOT NULL,
  activity_id TEXT    NOT NULL,
  grant_limit INTEGER CHECK (grant_limit >= 0),
  granted     INTEGER NOT NULL CHECK (granted >= 0),
  updated_at  INTEGER NOT NULL,
  PRIMARY KEY (merchant_id, activity_id)
) STRICT, WITHOUT ROWID;

-- One grant for a user in an activity, numbered from 1. The limit is that of the moment: lowered later,
-- it ends an activity and takes no grant back. Both are last gates.
CREATE TABLE IF NOT EXISTS grants (
  grant_id    TEXT    PRIMARY KEY,
  merchant_id TEXT    NOT NULL,
  activity_id TEXT    NOT NULL,
  user_id     TEXT    NOT NULL,
  number      INTEGER NOT NULL CHECK (number >= 1),
  grant_limit INTEGER CHECK (number <= grant_limit),
  created_at  INTEGER NOT NULL,
  UNIQUE (merchant_id, activity_id, user_id),
  UNIQUE (merchant_id, activity_id, number),
  FOREIGN KEY (merchant_id, activity_id) REFERENCES activities (merchant_id, activity_id)
) STRICT, WITHOUT ROWID;

-- What a merchant keeps about a customer: a flat JSON object of texts.
CREATE TABLE IF NOT EXISTS profiles (
  merchant_id TEXT    NOT NULL,
  user_id     TEXT    NOT NULL,
  fields      TEXT    NOT NULL,
  version     INTEGER NOT NULL CHECK (version >= 1),
  updated_at  INTEGER NOT NULL,
  PRIMARY KEY (merchant_id, user_id)
) STRICT, WITHOUT ROWID;

-- Operations that change nothing of an order but its status.
CREATE TRIGGER IF NOT EXISTS guard_order_move BEFORE INSERT ON operations
WHEN new.operation IN ('order.ship', 'order.complete', 'order.cancel')
BEGIN
  SELECT RAISE(IGNORE)
  WHERE NOT EXISTS (SELECT 1 FROM orders
    WHERE merchant_id = new.merchant_id AND order_no = new.order_no
      AND status = new.from_status AND version = new.version - 1);
END;

CREATE TRIGGER IF NOT EXISTS apply_order_move AFTER INSERT ON operations
WHEN new.operation IN ('order.ship', 'order.complete', 'order.cancel') AND new.outcome = 'applied'
BEGIN
  UPDATE orders SET status = new.to_status, version = new.version, updated_at = new.created_at
  WHERE merchant_id = new.merchant_id AND order_no = new.order_no
    AND status = new.from_status AND version = new.version - 1;
END;

-- A refund goes to the wallet of the customer, which has to have room for it (invariants 5 and 7).
CREATE TRIGGER IF NOT EXISTS guard_order_refund BEFORE INSERT ON operations
WHEN new.operation = 'order.refund'
BEGIN
  SELECT RAISE(IGNORE)
  WHERE NOT EXISTS (SELECT 1 FROM orders
    WHERE merchant_id = new.merchant_id AND order_no = new.order_no AND status = new.from_status
      AND version = new.version - 1 AND user_id = new.user_id AND currency = new.currency
      AND new.amount <= amount - refunded_amount);
  SELECT RAISE(IGNORE)
  WHERE NOT EXISTS (SELECT 1 FROM payments
    WHERE payment_id = new.details ->> '$.payment_id' AND merchant_id = new.merchant_id
      AND order_no = new.order_no AND status = 'succeeded');
  SELECT RAISE(IGNORE)
  WHERE NOT EXISTS (SELECT 1 FROM accounts
    WHERE merchant_id = new.merchant_id AND user_id = new.user_id AND currency = new.currency
      AND balance <= 9007199254740991 - new.amount);
  SELECT RAISE(IGNORE)
  WHERE EXISTS (SELECT 1 FROM refunds
                WHERE merchant_id = new.merchant_id AND refund_no = new.reference);
END;

CREATE TRIGGER IF NOT EXISTS apply_order_refund AFTER INSERT ON operations
WHEN new.operation = 'order.refund' AND new.outcome = 'applied'
BEGIN
  UPDATE orders SET status = new.to_status, version = new.version, updated_at = new.created_at,
    refunded_amount = refunded_amount + new.amount
  WHERE merchant_id = new.merchant_id AND order_no = new.order_no
    AND status = new.from_status AND version = new.version - 1;
  INSERT INTO refunds (refund_id, merchant_id, order_no, payment_id, refund_no, amount, currency,
                       status, reason, created_at)
  VALUES (new.subject_id, new.merchant_id, new.order_no, new.details ->> '$.payment_id',
          new.reference, new.amount, new.currency, 'succeeded', new.details ->> '$.reason',
          new.created_at);
  UPDATE accounts SET balance = balance + new.amount, updated_at = new.created_at
  WHERE merchant_id = new.merchant_id AND user_id = new.user_id AND currency = new.currency;
  INSERT INTO ledger_entries (source_id, account, merchant_id, currency, amount, created_at)
  VALUES (new.subject_id, 'wallet:' || new.user_id, new.merchant_id, new.currency, new.amount, new.created_at),
         (new.subject_id, 'sales', new.merchant_id, new.currency, -new.amount, new.created_at);
END;

-- A grant answers 201 if it is made and 200 if the user has one: then the row repeats it and has no effect.
CREATE TRIGGER IF NOT EXISTS guard_coupon_grant BEFORE INSERT ON operations
WHEN new.operation = 'coupon.grant'
BEGIN
  SELECT RAISE(IGNORE)
  WHERE (new.response_status = 200) IS NOT EXISTS (SELECT 1 FROM grants
    WHERE merchant_id = new.merchant_id AND activity_id = new.reference AND user_id = new.user_id);
  SELECT RAISE(IGNORE)
  WHERE new.response_status = 201 AND EXISTS (SELECT 1 FROM activities
    WHERE merchant_id = new.merchant_id AND activity_id = new.reference AND granted >= grant_limit);
END;

CREATE TRIGGER IF NOT EXISTS apply_coupon_grant AFTER INSERT ON operations
WHEN new.operation = 'coupon.grant' AND new.outcome = 'applied' AND new.response_status = 201
BEGIN
  INSERT INTO activities (merchant_id, activity_id, granted, updated_at)
  SELECT new.merchant_id, new.reference, 0, new.created_at
  WHERE NOT EXISTS (SELECT 1 FROM activities
    WHERE merchant_id = new.merchant_id AND activity_id = new.reference);
  UPDATE activities SET granted = granted + 1
  WHERE merchant_id = new.merchant_id AND activity_id = new.reference;
  INSERT INTO grants (grant_id, merchant_id, activity_id, user_id, number, grant_limit, created_at)
  SELECT new.subject_id, merchant_id, activity_id, new.user_id, granted, grant_limit, new.created_at
  FROM activities WHERE merchant_id = new.merchant_id AND activity_id = new.reference;
END;

CREATE TRIGGER IF NOT EXISTS apply_coupon_limit AFTER INSERT ON operations
WHEN new.operation = 'coupon.limit' AND new.outcome = 'applied'
BEGIN
  INSERT INTO activities (merchant_id, activity_id, granted, updated_at)
  SELECT new.merchant_id, new.reference, 0, new.created_at
  WHERE NOT EXISTS (SELECT 1 FROM activities
    WHERE merchant_id = new.merchant_id AND activity_id = new.reference);
  UPDATE activities SET grant_limit = new.details ->> '$.limit', updated_at = new.created_at
  WHERE merchant_id = new.merchant_id AND activity_id = new.reference;
END;

CREATE TRIGGER IF NOT EXISTS guard_profile_update BEFORE INSERT ON operations
WHEN new.operation = 'profile.update'
BEGIN
  SELECT RAISE(IGNORE)
  WHERE new.version - 1 IS NOT coalesce(
    (SELECT version FROM profiles
     WHERE merchant_id = new.merchant_id AND user_id = new.user_id), 0);
END;

CREATE TRIGGER IF NOT EXISTS apply_profile_update AFTER INSERT ON operations
WHEN new.operation = 'profile.update' AND new.outcome = 'applied'
BEGIN
  UPDATE profiles SET fields = new.details ->> '$.fields', version = new.version,
    updated_at = new.created_at
  WHERE merchant_id = new.merchant_id AND user_id = new.user_id AND version = new.version - 1;
  INSERT INTO profiles (merchant_id, user_id, fields, version, updated_at)
  SELECT new.merchant_id, new.user_id, new.details ->> '$.fields', new.version, new.created_at
  WHERE new.version = 1;
END;

-- The event of an operation that tells its consumers more than its client: both its identifier and its
-- data are in the details. `apply_event` writes the events that repeat the answer.
CREATE TRIGGER IF NOT EXISTS apply_detailed_event AFTER INSERT ON operations
WHEN new.event_type IS NOT NULL AND new.event_id IS NULL
BEGIN
  INSERT INTO outbox (event_id, merchant_id, type, subject, version, data, created_at)
  VALUES (new.details ->> '$.event.event_id', new.merchant_id, new.event_type,
          coalesce(new.order_no, new.user_id, new.subject_id), new.version,
          new.details ->> '$.event.data', new.created_at);
END;

INSERT INTO schema_migrations (version) VALUES (2) ON CONFLICT DO NOTHING;
