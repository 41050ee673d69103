//! The host processes that are measured.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// The key of the one merchant there is.
pub const API_KEY: &str = "bench-key-for-temporary-data-only";

/// An instance is dropped after a second without requests; with it go the connections to its
/// database, and SQLite tidies up after the last one. By then the host is at rest.
pub const REST: Duration = Duration::from_millis(1300);

/// How long a host may take to start. It may have to compile the component.
const START_LIMIT: Duration = Duration::from_secs(300);

/// How hosts are started.
#[derive(Clone, Debug)]
pub struct Program {
    pub host: PathBuf,
    /// Where compiled components are kept.
    pub cache: PathBuf,
}

/// A running host. Dropped, it is killed, and its data can be removed.
pub struct Host {
    child: Child,
    pub address: SocketAddr,
    pub data: PathBuf,
}

impl Host {
    /// Starts `program` with the application of `manifest` and its data in `data`, on a free port.
    pub async fn start(
        program: &Program,
        manifest: &Path,
        data: &Path,
        flags: &[&str],
        stderr: Stdio,
    ) -> Result<Self> {
        let mut command = Command::new(&program.host);
        command
            .arg("--from")
            .arg(manifest)
            .args(["--listen", "127.0.0.1:0", "--state-dir"])
            .arg(data)
            .arg("--cache-dir")
            .arg(&program.cache)
            .args(flags)
            .env("SPIN_VARIABLE_API_KEYS", format!("bench={API_KEY}"))
            .env("SPIN_VARIABLE_TOKEN_SECRET", "bench-secret-".repeat(4))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .kill_on_drop(true);
        let shown = format!("{:?}", command.as_std());
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {}", program.host.display()))?;
        let stdout = child.stdout.take().context("the host has no stdout")?;
        let mut lines = BufReader::new(stdout).lines();
        let address = async {
            while let Some(line) = lines.next_line().await? {
                if let Some(address) = line.strip_prefix("Serving http://") {
                    return Ok(address.trim_end_matches('/').parse()?);
                }
            }
            bail!("the host ended before it served; try it by hand: {shown}")
        };
        let address = tokio::time::timeout(START_LIMIT, address)
            .await
            .with_context(|| format!("the host does not start: {shown}"))??;
        // What the component prints must not block it.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(Self {
            child,
            address,
            data: data.to_owned(),
        })
    }

    /// The memory that the process has in RAM, in bytes, where the system tells.
    pub fn resident_memory(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()?)).ok()?;
        resident(&status)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.start_kill();
        for _ in 0..100 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// `VmRSS` of a Linux process status.
fn resident(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_from_the_status_of_linux() {
        assert_eq!(resident("VmHWM:\t 9 kB\nVmRSS:\t 2 kB\n"), Some(2048));
        assert_eq!(resident("Name:\thost\n"), None);
    }
}
