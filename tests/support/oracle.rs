//! The auditor of `payonce-oracle`, for the files of a [`Site`].

pub use payonce_oracle::Books;

use super::site::Site;
use super::stores;

/// Checks every invariant that a file can show, and the file itself.
///
/// # Panics
/// With the first rows that break a rule.
pub fn audit(site: &Site) -> Books {
    let connection = stores::open(&site.database());
    connection
        .pragma_update(None, "query_only", true)
        .expect("read-only");
    payonce_oracle::integrity(&connection).unwrap_or_else(|wrong| panic!("{wrong}"));
    payonce_oracle::audit(&connection).unwrap_or_else(|wrong| panic!("{wrong}"))
}

/// How many journal rows a merchant has under this key.
pub fn journal_rows(site: &Site, key: &str) -> i64 {
    let sql = "SELECT count(*) FROM journal WHERE idempotency_key = ?1";
    let connection = stores::open(&site.database());
    let count = connection.query_row(sql, [key], |row| row.get(0));
    count.expect("a count")
}
