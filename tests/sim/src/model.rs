//! What payonce should do, said once more and in the simplest way: one operation after the other, on maps.
//!
//! It replays the rows of the journal in their order and holds each answer against what the operation
//! must have seen, and it tells which refusals a state calls for. It shares no code with the component.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::Connection;
use serde_json::Value;

/// What a request asks for, as far as it can be refused.
#[derive(Clone, Debug)]
pub enum Act {
    /// What no state refuses.
    Always,
    Create {
        order_no: String,
    },
    Pay {
        order_no: String,
        request_no: Option<String>,
        amount: i64,
    },
    Fulfil {
        order_no: String,
        what: Fulfilment,
    },
    Refund {
        order_no: String,
        amount: i64,
    },
    Grant {
        activity: String,
        user: String,
    },
}

/// What moves an order on without money.
#[derive(Clone, Copy, Debug)]
pub enum Fulfilment {
    Ship,
    Complete,
    Cancel,
}

impl Fulfilment {
    /// How the route is called.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Ship => "ship",
            Self::Complete => "complete",
            Self::Cancel => "cancel",
        }
    }

    /// From where to where.
    fn moves(self) -> (&'static [&'static str], &'static str) {
        match self {
            Self::Ship => (&["paid"], "shipped"),
            Self::Complete => (&["shipped"], "completed"),
            Self::Cancel => (&["pending", "failed"], "cancelled"),
        }
    }
}

/// A row of the journal.
#[derive(Clone)]
pub struct Row {
    pub merchant: String,
    pub key: String,
    operation: String,
    applied: bool,
    order_no: String,
    /// What it is about: a payment or a refund, if it is.
    subject: String,
    /// Its `request_no` or `refund_no`, if it has one.
    reference: String,
    amount: i64,
    /// Whether it moves its order.
    moves: bool,
    pub status: u16,
    pub location: Option<String>,
    /// The answer, byte for byte.
    pub body: String,
}

/// The journal, oldest first.
pub fn journal(database: &Connection) -> rusqlite::Result<Vec<Row>> {
    let sql = "SELECT merchant_id, idempotency_key, operation, outcome, coalesce(order_no, ''), \
               coalesce(subject_id, ''), coalesce(reference, ''), coalesce(amount, 0), \
               to_status IS NOT NULL, response_status, response_location, response_body \
               FROM operations ORDER BY rowid";
    let mut statement = database.prepare_cached(sql)?;
    let rows = statement.query_map([], |row| {
        Ok(Row {
            merchant: row.get(0)?,
            key: row.get(1)?,
            operation: row.get(2)?,
            applied: row.get::<_, String>(3)? == "applied",
            order_no: row.get(4)?,
            subject: row.get(5)?,
            reference: row.get(6)?,
            amount: row.get(7)?,
            moves: row.get(8)?,
            status: row.get(9)?,
            location: row.get(10)?,
            body: row.get(11)?,
        })
    })?;
    rows.collect()
}

