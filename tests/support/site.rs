//! A data directory with its configuration: what stays when a host process goes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rusqlite::Connection;
use tempfile::TempDir;

use super::client::Shop;
use super::receiver::{Receiver, SECRET};
use super::server::Server;
use super::stores;

/// The API keys of the two merchants of a site, made to be found should they ever leak.
pub const KEY_A: &str = "apikey-shop-a-9b1c55e07d";
pub const KEY_B: &str = "apikey-shop-b-4e8a70f3c2";
pub const ADMIN_KEY: &str = "adminkey-2f6d90b1e8ac";
pub const TOKEN_SECRET: &str = "tokensecret-c07e3b98d15f4a62";

/// A temporary data directory and the variables its hosts get. Clones share the directory.
#[derive(Clone)]
pub struct Site {
    dir: Arc<TempDir>,
    variables: BTreeMap<&'static str, String>,
    instance_reuse: Option<u32>,
}

impl Site {
    /// Two merchants, `shop-a` and `shop-b`, with every secret set.
    pub fn new() -> Self {
        Self::bare()
            .variable("api_keys", format!("shop-a={KEY_A},shop-b={KEY_B}"))
            .variable("token_secret", TOKEN_SECRET)
            .variable("admin_key", ADMIN_KEY)
    }

    /// No configuration at all.
    pub fn bare() -> Self {
        Self {
            dir: Arc::new(TempDir::new().expect("a temporary directory")),
            variables: BTreeMap::new(),
            instance_reuse: None,
        }
    }

    pub fn variable(mut self, name: &'static str, value: impl ToString) -> Self {
        self.variables.insert(name, value.to_string());
        self
    }

    /// Sends events to a receiver.
    pub fn notifying(self, receiver: &Receiver) -> Self {
        self.variable("notify_url", receiver.url())
            .variable("notify_host", receiver.origin())
            .variable("notify_secret", SECRET)
    }

    /// Sends messages to customers to a receiver.
    pub fn messaging(self, receiver: &Receiver) -> Self {
        self.variable("sms_gateway_url", receiver.url())
            .variable("sms_gateway_host", receiver.origin())
            .variable("notify_secret", SECRET)
    }

    /// Takes a variable away.
    pub fn without(mut self, name: &str) -> Self {
        self.variables.remove(name);
        self
    }

    /// How many requests one instance of the component serves.
    pub fn instance_reuse(mut self, requests: u32) -> Self {
        self.instance_reuse = Some(requests);
        self
    }

    /// Starts a host process on this directory, beside any that already run.
    pub fn start(&self) -> Server {
        Server::start(self.command())
    }

    /// Starts a host whose database loses the results of the next statements that begin with these
    /// texts: they take effect and report an error.
    pub fn start_losing_results(&self, statements: &[&str]) -> Server {
        let mut command = self.command();
        for statement in statements {
            command.args(["--lose-result", statement]);
        }
        Server::start(command)
    }

    /// Starts a host whose wall clock is as [`Site::set_clock`] says, right until then.
    pub fn start_with_clock(&self) -> Server {
        let mut command = self.command();
        command.arg("--clock-ahead").arg(self.clock());
        Server::start(command)
    }

    /// Sets the clock of such hosts ahead by so many milliseconds, now.
    pub fn set_clock(&self, ahead_ms: i64) {
        std::fs::write(self.clock(), ahead_ms.to_string()).expect("the clock");
    }

    fn clock(&self) -> PathBuf {
        self.dir.path().join("clock")
    }

    /// Starts a host whose files cannot grow beyond so many bytes, as on a disk that is full.
    pub fn start_on_full_disk(&self, bytes: u64) -> Server {
        let host = self.command();
        let mut command = Command::new("sh");
        // The signal ignored, a write that is too long fails like one to a full disk. `ulimit`
        // counts blocks of 512 bytes.
        let limited = format!("trap '' XFSZ; ulimit -f {}; exec \"$@\"", bytes / 512);
        command.args(["-c", &limited, "sh"]);
        command.arg(host.get_program()).args(host.get_args());
        Server::start(command)
    }

    /// The command that starts a host on this directory.
    pub fn command(&self) -> Command {
        let mut command = Command::new(from_env("PAYONCE_HOST", "target/tools/payonce-host"));
        command
            .arg("--from")
            .arg(from_env("PAYONCE_MANIFEST", "spin.toml"))
            .args(["--listen", "127.0.0.1:0", "--state-dir"])
            .arg(self.dir.path());
        for (name, value) in &self.variables {
            command.arg("--variable").arg(format!("{name}={value}"));
        }
        if let Some(requests) = self.instance_reuse {
            command.args(["--max-instance-reuse-count", &requests.to_string()]);
        }
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SPIN_VARIABLE_") {
                command.env_remove(name);
            }
        }
        command
    }

    /// The SQLite database, the arbiter.
    pub fn database(&self) -> PathBuf {
        self.dir.path().join("sqlite_db.db")
    }

    /// The file of the key-value store.
    pub fn key_value(&self) -> PathBuf {
        self.dir.path().join("sqlite_key_value.db")
    }

    /// A connection of an outsider to the database, for reading and for getting in the way.
    pub fn connect(&self) -> Connection {
        stores::open(&self.database())
    }
}

impl Default for Site {
    fn default() -> Self {
        Self::new()
    }
}

impl Server {
    /// The service as merchant `shop-a` sees it.
    pub fn shop(&self) -> Shop {
        Shop::new(&self.base, KEY_A)
    }

    /// The service as merchant `shop-b` sees it.
    pub fn other_shop(&self) -> Shop {
        Shop::new(&self.base, KEY_B)
    }

    /// The service as its operator sees it.
    pub fn admin(&self) -> Shop {
        Shop::new(&self.base, ADMIN_KEY)
    }
}

/// A path from the environment, or one below the repository.
fn from_env(name: &str, default: &str) -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::env::var_os(name).map_or_else(|| repository.join(default), PathBuf::from)
}
