//! Key-value stores in a SQLite file, in Spin's layout: the table `spin_key_value(store, key, value)`,
//! where `store` is the label. One connection serves all stores of a file, and it is opened at the
//! first use.
//!
//! The file may vanish, be replaced or become unreadable while the host runs: the call that meets it
//! returns an error or goes on with the new file, and the next call opens the file afresh. So a store
//! recovers without a restart as soon as its file is good again. Unlike Spin's, `get_keys` collects
//! the keys before it hands them out, because a stream that holds the connection's lock deadlocks a
//! component that reads another key meanwhile.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};

use crate::MAX_BUFFERED_BYTES;

/// What a store's call returns; the error is the text the component sees.
pub type Outcome<T> = BoxFuture<'static, Result<T, String>>;

/// The store behind one label.
pub trait KeyValue: Send + Sync + 'static {
    /// Makes sure that the store can be used.
    fn open(&self) -> Outcome<()>;
    /// The value of `key`, if there is one.
    fn get(&self, key: String) -> Outcome<Option<Vec<u8>>>;
    /// Writes `value`, durably when the call returns.
    fn set(&self, key: String, value: Vec<u8>) -> Outcome<()>;
    /// Removes `key`; no error when it is not there.
    fn delete(&self, key: String) -> Outcome<()>;
    /// Whether `key` has a value.
    fn exists(&self, key: String) -> Outcome<bool>;
    /// All keys of the store.
    fn keys(&self) -> Outcome<Vec<String>>;
}

/// A SQLite file that holds the stores of any number of labels.
pub struct StoreFile {
    /// `None` keeps the stores in memory.
    path: Option<PathBuf>,
    open: Mutex<Option<Open>>,
}

/// The open connection, and which file it is a connection to.
struct Open {
    connection: Connection,
    file: Option<FileId>,
}

impl StoreFile {
    /// Nothing is read or created before the first call.
    pub fn new(path: Option<PathBuf>) -> Arc<Self> {
        Arc::new(Self {
            path,
            open: Mutex::new(None),
        })
    }

    /// The store with this label.
    pub fn store(self: &Arc<Self>, label: impl Into<String>) -> Arc<dyn KeyValue> {
        Arc::new(Store {
            file: self.clone(),
            label: label.into(),
        })
    }

    /// Runs `work` on the connection, which is opened when there is none to the present file.
    fn with<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, String> {
        let mut slot = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        // SQLite would go on with the file it has open, also when that is no longer in the directory.
        if let (Some(open), Some(path)) = (&*slot, &self.path)
            && open.file != FileId::of(path)
        {
            *slot = None;
        }
        let open = match &mut *slot {
            Some(open) => open,
            empty => empty.insert(self.connect()?),
        };
        let result = work(&open.connection);
        if self.path.is_some() && result.as_ref().is_err_and(is_about_the_file) {
            *slot = None;
        }
        result.map_err(|error| error.to_string())
    }

    fn connect(&self) -> Result<Open, String> {
        let connection = match &self.path {
            Some(path) => {
                if let Some(parent) = path.parent() {
                    std::fs::create_dir_all(parent)
                        .map_err(|error| format!("cannot create {}: {error}", parent.display()))?;
                }
                Connection::open(path)
            }
            None => Connection::open_in_memory(),
        }
        .map_err(|error| error.to_string())?;
        connection
            .execute(
                "CREATE TABLE IF NOT EXISTS spin_key_value (
                    store TEXT NOT NULL,
                    key   TEXT NOT NULL,
                    value BLOB NOT NULL,
                    PRIMARY KEY (store, key)
                )",
                [],
            )
            .map_err(|error| error.to_string())?;
        let file = self.path.as_deref().and_then(FileId::of);
        Ok(Open { connection, file })
    }
}

/// Whether an error says that the file, and not the call, is at fault.
fn is_about_the_file(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(
            ErrorCode::CannotOpen
                | ErrorCode::DatabaseCorrupt
                | ErrorCode::NotADatabase
                | ErrorCode::ReadOnly
                | ErrorCode::SystemIoFailure
                | ErrorCode::Unknown
        )
    )
}

