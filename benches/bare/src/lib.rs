//! The yardstick: one host call a request and nothing else.
//!
//! * `/kv` reads one key-value entry, as the replay of a payment does.
//! * `/update` runs one durable guarded `UPDATE`, the least that a payment can be.
//! * `/empty` makes no host call.
//! * `/seed` prepares the entry and the table; call it once.
//!
//! It is what a careful Spin user would write: the store and the connection stay open in the instance,
//! the database is in WAL mode, rows are drained and the result is awaited. Nothing here reads the
//! request's headers or body.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::{Context as _, Result, ensure};
use spin_sdk::http::{HeaderMap, HeaderValue, IntoResponse, Request, StatusCode};
use spin_sdk::http_service;
use spin_sdk::key_value::Store;
use spin_sdk::sqlite::{Connection, Value};

const KEY: &str = "bare:answer";

/// As long as the answer to a payment that the load generator gets from payonce.
const ANSWER: &str = r#"{"payment_id":"pay_01990000-0000-7000-8000-000000000000","order_no":"order-0000000000","request_no":"request-order-0000000000","channel":"wallet","amount":1250,"currency":"EUR","status":"succeeded","failure_code":null,"created_at":"2026-01-01T00:00:00.000Z","updated_at":"2026-01-01T00:00:00.000Z"}"#;

const ROWS: i64 = 1024;

const CREATE: &str = "CREATE TABLE IF NOT EXISTS orders (
    id INTEGER PRIMARY KEY, status TEXT NOT NULL, version INTEGER NOT NULL
) STRICT";

const FILL: &str = "INSERT OR IGNORE INTO orders
    WITH RECURSIVE ids (id) AS (SELECT 0 UNION ALL SELECT id + 1 FROM ids WHERE id + 1 < ?1)
    SELECT id, 'open', 0 FROM ids";

/// The guard always holds, so that every request writes.
const UPDATE: &str = "UPDATE orders SET version = version + 1
    WHERE id = ?1 AND status = 'open' RETURNING version";

static STORE: OnceLock<Store> = OnceLock::new();
static CONNECTION: OnceLock<Connection> = OnceLock::new();
static NEXT_ROW: AtomicI64 = AtomicI64::new(0);

#[http_service]
async fn handle(request: Request) -> Result<impl IntoResponse> {
    let (status, body) = match request.uri().path() {
        "/kv" => read().await?,
        "/update" => update().await?,
        "/seed" => seed().await?,
        "/empty" => (StatusCode::OK, "{}".to_owned()),
        _ => (StatusCode::NOT_FOUND, String::new()),
    };
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    // Without it the answer would be chunked, which costs more.
    headers.insert("content-length", body.len().into());
    Ok((status, headers, body))
}

async fn read() -> Result<(StatusCode, String)> {
    Ok(match store().await?.get(KEY).await? {
        Some(value) => (StatusCode::OK, String::from_utf8(value)?),
        None => (StatusCode::NOT_FOUND, String::new()),
    })
}

async fn update() -> Result<(StatusCode, String)> {
    let row = NEXT_ROW.fetch_add(1, Ordering::Relaxed) % ROWS;
    let rows = connection()
        .await?
        .execute(UPDATE, [Value::Integer(row)])
        .await?
        .collect()
        .await?;
    ensure!(rows.len() == 1, "the update changed {} rows", rows.len());
    let version: i64 = rows[0].get(0).context("no version came back")?;
    Ok((StatusCode::OK, format!("{{\"version\":{version}}}")))
}

async fn seed() -> Result<(StatusCode, String)> {
    store().await?.set(KEY, ANSWER).await?;
    let connection = connection().await?;
    for (statement, parameters) in [
        ("PRAGMA journal_mode = WAL", vec![]),
        (CREATE, vec![]),
        (FILL, vec![Value::Integer(ROWS)]),
    ] {
        connection
            .execute(statement, parameters)
            .await?
            .collect()
            .await?;
    }
    Ok((StatusCode::OK, "{}".to_owned()))
}

/// The instance's handle to the store.
async fn store() -> Result<&'static Store> {
    Ok(match STORE.get() {
        Some(store) => store,
        None => {
            let store = Store::open_default().await?;
            STORE.get_or_init(|| store)
        }
    })
}

/// The instance's connection to the database.
async fn connection() -> Result<&'static Connection> {
    Ok(match CONNECTION.get() {
        Some(connection) => connection,
        None => {
            let connection = Connection::open_default().await?;
            CONNECTION.get_or_init(|| connection)
        }
    })
}
