//! The schema: applied by the component itself, whatever it finds.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rusqlite::Connection;

use crate::scene::settled;
use crate::support::names::fresh;
use crate::support::oracle::audit;
use crate::support::server::Server;
use crate::support::site::Site;
use crate::support::stores;
use crate::support::wait::eventually;

/// The migration files of the repository in their order.
pub fn scripts() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("migrations/")
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sql"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    let read = |path| fs::read_to_string(path).unwrap();
    files.into_iter().map(read).collect()
}

/// Name and definition of everything in the schema.
pub fn schema(site: &Site) -> BTreeMap<String, Option<String>> {
    let connection = site.connect();
    let mut statement = connection
        .prepare("SELECT type || ' ' || name, sql FROM sqlite_schema")
        .unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().map(Result::unwrap).collect()
}

/// Pays an order through a server and audits the books.
pub async fn works(site: &Site, server: &Server) {
    let shop = server.shop();
    let order_no = shop.payable(10).await;
    let call = shop.pay_call(&order_no, &fresh("k"), 10);
    settled(&call).await.ok(200);
    audit(site);
}

/// The schema that the component makes.
pub async fn present_schema() -> BTreeMap<String, Option<String>> {
    let site = Site::new();
    works(&site, &site.start()).await;
    schema(&site)
}

/// The same files work with `spin up --sqlite`, which runs them at every start, before and between.
#[tokio::test]
async fn the_scripts_can_be_run_from_outside_before_and_after() {
    let whole = present_schema().await;
    let site = Site::new();
    let outside = Connection::open(site.database()).unwrap();
    for _ in 0..2 {
        for script in scripts() {
            outside.execute_batch(&script).unwrap();
        }
    }
    drop(outside);
    let server = site.start();
    works(&site, &server).await;
    server.stop();
    for script in scripts() {
        site.connect().execute_batch(&script).unwrap();
    }
    let server = site.start();
    works(&site, &server).await;
    assert_eq!(schema(&site), whole);
}

/// The component dies in the middle of its migrations: the next one finishes them.
#[tokio::test]
async fn a_start_that_was_killed_half_way_is_finished_by_the_next() {
    let whole = present_schema().await;
    let objects = whole.len() as i64;
    let mut partial = 0;
    for wanted in (1..objects).step_by(whole.len() / 6 + 1) {
        let site = Site::new();
        let server = site.start();
        // Any request makes the component migrate.
        let call = server.shop().deposit_call("u", &fresh("k"), 1);
        let request = tokio::spawn(call.attempt());
        let found = eventually("part of the schema", async || {
            if !site.database().is_file() {
                return None;
            }
            let connection = stores::open(&site.database());
            let sql = "SELECT count(*) FROM sqlite_schema";
            let count = connection.query_row(sql, [], |row| row.get::<_, i64>(0));
            count.ok().filter(|count| *count >= wanted)
        })
        .await;
        server.kill();
        let _ = request.await.unwrap();
        partial += usize::from(found < objects);
        let server = site.start();
        works(&site, &server).await;
        assert_eq!(schema(&site), whole, "killed at {found} of {objects}");
    }
    println!("{partial} starts were killed half-way");
}

/// The component dies between two statements: it leaves the first part of a script behind.
#[tokio::test]
async fn the_first_part_of_a_script_is_completed() {
    let whole = present_schema().await;
    let script = scripts().concat();
    let ends: Vec<usize> = script
        .match_indices(";\n\n")
        .map(|(at, _)| at + 1)
        .collect();
    for cut in ends.iter().step_by(ends.len() / 5 + 1) {
        let site = Site::new();
        let outside = Connection::open(site.database()).unwrap();
        outside.execute_batch(&script[..*cut]).unwrap();
        drop(outside);
        let server = site.start();
        works(&site, &server).await;
        assert_eq!(schema(&site), whole, "cut at {cut}");
    }
}

/// WAL is a property of the file.
#[tokio::test]
async fn the_database_is_in_wal_mode() {
    let site = Site::new();
    let server = site.start();
    works(&site, &server).await;
    let connection = site.connect();
    let mode: String = connection
        .query_row("PRAGMA journal_mode", [], |row| row.get(0))
        .unwrap();
    assert_eq!(mode, "wal");
}