/// What tells a file from another one with the same name.
#[derive(PartialEq)]
struct FileId(u64, u64);

impl FileId {
    #[cfg(unix)]
    fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt as _;
        let data = std::fs::metadata(path).ok()?;
        Some(Self(data.dev(), data.ino()))
    }

    /// Without such numbers a replaced file is noticed when SQLite notices it.
    #[cfg(not(unix))]
    fn of(_: &Path) -> Option<Self> {
        None
    }
}

/// One label's rows of a [`StoreFile`].
struct Store {
    file: Arc<StoreFile>,
    label: String,
}

impl Store {
    /// Runs `work` on a thread that may wait for the disk.
    fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection, &str) -> rusqlite::Result<T> + Send + 'static,
    ) -> Outcome<T> {
        let (file, label) = (self.file.clone(), self.label.clone());
        Box::pin(async move {
            tokio::task::spawn_blocking(move || file.with(|connection| work(connection, &label)))
                .await
                .unwrap_or_else(|error| Err(format!("the key-value call did not finish: {error}")))
        })
    }
}

impl KeyValue for Store {
    fn open(&self) -> Outcome<()> {
        self.call(|_, _| Ok(()))
    }

    fn get(&self, key: String) -> Outcome<Option<Vec<u8>>> {
        let value = self.call(move |connection, label| select(connection, label, &key));
        Box::pin(async move {
            let value = value.await?;
            if value
                .as_ref()
                .is_some_and(|value| value.len() > MAX_BUFFERED_BYTES)
            {
                return Err(too_large());
            }
            Ok(value)
        })
    }

    fn set(&self, key: String, value: Vec<u8>) -> Outcome<()> {
        self.call(move |connection, label| {
            connection
                .prepare_cached(
                    "INSERT INTO spin_key_value (store, key, value) VALUES (?1, ?2, ?3)
                     ON CONFLICT (store, key) DO UPDATE SET value = ?3",
                )?
                .execute(params![label, key, value])
                .map(drop)
        })
    }

    fn delete(&self, key: String) -> Outcome<()> {
        self.call(move |connection, label| {
            connection
                .prepare_cached("DELETE FROM spin_key_value WHERE store = ?1 AND key = ?2")?
                .execute([label, &key])
                .map(drop)
        })
    }

    fn exists(&self, key: String) -> Outcome<bool> {
        self.call(move |connection, label| Ok(select(connection, label, &key)?.is_some()))
    }

    fn keys(&self) -> Outcome<Vec<String>> {
        let keys = self.call(|connection, label| {
            let mut statement =
                connection.prepare_cached("SELECT key FROM spin_key_value WHERE store = ?1")?;
            let mut rows = statement.query([label])?;
            let (mut keys, mut bytes) = (Vec::new(), 0);
            while let Some(row) = rows.next()? {
                let key: String = row.get(0)?;
                bytes += key.len() + size_of::<String>();
                if bytes > MAX_BUFFERED_BYTES {
                    return Ok(None);
                }
                keys.push(key);
            }
            Ok(Some(keys))
        });
        Box::pin(async move { keys.await?.ok_or_else(too_large) })
    }
}

fn select(connection: &Connection, label: &str, key: &str) -> rusqlite::Result<Option<Vec<u8>>> {
    connection
        .prepare_cached("SELECT value FROM spin_key_value WHERE store = ?1 AND key = ?2")?
        .query_row([label, key], |row| row.get(0))
        .optional()
}

