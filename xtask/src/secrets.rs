//! Demo secrets: random, made once for a data directory and kept in it, so that a restart accepts
//! the keys and tokens from before.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// The merchant of the demo.
pub const MERCHANT: &str = "demo";

const FILE: &str = "demo-secrets.env";

/// What an application without any keys needs. The file holds them as assignments of the
/// environment variables that Spin reads, so that `spin up` can be given the same.
#[derive(Debug, PartialEq)]
pub struct Secrets {
    /// The key of [`MERCHANT`].
    pub api_key: String,
    pub admin_key: String,
    pub token_secret: String,
}

impl Secrets {
    /// Reads the secrets of a data directory, or makes them; says whether they are new.
    pub fn of(data: &Path) -> Result<(Self, bool), String> {
        let path = data.join(FILE);
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        match fs::read_to_string(&path) {
            Ok(text) => {
                let damaged = format!("{}: damaged; without it, new ones are made", path.display());
                Ok((Self::parse(&text).ok_or(damaged)?, false))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let secrets = Self::random().map_err(failed)?;
                secrets.save(&path).map_err(failed)?;
                Ok((secrets, true))
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// As Spin variables: name and value.
    pub fn variables(&self) -> [(&'static str, String); 3] {
        [
            ("api_keys", format!("{MERCHANT}={}", self.api_key)),
            ("admin_key", self.admin_key.clone()),
            ("token_secret", self.token_secret.clone()),
        ]
    }

    fn random() -> io::Result<Self> {
        Ok(Self {
            api_key: random_hex()?,
            admin_key: random_hex()?,
            token_secret: random_hex()?,
        })
    }

    /// Writes the file for its owner alone, and whole or not at all.
    fn save(&self, path: &Path) -> io::Result<()> {
        if let Some(data) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(data)?;
        }
        let mut text = String::from("# Made by `cargo xtask up` for the demo in this directory.\n");
        for (name, value) in self.variables() {
            text += &format!("{}={value}\n", crate::keys::environment_name(name));
        }
        let draft = path.with_extension("new");
        fs::remove_file(&draft).ok();
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, path)
    }

    fn parse(text: &str) -> Option<Self> {
        let value = |variable: &str, prefix: &str| {
            let name = crate::keys::environment_name(variable);
            text.lines()
                .filter_map(|line| line.split_once('='))
                .find(|(key, _)| *key == name)
                .and_then(|(_, value)| value.trim().strip_prefix(prefix))
                .filter(|value| !value.is_empty())
                .map(str::to_owned)
        };
        Some(Self {
            api_key: value("api_keys", &format!("{MERCHANT}="))?,
            admin_key: value("admin_key", "")?,
            token_secret: value("token_secret", "")?,
        })
    }
}

/// 32 random bytes in hexadecimal.
fn random_hex() -> io::Result<String> {
    let mut bytes = [0; 32];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    fn fresh_folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        fs::remove_dir_all(&folder).ok();
        folder
    }

    #[test]
    fn a_restart_keeps_the_secrets() {
        let data = fresh_folder("restart").join("below");
        let (first, new) = Secrets::of(&data).unwrap();
        assert!(new);
        assert_eq!(Secrets::of(&data).unwrap(), (first, false));
        fs::remove_dir_all(data).ok();
    }

    #[test]
    fn secrets_are_long_different_and_for_their_owner_alone() {
        let data = fresh_folder("owner");
        let (secrets, _) = Secrets::of(&data).unwrap();
        assert_eq!(secrets.api_key.len(), 64);
        assert_ne!(secrets.api_key, secrets.admin_key);
        assert_ne!(secrets.admin_key, secrets.token_secret);
        let mode = fs::metadata(data.join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::remove_dir_all(data).ok();
    }

    #[test]
    fn a_damaged_file_is_named_and_not_replaced() {
        let data = fresh_folder("damaged");
        Secrets::of(&data).unwrap();
        fs::write(data.join(FILE), "SPIN_VARIABLE_API_KEYS=demo=\n").unwrap();
        assert!(Secrets::of(&data).unwrap_err().contains(FILE));
        fs::remove_dir_all(data).ok();
    }
}