impl Row {
    /// Whether it is what a channel said, under a key that no client can send.
    pub fn is_of_channel(&self) -> bool {
        matches!(
            self.operation.as_str(),
            "payment.settle" | "payment.late" | "refund.settle"
        )
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Order {
    user: String,
    amount: i64,
    currency: String,
    status: String,
    version: i64,
    refunded: i64,
    /// The amounts of the refunds that the channel is working on.
    refunding: i64,
}

impl Order {
    /// Moves on; whether that may be.
    fn go(&mut self, from: &[&str], to: &str) -> bool {
        let may = from.contains(&self.status.as_str());
        self.status = to.to_owned();
        self.version += 1;
        may
    }

    /// Gives money back; whether that may be.
    fn refund(&mut self, amount: i64) -> bool {
        self.refunded += amount;
        let rest = self.amount - self.refunded;
        let to = match rest {
            0 => "refunded".to_owned(),
            _ => self.status.clone(),
        };
        self.go(REFUNDABLE, &to) && rest >= 0
    }
}

/// Merchant and number.
type Named = (String, String);

/// Everything there is, as far as a customer could tell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Books {
    orders: BTreeMap<Named, Order>,
    /// By merchant, user and currency.
    balances: BTreeMap<(String, String, String), i64>,
    request_nos: BTreeSet<Named>,
    /// By merchant, activity and user.
    grants: BTreeMap<(String, String, String), String>,
    limits: BTreeMap<Named, Option<i64>>,
    profiles: BTreeMap<Named, Value>,
    /// What the channel owes, and what of it is nobody's, by merchant and account.
    channel: BTreeMap<Named, i64>,
    /// The answers to what the channel is or was asked for, by payment or refund.
    begun: BTreeMap<String, (u16, String)>,
}

const REFUNDABLE: &[&str] = &["paid", "shipped", "completed"];

impl Books {
    /// Applies a row, whose answer must be what this state calls for.
    pub fn apply(&mut self, row: &Row) -> Result<(), String> {
        let wrong = |why: &str| {
            let Row {
                operation, body, ..
            } = row;
            Err(format!(
                "{operation} {why}, and was answered {} {body}",
                row.status
            ))
        };
        let Ok(body) = serde_json::from_str::<Value>(&row.body) else {
            return wrong("has an answer that is not JSON");
        };
        let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        let number = |name: &str| body[name].as_i64().unwrap_or_default();
        let named = |name: &str| (row.merchant.clone(), text(name));
        match row.operation.as_str() {
            "order.create" => {
                let order = Order {
                    user: text("user_id"),
                    amount: number("amount"),
                    currency: text("currency"),
                    status: text("status"),
                    version: number("version"),
                    refunded: 0,
                    refunding: 0,
                };
                if row.status != 201 || order.status != "pending" || order.version != 1 {
                    return wrong("makes a pending order of version 1");
                }
                if self.orders.insert(named("order_no"), order).is_some() {
                    return wrong("made an order a second time");
                }
            }
            "account.deposit" => {
                let account = (row.merchant.clone(), text("user_id"), text("currency"));
                let balance = self.balances.entry(account).or_default();
                *balance += number("amount");
                if row.status != 201 || *balance != number("balance") {
                    return wrong(&format!("made the balance {balance}"));
                }
            }
            "order.pay" if row.applied => {
                let Some(order) = self.orders.get_mut(&named("order_no")) else {
                    return wrong("paid an order that does not exist");
                };
                let account = (
                    row.merchant.clone(),
                    order.user.clone(),
                    order.currency.clone(),
                );
                let balance = self.balances.entry(account).or_default();
                if row.status != 200 || number("amount") != order.amount {
                    return wrong("pays the whole order");
                }
                if !order.go(&["pending", "failed"], "paid") {
                    return wrong("paid an order that cannot be paid");
                }
                if *balance < order.amount {
                    return wrong(&format!("paid from a balance of {balance}"));
                }
                *balance -= order.amount;
                if !self.request_nos.insert(named("request_no")) {
                    return wrong("used a request_no a second time");
                }
            }
            "order.pay" => {
                if row.status != 402 || text("code") != "insufficient_funds" {
                    return wrong("was declined");
                }
                if self.covers(&row.merchant, &row.order_no) {
                    return wrong("was declined, from a wallet that covers it");
                }
            }
            "order.pay_begin" => {
                let order = self.order_of(row);
                let begins = order.is_some_and(|order| {
                    order.go(&["pending", "failed"], "processing") && order.amount == row.amount
                });
                let request_no = (row.merchant.clone(), row.reference.clone());
                if !begins || !self.request_nos.insert(request_no) {
                    return wrong("charges an order that cannot be paid");
                }
                let answer = (row.status, row.body.clone());
                self.begun.insert(row.subject.clone(), answer);
            }
            "payment.settle" => {
                let succeeded = text("status") == "succeeded";
                let Some(order) = self.orders.get_mut(&named("order_no")) else {
                    return wrong("settles an order that does not exist");
                };
                let to = if succeeded { "paid" } else { "failed" };
                if !order.go(&["processing"], to) || row.amount != order.amount {
                    return wrong("settles what is not being paid");
                }
                if succeeded {
                    self.book(row, "channel", -row.amount);
                }
                let answered = match self.begun.get(&row.subject) {
                    Some((200, answer)) => succeeded && *answer == row.body,
                    Some((402, answer)) => !succeeded && answer.contains("declined"),
                    _ => false,
                };
                if !answered {
                    return wrong("answers nobody, or something else");
                }
            }
            "payment.late" => {
                self.book(row, "channel", -row.amount);
                self.book(row, "unclaimed", row.amount);
            }
            "order.refund_begin" => {
                let order = self.order_of(row);
                let begins = order.is_some_and(|order| {
                    order.refunding += row.amount;
                    REFUNDABLE.contains(&order.status.as_str())
                        && order.refunded + order.refunding <= order.amount
                });
                if !begins {
                    return wrong("refunds what cannot be refunded");
                }
                let answer = (row.status, row.body.clone());
                self.begun.insert(row.subject.clone(), answer);
            }
            "refund.settle" => {
                let answered = match self.begun.get(&row.subject) {
                    Some((201, answer)) => row.applied && *answer == row.body,
                    Some((402, answer)) => !row.applied && *answer == row.body,
                    Some(_) => false,
                    // Of money that came too late.
                    None => !row.moves,
                };
                if !answered {
                    return wrong("answers something else");
                }
                if row.applied {
                    self.book(row, "channel", row.amount);
                }
                if !self.begun.contains_key(&row.subject) {
                    self.book(row, "unclaimed", -row.amount);
                    return Ok(());
                }
                let order = self.order_of(row);
                let right = order.is_some_and(|order| {
                    order.refunding -= row.amount;
                    !row.applied || order.refund(row.amount)
                });
                if !right {
                    return wrong("refunded what cannot be refunded");
                }
            }
            "order.ship" => return self.fulfil(row, &body, Fulfilment::Ship),
            "order.complete" => return self.fulfil(row, &body, Fulfilment::Complete),
            "order.cancel" => return self.fulfil(row, &body, Fulfilment::Cancel),
            "order.refund" => {
                let Some(order) = self.orders.get_mut(&named("order_no")) else {
                    return wrong("refunded an order that does not exist");
                };
                if !order.refund(number("amount")) || row.status != 201 {
                    return wrong("refunded what cannot be refunded");
                }
                let account = (
                    row.merchant.clone(),
                    order.user.clone(),
                    order.currency.clone(),
                );
                *self.balances.entry(account).or_default() += number("amount");
            }
            "coupon.grant" => {
                let activity = named("activity_id");
                let coupon = (row.merchant.clone(), activity.1.clone(), text("user_id"));
                let exhausted = self.is_exhausted(&activity);
                match (row.status, self.grants.get(&coupon)) {
                    (200, Some(grant)) if *grant == text("grant_id") => {}
                    (201, None) if !exhausted => {
                        self.grants.insert(coupon, text("grant_id"));
                        self.limits.entry(activity).or_insert(None);
                    }
                    _ => return wrong("granted what it cannot"),
                }
            }
            "coupon.limit" => {
                let limit = body["limit"].as_i64();
                self.limits.insert(named("activity_id"), limit);
            }
            "profile.update" => {
                let profile = self.profiles.entry(named("user_id")).or_insert(Value::Null);
                let kept = profile.as_object().is_none_or(|before| {
                    before
                        .iter()
                        .all(|(name, value)| body["fields"][name] == *value)
                });
                *profile = body["fields"].clone();
                if !kept {
                    return wrong("lost what another update had set");
                }
            }
            "message.send" => {
                if row.status != 202 || text("status") != "queued" {
                    return wrong("queues a message");
                }
            }
            _ => return wrong("is not in the model"),
        }
        Ok(())
    }

