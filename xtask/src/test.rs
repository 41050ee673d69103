//! `cargo xtask test`: formatting, lints, native tests, then the black-box tests over HTTP, against
//! a server of their own or, with `--http URL`, against any running deployment.
//!
//! It stops at the first stage that fails. The last line is always a plain count of tests.

use std::env;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};

use crate::args::{Args, unknown};
use crate::component::{PAYONCE, build_component};
use crate::keys::{declares, parse_api_keys};
use crate::python::ensure_schemathesis;
use crate::sim::{self, SIM};
use crate::soak::SOAK;
use crate::toolchain::Toolchain;
use crate::up::HOST;
use crate::workspace::{self, PROFILE};
use crate::{Failure, args};

/// Runs `cargo xtask test`.
pub fn run(mut args: args::Args) -> Result<ExitCode, Failure> {
    let url = parse(&mut args)?;
    let mut count = Count::default();
    let outcome = match url {
        Some(url) => {
            let admin = declares(&workspace::read_manifest()?, "admin_key");
            check_environment(admin, |name| env::var(name).ok())?;
            deployment(&url, &mut count)
        }
        None => everything(&mut count),
    };
    if let Err(reason) = &outcome {
        eprintln!("xtask: {reason}");
    }
    println!("{count}");
    Ok(match outcome {
        Ok(()) if count.failed == 0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// The address behind `--http`, if it is there.
fn parse(args: &mut Args) -> Result<Option<String>, Failure> {
    let mut url = None;
    while let Some(flag) = args.flag()? {
        match flag.as_str() {
            "--http" => url = Some(args.value(&flag)?),
            other => return Err(unknown(other)),
        }
    }
    match url.as_deref().map(|url| url.split_once("://")) {
        None => Ok(None),
        Some(Some(("http" | "https", host))) if !host.is_empty() => Ok(url),
        Some(_) => Err(Failure::Usage(
            "--http takes an http:// or https:// URL".into(),
        )),
    }
}

/// Fails when the suite would lack a key: it needs two merchants, to look over the fence, and the
/// admin key if the application has one.
fn check_environment(admin: bool, variable: impl Fn(&str) -> Option<String>) -> Result<(), String> {
    let keys = variable("PAYONCE_API_KEYS")
        .ok_or("PAYONCE_API_KEYS is not set: merchant=key,merchant2=key2 of the deployment")?;
    let merchants =
        parse_api_keys(&keys).map_err(|reason| format!("PAYONCE_API_KEYS: {reason}"))?;
    if merchants.len() < 2 {
        return Err("PAYONCE_API_KEYS has one merchant, the suite needs two".into());
    }
    match variable("PAYONCE_ADMIN_KEY") {
        Some(key) if !key.is_empty() => Ok(()),
        _ if !admin => Ok(()),
        _ => Err("PAYONCE_ADMIN_KEY is not set: the admin key of the deployment".into()),
    }
}

fn everything(count: &mut Count) -> Result<(), String> {
    stage("formatting");
    needs_component("fmt", "rustfmt")?;
    workspace::run(workspace::cargo("fmt").args(["--all", "--check"]))?;

    stage("lints");
    needs_component("clippy", "clippy")?;
    let mut clippy = workspace::cargo("clippy");
    // In the profile of the builds, with which it shares build scripts and their C libraries.
    clippy.args(["--profile", PROFILE, "--workspace", "--all-targets"]);
    workspace::run(clippy.args(["--", "-D", "warnings"]))?;

    stage("native tests");
    // The host and the simulation by themselves, in the combination of features in which they are built
    // below.
    count.run(cargo_test().args(["--package", PAYONCE, "--lib"]))?;
    count.run(cargo_test().args(["--package", HOST, "--package", SIM]))?;
    count.run(cargo_test().args(["--package", "payonce-channel", "--package", SOAK]))?;
    count.run(cargo_test().args(["--package", "xtask", "--package", "payonce-load"]))?;

    stage("component and host");
    let toolchain = Toolchain::ensure()?;
    build_component(&toolchain, PAYONCE)?;
    workspace::build_programs(&[HOST, SIM])?;

    stage("tests over HTTP");
    let mut suites = vec!["--test", "http", "--test", "faults"];
    if ensure_schemathesis()? {
        suites.extend(["--test", "schemathesis"]);
    } else {
        count.skipped += 1;
    }
    count.run(
        cargo_test()
            .args(["--package", PAYONCE])
            .args(suites)
            .env_remove("PAYONCE_URL")
            .env("PAYONCE_HOST", workspace::program(HOST))
            .env("PAYONCE_MANIFEST", workspace::manifest()),
    )?;

    stage("simulation");
    match sim::everything(&toolchain, &[]) {
        // The component, and each defect that was found.
        Ok(found) => count.passed += 1 + found as u64,
        Err(reason) => {
            count.failed += 1;
            return Err(reason);
        }
    }
    Ok(())
}

fn deployment(url: &str, count: &mut Count) -> Result<(), String> {
    count.run(
        cargo_test()
            .args(["--package", PAYONCE, "--test", "http"])
            .env("PAYONCE_URL", url.trim_end_matches('/')),
    )
}

fn stage(name: &str) {
    eprintln!("xtask: {name}");
}

fn cargo_test() -> Command {
    let mut test = workspace::cargo("test");
    test.args(["--profile", PROFILE, "--no-fail-fast"]);
    test
}

/// Fails when an optional part of the toolchain is missing.
fn needs_component(subcommand: &str, component: &str) -> Result<(), String> {
    match workspace::output(workspace::cargo(subcommand).arg("--version")) {
        Some(_) => Ok(()),
        None => Err(format!(
            "the toolchain has no {component}: rustup component add {component}"
        )),
    }
}

/// How many tests ran, added up over all test programs.
#[derive(Debug, Default, PartialEq)]
struct Count {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Count {
    /// Runs a `cargo test`, shows its output and adds its results.
    fn run(&mut self, test: &mut Command) -> Result<(), String> {
        let line = workspace::shown(test);
        let failed = |error: std::io::Error| format!("`{line}`: {error}");
        let mut child = test.stdout(Stdio::piped()).spawn().map_err(failed)?;
        if let Some(stdout) = child.stdout.take() {
            let mut out = std::io::stdout();
            for text in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                let text = String::from_utf8_lossy(&text);
                writeln!(out, "{text}").ok();
                self.add(&text);
            }
        }
        let status = child.wait().map_err(failed)?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("`{line}` failed ({status})"))
        }
    }

    /// Adds `test result: ok. 3 passed; 0 failed; 1 ignored; …`; other lines count nothing.
    fn add(&mut self, line: &str) {
        let Some((_, results)) = line
            .strip_prefix("test result: ")
            .and_then(|results| results.split_once(". "))
        else {
            return;
        };
        for result in results.split(';') {
            if let Some((number, kind)) = result.trim().split_once(' ') {
                let number = number.parse().unwrap_or(0);
                match kind {
                    "passed" => self.passed += number,
                    "failed" => self.failed += number,
                    "ignored" => self.skipped += number,
                    _ => {}
                }
            }
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} passed, {} failed", self.passed, self.failed)?;
        match self.skipped {
            0 => Ok(()),
            skipped => write!(out, ", {skipped} skipped"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(words: &[&str]) -> Result<Option<String>, Failure> {
        parse(&mut Args::new(words.iter().map(|word| word.to_string())))
    }

    #[test]
    fn only_web_addresses_are_taken() {
        assert_eq!(url(&[]), Ok(None));
        assert_eq!(
            url(&["--http", "https://x/"]),
            Ok(Some("https://x/".into()))
        );
        for wrong in [
            "--http",
            "--http=x:3000",
            "--http=ftp://x",
            "--http=http://",
            "x",
        ] {
            assert!(matches!(url(&[wrong]), Err(Failure::Usage(_))), "{wrong}");
        }
    }

    #[test]
    fn a_missing_key_is_named() {
        let check = |keys: &str, admin: &str| {
            let (keys, admin) = (keys.to_owned(), admin.to_owned());
            check_environment(true, move |name| match name {
                "PAYONCE_API_KEYS" => Some(keys.clone()),
                _ => Some(admin.clone()),
            })
        };
        assert!(check("a=1,b=2", "x").is_ok());
        assert!(check("a=1", "x").unwrap_err().contains("two"));
        assert!(check("a", "x").unwrap_err().contains("PAYONCE_API_KEYS"));
        assert!(
            check("a=1,b=2", "")
                .unwrap_err()
                .contains("PAYONCE_ADMIN_KEY")
        );
        assert!(check_environment(true, |_| None).is_err());
        let without_admin = |name: &str| (name == "PAYONCE_API_KEYS").then(|| "a=1,b=2".into());
        assert!(check_environment(true, without_admin).is_err());
        assert!(check_environment(false, without_admin).is_ok());
    }

    #[test]
    fn the_tests_that_the_threat_model_names_exist() {
        let root = workspace::root();
        let mut sources = String::new();
        for folder in ["src", "tests", "host", "xtask"] {
            read_sources(&root.join(folder), &mut sources);
        }
        let page = std::fs::read_to_string(root.join("docs/security.md")).unwrap();
        let (_, threats) = page.split_once("\n## Requests\n").unwrap();
        let mut named = 0;
        for row in threats.lines().filter(|line| line.starts_with("| ")) {
            let tests = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
            for test in tests.split('`').skip(1).step_by(2) {
                assert!(sources.contains(&format!("fn {test}(")), "{test}");
                named += 1;
            }
        }
        assert!(named > 50, "{named}");
    }

    fn read_sources(folder: &std::path::Path, sources: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read_sources(&path, sources);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }

    #[test]
    fn results_are_summed_and_other_lines_ignored() {
        let mut count = Count::default();
        count.add("running 3 tests");
        count.add("test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out");
        assert_eq!(count.to_string(), "3 passed, 0 failed");
        count.add("test result: FAILED. 2 passed; 1 failed; 4 ignored; 0 measured; finished in 0s");
        count.add("the test result: ok. 9 passed");
        assert_eq!(count.to_string(), "5 passed, 1 failed, 4 skipped");
    }
}
