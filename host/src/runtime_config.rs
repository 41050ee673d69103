//! Which file is behind which label: Spin's defaults below the state directory, and the local
//! providers (`type = "spin"`) of a runtime configuration file.
//!
//! As in Spin a relative path of a key-value store starts at the configuration file and one of a
//! database at the current directory, and without a path the data is in memory.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::key_value::{KeyValue, StoreFile};
use crate::sqlite::{Database, DatabaseFile};

/// The files behind the labels.
#[derive(Debug, Default)]
pub struct RuntimeConfig {
    /// `state_dir` of the configuration file.
    pub state_dir: Option<PathBuf>,
    stores: BTreeMap<String, Option<PathBuf>>,
    databases: BTreeMap<String, LocalDatabase>,
}

#[derive(Debug)]
struct LocalDatabase {
    path: Option<PathBuf>,
    allow_attach_file: bool,
}

#[derive(Deserialize)]
struct File {
    state_dir: Option<PathBuf>,
    #[serde(default)]
    key_value_store: BTreeMap<String, Provider>,
    #[serde(default)]
    sqlite_database: BTreeMap<String, Provider>,
    #[serde(flatten)]
    other: toml::Table,
}

#[derive(Deserialize)]
struct Provider {
    #[serde(rename = "type")]
    kind: String,
    #[serde(flatten)]
    settings: toml::Table,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LocalStoreSettings {
    path: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LocalDatabaseSettings {
    path: Option<PathBuf>,
    #[serde(default)]
    allow_attach_file: bool,
}

impl Provider {
    /// The settings of a local provider.
    fn local<T: serde::de::DeserializeOwned>(self, what: &str, label: &str) -> Result<T> {
        if self.kind != "spin" {
            bail!(
                "[{what}.{label}]: the type {:?} is not supported, only the local one, \"spin\"",
                self.kind
            );
        }
        self.settings
            .try_into()
            .with_context(|| format!("in [{what}.{label}]"))
    }
}

impl RuntimeConfig {
    /// Reads a runtime configuration file.
    ///
    /// # Errors
    /// A file that cannot be read, or asks for something this host does not do.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the runtime configuration {}", path.display()))?;
        let directory = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, directory).with_context(|| format!("in {}", path.display()))
    }

    fn parse(text: &str, directory: &Path) -> Result<Self> {
        let file: File = toml::from_str(text)?;
        if let Some(name) = file.other.keys().next() {
            bail!("`{name}` is not supported");
        }
        let stores = file.key_value_store.into_iter().map(|(label, provider)| {
            let settings: LocalStoreSettings = provider.local("key_value_store", &label)?;
            Ok((label, settings.path.map(|path| directory.join(path))))
        });
        let databases = file.sqlite_database.into_iter().map(|(label, provider)| {
            let settings: LocalDatabaseSettings = provider.local("sqlite_database", &label)?;
            let LocalDatabaseSettings {
                path,
                allow_attach_file,
            } = settings;
            Ok((
                label,
                LocalDatabase {
                    path,
                    allow_attach_file,
                },
            ))
        });
        Ok(Self {
            state_dir: file.state_dir.filter(|path| !path.as_os_str().is_empty()),
            stores: stores.collect::<Result<_>>()?,
            databases: databases.collect::<Result<_>>()?,
        })
    }

    /// Adds Spin's files for the label "default", where the configuration has none.
    pub fn add_defaults(&mut self, state_dir: &Path) {
        self.stores
            .entry("default".to_owned())
            .or_insert_with(|| Some(state_dir.join("sqlite_key_value.db")));
        self.databases
            .entry("default".to_owned())
            .or_insert_with(|| LocalDatabase {
                path: Some(state_dir.join("sqlite_db.db")),
                allow_attach_file: false,
            });
    }

    /// The stores with these labels. Labels with the same file share its connection.
    ///
    /// # Errors
    /// A label that is not defined.
    pub fn stores(&self, labels: &[String]) -> Result<HashMap<String, Arc<dyn KeyValue>>> {
        let mut files: HashMap<&Path, Arc<StoreFile>> = HashMap::new();
        let mut stores = HashMap::new();
        for label in labels {
            let path = self.stores.get(label).with_context(|| {
                format!("the key-value store {label:?} is not defined in a runtime configuration")
            })?;
            let file = match path {
                Some(path) => files
                    .entry(path)
                    .or_insert_with(|| StoreFile::new(Some(path.clone())))
                    .clone(),
                None => StoreFile::new(None),
            };
            stores.insert(label.clone(), file.store(label));
        }
        Ok(stores)
    }

    /// The database with this label.
    ///
    /// # Errors
    /// A label that is not defined.
    pub fn database(&self, label: &str) -> Result<Arc<dyn Database>> {
        let database = self.databases.get(label).with_context(|| {
            format!("the SQLite database {label:?} is not defined in a runtime configuration")
        })?;
        let LocalDatabase {
            path,
            allow_attach_file,
        } = database;
        Ok(Arc::new(DatabaseFile {
            path: path.clone(),
            allow_attach_file: *allow_attach_file,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<RuntimeConfig> {
        RuntimeConfig::parse(text, Path::new("/conf"))
    }

    #[test]
    fn the_default_label_is_spins_file_unless_it_is_configured() {
        let mut config = RuntimeConfig::default();
        config.add_defaults(Path::new("/app/.spin"));
        assert_eq!(
            config.stores["default"],
            Some("/app/.spin/sqlite_key_value.db".into())
        );
        assert_eq!(
            config.databases["default"].path,
            Some("/app/.spin/sqlite_db.db".into())
        );

        let mut config = parse("key_value_store.default = { type = \"spin\" }").unwrap();
        config.add_defaults(Path::new("/app/.spin"));
        assert_eq!(config.stores["default"], None);
    }

    #[test]
    fn relative_paths_start_where_spin_starts_them() {
        let config = parse(
            r#"
            state_dir = "/state"
            [key_value_store.a]
            type = "spin"
            path = "a.db"
            [sqlite_database.b]
            type = "spin"
            path = "b.db"
            allow_attach_file = true
            "#,
        )
        .unwrap();
        assert_eq!(config.state_dir, Some("/state".into()));
        assert_eq!(config.stores["a"], Some("/conf/a.db".into()));
        assert_eq!(config.databases["b"].path, Some("b.db".into()));
        assert!(config.databases["b"].allow_attach_file);
    }

    #[test]
    fn remote_providers_and_other_settings_are_named() {
        for (text, expected) in [
            (
                "key_value_store.a = { type = \"redis\", url = \"redis://x\" }",
                "redis",
            ),
            (
                "key_value_store.a = { type = \"azure_cosmos\" }",
                "azure_cosmos",
            ),
            (
                "key_value_store.a = { type = \"aws_dynamo\" }",
                "aws_dynamo",
            ),
            (
                "sqlite_database.a = { type = \"libsql\", url = \"x\", token = \"y\" }",
                "libsql",
            ),
            (
                "sqlite_database.a = { type = \"spin\", pth = \"x\" }",
                "pth",
            ),
            (
                "[[variables_provider]]\ntype = \"vault\"",
                "variables_provider",
            ),
            ("[llm_compute]\ntype = \"spin\"", "llm_compute"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }

    #[test]
    fn an_undefined_label_is_refused() {
        let mut config = RuntimeConfig::default();
        config.add_defaults(Path::new("/app/.spin"));
        let error = config
            .stores(&["other".to_owned()])
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("other"), "{error}");
        assert!(config.database("other").is_err());
        assert!(config.database("default").is_ok());
    }
}
