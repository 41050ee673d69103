//! Databases that earlier versions of payonce made: they migrate forward, while requests run too.
//!
//! `tests/databases/` has a file for each schema, made by the component of its time, and beside it what
//! clients had sent to it and been answered.

use std::fs;
use std::path::PathBuf;

use futures::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::dispatch::dispatch_all;
use crate::migrations::{present_schema, schema, scripts, works};
use crate::support::answer::Answer;
use crate::support::client::{Call, Shop, order_body};
use crate::support::names::fresh;
use crate::support::oracle::journal_rows;
use crate::support::receiver::Receiver;
use crate::support::site::Site;
use crate::support::stores;
use crate::support::wait::eventually;

/// A `POST` of a client, and the final answer that it got.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Exchange {
    path: String,
    key: String,
    body: Value,
    status: u16,
    location: Option<String>,
    answer: String,
}

impl Exchange {
    fn call(&self, shop: &Shop) -> Call {
        shop.command(&self.path, &self.key, &self.body)
    }

    #[track_caller]
    fn is_replayed_by(&self, answer: &Answer) {
        let location = answer.header("location").map(str::to_owned);
        assert_eq!(
            (answer.status, &location, &answer.text()),
            (self.status, &self.location, &self.answer),
            "{self:?}"
        );
        assert!(answer.replayed(), "{self:?}");
    }
}

/// A database of an earlier version.
struct Kept {
    version: i64,
    exchanges: Vec<Exchange>,
}

impl Kept {
    fn path(version: i64, extension: &str) -> PathBuf {
        let repository = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        repository.join(format!("tests/databases/schema-{version}.{extension}"))
    }

    /// One for each schema that there has been, the present one included.
    fn all() -> impl Iterator<Item = Self> {
        (1..=present_version()).map(|version| {
            let exchanges = fs::read_to_string(Self::path(version, "json"));
            let exchanges = exchanges.unwrap_or_else(|error| panic!("schema {version}: {error}"));
            Self {
                version,
                exchanges: serde_json::from_str(&exchanges).unwrap(),
            }
        })
    }

    /// A data directory that an earlier version has left behind.
    fn site(&self) -> Site {
        let site = Site::new();
        fs::copy(Self::path(self.version, "db"), site.database()).unwrap();
        site
    }
}

fn present_version() -> i64 {
    scripts().len() as i64
}

/// Everything that clients were answered is answered again, byte for byte, and what is new works with what
/// is old.
#[tokio::test]
async fn a_database_of_each_earlier_schema_migrates_forward_with_its_answers() {
    let present = present_schema().await;
    for kept in Kept::all() {
        let receiver = Receiver::start();
        let site = kept.site().notifying(&receiver).messaging(&receiver);
        let server = site.start();
        let shop = server.shop();
        for exchange in &kept.exchanges {
            exchange.is_replayed_by(&exchange.call(&shop).send().await);
        }
        assert_eq!(schema(&site), present, "schema {}", kept.version);

        shop.pay_call("old-pending", &fresh("k"), 70)
            .settled()
            .await
            .first(200);
        shop.refund_call("old-paid", &fresh("k"), 10)
            .settled()
            .await
            .first(201);
        shop.move_call("old-paid", "ship", &fresh("k"))
            .settled()
            .await
            .first(200);
        assert_eq!(
            shop.trail("old-paid").await.last().unwrap()["to_status"],
            "shipped"
        );
        works(&site, &server).await;

        dispatch_all(&server.admin()).await;
        let told = receiver.received();
        for order_no in ["old-paid", "old-pending"] {
            let paid = told.iter().filter(|delivery| {
                delivery.body["type"] == "order.paid"
                    && delivery.body["data"]["order_no"] == order_no
            });
            assert_eq!(paid.count(), 1, "schema {}: {order_no}", kept.version);
        }
    }
}

/// Two hosts of the new version start together on an old database, with requests for both, old and new. One
/// dies when a part of the schema is there.
#[tokio::test]
async fn requests_run_while_two_instances_migrate_and_one_dies_half_way() {
    let present = present_schema().await;
    let mut half_way = 0;
    for kept in Kept::all().filter(|kept| kept.version < present_version()) {
        let missing = present.len() - schema(&kept.site()).len();
        for part in 0..3 {
            let site = kept.site();
            let wanted = present.len() - missing + 1 + missing * part / 3;
            let [dying, staying] = [site.start(), site.start()];
            let pay = fresh("k");
            let requests = [&dying, &staying].map(|server| {
                let shop = server.shop();
                let old = kept.exchanges.iter().map(|exchange| exchange.call(&shop));
                let new = shop.pay_call("old-pending", &pay, 70);
                old.chain([new]).collect::<Vec<_>>()
            });
            let [at_dying, at_staying] =
                requests.map(|calls| tokio::spawn(join_all(calls.into_iter().map(Call::attempt))));
            let found = eventually("a part of the schema", async || {
                let count = schema(&site).len();
                (count >= wanted).then_some(count)
            })
            .await;
            dying.kill();
            half_way += usize::from(found < present.len());
            at_dying.await.unwrap();
            at_staying.await.unwrap();

            let shop = staying.shop();
            for exchange in &kept.exchanges {
                exchange.is_replayed_by(&exchange.call(&shop).settled().await);
            }
            shop.pay_call("old-pending", &pay, 70)
                .settled()
                .await
                .ok(200);
            assert_eq!(journal_rows(&site, &pay), 1);
            works(&site, &staying).await;
            assert_eq!(schema(&site), present, "schema {}", kept.version);
        }
    }
    assert!(half_way > 0, "every instance was killed too late");
}

