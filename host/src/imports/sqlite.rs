//! `spin:sqlite`: opens the databases that the manifest grants and passes the statements on.

use std::sync::Arc;

use wasmtime::component::{Accessor, FutureReader, HasSelf, Resource, StreamReader};

use super::generated::spin::sqlite::sqlite::{
    Error, Host, HostConnection, HostConnectionWithStore, QueryResult, RowResult, Value,
};
use super::stream::FromChannel;
use crate::instances::State;
use crate::sqlite::Connection;

/// Connections that one instance may have open; Spin's number.
const MAX_CONNECTIONS: usize = 256;

/// A connection that the component has open.
pub struct OpenConnection(Arc<dyn Connection>);

type Answer<T> = wasmtime::Result<Result<T, Error>>;
type Streams = (
    Vec<String>,
    StreamReader<RowResult>,
    FutureReader<Result<(), Error>>,
);

impl State {
    fn open_connection(&mut self, database: &str) -> Result<Resource<OpenConnection>, Error> {
        let database = self
            .services
            .databases
            .get(database)
            .ok_or(Error::AccessDenied)?;
        if self.connections >= MAX_CONNECTIONS {
            return Err(Error::Io("too many connections opened".to_owned()));
        }
        let connection = OpenConnection(database.connect());
        let resource = self
            .table
            .push(connection)
            .map_err(|error| Error::Io(error.to_string()))?;
        self.connections += 1;
        Ok(resource)
    }

    fn connection(
        &self,
        connection: &Resource<OpenConnection>,
    ) -> wasmtime::Result<Arc<dyn Connection>> {
        Ok(self.table.get(connection)?.0.clone())
    }
}

fn opened(
    accessor: &Accessor<State, HasSelf<State>>,
    connection: &Resource<OpenConnection>,
) -> wasmtime::Result<Arc<dyn Connection>> {
    accessor.with(|mut access| access.get().connection(connection))
}

impl Host for State {}

impl HostConnection for State {
    async fn open(&mut self, database: String) -> Answer<Resource<OpenConnection>> {
        Ok(self.open_connection(&database))
    }

    async fn execute(
        &mut self,
        connection: Resource<OpenConnection>,
        statement: String,
        parameters: Vec<Value>,
    ) -> Answer<QueryResult> {
        let connection = self.connection(&connection)?;
        let rows = match connection.query(statement, parameters).await {
            Ok(query) => query.collect().await,
            Err(error) => Err(error),
        };
        Ok(rows
            .map(|(columns, rows)| QueryResult { columns, rows })
            .map_err(Error::Io))
    }

    async fn last_insert_rowid(
        &mut self,
        connection: Resource<OpenConnection>,
    ) -> wasmtime::Result<i64> {
        let connection = self.connection(&connection)?;
        connection
            .last_insert_rowid()
            .await
            .map_err(wasmtime::Error::msg)
    }

    async fn changes(&mut self, connection: Resource<OpenConnection>) -> wasmtime::Result<u64> {
        let connection = self.connection(&connection)?;
        connection.changes().await.map_err(wasmtime::Error::msg)
    }

    async fn drop(&mut self, connection: Resource<OpenConnection>) -> wasmtime::Result<()> {
        self.table.delete(connection)?;
        self.connections -= 1;
        Ok(())
    }
}

impl HostConnectionWithStore<State> for HasSelf<State> {
    async fn open_async(
        accessor: &Accessor<State, Self>,
        database: String,
    ) -> Answer<Resource<OpenConnection>> {
        Ok(accessor.with(|mut access| access.get().open_connection(&database)))
    }

    async fn execute_async(
        accessor: &Accessor<State, Self>,
        connection: Resource<OpenConnection>,
        statement: String,
        parameters: Vec<Value>,
    ) -> Answer<Streams> {
        let query = match opened(accessor, &connection)?
            .query(statement, parameters)
            .await
        {
            Ok(query) => query,
            Err(error) => return Ok(Err(Error::Io(error))),
        };
        let ended = async {
            let ended = query.result.await;
            let ended = ended.unwrap_or_else(|_| Err("the statement was interrupted".to_owned()));
            wasmtime::error::Ok(ended.map_err(Error::Io))
        };
        accessor.with(|mut access| {
            let rows = StreamReader::new(&mut access, FromChannel(query.rows))?;
            let ended = FutureReader::new(&mut access, ended)?;
            Ok(Ok((query.columns, rows, ended)))
        })
    }

    async fn last_insert_rowid_async(
        accessor: &Accessor<State, Self>,
        connection: Resource<OpenConnection>,
    ) -> wasmtime::Result<i64> {
        let connection = opened(accessor, &connection)?;
        connection
            .last_insert_rowid()
            .await
            .map_err(wasmtime::Error::msg)
    }

    async fn changes_async(
        accessor: &Accessor<State, Self>,
        connection: Resource<OpenConnection>,
    ) -> wasmtime::Result<u64> {
        let connection = opened(accessor, &connection)?;
        connection.changes().await.map_err(wasmtime::Error::msg)
    }
}
