//! `cargo xtask up`: builds payonce and serves it, with the host of this repository or with Spin.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, ExitCode, Stdio};

use crate::args::{Args, unknown};
use crate::component::{PAYONCE, build_component};
use crate::keys::{declares, environment_name, parse_variable};
use crate::secrets::Secrets;
use crate::toolchain::Toolchain;
use crate::walk::walk;
use crate::{Failure, signals, workspace};

/// The host of this repository.
pub const HOST: &str = "payonce-host";

/// Who configures one of these has keys of his own: then none are made for him.
const KEYS: [&str; 3] = ["api_keys", "admin_key", "token_secret"];

#[derive(Debug, PartialEq)]
struct Options {
    port: u16,
    /// Spin's own place for the data of an application, unless `--data` says otherwise.
    data: PathBuf,
    variables: BTreeMap<String, String>,
    spin: bool,
}

impl Options {
    fn parse(mut args: Args) -> Result<Self, Failure> {
        let mut options = Self {
            port: 3000,
            data: workspace::root().join(".spin"),
            variables: BTreeMap::new(),
            spin: false,
        };
        while let Some(flag) = args.flag()? {
            match flag.as_str() {
                "--port" => {
                    options.port = args.value(&flag)?.parse().map_err(|_| {
                        Failure::Usage("--port takes a number from 0 to 65535".into())
                    })?;
                }
                "--data" => {
                    let folder = args.value(&flag)?;
                    options.data = std::path::absolute(folder)
                        .map_err(|error| Failure::Usage(format!("--data: {error}")))?;
                }
                "--variable" => options
                    .variables
                    .extend([parse_variable(&args.value(&flag)?)?]),
                "--spin" => options.spin = true,
                other => return Err(unknown(other)),
            }
        }
        Ok(options)
    }

    /// The name of a variable that spin.toml does not declare: it would have no effect.
    fn undeclared(&self, manifest: &str) -> Option<&str> {
        let mut names = self.variables.keys();
        names
            .find(|name| !declares(manifest, name))
            .map(String::as_str)
    }

    fn has_keys(&self, in_environment: impl Fn(&str) -> bool) -> bool {
        KEYS.iter()
            .any(|key| self.variables.contains_key(*key) || in_environment(&environment_name(key)))
    }
}

/// Runs `cargo xtask up` until somebody stops it.
pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let mut options = Options::parse(args)?;
    let manifest = workspace::read_manifest()?;
    if let Some(name) = options.undeclared(&manifest) {
        let reason = format!("spin.toml has no variable `{name}`");
        return Err(Failure::Usage(reason));
    }
    // What can be known before the build is said before the build.
    check_port(options.port)?;
    let spin = options.spin.then(find_spin).transpose()?;

    build_component(&Toolchain::ensure()?, PAYONCE)?;
    let mut server = match spin {
        Some(spin) => {
            let mut server = Command::new(spin);
            server.arg("up");
            server
        }
        None => {
            workspace::build_programs(&[HOST])?;
            Command::new(workspace::program(HOST))
        }
    };
    let demo = demo_secrets(&mut options, &manifest)?;
    server.arg("--from").arg(workspace::manifest());
    server
        .arg("--listen")
        .arg(format!("127.0.0.1:{}", options.port));
    server.arg("--state-dir").arg(&options.data);
    for (name, value) in &options.variables {
        server.env(environment_name(name), value);
    }
    Ok(serve(server, demo.as_ref())?)
}

/// Adds the demo secrets of the data directory to the variables, when there are no keys at all.
fn demo_secrets(options: &mut Options, manifest: &str) -> Result<Option<Secrets>, String> {
    if options.has_keys(|name| std::env::var_os(name).is_some()) {
        return Ok(None);
    }
    let (secrets, new) = Secrets::of(&options.data)?;
    let which = if new {
        "new demo keys"
    } else {
        "the demo keys"
    };
    eprintln!(
        "xtask: no keys are configured: {which} of {}",
        options.data.display()
    );
    for (name, value) in secrets.variables() {
        if declares(manifest, name) {
            options.variables.insert(name.to_owned(), value);
        }
    }
    Ok(Some(secrets))
}

