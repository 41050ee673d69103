//! Faults of the database that no file can be made to show, for tests.

use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use crate::sqlite::{Connection, Database, Query, Value};

/// A database that loses results: a statement takes effect, and the component is told that it failed,
/// as after an interrupted commit.
pub struct LosesResults {
    database: Arc<dyn Database>,
    lost: Arc<Mutex<Vec<String>>>,
}

impl LosesResults {
    /// For each text in `lost`, the next statement that begins with it loses its result.
    pub fn new(database: Arc<dyn Database>, lost: Vec<String>) -> Self {
        let lost = Arc::new(Mutex::new(lost));
        Self { database, lost }
    }
}

impl Database for LosesResults {
    fn connect(&self) -> Arc<dyn Connection> {
        Arc::new(LosesResultsOn {
            connection: self.database.connect(),
            lost: Arc::clone(&self.lost),
        })
    }
}

struct LosesResultsOn {
    connection: Arc<dyn Connection>,
    lost: Arc<Mutex<Vec<String>>>,
}

impl Connection for LosesResultsOn {
    fn query(
        &self,
        sql: String,
        parameters: Vec<Value>,
    ) -> BoxFuture<'static, Result<Query, String>> {
        let is_lost = {
            let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
            let found = lost.iter().position(|text| sql.starts_with(text.as_str()));
            found.map(|index| lost.remove(index)).is_some()
        };
        let query = self.connection.query(sql, parameters);
        if !is_lost {
            return query;
        }
        async move {
            let (columns, _) = query.await?.collect().await?;
            let (_, rows) = mpsc::channel(1);
            let (failure, result) = oneshot::channel();
            // The other end is in our hands.
            _ = failure.send(Err("disk I/O error".to_owned()));
            Ok(Query {
                columns,
                rows,
                result,
            })
        }
        .boxed()
    }

    fn execute_batch(&self, sql: String) -> BoxFuture<'static, Result<(), String>> {
        self.connection.execute_batch(sql)
    }

    fn changes(&self) -> BoxFuture<'static, Result<u64, String>> {
        self.connection.changes()
    }

    fn last_insert_rowid(&self) -> BoxFuture<'static, Result<i64, String>> {
        self.connection.last_insert_rowid()
    }
}
