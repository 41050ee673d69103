//! The compiled component, its services, and new instances of it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use wasmtime::component::{Component, Linker};
use wasmtime::{Cache, CacheConfig, Config, Engine, Store};
use wasmtime_wasi::WasiCtxBuilder;
use wasmtime_wasi_http::handler::Proxy;
use wasmtime_wasi_http::p3::bindings::ServicePre;

use crate::allowed_hosts::AllowedHosts;
use crate::imports;
use crate::instances::State;
use crate::key_value::KeyValue;
use crate::routes::Route;
use crate::setup::Setup;
use crate::sqlite::Database;
use crate::variables::Variables;

/// How often a component that computes lets other work run.
const EPOCH: Duration = Duration::from_millis(10);

/// What a component may use. Only what the manifest grants is in here.
#[derive(Clone, Default)]
pub struct Services {
    /// The component's variables.
    pub variables: Variables,
    /// Its environment variables.
    pub environment: Vec<(String, String)>,
    /// The hosts it may call.
    pub allowed_hosts: Arc<AllowedHosts>,
    /// Its key-value stores by label.
    pub key_value: HashMap<String, Arc<dyn KeyValue>>,
    /// Its databases by label.
    pub databases: HashMap<String, Arc<dyn Database>>,
    /// The most linear memory an instance may have, in bytes; as much as Wasm can have otherwise.
    pub max_instance_memory: Option<usize>,
    /// Changes the WASI context of every new instance, for example its clocks.
    pub wasi: Option<WasiSetup>,
}

/// See [`Services::wasi`].
pub type WasiSetup = Arc<dyn Fn(&mut WasiCtxBuilder) + Send + Sync>;

/// An application, ready to serve.
pub struct App {
    engine: Engine,
    component: ServicePre<State>,
    services: Arc<Services>,
    routes: Vec<Route>,
}

impl App {
    /// Compiles the component of a manifest and links it.
    ///
    /// # Errors
    /// A file that is no component, or a component that imports something this host does not have.
    pub fn new(setup: Setup) -> Result<Self> {
        let mut config = Config::new();
        config.wasm_component_model_async(true);
        config.epoch_interruption(true);
        if let Some(directory) = &setup.cache_dir {
            config.cache(Some(cache(directory)?));
        }
        let engine = Engine::new(&config)?;
        let component = Component::from_file(&engine, &setup.wasm)
            .map_err(anyhow::Error::from)
            .with_context(|| format!("cannot load the component {}", setup.wasm.display()))?;
        let mut linker = Linker::new(&engine);
        imports::add_to_linker(&mut linker)?;
        let component = linker
            .instantiate_pre(&component)
            .map_err(anyhow::Error::from)
            .context("the component imports something that this host does not have")?;
        let component = ServicePre::new(component)
            .map_err(anyhow::Error::from)
            .context("the component does not export wasi:http/handler@0.3 (spin-sdk 7)")?;
        keep_time(&engine);
        Ok(Self {
            engine,
            component,
            services: Arc::new(setup.services),
            routes: setup.manifest.routes,
        })
    }

    /// The routes of the manifest.
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// Makes a new instance.
    pub(crate) async fn instantiate(&self, mut state: State) -> wasmtime::Result<(Store<State>, Proxy)> {
        state.services = self.services.clone();
        let mut store = Store::new(&self.engine, state);
        store.limiter(|state| &mut state.usage);
        store.epoch_deadline_async_yield_and_update(1);
        store.set_epoch_deadline(1);
        let proxy = Proxy::P3(self.component.instantiate_async(&mut store).await?);
        Ok((store, proxy))
    }

    pub(crate) fn services(&self) -> &Arc<Services> {
        &self.services
    }
}

/// The cache of compiled components. Its files are written under other names and then renamed, so
/// that any number of processes may use it at once.
fn cache(directory: &Path) -> Result<Cache> {
    let directory = std::path::absolute(directory).context("cannot tell where the cache is")?;
    let mut config = CacheConfig::new();
    config.with_directory(directory);
    Ok(Cache::new(config)?)
}

/// Advances the engine's epoch until the engine is dropped. So a component that computes without end
/// does not keep a thread from other requests, and a request time-out can end it. (Spin has neither.)
fn keep_time(engine: &Engine) {
    let engine = engine.weak();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(EPOCH);
            let Some(engine) = engine.upgrade() else { break };
            engine.increment_epoch();
        }
    });
}
