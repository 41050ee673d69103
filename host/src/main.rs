//! The command line: `payonce-host [--from spin.toml] [--listen 127.0.0.1:3000] …`.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use payonce_host::faults::{LosesResults, WrongClock};
use payonce_host::{App, Handler, Limits, Options, Setup, serve};
use tokio::net::TcpListener;

/// Runs the HTTP component of a spin.toml, like `spin up`. For development and tests, not for
/// production.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The manifest, or the directory it is in.
    #[arg(
        long,
        short = 'f',
        visible_alias = "file",
        value_name = "FILE",
        default_value = "spin.toml"
    )]
    from: PathBuf,

    /// Address and port to listen on; port 0 takes a free one.
    #[arg(long, env = "SPIN_HTTP_LISTEN_ADDR", default_value = "127.0.0.1:3000")]
    listen: String,

    /// Where the default store and database are [default: .spin beside the manifest].
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,

    /// Which files are behind other labels, as for Spin; only local ones.
    #[arg(long, env = "RUNTIME_CONFIG_FILE", value_name = "FILE")]
    runtime_config_file: Option<PathBuf>,

    /// A value for a variable of the application. It goes before SPIN_VARIABLE_NAME.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable)]
    variable: Vec<(String, String)>,

    /// SQL to run on the default database before the start.
    #[arg(long, value_name = "SQL | @FILE")]
    sqlite: Vec<String>,

    /// Requests that one instance serves in its life.
    #[arg(long, value_name = "N", default_value_t = Limits::default().reuse)]
    max_instance_reuse_count: usize,

    /// Requests that one instance serves at the same time.
    #[arg(long, value_name = "N", default_value_t = Limits::default().concurrent_reuse)]
    max_instance_concurrent_reuse_count: usize,

    /// How long an instance is kept without a request: seconds, or with ms, us or ns.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    idle_instance_timeout: Duration,

    /// How long a request may take until its answer begins [default: any time].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    request_timeout: Option<Duration>,

    /// The most linear memory an instance may have.
    #[arg(long, env = "SPIN_MAX_INSTANCE_MEMORY", value_name = "BYTES")]
    max_instance_memory: Option<usize>,

    /// Prints a line of JSON to stderr when an instance is dropped: its requests and peak memory.
    #[arg(long)]
    print_instance_stats: bool,

    /// Where compiled components are kept [default: target/payonce-host beside the manifest].
    #[arg(long, value_name = "DIR")]
    cache_dir: Option<PathBuf>,

    /// For tests: the next statement that begins with this text takes effect and reports an error.
    #[arg(long, value_name = "SQL")]
    lose_result: Vec<String>,

    /// For tests: the wall clock is ahead by as many milliseconds as stand in this file, now.
    #[arg(long, value_name = "FILE")]
    clock_ahead: Option<PathBuf>,

    /// How long requests may take to finish when the host is told to stop.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    shutdown_grace: Duration,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let result = runtime.block_on(start(arguments));
    // A statement may be waiting for a lock; the process does not wait for it.
    runtime.shutdown_timeout(Duration::from_millis(200));
    result
}

async fn start(arguments: Arguments) -> Result<()> {
    // Before anything slow, so that an early signal ends the process cleanly too.
    let stop = stop_signal()?;
    eprintln!("payonce-host: a development and test host, not for production.");
    let manifest = match arguments.from.is_dir() {
        true => arguments.from.join("spin.toml"),
        false => arguments.from,
    };
    let cache_dir = arguments.cache_dir.unwrap_or_else(|| {
        manifest
            .parent()
            .unwrap_or(Path::new(""))
            .join("target/payonce-host")
    });
    let mut setup = Setup::load(&Options {
        manifest,
        state_dir: arguments.state_dir,
        runtime_config: arguments.runtime_config_file,
        variables: arguments.variable,
        cache_dir: Some(cache_dir),
        max_instance_memory: arguments.max_instance_memory,
    })?;
    setup.run_sqlite(&arguments.sqlite).await?;
    if !arguments.lose_result.is_empty() {
        for database in setup.services.databases.values_mut() {
            let lost = arguments.lose_result.clone();
            *database = Arc::new(LosesResults::new(Arc::clone(database), lost));
        }
    }
    if let Some(ahead) = arguments.clock_ahead {
        let clock = WrongClock { ahead };
        setup.services.wasi = Some(Arc::new(move |wasi| {
            wasi.wall_clock(clock.clone());
        }));
    }
    let app = Arc::new(App::new(setup)?);
    let limits = Limits {
        reuse: arguments.max_instance_reuse_count,
        concurrent_reuse: arguments.max_instance_concurrent_reuse_count,
        idle_timeout: arguments.idle_instance_timeout,
        request_timeout: arguments.request_timeout,
        print_stats: arguments.print_instance_stats,
    };
    let listener = TcpListener::bind(&arguments.listen)
        .await
        .with_context(|| format!("cannot listen on {}", arguments.listen))?;
    announce(listener.local_addr()?)?;
    if !serve(
        Handler::new(app, limits),
        listener,
        stop,
        arguments.shutdown_grace,
    )
    .await
    {
        eprintln!("Stopped before everything was finished.");
    }
    Ok(())
}

/// The one line on stdout that is not the component's.
fn announce(address: SocketAddr) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "Serving http://{address}")?;
    Ok(stdout.flush()?)
}

/// Ready at the first SIGINT or SIGTERM.
#[cfg(unix)]
fn stop_signal() -> Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Ready at Ctrl-C.
#[cfg(not(unix))]
fn stop_signal() -> Result<impl Future<Output = ()>> {
    Ok(async { drop(tokio::signal::ctrl_c().await) })
}

fn parse_variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.to_owned()))
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let number = || {
        digits
            .parse()
            .map_err(|_| format!("{text:?} is no time, such as 500ms or 1s"))
    };
    match &text[digits.len()..] {
        "" | "s" => Ok(Duration::from_secs(number()?)),
        "ms" => Ok(Duration::from_millis(number()?)),
        "us" | "μs" => Ok(Duration::from_micros(number()?)),
        "ns" => Ok(Duration::from_nanos(number()?)),
        unit => Err(format!("{unit:?} is no unit of time: s, ms, us or ns")),
    }
}
