//! How the WebAssembly target gets built on this machine.
//!
//! In this order: the target is installed; rustup installs it; Debian's packages bring a compiler
//! and the source of its standard library ([`debian`]), for machines that reach no Rust
//! distribution server. One line says which way was taken.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::debian::{self, Debian};
use crate::workspace;

/// What components are compiled for.
pub const TARGET: &str = "wasm32-wasip2";

/// How long rustup may take. Its own time-outs and retries add up to many minutes.
const RUSTUP_LIMIT: Duration = Duration::from_secs(90);

/// A way to build for [`TARGET`] that works here.
pub enum Toolchain {
    /// The active toolchain has the target.
    Installed,
    /// Debian's compiler, with a standard library built from source.
    Debian(Debian),
}

impl Toolchain {
    /// Finds a way, installing what is missing, and says in one line which way it is.
    pub fn ensure() -> Result<Self, String> {
        if installed() {
            eprintln!("xtask: {TARGET}: the toolchain has it");
            return Ok(Self::Installed);
        }
        let rustup = match add_with_rustup() {
            Ok(()) => {
                eprintln!("xtask: {TARGET}: added with rustup");
                return Ok(Self::Installed);
            }
            Err(reason) => reason,
        };
        match Debian::ensure() {
            Ok(debian) => {
                let version = debian.version();
                eprintln!("xtask: {TARGET}: built with Debian's {version}, as {rustup}");
                Ok(Self::Debian(debian))
            }
            Err(debian) => Err(nothing_works(&rustup, &debian)),
        }
    }

    /// Sets a `cargo build --target wasm32-wasip2` up for this way.
    pub fn configure(&self, build: &mut Command) {
        if let Self::Debian(debian) = self {
            debian.configure(build);
        }
    }
}

/// Asks the active toolchain a question.
pub fn rustc(arguments: &[&str]) -> Option<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    workspace::output(Command::new(rustc).args(arguments))
}

/// Whether the active toolchain has a standard library for [`TARGET`].
fn installed() -> bool {
    rustc(&["--print", "target-libdir", "--target", TARGET])
        .and_then(|folder| std::fs::read_dir(folder).ok())
        .is_some_and(|files| {
            files
                .flatten()
                .any(|file| file.file_name().to_string_lossy().starts_with("libstd-"))
        })
}

/// Adds the target to the active toolchain, or says in one clause why that failed.
fn add_with_rustup() -> Result<(), String> {
    let Some(rustup) = workspace::on_path("rustup") else {
        return Err("rustup is not installed".into());
    };
    eprintln!("xtask: {TARGET}: asking rustup for it");
    let mut child = Command::new(rustup)
        .args(["target", "add", TARGET])
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("rustup does not start ({error})"))?;
    let deadline = Instant::now() + RUSTUP_LIMIT;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(50)),
            Ok(None) | Err(_) => {
                child.kill().ok();
                child.wait().ok();
                return Err(format!("rustup did not finish in {RUSTUP_LIMIT:?}"));
            }
        }
    };
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut said).ok();
    }
    match (status.success(), installed()) {
        (true, true) => Ok(()),
        (true, false) => Err("rustup serves another toolchain than the active one".into()),
        (false, _) => Err(format!("rustup failed ({})", first_error(&said))),
    }
}

/// What went wrong, out of rustup's output, without the chain of causes behind it.
fn first_error(said: &str) -> &str {
    said.lines()
        .find_map(|line| line.strip_prefix("error: "))
        .and_then(|error| error.split(": ").next())
        .unwrap_or("it did not say why")
}

fn nothing_works(rustup: &str, debian: &str) -> String {
    format!(
        "nothing here can build for {TARGET}:\n  {rustup}\n  {debian}\n\
         Install one of these and start again:\n  \
         with rustup:  rustup target add {TARGET}\n  \
         on Debian:    apt-get install {}",
        debian::PACKAGES.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rustup_is_quoted_in_a_few_words() {
        let said = "info: downloading\nerror: component download failed: try again: x\nmore\n";
        assert_eq!(first_error(said), "component download failed");
        assert_eq!(first_error(""), "it did not say why");
    }

    #[test]
    fn when_nothing_works_the_message_says_what_to_install() {
        let message = nothing_works("rustup is not installed", "there is no apt-get");
        assert!(message.contains("rustup target add wasm32-wasip2"));
        assert!(message.contains("apt-get install rustc-web rust-web-src wasi-libc"));
    }
}
