//! Where the repository's things are, and how cargo and other programs are called.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The profile of everything that runs on the developer's machine. Builds and tests share it, so
/// that Wasmtime is compiled once.
pub const PROFILE: &str = "tools";

/// The root of the repository.
///
/// Cargo names it at run time; a path from compile time would be wrong when clones share a target
/// directory.
pub fn root() -> PathBuf {
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    xtask.parent().map_or(xtask.clone(), Path::to_path_buf)
}

/// The Spin application.
pub fn manifest() -> PathBuf {
    root().join("spin.toml")
}

/// The text of [`manifest`].
pub fn read_manifest() -> Result<String, String> {
    let file = manifest();
    std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))
}

/// A native program of this workspace, built with [`PROFILE`].
pub fn program(name: &str) -> PathBuf {
    root()
        .join("target")
        .join(PROFILE)
        .join(name)
        .with_extension(std::env::consts::EXE_EXTENSION)
}

/// The cargo that runs us, in the root of the repository.
///
/// Always with the target directory that spin.toml names, whatever the environment says, and
/// without what cargo says about xtask: build scripts that watch it (that of `ring` does) would run
/// again, and much of the host be compiled again, at every change between `cargo` and
/// `cargo xtask`.
pub fn cargo(subcommand: &str) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root()).arg(subcommand);
    cargo.env("CARGO_TARGET_DIR", root().join("target"));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(describes_a_package) {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Whether cargo sets an environment variable to describe the package that it runs.
fn describes_a_package(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

/// Builds native programs of this workspace, with cargo's progress on the terminal.
///
/// Packages of one call share features, and what they have in common is compiled once more for each
/// combination: the programs that need one dependency are built with each other or not at all.
pub fn build_programs(packages: &[&str]) -> Result<(), String> {
    eprintln!("xtask: building {}", packages.join(" and "));
    let mut build = cargo("build");
    build.args(["--profile", PROFILE]);
    for package in packages {
        build.args(["--package", package]);
    }
    run(&mut build)
}

/// Runs a program with our terminal and fails when it fails.
pub fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .map_err(|error| format!("{name} does not start: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{}` failed ({status})", shown(command)))
    }
}

/// What a program prints on its standard output, or nothing when it fails.
pub fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// The file that a command name stands for on the PATH.
pub fn on_path(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// A command as one would type it: the program's name without its folder, and its arguments.
pub fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut line = program
        .file_name()
        .unwrap_or(program.as_os_str())
        .to_string_lossy()
        .into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn commands_are_shown_as_typed() {
        let mut command = Command::new("/usr/local/bin/cargo");
        command.args(["build", "--package", "payonce"]);
        assert_eq!(shown(&command), "cargo build --package payonce");
    }

    #[test]
    fn cargo_is_not_told_about_this_package() {
        // Cargo sets these for its tests as well.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let build = cargo("build");
        let removed = |name| {
            build
                .get_envs()
                .any(|change| change == (OsStr::new(name), None))
        };
        assert!(removed("CARGO_MANIFEST_DIR") && removed("CARGO_PKG_NAME"));
        assert!(!removed("CARGO_TARGET_DIR"));
    }

    #[test]
    fn the_root_is_the_folder_of_the_workspace() {
        assert!(root().join("xtask/Cargo.toml").is_file());
    }
}
