//! Measures payonce against a component that makes only its host calls; see benches/README.md.
//!
//! * [`contest`] runs the two sides against each other, on hosts that [`host`] starts.
//! * [`footprint`] measures size and memory.
//! * [`shop`] prepares orders and payments, [`client`] and [`drive`] send requests.
//! * [`stats`] and [`report`] make numbers and verdicts of it.

mod client;
mod contest;
mod drive;
mod footprint;
mod host;
mod report;
mod shop;
mod stats;

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;

use crate::contest::{Arena, CONTESTS, Contest, Rounds};
use crate::host::{Host, Program};
use crate::report::Report;

/// Measures payonce against a component that makes only its host calls.
///
/// Ends with code 0 whether targets are met or not, and with 1 when a request gets an answer that it
/// must not get.
#[derive(Debug, Parser)]
#[command(version)]
struct Options {
    /// How long each side is loaded in a round
    #[arg(long, value_name = "N", default_value_t = 3.0, value_parser = positive)]
    seconds: f64,
    /// Rounds of each contest, after the warm-up
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Requests under which memory must not grow
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    requests: usize,
    /// Only to see that everything runs: one short round, few requests
    #[arg(long)]
    quick: bool,
    /// Only the measures whose name begins so: replay-1, replay-64, payment-1, payment-64, size, memory
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Where the JSON goes too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
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
    /// The bare component's spin.toml
    #[arg(
        long,
        env = "PAYONCE_BARE_MANIFEST",
        default_value = "benches/bare/spin.toml"
    )]
    bare_manifest: PathBuf,
}

const SIZE: &str = "size";
const MEMORY: &str = "memory";

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if seconds > 0.0 && seconds <= 3600.0 => Ok(seconds),
        _ => Err("a number of seconds above 0".into()),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut options = Options::parse();
    if options.quick {
        (options.seconds, options.rounds, options.requests) = (0.5, 1, 5_000);
    }
    let outcome = tokio::select! {
        outcome = run(&options) => outcome,
        () = interrupted() => Err(anyhow::anyhow!("interrupted")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("payonce-load: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Ready at the first SIGINT or SIGTERM, so that no host and no data stay behind.
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

async fn run(options: &Options) -> Result<()> {
    let chosen = |name: &str| {
        let only = options.only.as_deref();
        only.is_none_or(|only| name.starts_with(only))
    };
    let contests: Vec<&Contest> = CONTESTS.iter().filter(|c| chosen(c.name)).collect();
    ensure!(
        !contests.is_empty() || chosen(SIZE) || chosen(MEMORY),
        "there is no measure with the name {}",
        options.only.as_deref().unwrap_or_default()
    );

    // Beside the build, so that it is on a disk and not in memory.
    let root = options.manifest.parent().unwrap_or(Path::new(""));
    let target = root.join("target");
    std::fs::create_dir_all(&target)
        .with_context(|| format!("cannot create {}", target.display()))?;
    let data = tempfile::Builder::new()
        .prefix("bench-")
        .tempdir_in(&target)?;
    let program = Program {
        host: options.host.clone(),
        cache: target.join("payonce-host"),
    };

    let mut report = Report::default();
    if !contests.is_empty() {
        let start = async |manifest: &Path, folder: &str| {
            let data = data.path().join(folder);
            Host::start(&program, manifest, &data, &[], Stdio::null()).await
        };
        let bare = start(&options.bare_manifest, "bare").await?;
        let payonce = start(&options.manifest, "payonce").await?;
        let mut arena = Arena::new(bare, payonce).await?;
        let rounds = Rounds {
            count: options.rounds.into(),
            length: Duration::from_secs_f64(options.seconds),
        };
        for contest in contests {
            let outcome = arena.run(contest, rounds).await?;
            report.contest(contest, &outcome);
        }
    }
    if chosen(SIZE) {
        report.size(footprint::component_size(&options.manifest)?);
    }
    if chosen(MEMORY) {
        let data = data.path().join("memory");
        let marks = footprint::growth(&program, &options.manifest, &data, options.requests).await?;
        report.growth(marks);
    }

    println!("{}\n\n{}", report.table(), report.json());
    if let Some(file) = &options.json {
        let text = format!("{:#}\n", report.json());
        if let Err(error) = std::fs::write(file, text) {
            bail!("cannot write {}: {error}", file.display());
        }
    }
    Ok(())
}
