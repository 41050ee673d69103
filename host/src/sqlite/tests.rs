//! What a component can rely on, checked without one.

use super::*;

struct Fixture {
    _directory: tempfile::TempDir,
    database: DatabaseFile,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = Some(directory.path().join("state/sqlite_db.db"));
        Self {
            _directory: directory,
            database: DatabaseFile {
                path,
                allow_attach_file: false,
            },
        }
    }

    fn connect(&self) -> Arc<dyn Connection> {
        self.database.connect()
    }
}

async fn rows(connection: &Arc<dyn Connection>, sql: &str) -> Result<Vec<Vec<String>>, String> {
    let (_, rows) = connection
        .query(sql.to_owned(), Vec::new())
        .await?
        .collect()
        .await?;
    let text = |value: &Value| match value {
        Value::Null => "null".to_owned(),
        Value::Integer(value) => value.to_string(),
        Value::Real(value) => value.to_string(),
        Value::Text(value) => value.clone(),
        Value::Blob(value) => format!("{value:?}"),
    };
    Ok(rows
        .iter()
        .map(|row| row.values.iter().map(text).collect())
        .collect())
}

const COUNT_TO_100: &str =
    "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 100) SELECT i FROM s";

#[tokio::test]
async fn values_of_every_type_come_back_as_they_went_in() {
    let connection = Fixture::new().connect();
    let values = vec![
        Value::Null,
        Value::Integer(i64::MIN),
        Value::Real(1.5),
        Value::Text("ä".to_owned()),
        Value::Blob(vec![0, 255]),
    ];
    let sql = "SELECT ?1 AS a, ?2 AS b, ?3 AS c, ?4 AS d, ?5 AS e".to_owned();
    let query = connection.query(sql, values.clone()).await.unwrap();
    assert_eq!(query.columns, ["a", "b", "c", "d", "e"]);
    let (_, rows) = query.collect().await.unwrap();
    assert_eq!(format!("{:?}", rows[0].values), format!("{values:?}"));
}

#[tokio::test]
async fn nothing_is_created_before_the_first_statement() {
    let fixture = Fixture::new();
    let connection = fixture.connect();
    assert!(!fixture.database.path.as_ref().unwrap().exists());
    rows(&connection, "CREATE TABLE t (a)").await.unwrap();
    assert!(fixture.database.path.as_ref().unwrap().exists());
}

#[tokio::test]
async fn rows_are_streamed_and_their_end_ends_the_statement() {
    let connection = Fixture::new().connect();
    let mut query = connection
        .query(COUNT_TO_100.to_owned(), Vec::new())
        .await
        .unwrap();
    let mut count = 0;
    while query.rows.recv().await.is_some() {
        count += 1;
        if count == 1 {
            // More rows wait than fit into the channel, so that the statement cannot have ended.
            assert!(query.result.try_recv().is_err());
        }
    }
    assert_eq!(count, 100);
    assert_eq!(query.result.await, Ok(Ok(())));
}

#[tokio::test]
async fn dropping_the_rows_ends_the_statement_and_frees_the_connection() {
    let connection = Fixture::new().connect();
    let mut query = connection
        .query(COUNT_TO_100.to_owned(), Vec::new())
        .await
        .unwrap();
    assert!(query.rows.recv().await.is_some());
    drop(query.rows);
    assert!(query.result.await.unwrap().is_err());
    assert_eq!(rows(&connection, "SELECT 2").await.unwrap(), [["2"]]);
}

#[tokio::test]
async fn of_several_statements_the_first_one_runs() {
    let connection = Fixture::new().connect();
    rows(&connection, "CREATE TABLE t (a); CREATE TABLE u (a)")
        .await
        .unwrap();
    rows(
        &connection,
        "INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)",
    )
    .await
    .unwrap();
    rows(&connection, "INSERT INTO t VALUES (3); nonsense")
        .await
        .unwrap();
    assert_eq!(
        rows(&connection, "SELECT a FROM t -- and no more")
            .await
            .unwrap(),
        [["1"], ["3"]]
    );
    assert!(
        rows(&connection, "SELECT * FROM u")
            .await
            .unwrap_err()
            .contains("no such table")
    );
    assert!(rows(&connection, "nonsense; SELECT 1").await.is_err());
    assert!(rows(&connection, "").await.is_err());
}

