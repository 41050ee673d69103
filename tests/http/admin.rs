//! `/admin`: who may call it, and what the operator is told.

use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::names::fresh;
use crate::support::shapes;
use crate::target::{admin, admin_key, api_key, shop, stranger};

const ROUTES: [(&str, Method); 5] = [
    ("/admin/reconcile", Method::POST),
    ("/admin/dispatch", Method::POST),
    ("/admin/sweep", Method::POST),
    ("/admin/stats", Method::GET),
    ("/admin/ledger", Method::GET),
];

/// Contract, Conventions: `/admin` takes the admin key only; 401 without a key or with a wrong one.
#[tokio::test]
async fn nobody_without_the_admin_key_gets_in() {
    let right = admin_key();
    let cut = &right[..right.len() - 1];
    for (path, method) in ROUTES {
        let call = || stranger().request(method.clone(), path);
        let mut answers = vec![call().send().await];
        for credentials in [
            "Bearer ",
            "Bearer",
            "Bearer wrong",
            &right,
            &format!("Bearer {cut}"),
            &format!("Bearer {right}x"),
            &format!("Bearer {right} {right}"),
            &format!("Basic {right}"),
        ] {
            answers.push(call().authorization(credentials).send().await);
        }
        let twice = call().authorization(&format!("Bearer {right}"));
        let twice = twice.header("authorization", &format!("Bearer {right}"));
        answers.push(twice.send().await);
        for answer in answers {
            answer.problem(401, "unauthorized");
            let challenge = answer.header("www-authenticate").expect("a challenge");
            assert!(challenge.starts_with("Bearer"), "{challenge}");
            assert!(!answer.text().contains(cut), "the key is echoed");
        }
    }
}

/// Contract, Conventions: 403 for a merchant's key, with any body.
#[tokio::test]
async fn a_merchants_key_is_no_admin_key() {
    for (path, method) in ROUTES {
        let call = shop().request(method.clone(), path);
        let answer = call.clone().send().await;
        answer.problem(403, "forbidden");
        assert!(!answer.text().contains(api_key()) || api_key().len() < 8);
        call.text("{").send().await.problem(403, "forbidden");
    }
}

/// Contract, Conventions: the admin key opens no merchant's door.
#[tokio::test]
async fn the_admin_key_is_no_merchants_key() {
    let admin = admin();
    for call in [
        admin.get("/v1/orders"),
        admin.post("/v1/tokens"),
        admin.deposit_call("u", &fresh("k"), 1),
    ] {
        call.send().await.problem(401, "unauthorized");
    }
}

/// Contract, Conventions: a wrong method is 405 with `Allow`, an unknown route 404.
#[tokio::test]
async fn a_wrong_method_or_path_is_refused() {
    for (path, method) in ROUTES {
        let other = if method == Method::GET {
            Method::POST
        } else {
            Method::GET
        };
        let answer = admin().request(other, path).send().await;
        answer.problem(405, "method_not_allowed");
        let allow = answer.header("allow").expect("Allow");
        assert!(allow.contains(method.as_str()), "{allow}");
    }
    for path in ["/admin", "/admin/", "/admin/sweeps"] {
        let answer = admin().get(path).send().await;
        answer.problem(404, "not_found");
    }
}

/// Contract, Routes: `{limit?}`, or no body at all.
#[tokio::test]
async fn a_malformed_instruction_is_refused() {
    for path in ["/admin/reconcile", "/admin/dispatch", "/admin/sweep"] {
        for (body, field) in [
            (json!({"limit": 0}), "limit"),
            (json!({"limit": 10_001}), "limit"),
            (json!({"limit": -1}), "limit"),
            (json!({"limit": "1"}), "limit"),
            (json!({"limits": 1}), "limits"),
        ] {
            let answer = admin().post(path).json(&body).send().await;
            answer.body_invalid(field);
        }
        let call = admin().post(path);
        call.clone().send().await.first(200);
        call.clone().json(&json!({})).send().await.first(200);
        call.clone()
            .json(&json!({"limit": 1}))
            .send()
            .await
            .first(200);
        let typed = call.bytes("text/plain", b"{}").send().await;
        typed.problem(415, "media_type_unsupported");
    }
    let unknown = json!({"event_id": fresh("evt")});
    let call = admin().post("/admin/dispatch").json(&unknown);
    call.send().await.problem(404, "not_found");
}

