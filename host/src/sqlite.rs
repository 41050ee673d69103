//! SQLite databases for the component, with the manners of Spin's local provider.
//!
//! Every `open` of the component is a connection of its own, opened at its first statement, with
//! SQLite's busy handler set to 5 seconds. A statement runs on a thread that may block; its rows go
//! through a channel of 4, and the thread holds the connection's lock until the last row is taken.
//! Of a string with several statements the first one runs. An error, also a failed constraint,
//! arrives at the result and not at the call. Unlike in Spin a text that is not UTF-8 is an error.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use rusqlite::fallible_iterator::FallibleIterator as _;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Batch, Row, Statement, ToSql, params_from_iter};
use tokio::sync::{mpsc, oneshot};

use crate::MAX_BUFFERED_BYTES;
pub use crate::imports::sqlite_types::{RowResult, Value};

/// Rows that may wait between the statement and the component; Spin's number.
const ROWS_IN_FLIGHT: usize = 4;

/// The database behind one label.
pub trait Database: Send + Sync + 'static {
    /// A new connection; nothing is opened before its first statement.
    fn connect(&self) -> Arc<dyn Connection>;
}

/// One connection. The errors are the texts the component sees.
pub trait Connection: Send + Sync + 'static {
    /// Starts the first statement of `sql`.
    fn query(
        &self,
        sql: String,
        parameters: Vec<Value>,
    ) -> BoxFuture<'static, Result<Query, String>>;
    /// Runs every statement of `sql`, for scripts at the start.
    fn execute_batch(&self, sql: String) -> BoxFuture<'static, Result<(), String>>;
    /// Rows changed by the last completed statement; waits for a statement that is still running.
    fn changes(&self) -> BoxFuture<'static, Result<u64, String>>;
    /// The row id of the last insert; waits for a statement that is still running.
    fn last_insert_rowid(&self) -> BoxFuture<'static, Result<i64, String>>;
}

/// A statement that has been started.
pub struct Query {
    /// The names of the columns; empty when the statement could not be prepared.
    pub columns: Vec<String>,
    /// The rows. The statement ends when this is dropped.
    pub rows: mpsc::Receiver<RowResult>,
    /// How the statement ended, once all rows are taken.
    pub result: oneshot::Receiver<Result<(), String>>,
}

impl Query {
    /// Takes all rows, at most [`MAX_BUFFERED_BYTES`] of them.
    pub async fn collect(mut self) -> Result<(Vec<String>, Vec<RowResult>), String> {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while let Some(row) = self.rows.recv().await {
            bytes += size_of_row(&row);
            if bytes > MAX_BUFFERED_BYTES {
                return Err(too_large());
            }
            rows.push(row);
        }
        self.result
            .await
            .unwrap_or_else(|_| Err("the statement was interrupted".to_owned()))?;
        Ok((self.columns, rows))
    }
}

/// A database in a file.
#[derive(Clone)]
pub struct DatabaseFile {
    /// `None` gives every connection an empty database in memory, as in Spin.
    pub path: Option<PathBuf>,
    /// Whether `ATTACH` may name other files.
    pub allow_attach_file: bool,
}

impl Database for DatabaseFile {
    fn connect(&self) -> Arc<dyn Connection> {
        Arc::new(FileConnection(Arc::new(Lazy {
            file: self.clone(),
            connection: Mutex::new(None),
        })))
    }
}

impl DatabaseFile {
    /// A connection as the component gets it.
    ///
    /// # Errors
    /// The text the component sees.
    pub fn open(&self) -> Result<rusqlite::Connection, String> {
        let mut connection = match &self.path {
            Some(path) => {
                if let Some(parent) = path.parent() {
                    std::fs::create_dir_all(parent)
                        .map_err(|error| format!("cannot create {}: {error}", parent.display()))?;
                }
                rusqlite::Connection::open(path)
            }
            None => rusqlite::Connection::open_in_memory(),
        }
        .map_err(text)?;
        if !self.allow_attach_file {
            connection.authorizer(Some(deny_attach)).map_err(text)?;
        }
        Ok(connection)
    }
}

/// A connection that is opened when it is needed.
struct Lazy {
    file: DatabaseFile,
    connection: Mutex<Option<rusqlite::Connection>>,
}

impl Lazy {
    /// Runs `work` with the connection locked. The outer error says that it could not be opened.
    fn with<T>(&self, work: impl FnOnce(&rusqlite::Connection) -> T) -> Result<T, String> {
        let mut slot = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let connection = match &mut *slot {
            Some(connection) => connection,
            empty => empty.insert(self.file.open()?),
        };
        Ok(work(connection))
    }
}

/// Allows everything but to attach a file; a temporary or an in-memory database may be attached.
fn deny_attach(context: AuthContext<'_>) -> Authorization {
    match context.action {
        AuthAction::Attach { filename } if !matches!(filename, "" | ":memory:") => {
            Authorization::Deny
        }
        _ => Authorization::Allow,
    }
}

struct FileConnection(Arc<Lazy>);

impl FileConnection {
    fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&rusqlite::Connection) -> Result<T, String> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, String>> {
        let lazy = self.0.clone();
        Box::pin(async move {
            tokio::task::spawn_blocking(move || lazy.with(work)?)
                .await
                .unwrap_or_else(|error| Err(format!("the SQLite call did not finish: {error}")))
        })
    }
}

