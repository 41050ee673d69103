//! Faults for tests: of the database, which no file can be made to show, and of the clock.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use wasmtime_wasi::HostWallClock;

use crate::sqlite::{Connection, Database, Query, Value};

/// A wall clock that is ahead by as many milliseconds as stand in a file, or behind; the file is read at each look,
/// so the clock can be set while instances run. Without a number it is right.
#[derive(Clone)]
pub struct WrongClock {
    /// The file.
    pub ahead: PathBuf,
}

impl HostWallClock for WrongClock {
    fn resolution(&self) -> Duration {
        Duration::from_nanos(1)
    }

    fn now(&self) -> Duration {
        let text = std::fs::read_to_string(&self.ahead).unwrap_or_default();
        let ahead: i64 = text.trim().parse().unwrap_or(0);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let error = Duration::from_millis(ahead.unsigned_abs());
        let now = now.unwrap_or_default();
        match ahead {
            0.. => now.saturating_add(error),
            _ => now.saturating_sub(error),
        }
    }
}

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
