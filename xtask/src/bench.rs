//! `cargo xtask bench`: builds what is measured and what it is measured against, then hands over to
//! the load generator in benches/load, which knows the flags and prints the numbers.

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
    workspace::build_program(HOST)?;
    workspace::build_program(LOAD)?;
    workspace::run(
        Command::new(workspace::program(LOAD))
            .args(args.rest())
            .env("PAYONCE_HOST", workspace::program(HOST))
            .env("PAYONCE_MANIFEST", workspace::manifest())
            .env(
                "PAYONCE_BARE_MANIFEST",
                workspace::root().join("benches/bare/spin.toml"),
            ),
    )?;
    Ok(ExitCode::SUCCESS)
}
