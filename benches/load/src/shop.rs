//! Payonce seen from a shop: wallets, orders, payments.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use hyper::{Method, StatusCode};
use serde_json::json;

use crate::client::{Call, Client};
use crate::drive::{Load, drive};
use crate::host::{API_KEY, Host, REST};

/// Connections that prepare.
const CONNECTIONS: usize = 64;

/// Customers, each with a wallet that does not run dry.
const WALLETS: usize = 256;

const AMOUNT: u64 = 1250;
const DEPOSIT: u64 = 1_000_000_000_000;
const CURRENCY: &str = "EUR";

/// A shop on a running host.
pub struct Shop {
    server: SocketAddr,
    orders: usize,
    sent: usize,
}

impl Shop {
    /// Fills the wallets.
    pub async fn open(host: &Host) -> Result<Self> {
        let mut shop = Self {
            server: host.address,
            orders: 0,
            sent: 0,
        };
        let deposits = (0..WALLETS).map(|wallet| {
            let path = format!("/v1/accounts/{}/deposits", user(wallet));
            let body = json!({"amount": DEPOSIT, "currency": CURRENCY});
            shop.post(&path, StatusCode::CREATED)?
                .body(&format!("deposit-{wallet}"), &body)
        });
        let deposits = deposits.collect::<Result<_>>()?;
        shop.all(deposits).await?;
        Ok(shop)
    }

    /// Creates so many orders, for the customers in turn, and returns their numbers.
    pub async fn orders(&mut self, count: usize) -> Result<Vec<String>> {
        let range = self.orders..self.orders + count;
        self.orders = range.end;
        let create = |number: usize| {
            let order_no = order(number);
            let body = json!({
                "order_no": order_no,
                "user_id": user(number),
                "amount": AMOUNT,
                "currency": CURRENCY,
            });
            self.post("/v1/orders", StatusCode::CREATED)?
                .body(&format!("create-{order_no}"), &body)
        };
        let calls = range.clone().map(create).collect::<Result<_>>()?;
        self.all(calls).await?;
        Ok(range.map(order).collect())
    }

    /// The first payment of an order.
    pub fn payment(&self, order_no: &str) -> Result<Call> {
        let request_no = format!("request-{order_no}");
        let body = json!({"amount": AMOUNT, "request_no": request_no});
        self.post(&format!("/v1/orders/{order_no}/pay"), StatusCode::OK)?
            .body(&format!("pay-{order_no}"), &body)
    }

    /// The first payments of so many new orders.
    pub async fn payments(&mut self, count: usize) -> Result<Vec<Call>> {
        let orders = self.orders(count).await?;
        orders
            .iter()
            .map(|order_no| self.payment(order_no))
            .collect()
    }

    /// A look at something below `/v1/orders`.
    pub fn look(&self, path: &str) -> Result<Call> {
        let path = format!("/v1/orders/{path}");
        Call::new(self.server, Method::GET, &path, StatusCode::OK)?.authorized(API_KEY)
    }

    /// Pays so many new orders and returns the payments' replays, once payonce has each answer in its
    /// key-value store.
    pub async fn replays(&mut self, count: usize, host: &Host) -> Result<Vec<Call>> {
        const PASSES: usize = 20;
        let mut client = Client::connect(self.server).await?;
        let mut missing = Vec::new();
        let mut replays = Vec::new();
        for call in self.payments(count).await? {
            let answer: serde_json::Value = serde_json::from_slice(&client.send(&call).await?)?;
            let payment_id = answer["payment_id"].as_str().context("no payment_id")?;
            missing.push((payment_id.to_owned(), call.replayed()));
            replays.push(call.replayed());
        }
        // Payonce caches behind its answers, when it has time.
        let file = host.data.join("sqlite_key_value.db");
        for _ in 0..PASSES {
            tokio::time::sleep(REST / 10).await;
            let store = std::fs::read(&file).unwrap_or_default();
            missing.retain(|(payment_id, _)| !contains(&store, payment_id.as_bytes()));
            if missing.is_empty() {
                return Ok(replays);
            }
            for (_, replay) in &missing {
                client.send(replay).await?;
                tokio::time::sleep(REST / 50).await;
            }
        }
        bail!(
            "{} of {count} answers are not in {} after {PASSES} replays each",
            missing.len(),
            file.display()
        )
    }

    fn post(&self, path: &str, status: StatusCode) -> Result<Call> {
        Call::new(self.server, Method::POST, path, status)?.authorized(API_KEY)
    }

    /// How many requests went out through [`Self::all`].
    pub fn sent(&self) -> usize {
        self.sent
    }

    /// Sends all calls once.
    pub async fn all(&mut self, calls: Vec<Call>) -> Result<()> {
        self.sent += calls.len();
        let load = Arc::new(Load::Once(calls));
        drive(self.server, CONNECTIONS, &load, None).await?;
        Ok(())
    }
}

fn order(number: usize) -> String {
    format!("order-{number:010}")
}

fn user(number: usize) -> String {
    format!("user-{:03}", number % WALLETS)
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|part| part == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn customers_take_turns() {
        assert_eq!(user(1), user(WALLETS + 1));
        assert_ne!(user(1), user(2));
    }

    #[test]
    fn an_answer_is_found_in_the_store() {
        assert!(contains(b"..pay_1..", b"pay_1"));
        assert!(!contains(b"..pay_2..", b"pay_1"));
        assert!(!contains(b"", b"pay_1"));
    }
}
