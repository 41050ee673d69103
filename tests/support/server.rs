//! A host process that serves the component, and its end: asked for, or by SIGKILL.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use super::wait::eventually;

/// Enough for compiling the component on a busy machine; only a broken host meets it.
const STARTING: Duration = Duration::from_secs(120);

/// A running host. Dropping it kills the process.
pub struct Server {
    child: Child,
    /// Kills the host should this test process die without dropping its values.
    watchdog: Child,
    pub base: String,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts the command and waits until it says where it serves.
    ///
    /// # Panics
    /// When the process cannot be started, or ends, or stays silent.
    pub fn start(mut command: Command) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{error}: {command:?}; is the host built?"));
        let watchdog = watch(child.id());
        let lines = Arc::default();
        collect(child.stderr.take().expect("stderr"), Arc::clone(&lines));
        let address = announcements(child.stdout.take().expect("stdout"));
        let mut server = Self {
            child,
            watchdog,
            base: String::new(),
            lines,
        };
        server.base = address.recv_timeout(STARTING).unwrap_or_else(|_| {
            panic!("the host does not serve:\n{}", server.log().join("\n"));
        });
        server
    }

    /// SIGKILL: no destructor, no flush, no goodbye.
    pub fn kill(mut self) {
        self.end();
    }

    /// SIGTERM, and wait for the end.
    pub fn stop(mut self) {
        let pid = self.child.id().to_string();
        let asked = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(asked.expect("kill").success());
        self.child.wait().expect("the end of the host");
    }

    /// Everything the host wrote to stderr so far.
    pub fn log(&self) -> Vec<String> {
        let lines = self.lines.lock();
        lines.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The component's log lines so far: JSON objects with a `method`.
    pub fn requests(&self) -> Vec<Value> {
        let objects = self.log().into_iter().filter_map(|line| {
            let start = line.find('{')?;
            serde_json::from_str::<Value>(line.get(start..)?).ok()
        });
        objects
            .filter(|object| object.get("method").is_some())
            .collect()
    }

    /// Waits for a request's log line.
    pub async fn logged(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        eventually(what, async || self.requests().into_iter().find(&fits)).await
    }

    fn end(&mut self) {
        // The watchdog first: it must never outlive the process it watches.
        let _ = self.watchdog.kill();
        let _ = self.watchdog.wait();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// A shell that waits for the end of its stdin, which is the end of this process, and kills `pid`.
fn watch(pid: u32) -> Child {
    let script = format!("read -r _; kill -9 {pid} 2>/dev/null");
    Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a shell")
}

/// Keeps every line of the host's stderr.
fn collect(stderr: impl Read + Send + 'static, lines: Arc<Mutex<Vec<String>>>) {
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            lines
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(line);
        }
    });
}

/// Receives the address of the line `Serving http://…`; hangs up when the process ends.
fn announcements(stdout: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Some(address) = line.trim().strip_prefix("Serving ") {
                let _ = sender.send(address.trim_end_matches('/').to_owned());
            }
        }
    });
    receiver
}