/// Fails when something listens on the port already.
fn check_port(port: u16) -> Result<(), String> {
    match TcpListener::bind(("127.0.0.1", port)) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!(
            "port {port} cannot be used ({error}); choose another one with --port"
        )),
    }
}

fn find_spin() -> Result<PathBuf, String> {
    workspace::on_path("spin").ok_or_else(|| {
        "there is no `spin` on the PATH; without --spin, payonce needs no Spin".to_owned()
    })
}

/// Starts the server, prints the walk when it is ready, and waits for its end.
fn serve(mut server: Command, demo: Option<&Secrets>) -> Result<ExitCode, String> {
    let name = Path::new(server.get_program()).display().to_string();
    server.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child =
        signals::start(&mut server).map_err(|error| format!("{name} does not start: {error}"))?;
    if let Some(stdout) = child.stdout.take() {
        follow(stdout, demo);
    }
    match signals::wait(child) {
        Ok((true, _)) => {
            eprintln!("xtask: stopped");
            Ok(ExitCode::SUCCESS)
        }
        Ok((false, status)) => Err(format!("{name} ended by itself ({status})")),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

/// Passes the server's output on. Nobody reading ours is no reason to stop serving.
fn follow(stdout: ChildStdout, demo: Option<&Secrets>) {
    let mut out = std::io::stdout();
    for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        writeln!(out, "{line}").ok();
        if let (Some(url), Some(secrets)) = (address(&line), demo) {
            let walk = walk(url, &secrets.api_key);
            writeln!(out, "\n{walk}\nCtrl-C stops it.").ok();
        }
        out.flush().ok();
    }
}

/// The address in the line with which both hosts say that they are ready.
fn address(line: &str) -> Option<&str> {
    line.trim()
        .strip_prefix("Serving ")
        .filter(|url| url.starts_with("http://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options, Failure> {
        Options::parse(Args::new(words.iter().map(|word| word.to_string())))
    }

    #[test]
    fn without_flags_it_is_port_3000_and_spins_data_directory() {
        let options = parse(&[]).unwrap();
        assert_eq!(options.port, 3000);
        assert!(options.data.ends_with(".spin"));
        assert!(!options.spin);
    }

    #[test]
    fn flags_are_read_and_others_refused() {
        let options = parse(&["--port=81", "--data", "/d", "--variable", "a=b", "--spin"]).unwrap();
        assert_eq!((options.port, options.spin), (81, true));
        assert_eq!(options.data, Path::new("/d"));
        assert_eq!(options.variables["a"], "b");
        for wrong in [
            "--port=x",
            "--port=70000",
            "--port",
            "--variable=a",
            "--watch",
            "x",
        ] {
            assert!(matches!(parse(&[wrong]), Err(Failure::Usage(_))), "{wrong}");
        }
    }

    #[test]
    fn one_configured_key_means_that_no_demo_keys_are_made() {
        assert!(!parse(&[]).unwrap().has_keys(|_| false));
        assert!(
            !parse(&["--variable=channel=wallet"])
                .unwrap()
                .has_keys(|_| false)
        );
        assert!(
            parse(&["--variable=token_secret=x"])
                .unwrap()
                .has_keys(|_| false)
        );
        let environment = |name: &str| name == "SPIN_VARIABLE_API_KEYS";
        assert!(parse(&[]).unwrap().has_keys(environment));
    }

    #[test]
    fn a_variable_that_the_manifest_lacks_is_named() {
        let options = parse(&["--variable=a=1", "--variable=b=2"]).unwrap();
        assert_eq!(options.undeclared("[variables]\na = {}\n"), Some("b"));
        assert_eq!(options.undeclared("[variables]\na = {}\nb = {}\n"), None);
    }

    #[test]
    fn a_taken_port_is_named_with_the_way_out() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let message = check_port(port).unwrap_err();
        assert!(message.contains(&port.to_string()) && message.contains("--port"));
    }

    #[test]
    fn the_address_is_in_the_line_of_the_ready_server() {
        assert_eq!(
            address("Serving http://127.0.0.1:3000"),
            Some("http://127.0.0.1:3000")
        );
        assert_eq!(address("Serving nobody"), None);
        assert_eq!(address("Available Routes:"), None);
    }
}
