//! `cargo xtask bench`: builds what is measured and what it is measured against, then hands over to
//! the load generator in benches/load, which knows the flags and prints the numbers.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::args::Args;
use crate::component::{BARE, PAYONCE, build_component};
use crate::toolchain::Toolchain;
use crate::up::HOST;
use crate::{Failure, workspace};

const LOAD: &str = "payonce-load";

/// Runs `cargo xtask bench`, passing its flags on.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let toolchain = Toolchain::ensure()?;
    build_component(&toolchain, PAYONCE)?;
    build_component(&toolchain, BARE)?;
    workspace::build_programs(&[HOST])?;
    workspace::build_programs(&[LOAD])?;
    let status = Command::new(workspace::program(LOAD))
        .args(args.rest())
        .env("PAYONCE_HOST", workspace::program(HOST))
        .env("PAYONCE_MANIFEST", workspace::manifest())
        .env("PAYONCE_BARE_MANIFEST", bare_manifest())
        .status()
        .map_err(|error| format!("{LOAD} does not start: {error}"))?;
    // It has said what is wrong, wrong flags included.
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

fn bare_manifest() -> PathBuf {
    workspace::root().join("benches/bare/spin.toml")
}
