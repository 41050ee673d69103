//! The host processes, all on one data directory, and that directory.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Mutex as Turn;

/// The key of the one merchant.
pub const API_KEY: &str = "soak-merchant-key-for-temporary-data-only";
/// The operator's key.
pub const ADMIN_KEY: &str = "soak-admin-key-for-temporary-data-only";

/// How long a host may take to start. It may have to compile the component.
const START_LIMIT: Duration = Duration::from_secs(300);

/// How hosts are started.
pub struct Program {
    pub host: PathBuf,
    pub manifest: PathBuf,
    /// Where compiled components are kept.
    pub cache: PathBuf,
    /// Where the databases are.
    pub data: PathBuf,
    /// Where the files are that say how wrong clocks are.
    pub clocks: PathBuf,
    /// Values of the application's variables.
    pub variables: Vec<(&'static str, String)>,
    /// What hosts say, but for the lines of requests.
    pub log: Arc<Mutex<File>>,
}

/// A host that was started, dead or alive.
#[derive(Clone)]
struct Place {
    base: String,
    process: Option<u32>,
}

/// Some hosts on one data directory. Dropped, they are killed.
pub struct Fleet {
    program: Program,
    seats: Vec<Turn<Option<Child>>>,
    places: Mutex<Vec<Place>>,
}

impl Fleet {
    /// Starts so many hosts.
    ///
    /// # Errors
    /// When one of them does not serve.
    pub async fn start(program: Program, hosts: usize) -> Result<Self> {
        let nowhere = Place {
            base: String::new(),
            process: None,
        };
        let fleet = Self {
            program,
            seats: (0..hosts).map(|_| Turn::default()).collect(),
            places: Mutex::new(vec![nowhere; hosts]),
        };
        for seat in 0..hosts {
            fleet.set_clock(seat, 0)?;
        }
        fleet.start_all().await?;
        Ok(fleet)
    }

    /// How many hosts there are.
    pub fn size(&self) -> usize {
        self.seats.len()
    }

    /// Starts whichever host does not run.
    ///
    /// # Errors
    /// When one of them does not serve.
    pub async fn start_all(&self) -> Result<()> {
        for seat in 0..self.size() {
            self.start_one(seat).await?;
        }
        Ok(())
    }

    /// Starts a host unless it runs.
    ///
    /// # Errors
    /// When it does not serve.
    pub async fn start_one(&self, seat: usize) -> Result<()> {
        let mut running = self.seats[seat].lock().await;
        if running.is_some() {
            return Ok(());
        }
        let (child, base) = self.program.spawn(&self.clock(seat)).await?;
        self.places()[seat] = Place {
            base,
            process: child.id(),
        };
        *running = Some(child);
        Ok(())
    }

    /// SIGKILL; returns whether the host ran.
    ///
    /// # Errors
    /// When it had ended by itself.
    pub async fn kill(&self, seat: usize) -> Result<bool> {
        let mut running = self.seats[seat].lock().await;
        let Some(mut child) = running.take() else {
            return Ok(false);
        };
        self.places()[seat].process = None;
        if let Some(status) = child.try_wait()? {
            bail!("a host ended by itself: {status}");
        }
        child.kill().await?;
        Ok(true)
    }

    /// The address of a host, which may be dead; any number names one.
    pub fn base(&self, number: usize) -> String {
        let places = self.places();
        places[number % places.len()].base.clone()
    }

    /// Sets the wall clock of a host so many milliseconds ahead, or right, now.
    ///
    /// # Errors
    /// When its file cannot be written.
    pub fn set_clock(&self, seat: usize, ahead_ms: i64) -> Result<()> {
        let file = self.clock(seat);
        // Renamed, so that nobody reads half of it.
        let new = file.with_extension("new");
        std::fs::write(&new, ahead_ms.to_string())?;
        Ok(std::fs::rename(new, file)?)
    }

    fn clock(&self, seat: usize) -> PathBuf {
        self.program.clocks.join(format!("clock-{seat}"))
    }

    /// The memory of each host that runs, in bytes.
    pub fn memory(&self) -> Vec<u64> {
        let places = self.places().clone();
        let processes = places.iter().filter_map(|place| place.process);
        processes.filter_map(resident).collect()
    }

    /// The database, the arbiter.
    pub fn database(&self) -> PathBuf {
        self.program.data.join("sqlite_db.db")
    }

    /// The sizes of the database, of its log, and of the key-value store with its log.
    pub fn sizes(&self) -> [u64; 3] {
        let size = |name: &str| {
            let file = self.program.data.join(name);
            file.metadata().map_or(0, |file| file.len())
        };
        [
            size("sqlite_db.db"),
            size("sqlite_db.db-wal"),
            size("sqlite_key_value.db") + size("sqlite_key_value.db-wal"),
        ]
    }

    /// Removes the files of the key-value store. No host may run.
    ///
    /// # Errors
    /// When one of them stays.
    pub fn remove_key_value(&self) -> Result<()> {
        for file in std::fs::read_dir(&self.program.data)? {
            let file = file?;
            let name = file.file_name();
            if name.to_string_lossy().starts_with("sqlite_key_value.db") {
                std::fs::remove_file(file.path())?;
            }
        }
        Ok(())
    }

    fn places(&self) -> std::sync::MutexGuard<'_, Vec<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Program {
    async fn spawn(&self, clock: &Path) -> Result<(Child, String)> {
        let mut command = Command::new(&self.host);
        command.arg("--from").arg(&self.manifest);
        command.arg("--cache-dir").arg(&self.cache);
        command.args(["--listen", "127.0.0.1:0", "--state-dir"]);
        command.arg(&self.data);
        command.arg("--clock-ahead").arg(clock);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SPIN_VARIABLE_") {
                command.env_remove(name);
            }
        }
        for (name, value) in &self.variables {
            command.env(format!("SPIN_VARIABLE_{}", name.to_uppercase()), value);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {}", self.host.display()))?;
        let stdout = child.stdout.take().context("the host has no stdout")?;
        let stderr = child.stderr.take().context("the host has no stderr")?;
        tokio::spawn(keep(stderr, Arc::clone(&self.log)));
        let mut lines = BufReader::new(stdout).lines();
        let address = async {
            while let Some(line) = lines.next_line().await? {
                if let Some(base) = line.strip_prefix("Serving ") {
                    return Ok(base.trim_end_matches('/').to_owned());
                }
            }
            bail!("a host ended before it served: see its log")
        };
        let base = tokio::time::timeout(START_LIMIT, address).await;
        let base = base.context("a host does not start")??;
        // What the component prints must not block it.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok((child, base))
    }
}

/// Keeps what a host says, but for the component's lines about requests.
async fn keep(stderr: impl AsyncRead + Unpin, log: Arc<Mutex<File>>) {
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if !line.is_empty() && !line.contains(r#"{"method":"#) {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            writeln!(log, "{line}").ok();
        }
    }
}

/// The memory that a process has in RAM, in bytes, where the system tells.
fn resident(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Makes an empty folder.
///
/// # Errors
/// When what was there cannot be removed.
pub fn empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}