impl Connection for FileConnection {
    fn query(
        &self,
        sql: String,
        parameters: Vec<Value>,
    ) -> BoxFuture<'static, Result<Query, String>> {
        let lazy = self.0.clone();
        Box::pin(async move {
            let (columns_out, columns) = oneshot::channel();
            let (rows_out, rows) = mpsc::channel(ROWS_IN_FLIGHT);
            let (result_out, result) = oneshot::channel();
            tokio::task::spawn_blocking(move || {
                let mut columns_out = Some(columns_out);
                let ran = lazy.with(|connection| {
                    let on_columns = |columns| match columns_out.take() {
                        Some(out) => out
                            .send(Ok(columns))
                            .map_err(|_| "column send error".to_owned()),
                        None => Ok(()),
                    };
                    let on_row = |row| {
                        rows_out
                            .blocking_send(row)
                            .map_err(|_| "row send error".to_owned())
                    };
                    run(connection, &sql, parameters, on_columns, on_row)
                });
                // The result may be looked at only when the rows have ended.
                drop(rows_out);
                match (ran, columns_out) {
                    (Ok(ended), None) => drop(result_out.send(ended)),
                    (Ok(ended), Some(columns_out)) => {
                        drop(columns_out.send(Ok(Vec::new())));
                        drop(result_out.send(ended));
                    }
                    (Err(error), Some(columns_out)) => drop(columns_out.send(Err(error))),
                    (Err(error), None) => drop(result_out.send(Err(error))),
                }
            });
            let columns = columns
                .await
                .unwrap_or_else(|_| Err("the statement was interrupted".to_owned()))?;
            Ok(Query {
                columns,
                rows,
                result,
            })
        })
    }

    fn execute_batch(&self, sql: String) -> BoxFuture<'static, Result<(), String>> {
        self.call(move |connection| connection.execute_batch(&sql).map_err(text))
    }

    fn changes(&self) -> BoxFuture<'static, Result<u64, String>> {
        self.call(|connection| Ok(connection.changes()))
    }

    fn last_insert_rowid(&self) -> BoxFuture<'static, Result<i64, String>> {
        self.call(|connection| Ok(connection.last_insert_rowid()))
    }
}

/// Prepares and runs the first statement of `sql`; hands on its columns, as soon as they are known, and
/// its rows.
///
/// # Errors
/// The text the component sees, or the first error of `on_columns` and `on_row`.
pub fn run(
    connection: &rusqlite::Connection,
    sql: &str,
    parameters: Vec<Value>,
    on_columns: impl FnOnce(Vec<String>) -> Result<(), String>,
    mut on_row: impl FnMut(RowResult) -> Result<(), String>,
) -> Result<(), String> {
    let (mut cached, mut first);
    let statement: &mut Statement<'_> = match connection.prepare_cached(sql) {
        Ok(statement) => {
            cached = statement;
            &mut cached
        }
        // Also the answer to more than one statement: then only the first one counts.
        Err(error) => match Batch::new(connection, sql).next() {
            Ok(Some(statement)) => {
                first = statement;
                &mut first
            }
            Ok(None) | Err(_) => return Err(text(error)),
        },
    };
    on_columns(statement.column_names().map(str::to_owned).collect())?;
    let mut rows = statement
        .query(params_from_iter(parameters))
        .map_err(text)?;
    while let Some(row) = rows.next().map_err(text)? {
        let row = convert(row)?;
        if size_of_row(&row) > MAX_BUFFERED_BYTES {
            return Err(too_large());
        }
        on_row(row)?;
    }
    Ok(())
}

fn convert(row: &Row<'_>) -> Result<RowResult, String> {
    let columns = row.as_ref().column_count();
    let values = (0..columns)
        .map(|column| {
            Ok(match row.get_ref(column).map_err(text)? {
                ValueRef::Null => Value::Null,
                ValueRef::Integer(value) => Value::Integer(value),
                ValueRef::Real(value) => Value::Real(value),
                ValueRef::Blob(value) => Value::Blob(value.to_vec()),
                ValueRef::Text(value) => Value::Text(
                    String::from_utf8(value.to_vec())
                        .map_err(|_| format!("the text in column {column} is not UTF-8"))?,
                ),
            })
        })
        .collect::<Result<_, String>>()?;
    Ok(RowResult { values })
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Value::Null => ValueRef::Null,
            Value::Integer(value) => ValueRef::Integer(*value),
            Value::Real(value) => ValueRef::Real(*value),
            Value::Text(value) => ValueRef::Text(value.as_bytes()),
            Value::Blob(value) => ValueRef::Blob(value),
        }))
    }
}

fn size_of_row(row: &RowResult) -> usize {
    let heap = |value: &Value| match value {
        Value::Text(value) => value.len(),
        Value::Blob(value) => value.len(),
        Value::Null | Value::Integer(_) | Value::Real(_) => 0,
    };
    row.values
        .iter()
        .map(|value| size_of::<Value>() + heap(value))
        .sum()
}

fn too_large() -> String {
    format!("query result exceeds limit of {MAX_BUFFERED_BYTES} bytes")
}

fn text(error: rusqlite::Error) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests;