/// A downgrade: whoever knows less than the database leaves it alone, and says which version it takes.
#[tokio::test]
async fn a_database_of_a_later_schema_is_refused_and_left_alone() {
    let site = Site::new();
    let server = site.start();
    works(&site, &server).await;
    server.stop();
    let later = present_version() + 1;
    site.connect()
        .execute("INSERT INTO schema_migrations VALUES (?1, 0)", [later])
        .unwrap();
    let before = stores::row_counts(&site.connect());

    let server = site.start();
    let shop = server.shop();
    let named = format!("schema version {later}");
    let order = order_body(&fresh("order"), &fresh("user"), 10);
    for call in [
        shop.deposit_call("u", &fresh("k"), 1),
        shop.command("/v1/orders", &fresh("k"), &order),
        shop.get("/v1/orders"),
        shop.get("/readyz"),
        server.admin().post("/admin/sweep").json(&json!({})),
    ] {
        let problem = call.send().await.problem(503, "storage_unavailable");
        assert!(
            problem["detail"].as_str().unwrap().contains(&named),
            "{problem}"
        );
    }
    assert_eq!(stores::row_counts(&site.connect()), before);

    site.connect()
        .execute("DELETE FROM schema_migrations WHERE version = ?1", [later])
        .unwrap();
    works(&site, &server).await;
}

/// Makes the files of the present schema. For an earlier one, `PAYONCE_MANIFEST` names the `spin.toml` of a
/// component that was built of the sources of its time.
#[tokio::test]
#[ignore = "makes what the other tests begin with, once for each schema"]
async fn keep_a_database_of_this_schema() {
    let site = Site::new().without("admin_key");
    let server = site.start();
    let mut made = Maker {
        shop: server.shop(),
        exchanges: Vec::new(),
    };
    made.post(
        "/v1/accounts/old-user/deposits",
        json!({"amount": 1000, "currency": "EUR"}),
    )
    .await;
    for (order_no, user_id, amount) in [
        ("old-paid", "old-user", 100),
        ("old-pending", "old-user", 70),
        ("old-declined", "old-poor", 50),
    ] {
        made.post("/v1/orders", order_body(order_no, user_id, amount))
            .await;
    }
    made.post("/v1/orders/old-paid/pay", json!({"amount": 100}))
        .await;
    made.post("/v1/orders/old-declined/pay", json!({"amount": 50}))
        .await;
    let version: i64 = site
        .connect()
        .query_row("SELECT max(version) FROM schema_migrations", [], |row| {
            row.get(0)
        })
        .unwrap();
    if version >= 2 {
        made.post("/v1/orders/old-paid/refunds", json!({"amount": 20}))
            .await;
        made.post("/v1/orders/old-declined/cancel", json!({})).await;
        made.post(
            "/v1/coupons/old-activity/grants",
            json!({"user_id": "old-user"}),
        )
        .await;
        made.post(
            "/v1/messages",
            json!({"kind": "sms", "to": "+4930123456", "text": "Danke"}),
        )
        .await;
    }
    server.stop();
    let connection = site.connect();
    connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    drop(connection);
    fs::create_dir_all(Kept::path(version, "db").parent().unwrap()).unwrap();
    fs::copy(site.database(), Kept::path(version, "db")).unwrap();
    let exchanges = serde_json::to_string_pretty(&made.exchanges).unwrap();
    fs::write(Kept::path(version, "json"), exchanges + "\n").unwrap();
}

struct Maker {
    shop: Shop,
    exchanges: Vec<Exchange>,
}

impl Maker {
    async fn post(&mut self, path: &str, body: Value) {
        let key = format!("old-key-{}", self.exchanges.len() + 1);
        // The document of today is not that of an old component.
        let call = self.shop.command(path, &key, &body).refused_by_spin();
        let answer = call.settled().await;
        assert!(
            matches!(answer.status, 200..=299 | 402),
            "{}",
            answer.text()
        );
        self.exchanges.push(Exchange {
            path: path.to_owned(),
            key,
            body,
            status: answer.status,
            location: answer.header("location").map(str::to_owned),
            answer: answer.text(),
        });
    }
}
