//! The SQLite database: one statement a call, rows drained at once.

use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use spin_sdk::sqlite::{Connection, Error, RowResult, Value};

use super::migrations;
use super::row::Row;
use crate::domain::{Code, Problem};

/// Pages of a log that SQLite has not begun anew for some time: it copies from 1000 on.
const LONG_LOG: i64 = 2_000;

/// Why there is no answer from the database.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// It could not answer; whatever was asked may or may not have happened.
    #[error("{0}")]
    Failed(String),
    /// A later version of this component has migrated it; nothing was asked.
    #[error(
        "the database has schema version {found}, and this version of payonce knows {known} at most: start \
         the version that migrated it, or a later one"
    )]
    Newer { found: i64, known: i64 },
}

impl DatabaseError {
    /// A row that this component did not write.
    pub(super) fn unexpected_row() -> Self {
        Self::Failed("the database holds a row of an unexpected shape".to_owned())
    }

    /// Another connection holds the lock, and has for as long as SQLite waits: nothing happened.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Failed(text) if text.contains("locked") || text.contains("busy"))
    }
}

impl From<Error> for DatabaseError {
    fn from(error: Error) -> Self {
        Self::Failed(match error {
            Error::Io(message) => message,
            other => other.to_string(),
        })
    }
}

impl From<DatabaseError> for Problem {
    fn from(error: DatabaseError) -> Self {
        let cause = error.to_string();
        let mut problem = match error {
            DatabaseError::Newer { .. } => Self::new(Code::StorageUnavailable, &cause),
            _ if error.is_busy() => Self::new(Code::Busy, "another writer holds the database"),
            _ => Self::new(Code::StorageUnavailable, "the database did not answer"),
        };
        problem.cause = Some(cause);
        problem
    }
}

/// An instance's connection, opened at the first use and again after an error.
///
/// Opening costs more than most statements, so an instance keeps it; nothing depends on it. Reads and
/// writes go through databases of their own: a statement on one connection waits for the one before
/// it, and a write may wait seconds for another instance's.
#[derive(Default)]
pub struct Database {
    connection: Mutex<Option<Arc<Connection>>>,
    impatient: bool,
}

impl Database {
    /// A database that reports a lock after 40 ms instead of Spin's five seconds.
    ///
    /// SQLite waits for a lock by sleeping longer and longer, up to 100 ms, while whoever comes new finds
    /// it free: with several writers the unlucky ones starve. A caller that tries again itself starts with
    /// short sleeps each time.
    pub fn impatient() -> Self {
        Self {
            impatient: true,
            ..Self::default()
        }
    }

    /// Runs one statement and returns all its rows.
    pub async fn execute(
        &self,
        statement: &str,
        parameters: impl IntoIterator<Item = Value>,
    ) -> Result<Vec<RowResult>, DatabaseError> {
        let connection = self.connection().await?;
        let result = run(&connection, statement, parameters).await;
        if let Err(error) = &result
            && !error.is_busy()
        {
            self.keep(None);
        }
        result
    }

    /// Empties the write-ahead log into the database, if it is long and no reader stays in it.
    ///
    /// SQLite copies by itself, but begins the log anew only when no reader is in it just then. Under constant
    /// load there always is one, and the log would grow without end. Emptying it waits for the readers, as long as
    /// a lock may take, and keeps writers out meanwhile: that is no use where one stays, and copying shows it.
    pub async fn checkpoint(&self) {
        let Some(connection) = self.kept() else {
            return;
        };
        // A remote database may refuse this; it looks after its log itself.
        let copied = run(&connection, "PRAGMA wal_checkpoint(PASSIVE)", []).await;
        let mut rows = copied.iter().flatten();
        let Some((length, copied)) = rows.next().and_then(|row| log_pages(row).ok()) else {
            return;
        };
        if length >= LONG_LOG && length.saturating_sub(copied) < LONG_LOG {
            _ = run(&connection, "PRAGMA wal_checkpoint(TRUNCATE)", []).await;
        }
    }

    async fn connection(&self) -> Result<Arc<Connection>, DatabaseError> {
        if let Some(connection) = self.kept() {
            return Ok(connection);
        }
        let connection = Arc::new(Connection::open_default().await?);
        migrations::apply(&connection).await?;
        if self.impatient {
            // Tries after 0, 1, 3, 8, 18, 33 and 40 ms. A remote database may refuse this; it has no file lock.
            _ = run(&connection, "PRAGMA busy_timeout = 40", []).await;
        }
        self.keep(Some(Arc::clone(&connection)));
        Ok(connection)
    }

    fn kept(&self) -> Option<Arc<Connection>> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn keep(&self, connection: Option<Arc<Connection>>) {
        *self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = connection;
    }
}

/// The pages of the log, and those of them that are copied, as a checkpoint tells behind whether it was kept from
/// its end.
fn log_pages(row: &RowResult) -> Result<(i64, i64), DatabaseError> {
    let row = &mut Row::new(row);
    row.integer()?;
    Ok((row.integer()?, row.integer()?))
}

/// Runs one statement on `connection`. Errors, those of the write included, arrive after the rows.
pub(super) async fn run(
    connection: &Connection,
    statement: &str,
    parameters: impl IntoIterator<Item = Value>,
) -> Result<Vec<RowResult>, DatabaseError> {
    Ok(connection
        .execute(statement, parameters)
        .await?
        .collect()
        .await?)
}

/// A parameter that holds any number of items, for `json_each`: one statement text serves them all.
pub(super) fn json_array<T: Serialize>(items: impl Iterator<Item = T>) -> Value {
    // Plain structs only: this cannot fail.
    Value::Text(serde_json::to_string(&items.collect::<Vec<_>>()).unwrap_or_default())
}
