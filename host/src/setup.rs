//! From a manifest and the flags of the command line to what [`crate::App`] needs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};

use crate::allowed_hosts::AllowedHosts;
use crate::app::Services;
use crate::manifest::Manifest;
use crate::runtime_config::RuntimeConfig;
use crate::variables::{Values, Variables};

/// Where things are, and the values from outside.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The `spin.toml`.
    pub manifest: PathBuf,
    /// Where Spin's default files are; `.spin` beside the manifest when not given.
    pub state_dir: Option<PathBuf>,
    /// A runtime configuration file.
    pub runtime_config: Option<PathBuf>,
    /// Values for variables; they go before the environment's.
    pub variables: Vec<(String, String)>,
    /// Where compiled components are kept; nowhere when not given.
    pub cache_dir: Option<PathBuf>,
    /// The most linear memory an instance may have, in bytes.
    pub max_instance_memory: Option<usize>,
}

/// Everything that is known before the component is compiled.
pub struct Setup {
    /// The manifest.
    pub manifest: Manifest,
    /// The component's Wasm file.
    pub wasm: PathBuf,
    /// What the component may use. An embedder may replace or wrap any of it.
    pub services: Services,
    /// See [`Options::cache_dir`].
    pub cache_dir: Option<PathBuf>,
    /// Whether a component that computes lets other work run every 10 ms; at first, yes. It makes the
    /// order of things depend on the clock, so a simulation turns it off.
    pub preempt: bool,
    config: RuntimeConfig,
}

impl Setup {
    /// Reads the manifest and the runtime configuration and finds the values of the variables. No
    /// file of the state directory is touched.
    ///
    /// # Errors
    /// Anything that Spin or this host refuses; the message names it.
    pub fn load(options: &Options) -> Result<Self> {
        let manifest = Manifest::read(&options.manifest)?;
        let directory = match options.manifest.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let mut config = match &options.runtime_config {
            Some(path) => RuntimeConfig::read(path)?,
            None => RuntimeConfig::default(),
        };
        let state_dir = match options.state_dir.as_ref().or(config.state_dir.as_ref()) {
            Some(given) => given.clone(),
            None => directory.join(".spin"),
        };
        let state_dir =
            std::path::absolute(state_dir).context("cannot tell where the state directory is")?;
        config.add_defaults(&state_dir);

        let environment = |name: &str| std::env::var(name).ok();
        let values = Values::resolve(&manifest.variables, &options.variables, environment)?;
        let component = &manifest.component;
        let databases = component
            .sqlite_databases
            .iter()
            .map(|label| Ok((label.clone(), config.database(label)?)))
            .collect::<Result<HashMap<_, _>>>()?;
        let services = Services {
            variables: Variables::new(&manifest.component_id, &component.variables, &values)?,
            environment: component.environment.clone().into_iter().collect(),
            allowed_hosts: Arc::new(AllowedHosts::new(
                &component.allowed_outbound_hosts,
                &values,
            )?),
            key_value: config.stores(&component.key_value_stores)?,
            databases,
            max_instance_memory: options.max_instance_memory,
            wasi: None,
            sleep: None,
            network: None,
        };
        Ok(Self {
            wasm: directory.join(&component.source),
            manifest,
            services,
            cache_dir: options.cache_dir.clone(),
            preempt: true,
            config,
        })
    }

    /// Runs what `--sqlite` was given: SQL for the default database, or `@FILE` or `@FILE:LABEL`.
    /// As in Spin the component's rights do not matter here.
    ///
    /// # Errors
    /// A file that cannot be read, a label that is not defined, SQL that fails.
    pub async fn run_sqlite(&self, statements: &[String]) -> Result<()> {
        for statement in statements {
            let (sql, label) = match statement.strip_prefix('@') {
                None => (statement.clone(), "default"),
                Some(file) => {
                    let (file, label) = file.split_once(':').unwrap_or((file, "default"));
                    let sql = std::fs::read_to_string(file)
                        .with_context(|| format!("--sqlite: cannot read {file}"))?;
                    (sql, label)
                }
            };
            let database = self.config.database(label).context("--sqlite")?;
            database
                .connect()
                .execute_batch(sql)
                .await
                .map_err(anyhow::Error::msg)
                .with_context(|| format!("--sqlite {statement:?} failed"))?;
        }
        Ok(())
    }
}