#[tokio::test]
async fn errors_arrive_at_the_result() {
    let connection = Fixture::new().connect();
    connection
        .execute_batch(
            "CREATE TABLE p (a INTEGER PRIMARY KEY);
             CREATE TABLE t (a UNIQUE, b REFERENCES p (a));
             CREATE TRIGGER g BEFORE INSERT ON t WHEN NEW.a = 0
             BEGIN SELECT RAISE(ABORT, 'not zero'); END;
             INSERT INTO t VALUES (1, NULL);"
                .to_owned(),
        )
        .await
        .unwrap();
    for (sql, expected) in [
        (
            "INSERT INTO t VALUES (1, NULL)",
            "UNIQUE constraint failed: t.a",
        ),
        // Foreign keys are on, as in Spin's SQLite.
        (
            "INSERT INTO t VALUES (2, 5)",
            "FOREIGN KEY constraint failed",
        ),
        ("INSERT INTO t VALUES (0, NULL)", "not zero"),
        ("SELEC", "syntax error"),
        ("SELECT ?1", "parameter"),
    ] {
        let query = connection.query(sql.to_owned(), Vec::new()).await.unwrap();
        let error = query.collect().await.unwrap_err();
        assert!(error.contains(expected), "{sql}: {error}");
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_is_an_error_of_the_call() {
    let directory = tempfile::tempdir().unwrap();
    let path = Some(directory.path().to_owned());
    let connection = DatabaseFile {
        path,
        allow_attach_file: false,
    }
    .connect();
    assert!(
        connection
            .query("SELECT 1".to_owned(), Vec::new())
            .await
            .is_err()
    );
}

#[tokio::test]
async fn files_cannot_be_attached_unless_it_is_allowed() {
    let fixture = Fixture::new();
    let other = fixture._directory.path().join("other.db");
    let attach = format!("ATTACH '{}' AS other", other.display());
    let connection = fixture.connect();
    assert_eq!(
        rows(&connection, &attach).await.unwrap_err(),
        "not authorized"
    );
    assert!(!other.exists());
    rows(&connection, "ATTACH ':memory:' AS m").await.unwrap();
    rows(&connection, "ATTACH '' AS n").await.unwrap();

    let path = fixture.database.path.clone();
    let connection = DatabaseFile {
        path,
        allow_attach_file: true,
    }
    .connect();
    rows(&connection, &attach).await.unwrap();
}

#[tokio::test]
async fn text_that_is_not_utf_8_is_an_error_and_nothing_breaks() {
    let connection = Fixture::new().connect();
    let error = rows(&connection, "SELECT CAST(x'ff' AS TEXT)")
        .await
        .unwrap_err();
    assert!(error.contains("UTF-8"), "{error}");
    assert_eq!(rows(&connection, "SELECT 1").await.unwrap(), [["1"]]);
}

#[tokio::test]
async fn connections_are_separate() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.connect(), fixture.connect());
    rows(&one, "CREATE TABLE t (a)").await.unwrap();
    rows(&one, "CREATE TEMP TABLE mine (a)").await.unwrap();
    rows(&one, "INSERT INTO t VALUES (1), (2)").await.unwrap();
    assert_eq!(one.changes().await, Ok(2));
    assert_eq!(one.last_insert_rowid().await, Ok(2));
    assert_eq!(
        (two.changes().await, two.last_insert_rowid().await),
        (Ok(0), Ok(0))
    );
    assert_eq!(rows(&two, "SELECT count(*) FROM t").await.unwrap(), [["2"]]);
    assert!(rows(&two, "SELECT * FROM mine").await.is_err());
}

#[tokio::test]
async fn a_write_of_another_connection_waits_until_the_rows_are_taken() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.connect(), fixture.connect());
    rows(&one, "CREATE TABLE t (a)").await.unwrap();
    assert_eq!(rows(&two, "PRAGMA busy_timeout").await.unwrap(), [["5000"]]);

    let write = format!("INSERT INTO t {COUNT_TO_100} RETURNING a");
    let mut query = one.query(write, Vec::new()).await.unwrap();
    assert!(query.rows.recv().await.is_some());
    // Without this the next statement would take 5 seconds to fail.
    rows(&two, "PRAGMA busy_timeout = 0").await.unwrap();
    let error = rows(&two, "INSERT INTO t VALUES (0)").await.unwrap_err();
    assert_eq!(error, "database is locked");
    query.collect().await.unwrap();
    rows(&two, "INSERT INTO t VALUES (0)").await.unwrap();
}
