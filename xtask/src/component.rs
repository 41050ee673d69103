//! `cargo xtask build`: the WebAssembly component alone. The other commands build theirs here too.

use std::process::ExitCode;

use crate::args::Args;
use crate::toolchain::{TARGET, Toolchain};
use crate::{Failure, workspace};

/// The package that spin.toml serves.
pub const PAYONCE: &str = "payonce";

/// The package that does only the host calls, as a yardstick for `bench`.
pub const BARE: &str = "payonce-bare";

/// Runs `cargo xtask build`.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    args.end()?;
    build_component(&Toolchain::ensure()?, PAYONCE)?;
    Ok(ExitCode::SUCCESS)
}

/// Builds a component package to `target/wasm32-wasip2/release`, where the application manifests
/// look for it, under the package's name with underscores.
pub fn build_component(toolchain: &Toolchain, package: &str) -> Result<(), String> {
    eprintln!("xtask: building the component {package}");
    let mut build = workspace::cargo("build");
    build.args(["--release", "--lib", "--package", package]);
    build.args(["--target", TARGET]);
    toolchain.configure(&mut build);
    workspace::run(&mut build)
}
