//! The two files of a data directory as an outsider sees and damages them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, params};

/// Key and value of every entry of the key-value store.
pub type Entries = BTreeMap<String, Vec<u8>>;

/// Opens a file that exists and never creates one.
pub fn open(path: &Path) -> Connection {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags);
    let connection = connection.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let patience = Duration::from_secs(30);
    connection.busy_timeout(patience).expect("a busy time-out");
    connection
}

/// Everything in the key-value store; nothing while there is no such table yet.
pub fn entries(path: &Path) -> Entries {
    if !path.is_file() {
        return Entries::new();
    }
    let connection = open(path);
    let Ok(mut all) = connection.prepare("SELECT key, value FROM spin_key_value") else {
        return Entries::new();
    };
    let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.expect("entries")
        .map(|row| row.expect("an entry"))
        .collect()
}

/// Replaces the value of every entry.
pub fn overwrite_all(path: &Path, value: &[u8]) -> usize {
    let sql = "UPDATE spin_key_value SET value = ?1";
    open(path).execute(sql, [value]).expect("an update")
}

/// Sets one entry that exists.
pub fn overwrite(path: &Path, key: &str, value: &[u8]) {
    let sql = "UPDATE spin_key_value SET value = ?2 WHERE key = ?1";
    let changed = open(path).execute(sql, params![key, value]);
    assert_eq!(changed.expect("an update"), 1, "no entry {key}");
}

/// Empties the store.
pub fn wipe(path: &Path) -> usize {
    let sql = "DELETE FROM spin_key_value";
    open(path).execute(sql, []).expect("a delete")
}

/// The names of the tables of a database, sorted.
pub fn tables(connection: &Connection) -> Vec<String> {
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name";
    let mut statement = connection.prepare(sql).expect("a schema");
    let names = statement.query_map([], |row| row.get(0));
    names
        .expect("names")
        .map(|name| name.expect("a name"))
        .collect()
}

/// How many rows each table holds.
pub fn row_counts(connection: &Connection) -> BTreeMap<String, i64> {
    let count = |table: &String| {
        let sql = format!("SELECT count(*) FROM \"{table}\"");
        connection.query_row(&sql, [], |row| row.get(0))
    };
    let names = tables(connection).into_iter();
    names
        .map(|table| {
            let rows = count(&table).expect("a count");
            (table, rows)
        })
        .collect()
}

/// The entry whose value holds this text, an identifier of the answer that it keeps.
pub fn entry_with(path: &Path, text: &str) -> Option<(String, Vec<u8>)> {
    entries(path)
        .into_iter()
        .find(|(_, value)| String::from_utf8_lossy(value).contains(text))
}

/// All entries that are claims, by the member that only a claim has.
pub fn claims(path: &Path) -> Entries {
    let mut claims = entries(path);
    claims.retain(|_, value| String::from_utf8_lossy(value).contains("lease_until"));
    claims
}

/// Keeps every other writer out of the database while it lives.
pub struct WriteLock(Connection);

impl WriteLock {
    /// Takes the write lock of a database; readers of a WAL file go on.
    pub fn take(path: &Path) -> Self {
        let connection = open(path);
        let begun = connection.execute_batch("BEGIN IMMEDIATE");
        begun.expect("the write lock");
        Self(connection)
    }

    /// Keeps readers out too, where the file is not in WAL mode.
    pub fn take_all(path: &Path) -> Self {
        let connection = open(path);
        let begun = connection.execute_batch("BEGIN EXCLUSIVE");
        begun.expect("the lock");
        Self(connection)
    }
}

impl Drop for WriteLock {
    fn drop(&mut self) {
        let _ = self.0.execute_batch("ROLLBACK");
    }
}
