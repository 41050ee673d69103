//! `cargo xtask soak`: builds the component, the host and the load of tests/soak, which knows the flags, judges
//! and prints the numbers.

use std::process::{Command, ExitCode};

use crate::args::Args;
use crate::component::{PAYONCE, build_component};
use crate::toolchain::Toolchain;
use crate::up::HOST;
use crate::{Failure, workspace};

/// The package of the load.
pub const SOAK: &str = "payonce-soak";

/// Runs `cargo xtask soak`, passing its flags on.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let toolchain = Toolchain::ensure()?;
    build_component(&toolchain, PAYONCE)?;
    // Apart, so that the host is built with the features that the other commands build it with.
    workspace::build_programs(&[HOST])?;
    workspace::build_programs(&[SOAK])?;
    let status = Command::new(workspace::program(SOAK))
        .args(args.rest())
        .env("PAYONCE_HOST", workspace::program(HOST))
        .env("PAYONCE_MANIFEST", workspace::manifest())
        .status()
        .map_err(|error| format!("{SOAK} does not start: {error}"))?;
    // It has said what is wrong, wrong flags included.
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
