//! `cargo xtask`: everything that is done with this repository, on nothing but a Rust toolchain.
//!
//! Start reading here: this file names the commands and hands over to one file for each,
//! [`component`] (`build`), [`up`], [`test`], [`sim`], [`soak`] and [`bench`]. They share [`workspace`] (where things
//! are, how cargo is called), [`toolchain`] (how the WebAssembly target gets built on this machine)
//! and [`args`].

mod args;
mod bench;
mod component;
mod debian;
mod defects;
mod keys;
#[cfg(test)]
mod licences;
mod python;
mod secrets;
mod signals;
mod sim;
mod soak;
mod test;
mod toolchain;
mod up;
mod walk;
mod workspace;

use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo xtask <command>

  up [--port N] [--data DIR] [--variable NAME=VALUE]... [--spin]
        build payonce and serve it on 127.0.0.1 (port 3000; data in .spin);
        without configured keys it makes demo keys and prints a walk to try.
        --spin serves with the Spin CLI instead of the host in host/
  test  formatting, lints, native tests, then the black-box tests over HTTP
  test --http URL
        only the HTTP suite, against a running deployment; keys from the environment:
        PAYONCE_API_KEYS=merchant=key,merchant2=key2 and, if spin.toml has an
        admin key, PAYONCE_ADMIN_KEY=key
  sim [--seconds N] [--seed N]
        run the component through every crash, order and fault, deterministically, and
        components with seeded defects through those that must find them
  sim --defects
        only the components with seeded defects
  sim --scenario NAME [--choices LIST]
        only what has this in its name; or one run again, with its trace
  soak [--minutes N] [--clients N] [--rate N] [--hosts N] [--out DIR]
        load payonce while its hosts are killed, then hold it to every answer it gave;
        numbers and a plot in target/soak
  bench [--seconds N] [--json FILE]
        measure payonce against a bare component that makes the same host calls
  build the component alone: target/wasm32-wasip2/release/payonce.wasm
  help  this text
";

/// Why a command did not end well.
#[derive(Debug, PartialEq)]
pub enum Failure {
    /// The command line makes no sense: usage is printed, exit code 2.
    Usage(String),
    /// Something that was tried did not work: exit code 1.
    Stopped(String),
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Self::Stopped(reason)
    }
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    let args = args::Args::new(words);
    let outcome = match command.as_str() {
        "up" => up::run(args),
        "test" => test::run(args),
        "sim" => sim::run(args),
        "soak" => soak::run(args),
        "bench" => bench::run(args),
        "build" => component::run(args),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        "" => Err(Failure::Usage("a command is missing".into())),
        other => Err(Failure::Usage(format!("there is no command `{other}`"))),
    };
    match outcome {
        Ok(code) => code,
        Err(Failure::Usage(reason)) => {
            eprint!("xtask: {reason}\n\n{USAGE}");
            ExitCode::from(2)
        }
        Err(Failure::Stopped(reason)) => {
            eprintln!("xtask: {reason}");
            ExitCode::FAILURE
        }
    }
}
