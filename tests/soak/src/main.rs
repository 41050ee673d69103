//! Keeps payonce busy while its hosts are killed, and holds it to every answer it gave.
//!
//! * [`client`]: what clients do; each keeps its keys, as [`promise`]s.
//! * [`chaos`]: what goes wrong meanwhile, and the timers of an operator.
//! * [`fleet`], [`disk`] and [`receiver`]: the hosts, and who gets their events. The channel is that of `tests/channel`.
//! * [`verdict`]: what is asked and compared afterwards. Whatever is wrong goes to [`violations`].
//! * [`tally`], [`report`] and [`plot`]: what is measured, and how it is shown.
//!
//! A run is random and not repeatable: hosts are real processes, killed at real moments.

#![forbid(unsafe_code)]

mod chaos;
mod client;
mod disk;
mod fleet;
mod plot;
mod promise;
mod receiver;
mod report;
mod tally;
mod verdict;
mod violations;
mod world;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;
use futures::future::join_all;
use payonce_channel::{Channel, Config};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use crate::client::{Client, Running};
use crate::disk::Disk;
use crate::fleet::{ADMIN_KEY, API_KEY, Fleet, Program};
use crate::promise::Promise;
use crate::receiver::Receiver;
use crate::report::{Interval, Report};
use crate::tally::Sample;
use crate::violations::Violations;
use crate::world::{Recent, World};

/// How long what is measured together lasts.
const INTERVAL: Duration = Duration::from_secs(5);

/// Every so many seconds come so many times as many visits, for so many seconds: more than the hosts can serve.
const FLOOD_EVERY: u64 = 120;
const FLOOD: u64 = 20;
const FLOOD_LASTS: u64 = 5;

/// What the channel wants to see.
const CHANNEL_KEY: &str = "soak-channel-key";
/// What it signs its webhooks with.
const WEBHOOK_SECRET: &str = "whsec_c29hay1jaGFubmVsLXdlYmhvb2stc2VjcmV0LTAx";

/// Keeps payonce busy while its hosts are killed, and holds it to every answer it gave.
#[derive(Parser)]
struct Flags {
    /// How long, in minutes; what comes afterwards is not counted
    #[arg(long, value_name = "N", default_value_t = 5.0)]
    minutes: f64,
    /// Clients, each with a queue of its own
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u16).range(1..))]
    clients: u16,
    /// Visits of clients a second; of several requests each
    #[arg(long, value_name = "N", default_value_t = 40.0)]
    rate: f64,
    /// Host processes on one data directory
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    hosts: u16,
    /// Where dice begin
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// A folder on a small file system of its own, a tmpfs for example: the data goes there, and now and then
    /// there is no room
    #[arg(long, value_name = "DIR")]
    disk: Option<PathBuf>,
    /// Where the report, the plot, the log and the data go [default: target/soak beside the manifest]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The host
    #[arg(
        long,
        env = "PAYONCE_HOST",
        default_value = "target/tools/payonce-host"
    )]
    host: PathBuf,
    /// Payonce's spin.toml
    #[arg(long, env = "PAYONCE_MANIFEST", default_value = "spin.toml")]
    manifest: PathBuf,
}

