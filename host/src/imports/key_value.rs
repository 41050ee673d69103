//! `spin:key-value`: opens the stores that the manifest grants and passes the calls on.

use std::sync::Arc;

use wasmtime::component::{Accessor, FutureReader, HasSelf, Resource, StreamReader};

use super::generated::spin::key_value::key_value::{Error, Host, HostStore, HostStoreWithStore};
use crate::instances::State;
use crate::key_value::KeyValue;

/// A store that the component has open.
pub struct OpenStore(Arc<dyn KeyValue>);

type Answer<T> = wasmtime::Result<Result<T, Error>>;

fn opened(
    accessor: &Accessor<State, HasSelf<State>>,
    store: &Resource<OpenStore>,
) -> wasmtime::Result<Arc<dyn KeyValue>> {
    accessor.with(|mut access| Ok(access.get().table.get(store)?.0.clone()))
}

impl Host for State {}

impl HostStore for State {
    async fn drop(&mut self, store: Resource<OpenStore>) -> wasmtime::Result<()> {
        self.table.delete(store)?;
        Ok(())
    }
}

impl HostStoreWithStore<State> for HasSelf<State> {
    async fn open(accessor: &Accessor<State, Self>, label: String) -> Answer<Resource<OpenStore>> {
        let granted =
            accessor.with(|mut access| access.get().services.key_value.get(&label).cloned());
        let Some(store) = granted else {
            return Ok(Err(Error::AccessDenied));
        };
        if let Err(error) = store.open().await {
            return Ok(Err(Error::Other(error)));
        }
        Ok(accessor
            .with(|mut access| access.get().table.push(OpenStore(store)))
            .map_err(|_| Error::StoreTableFull))
    }

    async fn get(
        accessor: &Accessor<State, Self>,
        store: Resource<OpenStore>,
        key: String,
    ) -> Answer<Option<Vec<u8>>> {
        Ok(opened(accessor, &store)?
            .get(key)
            .await
            .map_err(Error::Other))
    }

    async fn set(
        accessor: &Accessor<State, Self>,
        store: Resource<OpenStore>,
        key: String,
        value: Vec<u8>,
    ) -> Answer<()> {
        Ok(opened(accessor, &store)?
            .set(key, value)
            .await
            .map_err(Error::Other))
    }

    async fn delete(
        accessor: &Accessor<State, Self>,
        store: Resource<OpenStore>,
        key: String,
    ) -> Answer<()> {
        Ok(opened(accessor, &store)?
            .delete(key)
            .await
            .map_err(Error::Other))
    }

    async fn exists(
        accessor: &Accessor<State, Self>,
        store: Resource<OpenStore>,
        key: String,
    ) -> Answer<bool> {
        Ok(opened(accessor, &store)?
            .exists(key)
            .await
            .map_err(Error::Other))
    }

    async fn get_keys(
        accessor: &Accessor<State, Self>,
        store: Resource<OpenStore>,
    ) -> wasmtime::Result<(StreamReader<String>, FutureReader<Result<(), Error>>)> {
        let (keys, ended) = match opened(accessor, &store)?.keys().await {
            Ok(keys) => (keys, Ok(())),
            Err(error) => (Vec::new(), Err(Error::Other(error))),
        };
        accessor.with(|mut access| {
            let keys = StreamReader::new(&mut access, keys)?;
            let ended = FutureReader::new(&mut access, async { wasmtime::error::Ok(ended) })?;
            Ok((keys, ended))
        })
    }
}
