//! Reads a `spin.toml` (manifest version 2) with one HTTP component.
//!
//! Everything the manifest may say is either carried out, without effect in Spin's `up` too (such as
//! `build`), or refused with a message that names it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use toml::Value;

use crate::routes::Route;

/// What the host takes from a manifest.
#[derive(Debug)]
pub struct Manifest {
    /// The application's name.
    pub name: String,
    /// The application's variables.
    pub variables: BTreeMap<String, Variable>,
    /// The routes that lead to the component, in the order of the manifest.
    pub routes: Vec<Route>,
    /// The component's id.
    pub component_id: String,
    /// The component.
    pub component: Component,
}

/// A variable of the application.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    /// Whether a value must be given.
    #[serde(default)]
    pub required: bool,
    /// The value when none is given.
    pub default: Option<String>,
    /// Whether the value must not be shown; this host shows none.
    #[serde(default)]
    pub secret: bool,
    /// For people.
    pub description: Option<String>,
}

/// The component and what it may use.
#[derive(Debug)]
pub struct Component {
    /// The Wasm file, relative to the manifest's directory.
    pub source: String,
    /// Templates of the component's variables.
    pub variables: BTreeMap<String, String>,
    /// Environment variables of the component.
    pub environment: BTreeMap<String, String>,
    /// Templates of the hosts it may call.
    pub allowed_outbound_hosts: Vec<String>,
    /// Labels of the stores it may open.
    pub key_value_stores: Vec<String>,
    /// Labels of the databases it may open.
    pub sqlite_databases: Vec<String>,
}

impl Manifest {
    /// Reads a file.
    ///
    /// # Errors
    /// A file that cannot be read, is no manifest, or asks for something this host does not do.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the manifest {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("in {}", path.display()))
    }

    /// Reads the text of a manifest; see [`Manifest::read`].
    ///
    /// # Errors
    /// See [`Manifest::read`].
    pub fn parse(text: &str) -> Result<Self> {
        let file: File = toml::from_str(text)?;
        ensure!(
            file.spin_manifest_version == 2,
            "spin_manifest_version = {} is not supported, only 2",
            file.spin_manifest_version
        );
        let base = file
            .application
            .trigger
            .get("http")
            .and_then(|http| http.get("base"));
        ensure!(
            base.is_none_or(|base| base.as_str() == Some("/")),
            "`base` of the HTTP trigger is not supported: write it into the routes"
        );

        let mut triggers = file.trigger;
        let http = triggers
            .remove("http")
            .context("there is no [[trigger.http]]")?;
        if let Some(kind) = triggers.keys().next() {
            bail!("triggers of the type {kind:?} are not supported, only \"http\"");
        }
        let ids: Vec<&String> = file.component.keys().collect();
        ensure!(
            ids.len() < 2,
            "{} components ({ids:?}) are not supported, only one",
            ids.len()
        );
        let (component_id, component) = file
            .component
            .into_iter()
            .next()
            .context("there is no [component.…]")?;

        let routes = http
            .into_iter()
            .map(|trigger| trigger.route_to(&component_id))
            .collect::<Result<Vec<_>>>()?;
        ensure!(!routes.is_empty(), "there is no [[trigger.http]]");
        let component = component
            .check()
            .with_context(|| format!("in [component.{component_id}]"))?;
        Ok(Self {
            name: file.application.name,
            variables: file.variables,
            routes,
            component_id,
            component,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    spin_manifest_version: i64,
    application: Application,
    #[serde(default)]
    variables: BTreeMap<String, Variable>,
    #[serde(default)]
    trigger: BTreeMap<String, Vec<Trigger>>,
    #[serde(default)]
    component: BTreeMap<String, RawComponent>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Application {
    name: String,
    #[serde(rename = "version")]
    _version: Option<String>,
    #[serde(rename = "description")]
    _description: Option<String>,
    #[serde(rename = "authors")]
    _authors: Option<Vec<String>>,
    #[serde(rename = "targets")]
    _targets: Option<Value>,
    #[serde(rename = "tool")]
    _tool: Option<Value>,
    #[serde(default)]
    trigger: BTreeMap<String, toml::Table>,
}

/// A trigger. Other types than "http" have other fields, so that unknown ones are kept here.
#[derive(Deserialize)]
struct Trigger {
    #[serde(rename = "id")]
    _id: Option<String>,
    component: Option<Value>,
    route: Option<Value>,
    executor: Option<Executor>,
    #[serde(flatten)]
    other: toml::Table,
}

#[derive(Deserialize)]
struct Executor {
    #[serde(rename = "type")]
    kind: String,
}

impl Trigger {
    fn route_to(self, component_id: &str) -> Result<Route> {
        let field = self.other.iter().find(|(_, value)| !is_empty(value));
        if let Some((name, _)) = field {
            bail!("`{name}` of a [[trigger.http]] is not supported");
        }
        match &self.component {
            Some(Value::String(id)) => {
                ensure!(
                    id == component_id,
                    "a trigger names the unknown component {id:?}"
                );
            }
            Some(_) => bail!("a component written into its trigger is not supported"),
            None => bail!("a [[trigger.http]] without a component is not supported"),
        }
        if let Some(executor) = self.executor {
            ensure!(
                matches!(executor.kind.as_str(), "http" | "spin"),
                "the executor {:?} is not supported",
                executor.kind
            );
        }
        match self.route {
            Some(Value::String(route)) => Route::parse(&route),
            Some(_) => bail!("a private route is not supported"),
            None => bail!("a [[trigger.http]] has no route"),
        }
    }
}

#[derive(Deserialize)]
struct RawComponent {
    source: Value,
    #[serde(default)]
    variables: BTreeMap<String, String>,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    #[serde(default)]
    allowed_outbound_hosts: Vec<String>,
    #[serde(default)]
    key_value_stores: Vec<String>,
    #[serde(default)]
    sqlite_databases: Vec<String>,
    #[serde(rename = "build")]
    _build: Option<Value>,
    #[serde(rename = "description")]
    _description: Option<String>,
    #[serde(rename = "profile")]
    _profile: Option<Value>,
    #[serde(rename = "targets")]
    _targets: Option<Value>,
    #[serde(rename = "tool")]
    _tool: Option<Value>,
    #[serde(flatten)]
    other: toml::Table,
}

impl RawComponent {
    fn check(self) -> Result<Component> {
        let field = self.other.iter().find(|(_, value)| !is_empty(value));
        if let Some((name, _)) = field {
            bail!("`{name}` is not supported");
        }
        let Value::String(source) = self.source else {
            bail!("a `source` from a URL or a registry is not supported, only the path of a file");
        };
        Ok(Component {
            source,
            variables: self.variables,
            environment: self.environment,
            allowed_outbound_hosts: self.allowed_outbound_hosts,
            key_value_stores: self.key_value_stores,
            sqlite_databases: self.sqlite_databases,
        })
    }
}

/// Something that asks for nothing may stand in the manifest.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(array) => array.is_empty(),
        Value::Table(table) => table.values().all(is_empty),
        Value::Boolean(value) => !value,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
