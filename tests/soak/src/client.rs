//! Clients: visits as shops see them, with double taps, time-outs, retries and redeliveries.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::promise::{Operation, Promise, Reading, Request};
use crate::world::{PATIENCE, World};

/// How many visits wait for a client before the next ones are shed.
const QUEUE: usize = 4;
/// How often a client sends a request before it gives up.
const ATTEMPTS: u32 = 6;
/// Customers, and those of them whose wallets everybody uses.
const USERS: usize = 1_000;
const HOT_USERS: usize = 4;
/// What coupons are for; none of them has as many as there are customers.
pub const ACTIVITIES: [&str; 3] = ["spring", "summer", "autumn"];

/// Somebody who sends requests, and keeps every key.
pub struct Client {
    world: Arc<World>,
    name: String,
    dice: StdRng,
    promises: Vec<Arc<Promise>>,
}

/// A client that runs.
pub struct Running {
    /// Its visits; bounded.
    pub visits: mpsc::Sender<()>,
    /// Every key that it used, at its end.
    pub end: tokio::task::JoinHandle<Vec<Arc<Promise>>>,
}

impl Client {
    /// Starts a client. It ends when nobody sends visits any more.
    pub fn start(world: &Arc<World>, number: u16, seed: u64) -> Running {
        let (visits, mut queue) = mpsc::channel(QUEUE);
        let mut client = Self {
            world: Arc::clone(world),
            name: format!("c{number}"),
            dice: StdRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(number.into())),
            promises: Vec::new(),
        };
        let end = tokio::spawn(async move {
            while let Some(()) = queue.recv().await {
                client.visit().await;
            }
            client.promises
        });
        Running { visits, end }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.dice.random_ratio(percent, 100)
    }

    async fn visit(&mut self) {
        match self.dice.random_range(0..100) {
            0..62 => self.purchase().await,
            62..70 => self.account().await,
            70..82 => self.rush().await,
            82..94 => self.repeat().await,
            _ => self.browse().await,
        }
    }

    /// A key that nobody has used, and what it names.
    fn promise(
        &mut self,
        operation: Operation,
        subject: &str,
        body: Value,
        queued: bool,
    ) -> Arc<Promise> {
        let promise = Arc::new(Promise::new(Request {
            operation,
            subject: subject.to_owned(),
            key: format!("{}-{}", self.name, self.promises.len()),
            body: body.to_string(),
            queued,
        }));
        self.promises.push(Arc::clone(&promise));
        if self.chance(10) {
            self.world.keys.add(Arc::clone(&promise));
        }
        promise
    }

    /// An order, its payment, and what comes after it.
    async fn purchase(&mut self) {
        let queued = self.chance(20);
        let order_no = format!("{}-o{}", self.name, self.promises.len());
        let user_id = match self.chance(15) {
            true => format!("hot-{}", self.dice.random_range(0..HOT_USERS)),
            false => format!("user-{}", self.dice.random_range(0..USERS)),
        };
        let amount = self.dice.random_range(1..=500);
        let wallet = self.chance(60);
        if wallet && self.chance(90) {
            let body = json!({"amount": amount, "currency": "EUR"});
            let deposit = self.promise(Operation::Deposit, &user_id, body, queued);
            self.settle(&deposit).await;
        }
        let body = json!({
            "order_no": order_no, "user_id": user_id, "amount": amount, "currency": "EUR",
        });
        let create = self.promise(Operation::Create, &order_no, body, queued);
        if self.settle(&create).await != Some(201) {
            return;
        }
        if self.chance(3) {
            self.world.hot.add((order_no.clone(), amount));
        }
        let mut paid = self.pay(&order_no, amount, wallet, queued).await;
        if paid == Some(402) && self.chance(50) {
            paid = self.pay(&order_no, amount, false, queued).await;
        }
        match paid {
            Some(200) => self.follow_up(&order_no, amount, queued).await,
            _ if self.chance(20) => {
                let cancel = self.promise(Operation::Cancel, &order_no, json!({}), queued);
                self.settle(&cancel).await;
            }
            _ => {}
        }
    }

    async fn pay(
        &mut self,
        order_no: &str,
        amount: u64,
        wallet: bool,
        queued: bool,
    ) -> Option<u16> {
        let method = if wallet { "wallet" } else { "pm_card_visa" };
        let body = json!({"amount": amount, "payment_method": method});
        let pay = self.promise(Operation::Pay, order_no, body, queued);
        if !wallet {
            self.world.charged.add(order_no.to_owned());
        }
        self.tap(&pay).await;
        self.settle(&pay).await
    }

    async fn follow_up(&mut self, order_no: &str, amount: u64, queued: bool) {
        if self.chance(20) {
            for operation in [Operation::Ship, Operation::Complete] {
                let moved = self.promise(operation, order_no, json!({}), queued);
                self.settle(&moved).await;
            }
        }
        if self.chance(25) {
            let parts: Vec<_> = (0..self.dice.random_range(1..=3))
                .map(|_| {
                    let part = self.dice.random_range(1..=amount);
                    self.promise(Operation::Refund, order_no, json!({"amount": part}), queued)
                })
                .collect();
            join_all(parts.iter().map(|part| self.world.ask(part, 0, PATIENCE))).await;
            for part in parts {
                self.settle(&part).await;
            }
        }
    }

    /// What has nothing to do with orders.
    async fn account(&mut self) {
        let queued = self.chance(20);
        let user = format!("user-{}", self.dice.random_range(0..USERS));
        let activity = ACTIVITIES[self.dice.random_range(0..ACTIVITIES.len())];
        let name = format!("{} {}", self.name, self.promises.len());
        for (operation, subject, body) in [
            (Operation::Grant, activity, json!({"user_id": user})),
            (Operation::Profile, &user, json!({"name": name})),
            (
                Operation::Message,
                "",
                json!({"kind": "sms", "to": "+4915112345678", "text": name}),
            ),
        ] {
            let promise = self.promise(operation, subject, body, queued);
            self.tap(&promise).await;
            self.settle(&promise).await;
        }
    }

    /// Everybody wants to pay the same order, each with a key of their own.
    async fn rush(&mut self) {
        if let Some((order_no, amount)) = self.world.hot.last() {
            let wallet = self.chance(50);
            self.pay(&order_no, amount, wallet, false).await;
        }
    }

    /// Somebody else's request, again.
    async fn repeat(&mut self) {
        if let Some(promise) = self.world.keys.any(&mut self.dice) {
            self.tap(&promise).await;
            self.settle(&promise).await;
        }
    }

    async fn browse(&mut self) {
        let user = self.dice.random_range(0..USERS);
        let mut paths = vec![format!("/v1/accounts/user-{user}"), "/v1/orders".to_owned()];
        if let Some((order_no, _)) = self.world.hot.any(&mut self.dice) {
            paths.push(format!("/v1/orders/{order_no}"));
            paths.push(format!("/v1/orders/{order_no}/payments"));
        }
        for path in paths {
            let host = self.dice.random_range(0..usize::from(u8::MAX));
            self.world.look(&path, host).await;
        }
    }

    /// Several times at the same moment, now and then.
    async fn tap(&mut self, promise: &Promise) {
        let taps = match self.dice.random_range(0..100) {
            0..70 => return,
            70..90 => 2,
            _ => self.dice.random_range(3..=6),
        };
        let copies: Vec<_> = (0..taps).map(|_| (self.host(), self.patience())).collect();
        let world = &self.world;
        join_all(
            copies
                .into_iter()
                .map(|(host, patience)| world.ask(promise, host, patience)),
        )
        .await;
    }

    /// Sends a request until its answer is final, or the client gives up; returns the final status.
    async fn settle(&mut self, promise: &Promise) -> Option<u16> {
        for attempt in 1..=ATTEMPTS {
            let (host, patience) = (self.host(), self.patience());
            match self.world.ask(promise, host, patience).await {
                Some(Reading::Final(status)) => return Some(status),
                Some(Reading::Refused) => return None,
                Some(Reading::Later) | None => {
                    let pause = self.dice.random_range(50..500);
                    sleep(Duration::from_millis(pause * u64::from(attempt))).await;
                }
            }
        }
        None
    }

    fn host(&mut self) -> usize {
        self.dice.random_range(0..usize::from(u8::MAX))
    }

    /// Most wait; some give up before the answer can be here.
    fn patience(&mut self) -> Duration {
        match self.chance(4) {
            true => Duration::from_millis(self.dice.random_range(1..40)),
            false => PATIENCE,
        }
    }
}
