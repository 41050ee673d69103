//! Contests: payonce and the bare component, one after the other, round by round.
//!
//! A round is a pair: one side is loaded, rests, then the other, with the first place changing from
//! round to round. Only ratios within a pair count, and of those the median, so that neither a drift
//! of the machine nor a single disturbance decides.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use hyper::{Method, StatusCode};
use tokio::time::sleep;

use crate::client::{Call, Client};
use crate::drive::{Load, Sample, drive};
use crate::host::{Host, REST};
use crate::shop::Shop;
use crate::stats::{Target, ratios};

/// Orders whose replays are asked for in turn.
const REPLAYED: usize = 64;

/// The share of orders above what the fastest round so far would have used.
const SPARE: f64 = 1.3;

/// What decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum By {
    /// Answers a second.
    Throughput,
    /// The median latency.
    Latency,
}

/// A measure and what it is held against.
pub struct Contest {
    pub name: &'static str,
    pub title: &'static str,
    pub connections: usize,
    pub by: By,
    pub target: Target,
    /// The route of the bare component.
    pub yardstick: &'static str,
    /// Payments a second to prepare orders for, until the warm-up has told; none for replays. A round
    /// without orders left ends early.
    first_guess: Option<f64>,
}

/// All of them.
pub const CONTESTS: [Contest; 4] = [
    Contest {
        name: "replay-1",
        title: "replay, 1 connection: throughput / one key-value read",
        connections: 1,
        by: By::Throughput,
        target: Target::AtLeast(0.9),
        yardstick: "/kv",
        first_guess: None,
    },
    Contest {
        name: "replay-64",
        title: "replay, 64 connections: throughput / one key-value read",
        connections: 64,
        by: By::Throughput,
        target: Target::AtLeast(0.9),
        yardstick: "/kv",
        first_guess: None,
    },
    Contest {
        name: "payment-1",
        title: "first payment, 1 connection: median latency / one durable guarded UPDATE",
        connections: 1,
        by: By::Latency,
        target: Target::AtMost(1.5),
        yardstick: "/update",
        first_guess: Some(1000.0),
    },
    Contest {
        name: "payment-64",
        title: "first payment, 64 connections: throughput / one durable guarded UPDATE",
        connections: 64,
        by: By::Throughput,
        target: Target::AtLeast(2.0),
        yardstick: "/update",
        first_guess: Some(1500.0),
    },
];

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    pub count: usize,
    pub length: Duration,
}

/// What came of a contest, the warm-up not included.
pub struct Outcome {
    pub bare: Sample,
    pub payonce: Sample,
    /// Of each round.
    pub ratios: Vec<f64>,
}

/// Both sides, running.
pub struct Arena {
    bare: Host,
    payonce: Host,
    shop: Shop,
    replays: Option<Vec<Call>>,
}

impl Arena {
    /// Prepares both sides.
    pub async fn new(bare: Host, payonce: Host) -> Result<Self> {
        let seed = Call::new(bare.address, Method::POST, "/seed", StatusCode::OK)?;
        Client::connect(bare.address).await?.send(&seed).await?;
        let shop = Shop::open(&payonce).await?;
        Ok(Self {
            bare,
            payonce,
            shop,
            replays: None,
        })
    }

    /// Runs a contest.
    pub async fn run(&mut self, contest: &Contest, rounds: Rounds) -> Result<Outcome> {
        let mut pairs = Vec::new();
        let mut fastest = contest.first_guess;
        // Round 0 is the warm-up.
        for round in 0..=rounds.count {
            let load = match &mut fastest {
                None => Load::Cycle(self.replays().await?),
                Some(rate) => {
                    let orders = *rate * SPARE * rounds.length.as_secs_f64();
                    Load::Once(self.shop.payments(orders.ceil() as usize).await?)
                }
            };
            let (bare, payonce) = self.pair(contest, load, rounds.length, round).await?;
            let rate = payonce.throughput();
            fastest = fastest.map(|fastest| if round == 0 { rate } else { fastest.max(rate) });
            eprintln!(
                "{}, {}: bare {:.0}/s, payonce {rate:.0}/s",
                contest.name,
                match round {
                    0 => "warm-up".to_owned(),
                    _ => format!("round {round} of {}", rounds.count),
                },
                bare.throughput(),
            );
            if round > 0 {
                pairs.push((bare, payonce));
            }
        }
        contest.outcome(&pairs)
    }

    /// One round.
    async fn pair(
        &self,
        contest: &Contest,
        load: Load,
        length: Duration,
        round: usize,
    ) -> Result<(Sample, Sample)> {
        let twin = |call: &Call| call.twin(self.bare.address, contest.yardstick);
        let bare = load.calls().iter().map(twin).collect::<Result<_>>()?;
        let bare = (self.bare.address, Arc::new(Load::Cycle(bare)));
        let payonce = (self.payonce.address, Arc::new(load));
        let side = async |(server, load): (_, Arc<Load>)| {
            sleep(REST).await;
            drive(server, contest.connections, &load, Some(length)).await
        };
        Ok(if round.is_multiple_of(2) {
            let bare = side(bare).await?;
            (bare, side(payonce).await?)
        } else {
            let payonce = side(payonce).await?;
            (side(bare).await?, payonce)
        })
    }

    async fn replays(&mut self) -> Result<Vec<Call>> {
        if self.replays.is_none() {
            self.replays = Some(self.shop.replays(REPLAYED, &self.payonce).await?);
        }
        Ok(self.replays.clone().unwrap_or_default())
    }
}

impl Contest {
    fn outcome(&self, pairs: &[(Sample, Sample)]) -> Result<Outcome> {
        let (mut bare, mut payonce) = (Sample::new()?, Sample::new()?);
        for (one, other) in pairs {
            bare.add(one)?;
            payonce.add(other)?;
        }
        let ratios = ratios(pairs.iter().map(|(bare, payonce)| match self.by {
            By::Throughput => (bare.throughput(), payonce.throughput()),
            By::Latency => (bare.latency_ms(0.5), payonce.latency_ms(0.5)),
        }));
        Ok(Outcome {
            bare,
            payonce,
            ratios,
        })
    }
}