/// Contract, Routes: counts, safe to call at any time and from several callers at once.
#[tokio::test]
async fn sweeps_of_every_kind_at_once_answer_with_counts() {
    let calls = (0..9).map(|n| {
        let path = ["/admin/dispatch", "/admin/sweep", "/admin/reconcile"][n % 3];
        admin().post(path).json(&json!({"limit": 5})).send()
    });
    for (n, answer) in join_all(calls).await.into_iter().enumerate() {
        let answer = answer.first(200);
        match n % 3 {
            0 => {
                let members = ["revived", "claimed", "sent", "failed", "dead", "left"];
                shapes::members(&answer, &members);
                shapes::members(&answer["left"], &["due", "waiting", "dead"]);
            }
            1 => {
                shapes::members(&answer, &["deleted", "left"]);
                let members = ["journal_rows", "events", "answers", "claims", "unreadable"];
                shapes::members(&answer["deleted"], &members);
                shapes::members(&answer["left"], &["journal_rows", "events", "entries"]);
            }
            _ => {
                let members = [
                    "taken_over",
                    "succeeded",
                    "declined",
                    "returned",
                    "settled_before",
                    "unknown",
                    "failed",
                    "left",
                ];
                shapes::members(&answer, &members);
                shapes::members(&answer["left"], &["payments", "refunds", "due"]);
            }
        }
    }
}

/// A sweep leaves what is younger than the retention alone.
#[tokio::test]
async fn a_sweep_takes_nothing_from_live_keys() {
    let shop = shop();
    let order_no = shop.payable(10).await;
    let key = fresh("k");
    let first = shop.pay(&order_no, &key, 10).await;
    first.first(200);
    admin().post("/admin/sweep").send().await.first(200);
    shop.pay(&order_no, &key, 10).await.replays(&first);
}

/// Contract, Routes: stats are counts by state and the oldest stuck work.
#[tokio::test]
async fn stats_count_what_there_is() {
    let read = async || admin().get("/admin/stats").send().await.first(200);
    let before = read().await;
    let shop = shop();
    let order_no = shop.payable(10).await;
    shop.pay(&order_no, &fresh("k"), 10).await.first(200);
    let after = read().await;
    shapes::members(
        &after,
        &[
            "orders",
            "payments",
            "outbox",
            "dead_events",
            "journal",
            "channel",
            "stuck",
            "replays",
        ],
    );
    shapes::members(
        &after["orders"],
        &[
            "pending",
            "processing",
            "paid",
            "failed",
            "cancelled",
            "shipped",
            "completed",
            "refunded",
        ],
    );
    shapes::members(&after["payments"], &["processing", "succeeded", "failed"]);
    shapes::members(
        &after["outbox"],
        &["sent", "due", "waiting", "dead", "oldest_undelivered_at"],
    );
    shapes::members(&after["journal"], &["rows", "retired", "oldest_at"]);
    shapes::members(
        &after["stuck"],
        &["payment_processing_since", "event_due_since"],
    );
    shapes::time(&after["journal"]["oldest_at"]);
    // Other tests run beside this one, so there may be more.
    let grew = |path: &[&str], least: i64| {
        let of = |stats: &Value| {
            let value = path.iter().fold(stats, |value, member| &value[*member]);
            value.as_i64().expect("a count")
        };
        assert!(of(&after) >= of(&before) + least, "{path:?}: {after}");
    };
    grew(&["orders", "paid"], 1);
    grew(&["payments", "succeeded"], 1);
    grew(&["journal", "rows"], 3);
}

/// Invariant 5, as the service itself checks it.
#[tokio::test]
async fn the_ledger_is_in_order() {
    let shop = shop();
    let order_no = shop.payable(10).await;
    shop.pay(&order_no, &fresh("k"), 10).await.first(200);
    let ledger = admin().get("/admin/ledger").send().await.first(200);
    shapes::members(&ledger, &["ok", "books", "differences", "unbalanced"]);
    assert_eq!(ledger["ok"], true, "{ledger}");
    assert_eq!(ledger["differences"], json!([]));
    assert_eq!(ledger["unbalanced"], json!([]));
    let books = ledger["books"].as_array().expect("books");
    assert!(!books.is_empty());
    for book in books {
        shapes::members(
            book,
            &["merchant_id", "currency", "entries", "sum", "wallets"],
        );
        assert_eq!(book["sum"], 0, "{book}");
        assert!(book["wallets"].as_i64().expect("a sum") >= 0, "{book}");
    }
}