#[tokio::main]
async fn main() -> ExitCode {
    let flags = Flags::parse();
    let outcome = tokio::select! {
        outcome = run(&flags) => outcome,
        () = interrupted() => Err(anyhow::anyhow!("interrupted")),
    };
    match outcome {
        Ok(0) => ExitCode::SUCCESS,
        Ok(violations) => {
            eprintln!("payonce-soak: {violations} violations");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("payonce-soak: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Ready at the first SIGINT or SIGTERM, so that no host stays behind.
async fn interrupted() {
    #[cfg(unix)]
    if let Ok(mut terminate) =
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
    {
        tokio::select! {
            _ = terminate.recv() => return,
            _ = tokio::signal::ctrl_c() => return,
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}

/// Runs all of it; returns how many violations there were.
async fn run(flags: &Flags) -> Result<u64> {
    let target = flags.manifest.parent().map(|root| root.join("target"));
    let target = target.unwrap_or_default();
    let out = flags.out.clone().unwrap_or_else(|| target.join("soak"));
    let world = Arc::new(open(flags, &out, &target).await?);
    limit_coupons(&world).await?;
    let clients: Vec<Running> = (0..flags.clients)
        .map(|number| Client::start(&world, number, flags.seed))
        .collect();
    let mut chaos = chaos::start(&world, flags.seed);
    let intervals = load(flags, &world, &clients).await;
    let load = world.tally.total(Sample::json);
    chaos.shutdown().await;

    eprintln!("soak: nothing goes wrong any more");
    verdict::calm(&world, flags.seed).await?;
    let promises = end(clients).await?;
    verdict::tell(&world).await;
    verdict::finish(&world).await;
    eprintln!("soak: retrying {} keys", promises.len());
    let kept = verdict::retry(&world, &promises).await;
    verdict::finish(&world).await;
    for seat in 0..world.fleet.size() {
        world.fleet.kill(seat).await?;
    }
    eprintln!("soak: audit");
    let audit = verdict::audit(&world, &promises)?;

    let report = Report {
        settings: json!({
            "minutes": flags.minutes, "clients": flags.clients, "rate": flags.rate,
            "hosts": flags.hosts, "seed": flags.seed, "disk_fills": flags.disk.is_some(),
        }),
        intervals,
        load,
        keys: kept.json(),
        audit,
    };
    let json = report.json(&world);
    report::write(&out.join("soak.json"), &format!("{json:#}\n"))?;
    plot::draw(&out.join("soak.svg"), &report.intervals)?;
    println!("{}", json["totals"]);
    let violations = world.violations.count();
    if violations == 0 {
        std::fs::remove_dir_all(data(flags, &out))?;
    }
    Ok(violations)
}

/// Where the data is.
fn data(flags: &Flags, out: &Path) -> PathBuf {
    flags.disk.as_deref().unwrap_or(out).join("data")
}

/// Limits the coupons of each activity, so that some customers get none.
async fn limit_coupons(world: &World) -> Result<()> {
    for activity in client::ACTIVITIES {
        let url = format!("{}/v1/coupons/{activity}", world.fleet.base(0));
        let request = world.http.put(url).bearer_auth(API_KEY);
        let answer = request.json(&json!({"limit": 300})).send().await?;
        answer.error_for_status()?;
    }
    Ok(())
}

/// Starts everything that clients meet.
async fn open(flags: &Flags, out: &Path, target: &Path) -> Result<World> {
    let data = data(flags, out);
    std::fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    fleet::empty(&data)?;
    let disk = flags.disk.as_deref().map(Disk::of);
    disk.iter().try_for_each(Disk::free)?;
    let config = Config {
        key: CHANNEL_KEY.to_owned(),
        webhook_secret: WEBHOOK_SECRET.to_owned(),
        webhooks_by_themselves: true,
    };
    let channel = Channel::start("127.0.0.1:0", config)?;
    let violations = Arc::<Violations>::default();
    let receiver = Receiver::start(Arc::clone(&violations)).await?;
    let text = str::to_owned;
    let variables = vec![
        ("api_keys", format!("soak={API_KEY}")),
        ("admin_key", text(ADMIN_KEY)),
        ("token_secret", "soak-token-secret-".repeat(4)),
        ("notify_url", receiver.url()),
        ("notify_host", receiver.origin()),
        ("notify_secret", receiver::secret()),
        ("sms_gateway_url", receiver.url()),
        ("sms_gateway_host", receiver.origin()),
        ("notify_timeout_ms", text("2000")),
        ("notify_pause_ms", text("200")),
        ("channel", text("http")),
        ("channel_url", channel.url()),
        ("channel_host", channel.url()),
        ("channel_key", text(CHANNEL_KEY)),
        ("channel_timeout_ms", text("1000")),
        ("webhook_secret", text(WEBHOOK_SECRET)),
    ];
    let log = File::create(out.join("hosts.log")).context("cannot write the log")?;
    let program = Program {
        host: flags.host.clone(),
        manifest: flags.manifest.clone(),
        cache: target.join("payonce-host"),
        data,
        clocks: out.to_owned(),
        variables,
        log: Arc::new(Mutex::new(log)),
    };
    let fleet = Fleet::start(program, flags.hosts.into()).await?;
    channel.webhooks_to(&fleet.base(0));
    Ok(World {
        http: reqwest::Client::builder().no_proxy().build()?,
        fleet,
        disk,
        room: Default::default(),
        channel,
        receiver,
        tally: Default::default(),
        violations,
        keys: Recent::default(),
        hot: Recent::default(),
        charged: Recent::default(),
        told: Mutex::default(),
    })
}

/// Sends visits to clients, and measures.
async fn load(flags: &Flags, world: &World, clients: &[Running]) -> Vec<Interval> {
    let began = Instant::now();
    let length = Duration::from_secs_f64(flags.minutes * 60.0);
    let mut dice = StdRng::seed_from_u64(flags.seed);
    let mut visits = interval(Duration::from_secs_f64(1.0 / flags.rate.max(0.1)));
    visits.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut intervals = Vec::new();
    let mut ended = began;
    while began.elapsed() < length {
        visits.tick().await;
        let crowd = match began.elapsed().as_secs() % FLOOD_EVERY >= FLOOD_EVERY - FLOOD_LASTS {
            true => FLOOD,
            false => 1,
        };
        for _ in 0..crowd {
            let client = dice.random_range(0..clients.len());
            if clients[client].visits.try_send(()).is_err() {
                world.tally.note(|sample| sample.shed += 1);
            }
        }
        if ended.elapsed() >= INTERVAL {
            intervals.push(Interval::take(world, began.elapsed(), ended.elapsed()));
            ended = Instant::now();
            intervals
                .last()
                .inspect(|interval| eprintln!("soak: {interval}"));
        }
    }
    intervals.push(Interval::take(world, began.elapsed(), ended.elapsed()));
    intervals
}

/// Lets clients finish what they are at, and takes their keys.
async fn end(clients: Vec<Running>) -> Result<Vec<Arc<Promise>>> {
    let ends = clients.into_iter().map(|client| client.end);
    let ends = join_all(ends).await;
    let mut promises = Vec::new();
    for end in ends {
        promises.extend(end?);
    }
    Ok(promises)
}
