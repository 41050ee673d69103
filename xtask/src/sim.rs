//! `cargo xtask sim`: the simulation on the component that is deployed, and then on components with
//! seeded defects, which it has to find.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, Stdio};

use crate::args::Args;
use crate::component::{PAYONCE, build_component};
use crate::defects::{DEFECTS, Workshop};
use crate::toolchain::Toolchain;
use crate::{Failure, workspace};

/// The package of the simulation.
pub const SIM: &str = "payonce-sim";

/// Runs `cargo xtask sim`, passing its flags on. With flags that ask for a part the defects are left out.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let flags: Vec<String> = args.rest().collect();
    let part = ["--scenario", "--choices", "--list", "--help"];
    let whole = !flags
        .iter()
        .any(|flag| part.iter().any(|part| flag.starts_with(part)));
    let toolchain = Toolchain::ensure()?;
    build_component(&toolchain, PAYONCE)?;
    workspace::build_programs(&[SIM])?;
    if flags == ["--defects"] {
        println!("{} seeded defects were found", defects(&toolchain)?);
        return Ok(ExitCode::SUCCESS);
    }
    if !whole {
        let status = simulation()
            .args(&flags)
            .status()
            .map_err(|error| format!("{SIM} does not start: {error}"))?;
        // It has said what is wrong, wrong flags included.
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
    }
    everything(&toolchain, &flags)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs all of it; returns how many defects were found. The last line of the output is one JSON object.
pub fn everything(toolchain: &Toolchain, flags: &[String]) -> Result<usize, String> {
    let numbers = simulate(simulation().args(flags))?;
    let found = defects(toolchain)?;
    let open = numbers.strip_suffix('}').unwrap_or(&numbers);
    println!("{open},\"seeded_defects\":{found},\"seeded_defects_caught\":{found}}}");
    Ok(found)
}

/// Seeds each defect, which has to be found; returns how many there are.
fn defects(toolchain: &Toolchain) -> Result<usize, String> {
    let workshop = Workshop::new()?;
    let mut missed = Vec::new();
    for defect in DEFECTS {
        let component = workshop.build(toolchain, defect)?;
        let mut simulation = simulation();
        simulation.arg("--component").arg(component);
        simulation.args(["--defect", "--seconds", "0", "--scenario", defect.scenario]);
        match simulate(&mut simulation) {
            Ok(_) => eprintln!("xtask: found the seeded defect `{}`", defect.name),
            Err(_) => missed.push(defect.name),
        }
    }
    if !missed.is_empty() {
        return Err(format!(
            "the simulation does not find: {}",
            missed.join("; ")
        ));
    }
    Ok(DEFECTS.len())
}

fn simulation() -> Command {
    let mut simulation = Command::new(workspace::program(SIM));
    simulation.arg("--manifest").arg(workspace::manifest());
    let cache = workspace::root().join("target/sim-cache");
    simulation.arg("--cache-dir").arg(cache);
    simulation
}

/// Runs a simulation and shows its output, but for the last line, which it returns.
fn simulate(simulation: &mut Command) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{SIM}: {error}");
    let mut child = simulation.stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut last = String::new();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            let line = line.map_err(failed)?;
            if !last.is_empty() {
                writeln!(std::io::stdout(), "{last}").map_err(failed)?;
            }
            last = line;
        }
    }
    match child.wait().map_err(failed)? {
        status if status.success() => Ok(last),
        status => Err(format!("{SIM} failed ({status}): {last}")),
    }
}