fn too_large() -> String {
    format!("query result exceeds limit of {MAX_BUFFERED_BYTES} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state/sqlite_key_value.db");
        (directory, path)
    }

    #[tokio::test]
    async fn values_are_set_read_listed_and_deleted() {
        let (_directory, path) = file();
        let store = StoreFile::new(Some(path)).store("default");
        assert_eq!(store.get("a".into()).await, Ok(None));
        store.set("a".into(), b"1".to_vec()).await.unwrap();
        store.set("a".into(), b"2".to_vec()).await.unwrap();
        store.set("b".into(), Vec::new()).await.unwrap();
        assert_eq!(store.get("a".into()).await, Ok(Some(b"2".to_vec())));
        assert_eq!(store.exists("b".into()).await, Ok(true));
        let mut keys = store.keys().await.unwrap();
        keys.sort();
        assert_eq!(keys, ["a", "b"]);
        store.delete("b".into()).await.unwrap();
        store.delete("b".into()).await.unwrap();
        assert_eq!(store.exists("b".into()).await, Ok(false));
    }

    #[tokio::test]
    async fn a_label_sees_its_own_keys_only() {
        let file = StoreFile::new(None);
        let (one, two) = (file.store("one"), file.store("two"));
        one.set("k".into(), b"1".to_vec()).await.unwrap();
        assert_eq!(two.get("k".into()).await, Ok(None));
        assert_eq!(two.keys().await, Ok(Vec::new()));
    }

    #[tokio::test]
    async fn a_file_that_spin_wrote_is_read_and_the_other_way_round() {
        let (_directory, path) = file();
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let spin = Connection::open(&path).unwrap();
        spin.execute_batch(
            "CREATE TABLE spin_key_value (store TEXT NOT NULL, key TEXT NOT NULL,
                 value BLOB NOT NULL, PRIMARY KEY (store, key));
             INSERT INTO spin_key_value VALUES ('default', 'from', x'73');",
        )
        .unwrap();
        let store = StoreFile::new(Some(path)).store("default");
        assert_eq!(store.get("from".into()).await, Ok(Some(b"s".to_vec())));
        store.set("to".into(), b"s".to_vec()).await.unwrap();
        let read: Vec<u8> = spin
            .query_row(
                "SELECT value FROM spin_key_value WHERE store = 'default' AND key = 'to'",
                [],
                |row| row.get(0),
            )
            .unwrap();
        assert_eq!(read, b"s");
    }

    #[tokio::test]
    async fn nothing_is_created_before_the_first_use() {
        let (_directory, path) = file();
        let store = StoreFile::new(Some(path.clone())).store("default");
        assert!(!path.exists());
        store.open().await.unwrap();
        assert!(path.exists());
    }

    #[tokio::test]
    async fn a_store_recovers_when_its_file_was_replaced() {
        let (_directory, path) = file();
        let store = StoreFile::new(Some(path.clone())).store("default");
        store.set("a".into(), b"1".to_vec()).await.unwrap();

        // Something that is no database, under the same name.
        std::fs::rename(&path, path.with_extension("kept")).unwrap();
        std::fs::write(&path, "x".repeat(4096)).unwrap();
        assert!(store.open().await.is_err());
        assert!(store.get("a".into()).await.is_err());
        assert!(store.set("a".into(), Vec::new()).await.is_err());
        assert!(store.keys().await.is_err());

        std::fs::rename(path.with_extension("kept"), &path).unwrap();
        assert_eq!(store.get("a".into()).await, Ok(Some(b"1".to_vec())));
    }

    #[tokio::test]
    async fn a_store_starts_anew_when_its_file_was_removed() {
        let (_directory, path) = file();
        let store = StoreFile::new(Some(path.clone())).store("default");
        store.set("a".into(), b"1".to_vec()).await.unwrap();
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
        assert_eq!(store.get("a".into()).await, Ok(None));
        store.set("a".into(), b"2".to_vec()).await.unwrap();
        assert_eq!(store.get("a".into()).await, Ok(Some(b"2".to_vec())));
        assert!(path.exists());
    }

    #[tokio::test]
    async fn a_store_recovers_when_its_file_was_overwritten_in_place() {
        let (_directory, path) = file();
        let store = StoreFile::new(Some(path.clone())).store("default");
        store.set("a".into(), b"1".to_vec()).await.unwrap();
        let good = std::fs::read(&path).unwrap();
        std::fs::write(&path, "x".repeat(good.len())).unwrap();
        assert!(store.get("a".into()).await.is_err());
        assert!(store.set("a".into(), b"2".to_vec()).await.is_err());
        std::fs::write(&path, good).unwrap();
        assert_eq!(store.get("a".into()).await, Ok(Some(b"1".to_vec())));
    }
}
