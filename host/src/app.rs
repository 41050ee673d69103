//! The compiled component, its services, and new instances of it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::BoxFuture;
use wasmtime::component::{Component, Linker};
use wasmtime::{
    Cache, CacheConfig, Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Store,
};
use wasmtime_wasi::WasiCtxBuilder;
use wasmtime_wasi_http::WasiBody;
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

/// Instances that may live at the same time; Spin's number.
const MAX_INSTANCES: u32 = 1000;

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
    /// Waits in place of tokio's timer when the component sleeps.
    pub sleep: Option<Sleep>,
    /// Sends requests in place of the network; what the manifest does not allow never gets here.
    pub network: Option<Network>,
}

/// See [`Services::wasi`].
pub type WasiSetup = Arc<dyn Fn(&mut WasiCtxBuilder) + Send + Sync>;

/// See [`Services::sleep`].
pub type Sleep = Arc<dyn Fn(Duration) -> BoxFuture<'static, ()> + Send + Sync>;

/// See [`Services::network`].
pub type Network = Arc<
    dyn Fn(
            http::Request<WasiBody>,
        )
            -> BoxFuture<'static, Result<http::Response<WasiBody>, wasmtime_wasi_http::Error>>
        + Send
        + Sync,
>;

/// An application, ready to serve.
pub struct App {
    engine: Engine,
    component: ServicePre<State>,
    services: Arc<Services>,
    routes: Vec<Route>,
    preempt: bool,
}

impl App {
    /// Compiles the component of a manifest and links it.
    ///
    /// # Errors
    /// A file that is no component, or a component that imports something this host does not have.
    pub fn new(setup: Setup) -> Result<Self> {
        let engine = engine(setup.cache_dir.as_deref())?;
        ensure!(
            setup.wasm.is_file(),
            "there is no component {}: build it first",
            setup.wasm.display()
        );
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
        if setup.preempt {
            keep_time(&engine);
        }
        Ok(Self {
            engine,
            component,
            services: Arc::new(setup.services),
            routes: setup.manifest.routes,
            preempt: setup.preempt,
        })
    }

    /// The routes of the manifest.
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// Makes a new instance.
    pub(crate) async fn instantiate(
        &self,
        state: State,
    ) -> wasmtime::Result<(Store<State>, Proxy)> {
        let mut store = Store::new(&self.engine, state);
        store.limiter(|state| &mut state.usage);
        if self.preempt {
            store.epoch_deadline_async_yield_and_update(1);
            store.set_epoch_deadline(1);
        } else {
            store.set_epoch_deadline(u64::MAX / 2);
        }
        let proxy = Proxy::P3(self.component.instantiate_async(&mut store).await?);
        Ok((store, proxy))
    }

    pub(crate) fn services(&self) -> &Arc<Services> {
        &self.services
    }
}

/// An engine whose instances come from a pool, or one without a pool where the address space is too
/// small for it. From the pool a new instance takes a third less time.
fn engine(cache_dir: Option<&Path>) -> Result<Engine> {
    let mut config = Config::new();
    config.wasm_component_model_async(true);
    config.epoch_interruption(true);
    if let Some(directory) = cache_dir {
        match cache(directory) {
            Ok(cache) => drop(config.cache(Some(cache))),
            Err(error) => eprintln!("The compiled component will not be kept: {error:#}"),
        }
    }
    // Spin's limits: 1000 instances, each with as much memory as Wasm can have.
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(MAX_INSTANCES)
        .total_core_instances(4 * MAX_INSTANCES)
        .total_memories(MAX_INSTANCES)
        .total_tables(2 * MAX_INSTANCES)
        .total_stacks(MAX_INSTANCES)
        .max_component_instance_size(10 << 20)
        .max_core_instance_size(10 << 20)
        .max_memory_size(4 << 30)
        .table_elements(100_000)
        // What is cleared rather than given back to the system when an instance is dropped.
        .linear_memory_keep_resident(2 << 20)
        .table_keep_resident(512 << 10);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    match Engine::new(&config) {
        Ok(engine) => Ok(engine),
        Err(_) => {
            config.allocation_strategy(InstanceAllocationStrategy::OnDemand);
            Ok(Engine::new(&config)?)
        }
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
            let Some(engine) = engine.upgrade() else {
                break;
            };
            engine.increment_epoch();
        }
    });
}