    fn fulfil(&mut self, row: &Row, body: &Value, what: Fulfilment) -> Result<(), String> {
        let (from, to) = what.moves();
        let order = self.order_of(row);
        let right = order.is_some_and(|order| {
            order.go(from, to)
                && body["status"].as_str() == Some(to)
                && body["version"].as_i64() == Some(order.version)
        });
        match right && row.status == 200 {
            true => Ok(()),
            false => Err(format!(
                "{} was answered {} {}",
                row.operation, row.status, row.body
            )),
        }
    }

    fn order_of(&mut self, row: &Row) -> Option<&mut Order> {
        let named = (row.merchant.clone(), row.order_no.clone());
        self.orders.get_mut(&named)
    }

    fn book(&mut self, row: &Row, account: &str, amount: i64) {
        let account = (row.merchant.clone(), account.to_owned());
        *self.channel.entry(account).or_default() += amount;
    }

    /// The code of the refusal that an act of a merchant meets in this state.
    pub fn refusal(&self, merchant: &str, act: &Act) -> Option<&'static str> {
        let order = |order_no: &String| self.orders.get(&(merchant.to_owned(), order_no.clone()));
        match act {
            Act::Always => None,
            Act::Create { order_no } => order(order_no).map(|_| "order_exists"),
            Act::Fulfil { order_no, what } => match order(order_no) {
                None => Some("order_not_found"),
                Some(order) if what.moves().0.contains(&order.status.as_str()) => None,
                Some(_) => Some("order_state_invalid"),
            },
            Act::Refund { order_no, amount } => match order(order_no) {
                None => Some("order_not_found"),
                Some(order) if !REFUNDABLE.contains(&order.status.as_str()) => {
                    Some("order_state_invalid")
                }
                Some(order) if order.amount - order.refunded - order.refunding < *amount => {
                    Some("refund_exceeds_payment")
                }
                Some(_) => None,
            },
            Act::Grant { activity, user } => {
                let named = (merchant.to_owned(), activity.clone());
                let coupon = (merchant.to_owned(), activity.clone(), user.clone());
                let refused = self.is_exhausted(&named) && !self.grants.contains_key(&coupon);
                refused.then_some("coupon_exhausted")
            }
            Act::Pay {
                order_no,
                request_no,
                amount,
            } => {
                let used = |no: &String| {
                    let named = (merchant.to_owned(), no.clone());
                    self.request_nos.contains(&named)
                };
                match order(order_no) {
                    None => Some("order_not_found"),
                    Some(order)
                        if !matches!(
                            order.status.as_str(),
                            "pending" | "processing" | "failed" | "cancelled"
                        ) =>
                    {
                        Some("order_already_paid")
                    }
                    Some(_) if request_no.as_ref().is_some_and(used) => Some("request_no_used"),
                    Some(order) if order.amount != *amount => Some("amount_mismatch"),
                    Some(order) if matches!(order.status.as_str(), "processing" | "cancelled") => {
                        Some("order_state_invalid")
                    }
                    Some(_) => None,
                }
            }
        }
    }

