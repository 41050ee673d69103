//! The database of a run: a real file, and connections to it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use payonce_host::sqlite::{self, DatabaseFile, Value};

use super::{Answer, lock, only_reads};

/// The database file, and connections to it that nobody uses. A connection that is used again saves
/// SQLite the reading of the schema, which takes longer than most runs.
pub struct File {
    file: DatabaseFile,
    idle: Mutex<Vec<rusqlite::Connection>>,
    /// Whether the file lives longer than one run.
    kept: bool,
}

impl File {
    /// A file; `kept` where it lives longer than one run.
    pub fn new(path: PathBuf, kept: bool) -> Arc<Self> {
        Arc::new(Self {
            file: DatabaseFile {
                path: Some(path),
                allow_attach_file: false,
            },
            idle: Mutex::default(),
            kept,
        })
    }

    /// A connection, in the state of a new one.
    pub fn open(&self) -> Result<rusqlite::Connection, String> {
        if let Some(connection) = lock(&self.idle).pop() {
            return Ok(connection);
        }
        let connection = self.file.open()?;
        // What a power failure would take does not matter here, and time does.
        _ = connection.pragma_update(None, "synchronous", "OFF");
        connection.set_prepared_statement_cache_capacity(128);
        Ok(connection)
    }

    /// Takes a connection back.
    pub fn close(&self, connection: rusqlite::Connection) {
        // All that payonce changes of a connection.
        if self.kept && connection.busy_timeout(Duration::from_secs(5)).is_ok() {
            lock(&self.idle).push(connection);
        }
    }
}

/// The database connection itself, opened by its first statement.
pub struct Line {
    file: Arc<File>,
    connection: Mutex<Option<rusqlite::Connection>>,
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(connection) = lock(&self.connection).take() {
            self.file.close(connection);
        }
    }
}

impl Line {
    pub(super) fn new(file: Arc<File>) -> Self {
        Self {
            file,
            connection: Mutex::default(),
        }
    }

    /// Whether the schema has something of that name, as far as an open connection can tell.
    pub(super) fn has(&self, name: &str) -> bool {
        self.exists("SELECT 1 FROM sqlite_schema WHERE name = ?1", name)
    }

    /// Whether the schema is recorded to be of that version, as far as an open connection can tell.
    pub(super) fn is_at(&self, version: u32) -> bool {
        let sql = "SELECT 1 FROM schema_migrations WHERE version = ?1";
        self.exists(sql, version)
    }

    /// Whether the file has its journal mode, as far as an open connection can tell.
    pub(super) fn has_wal(&self) -> bool {
        self.exists(
            "SELECT 1 FROM pragma_journal_mode WHERE journal_mode = ?1",
            "wal",
        )
    }

    fn exists(&self, sql: &str, parameter: impl rusqlite::ToSql) -> bool {
        let slot = lock(&self.connection);
        slot.as_ref().is_some_and(|connection| {
            let found = connection.prepare_cached(sql);
            found.is_ok_and(|mut statement| statement.exists([&parameter]).unwrap_or(false))
        })
    }

    /// Runs a statement to its end; says whether it changed the database.
    pub(super) fn run(&self, sql: &str, parameters: Vec<Value>) -> (bool, Answer) {
        let mut slot = lock(&self.connection);
        let connection = match &mut *slot {
            Some(connection) => connection,
            empty => match self.file.open() {
                Ok(opened) => empty.insert(opened),
                Err(error) => return (false, Answer::Failed(error)),
            },
        };
        let schema = |connection: &rusqlite::Connection| -> i64 {
            let version = connection.pragma_query_value(None, "schema_version", |row| row.get(0));
            version.unwrap_or(0)
        };
        let before = (!only_reads(sql)).then(|| (connection.total_changes(), schema(connection)));
        let (mut columns, mut rows) = (Vec::new(), Vec::new());
        let on_columns = |names| {
            columns = names;
            Ok(())
        };
        let on_row = |row| {
            rows.push(row);
            Ok(())
        };
        let result = sqlite::run(connection, sql, parameters, on_columns, on_row);
        let changed =
            before.is_some_and(|before| before != (connection.total_changes(), schema(connection)));
        match result {
            Ok(()) => (changed, Answer::Rows(columns, rows)),
            Err(error) => (changed, Answer::Failed(error)),
        }
    }
}
