//! The Debian way to build for `wasm32-wasip2`, where no Rust distribution server can be reached.
//!
//! Debian's `rustc-web` has the WebAssembly back end, `rust-web-src` the matching source of the
//! standard library, which cargo then builds along (`-Zbuild-std`), and `wasi-libc` the few C
//! functions it needs. Debian has no linker that makes components; the active toolchain has one,
//! even without any WebAssembly target. Versions move, so they are discovered.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::toolchain::{TARGET, rustc};
use crate::workspace;

/// What has to be installed.
pub const PACKAGES: [&str; 3] = ["rustc-web", "rust-web-src", "wasi-libc"];

const RUSTC: &str = "/usr/bin/rustc";
const LIBC: &str = "/usr/lib/wasm32-wasi";

/// A machine on which the Debian way works.
pub struct Debian {
    /// The folder of the active toolchain that holds the linkers.
    linkers: PathBuf,
    version: String,
}

impl Debian {
    /// Installs the packages that are missing, or says in one clause why the way is closed.
    pub fn ensure() -> Result<Self, String> {
        if workspace::on_path("dpkg-query").is_none() {
            return Err("this is not Debian".into());
        }
        let linkers = linkers().ok_or("the active toolchain has no wasm-component-ld")?;
        if !installed() {
            install()?;
        }
        let version = workspace::output(Command::new(RUSTC).arg("--version"))
            .ok_or_else(|| format!("{RUSTC} does not run"))?;
        // `rustc 1.2.3 (commit date) (more)`
        let version = version.split(" (").next().unwrap_or("rustc").to_owned();
        Ok(Self { linkers, version })
    }

    /// The compiler and its version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Makes a `cargo build --target wasm32-wasip2` use Debian's compiler and libraries.
    ///
    /// The flags reach the target only. Host programs of the build, like procedural macros, are
    /// compiled by Debian's compiler too, but under names of their own: they do not evict those
    /// of native builds.
    pub fn configure(&self, build: &mut Command) {
        let linker = self.linkers.join("wasm-component-ld");
        let wasm_ld = self.linkers.join("gcc-ld/wasm-ld");
        let flags = [
            format!("-Clinker={}", linker.display()),
            format!("-Clink-arg=--wasm-ld-path={}", wasm_ld.display()),
            format!("-L{LIBC}"),
        ];
        build
            .arg("-Zbuild-std=std,panic_abort")
            .env("RUSTC", RUSTC)
            // Debian's compiler is a stable one and -Zbuild-std is not.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
            .env("PATH", path_with(&self.linkers));
    }
}

/// Where the active toolchain keeps its linkers.
fn linkers() -> Option<PathBuf> {
    let sysroot = rustc(&["--print", "sysroot"])?;
    let host = rustc(&["--print", "host-tuple"])?;
    let folder = Path::new(&sysroot)
        .join("lib/rustlib")
        .join(host)
        .join("bin");
    folder.join("wasm-component-ld").is_file().then_some(folder)
}

fn path_with(folder: &Path) -> std::ffi::OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(folders).unwrap_or(path)
}

/// Whether dpkg knows all packages as installed.
fn installed() -> bool {
    workspace::output(
        Command::new("dpkg-query")
            .args(["--show", "--showformat", "${db:Status-Abbrev}\n"])
            .args(PACKAGES),
    )
    .is_some_and(|states| all_installed(&states))
}

fn all_installed(states: &str) -> bool {
    states.lines().count() == PACKAGES.len() && states.lines().all(|state| state.trim() == "ii")
}

/// Installs the packages with apt-get, as root or through sudo.
fn install() -> Result<(), String> {
    let packages = PACKAGES.join(", ");
    eprintln!("xtask: {TARGET}: installing Debian's {packages} with apt-get");
    // Sources that cannot be reached are no reason to stop; missing packages are, below.
    apt_get()?.arg("update").output().ok();
    // Nothing that is installed may have to go for this.
    let mut install = apt_get()?;
    install.args(["install", "--no-install-recommends", "--no-remove"]);
    let output = install
        .args(PACKAGES)
        .output()
        .map_err(|error| format!("apt-get does not start ({error})"))?;
    if output.status.success() && installed() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let reason = said.lines().find(|line| line.starts_with("E: "));
    let reason = reason.unwrap_or("it did not say why");
    Err(format!("apt-get cannot install {packages} ({reason})"))
}

/// An `apt-get` that asks nothing and does not wait for ever.
fn apt_get() -> Result<Command, String> {
    let root = workspace::output(Command::new("id").arg("-u")).is_some_and(|id| id == "0");
    let mut command = match (root, workspace::on_path("sudo")) {
        (true, _) => Command::new("env"),
        (false, Some(sudo)) => {
            let mut command = Command::new(sudo);
            command.arg("env");
            command
        }
        (false, None) => {
            let packages = PACKAGES.join(", ");
            return Err(format!(
                "installing {packages} needs root, and there is no sudo"
            ));
        }
    };
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-y"]);
    command.args(["-o", "Acquire::http::Timeout=20"]);
    command.args(["-o", "Acquire::https::Timeout=20"]);
    command.args(["-o", "DPkg::Lock::Timeout=120"]);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_count_only_when_all_are_fully_installed() {
        assert!(all_installed("ii \nii \nii "));
        assert!(!all_installed("ii \nrc \nii "));
        assert!(!all_installed("ii \nii "));
        assert!(!all_installed(""));
    }

    #[test]
    fn the_build_gets_debians_compiler_and_paths_with_spaces_survive() {
        let debian = Debian {
            linkers: "/a folder/bin".into(),
            version: String::new(),
        };
        let mut build = Command::new("cargo");
        debian.configure(&mut build);
        let value = |name: &str| {
            let found = build.get_envs().find(|(key, _)| *key == name);
            found.and_then(|(_, value)| value?.to_str()).unwrap_or("")
        };
        assert_eq!(value("RUSTC"), "/usr/bin/rustc");
        assert!(value("PATH").starts_with("/a folder/bin:"));
        let flags: Vec<_> = value("CARGO_ENCODED_RUSTFLAGS").split('\x1f').collect();
        assert_eq!(flags[0], "-Clinker=/a folder/bin/wasm-component-ld");
        assert_eq!(flags.len(), 3);
    }
}
