//! Runs the compiled payonce.wasm through every crash, order and fault, deterministically.
//!
//! * [`world`]: what the component sees; its calls wait there until they are let.
//! * [`stage`]: instances of the component, and requests to them.
//! * [`run`]: one run, in which a chooser decides what happens next; [`trace`] says it in words.
//! * [`lab`]: the files that runs begin with.
//! * [`explore`]: all runs of a scenario, random runs, and the shortest that goes wrong.
//! * [`scenario`] and [`operations`]: what is simulated. New operations go there and into [`model`].
//! * [`oracle`]: what is wrong with a run, with the help of [`model`] and of `payonce-oracle`.
//!
//! `docs/correctness.md` says what is proved and how to read a trace.

#![forbid(unsafe_code)]

mod explore;
mod lab;
mod model;
mod operations;
mod oracle;
mod run;
mod scenario;
mod stage;
mod trace;
mod world;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;
use payonce_host::{App, Options, Setup};
use serde_json::json;

use crate::explore::{Choices, Violation};
use crate::lab::{Lab, Surroundings};
use crate::scenario::{Kind, Scenario};

/// Runs payonce.wasm through every crash, order and fault.
#[derive(Parser)]
struct Flags {
    /// The spin.toml of payonce.
    #[arg(long, env = "PAYONCE_MANIFEST", default_value = "spin.toml")]
    manifest: PathBuf,
    /// Where compiled components are kept.
    #[arg(long)]
    cache_dir: Option<PathBuf>,
    /// Another component than the manifest's.
    #[arg(long)]
    component: Option<PathBuf>,
    /// Only the scenario of this name; without one, those whose name contains it.
    #[arg(long)]
    scenario: Option<String>,
    /// Repeats one run: what was chosen, as a failure printed it.
    #[arg(long, value_parser = parse_choices)]
    choices: Option<std::vec::Vec<u8>>,
    /// How long to try random runs, seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Where random runs begin.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Expects something to be wrong: exit code 0 when it is found.
    #[arg(long)]
    defect: bool,
    /// Lists the scenarios.
    #[arg(long)]
    list: bool,
}

fn parse_choices(text: &str) -> Result<Choices> {
    let words = text.split('.').filter(|word| !word.is_empty());
    Ok(words.map(str::parse).collect::<Result<_, _>>()?)
}

