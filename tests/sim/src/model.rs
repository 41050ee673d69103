//! What payonce should do, said once more and in the simplest way: one operation after the other, on maps.
//!
//! It replays the rows of the journal in their order and holds each answer against what the operation
//! must have seen, and it tells which refusals a state calls for. It shares no code with the component.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::Connection;
use serde_json::Value;

/// What a request asks for.
#[derive(Clone, Debug)]
pub enum Act {
    Create {
        order_no: String,
    },
    Deposit,
    Pay {
        order_no: String,
        request_no: Option<String>,
        amount: i64,
    },
}

/// A row of the journal.
pub struct Row {
    pub merchant: String,
    pub key: String,
    operation: String,
    applied: bool,
    order_no: String,
    pub status: u16,
    pub location: Option<String>,
    /// The answer, byte for byte.
    pub body: String,
}

/// The journal, oldest first.
pub fn journal(database: &Connection) -> rusqlite::Result<Vec<Row>> {
    let sql = "SELECT merchant_id, idempotency_key, operation, outcome, coalesce(order_no, ''), \
               response_status, response_location, response_body FROM operations ORDER BY rowid";
    let mut statement = database.prepare_cached(sql)?;
    let rows = statement.query_map([], |row| {
        Ok(Row {
            merchant: row.get(0)?,
            key: row.get(1)?,
            operation: row.get(2)?,
            applied: row.get::<_, String>(3)? == "applied",
            order_no: row.get(4)?,
            status: row.get(5)?,
            location: row.get(6)?,
            body: row.get(7)?,
        })
    })?;
    rows.collect()
}

#[derive(Clone, Debug, PartialEq)]
struct Order {
    user: String,
    amount: i64,
    currency: String,
    status: String,
    version: i64,
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
}

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
                if !matches!(order.status.as_str(), "pending" | "failed") {
                    return wrong(&format!("paid an order that is {}", order.status));
                }
                if *balance < order.amount {
                    return wrong(&format!("paid from a balance of {balance}"));
                }
                *balance -= order.amount;
                order.status = "paid".to_owned();
                order.version += 1;
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
            _ => return wrong("is not in the model"),
        }
        Ok(())
    }

    /// The code of the refusal that an act of a merchant meets in this state.
    pub fn refusal(&self, merchant: &str, act: &Act) -> Option<&'static str> {
        let order = |order_no: &String| self.orders.get(&(merchant.to_owned(), order_no.clone()));
        match act {
            Act::Create { order_no } => order(order_no).map(|_| "order_exists"),
            Act::Deposit => None,
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
                    Some(order) if !matches!(order.status.as_str(), "pending" | "failed") => {
                        Some("order_already_paid")
                    }
                    Some(_) if request_no.as_ref().is_some_and(used) => Some("request_no_used"),
                    Some(order) if order.amount != *amount => Some("amount_mismatch"),
                    Some(_) => None,
                }
            }
        }
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
        let orders = "SELECT merchant_id, order_no, user_id, amount, currency, status, version \
                      FROM orders";
        let mut statement = database.prepare_cached(orders)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let order = Order {
                user: row.get(2)?,
                amount: row.get(3)?,
                currency: row.get(4)?,
                status: row.get(5)?,
                version: row.get(6)?,
            };
            books.orders.insert((row.get(0)?, row.get(1)?), order);
        }
        let balances = "SELECT merchant_id, user_id, currency, balance FROM accounts";
        let mut statement = database.prepare_cached(balances)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let account = (row.get(0)?, row.get(1)?, row.get(2)?);
            books.balances.insert(account, row.get(3)?);
        }
        let request_nos = "SELECT merchant_id, request_no FROM payments";
        let mut statement = database.prepare_cached(request_nos)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            books.request_nos.insert((row.get(0)?, row.get(1)?));
        }
        Ok(books)
    }
}