    /// Whether an activity has granted all its coupons.
    fn is_exhausted(&self, activity: &Named) -> bool {
        let of_activity = |(merchant, name, _): &&(String, String, String)| {
            (merchant, name) == (&activity.0, &activity.1)
        };
        let granted = self.grants.keys().filter(of_activity).count() as i64;
        let limit = self.limits.get(activity).copied().flatten();
        limit.is_some_and(|limit| granted >= limit)
    }

    /// Whether the wallet behind an order covers it.
    fn covers(&self, merchant: &str, order_no: &str) -> bool {
        let named = (merchant.to_owned(), order_no.to_owned());
        self.orders.get(&named).is_some_and(|order| {
            let account = (
                merchant.to_owned(),
                order.user.clone(),
                order.currency.clone(),
            );
            self.balances
                .get(&account)
                .is_some_and(|balance| *balance >= order.amount)
        })
    }

    /// What the tables hold, in the same form.
    pub fn read(database: &Connection) -> rusqlite::Result<Self> {
        let mut books = Self::default();
        let orders = "SELECT merchant_id, order_no, user_id, amount, currency, status, version, \
                      refunded_amount, coalesce((SELECT sum(r.amount) FROM refunds r JOIN payments p \
                        USING (payment_id) WHERE r.merchant_id = o.merchant_id AND r.order_no = o.order_no \
                        AND r.status = 'processing' AND p.status = 'succeeded'), 0) FROM orders o";
        each(database, orders, |row| {
            let order = Order {
                user: row.get(2)?,
                amount: row.get(3)?,
                currency: row.get(4)?,
                status: row.get(5)?,
                version: row.get(6)?,
                refunded: row.get(7)?,
                refunding: row.get(8)?,
            };
            books.orders.insert((row.get(0)?, row.get(1)?), order);
            Ok(())
        })?;
        let balances = "SELECT merchant_id, user_id, currency, balance FROM accounts";
        each(database, balances, |row| {
            let account = (row.get(0)?, row.get(1)?, row.get(2)?);
            books.balances.insert(account, row.get(3)?);
            Ok(())
        })?;
        each(
            database,
            "SELECT merchant_id, request_no FROM payments",
            |row| {
                books.request_nos.insert((row.get(0)?, row.get(1)?));
                Ok(())
            },
        )?;
        let grants = "SELECT merchant_id, activity_id, user_id, grant_id FROM grants";
        each(database, grants, |row| {
            let coupon = (row.get(0)?, row.get(1)?, row.get(2)?);
            books.grants.insert(coupon, row.get(3)?);
            Ok(())
        })?;
        let limits = "SELECT merchant_id, activity_id, grant_limit FROM activities";
        each(database, limits, |row| {
            books.limits.insert((row.get(0)?, row.get(1)?), row.get(2)?);
            Ok(())
        })?;
        each(
            database,
            "SELECT merchant_id, user_id, fields FROM profiles",
            |row| {
                let fields: String = row.get(2)?;
                let fields = serde_json::from_str(&fields).unwrap_or(Value::Null);
                books.profiles.insert((row.get(0)?, row.get(1)?), fields);
                Ok(())
            },
        )?;
        let channel = "SELECT merchant_id, account, sum(amount) FROM ledger_entries \
                       WHERE account IN ('channel', 'unclaimed') GROUP BY 1, 2";
        each(database, channel, |row| {
            let account = (row.get(0)?, row.get(1)?);
            books.channel.insert(account, row.get(2)?);
            Ok(())
        })?;
        let begun = "SELECT subject_id, response_status, response_body FROM operations \
                     WHERE operation IN ('order.pay_begin', 'order.refund_begin')";
        each(database, begun, |row| {
            books.begun.insert(row.get(0)?, (row.get(1)?, row.get(2)?));
            Ok(())
        })?;
        Ok(books)
    }
}

/// Takes every row of a query.
fn each(
    database: &Connection,
    sql: &str,
    mut take: impl FnMut(&rusqlite::Row<'_>) -> rusqlite::Result<()>,
) -> rusqlite::Result<()> {
    let mut statement = database.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        take(row)?;
    }
    Ok(())
}