fn main() -> ExitCode {
    match run(&Flags::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("payonce-sim: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Runs the command; whether it ended as it should.
fn run(flags: &Flags) -> Result<bool> {
    if flags.list {
        for scenario in scenario::exhaustive() {
            println!("{scenario}");
        }
        return Ok(true);
    }
    let mut labs = labs(flags)?;
    if let Some(choices) = &flags.choices {
        let name = flags
            .scenario
            .as_deref()
            .context("--choices needs --scenario")?;
        let scenario = scenario::named(name).with_context(|| format!("no scenario is {name}"))?;
        let report = explore::replay(&mut labs[0], &scenario, choices)?;
        print!("{}", report.trace);
        return Ok(match report.violation {
            Some(what) => {
                println!("VIOLATION: {what}");
                false
            }
            None => {
                println!("Nothing is wrong.");
                true
            }
        });
    }
    let mut totals = Totals::default();
    for scenario in wanted(flags.scenario.as_deref()) {
        totals.exhaust(&mut labs, &scenario)?;
        if totals.violation.is_some() {
            break;
        }
    }
    if totals.violation.is_none() && flags.seconds > 0 {
        let budget = Duration::from_secs(flags.seconds);
        let explored = explore::random(&mut labs, flags.seed, budget)?;
        eprintln!("{:>9} random runs from seed {}", explored.runs, flags.seed);
        totals.random = explored.runs;
        totals.violation = explored.violation;
    }
    if let Some(violation) = &mut totals.violation {
        explain(&mut labs[0], violation)?;
    }
    println!("{}", totals.json());
    Ok(totals.violation.is_some() == flags.defect)
}

/// The scenarios that are meant by a name.
fn wanted(name: Option<&str>) -> Vec<Scenario> {
    let mut all = scenario::exhaustive();
    let Some(name) = name else { return all };
    let exact = all.iter().any(|scenario| scenario.name == name);
    all.retain(|scenario| match exact {
        true => scenario.name == name,
        false => scenario.name.contains(name),
    });
    all
}

/// Prints a run that went wrong, as short as it can be, and how to repeat it.
fn explain(lab: &mut Lab, violation: &mut Violation) -> Result<()> {
    explore::shrink(lab, violation)?;
    let report = explore::replay(lab, &violation.scenario, &violation.choices)?;
    let choices: Vec<String> = violation.choices.iter().map(u8::to_string).collect();
    println!("{}", report.trace);
    println!("VIOLATION in {}: {}", violation.scenario, violation.what);
    println!(
        "Again: cargo xtask sim --scenario {} --choices {}.\n",
        violation.scenario,
        choices.join(".")
    );
    Ok(())
}

/// One lab for each processor, with one shop.
fn labs(flags: &Flags) -> Result<Vec<Lab>> {
    let quiet = setup(flags, &[])?;
    let hook = ["http://shop.test", "/hook"];
    let notifying = setup(
        flags,
        &[
            ("notify_url", &hook.concat()),
            ("notify_host", hook[0]),
            ("notify_secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        ],
    )?;
    let channel = format!("http://{}", world::CHANNEL_HOST);
    let charging = setup(
        flags,
        &[
            ("channel", "http"),
            ("channel_url", &channel),
            ("channel_host", &channel),
            ("channel_key", "key-channel"),
            ("channel_timeout_ms", "1000"),
            ("webhook_secret", run::CHANNEL_SECRET),
        ],
    )?;
    let services = Surroundings {
        alone: quiet.services.clone(),
        receiver: notifying.services,
        channel: charging.services,
    };
    let app = Arc::new(App::new(quiet)?);
    let mut first = Lab::new(Arc::clone(&app), services.clone(), None)?;
    let shop = first.open_shop()?;
    let mut labs = vec![first];
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    while labs.len() < processors {
        labs.push(Lab::new(
            Arc::clone(&app),
            services.clone(),
            Some(Arc::clone(&shop)),
        )?);
    }
    Ok(labs)
}

/// The application with the variables of the simulation and `more`.
fn setup(flags: &Flags, more: &[(&str, &str)]) -> Result<Setup> {
    let variables = [
        ("api_keys", "m=key-m,n=key-n"),
        ("admin_key", "key-admin"),
        ("token_secret", "a-secret-of-the-simulation"),
        ("claim_lease_ms", "3000"),
        ("claim_after_ms", "1"),
        ("default_wait_ms", "30"),
    ];
    let variables = variables.iter().chain(more);
    let options = Options {
        manifest: flags.manifest.clone(),
        state_dir: Some(std::env::temp_dir()),
        cache_dir: flags.cache_dir.clone(),
        variables: variables
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..Options::default()
    };
    let mut setup = Setup::load(&options)?;
    if let Some(component) = &flags.component {
        setup.wasm.clone_from(component);
    }
    setup.preempt = false;
    Ok(setup)
}

/// What was done.
#[derive(Default)]
struct Totals {
    runs: BTreeMap<Kind, u64>,
    schedules: f64,
    random: u64,
    violation: Option<Violation>,
}

impl Totals {
    fn exhaust(&mut self, labs: &mut [Lab], scenario: &Scenario) -> Result<()> {
        let began = Instant::now();
        let explored = explore::exhaust(labs, scenario)?;
        eprintln!(
            "{:>9} runs for {:>12.0} schedules of {scenario}, {:.1} s",
            explored.runs,
            explored.schedules,
            began.elapsed().as_secs_f64()
        );
        *self.runs.entry(scenario.kind).or_default() += explored.runs;
        self.schedules += explored.schedules;
        self.violation = explored.violation;
        Ok(())
    }

    fn json(&self) -> serde_json::Value {
        let runs = |kind| self.runs.get(&kind).copied().unwrap_or(0);
        json!({
            "schedules": self.schedules,
            "schedule_runs": runs(Kind::Schedules),
            "crash_points": runs(Kind::CrashPoints),
            "pairs": runs(Kind::CrashPairs),
            "store_faults": runs(Kind::StoreFaults),
            "database_faults": runs(Kind::DatabaseFaults),
            "network_faults": runs(Kind::NetworkFaults),
            "random_runs": self.random,
            "violations": u8::from(self.violation.is_some()),
        })
    }
}
