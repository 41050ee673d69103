//! The key-value store fails in every way; requests succeed from the journal (invariant 11).

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::Value;

use crate::support::answer::Answer;
use crate::support::client::{Shop, order_body};
use crate::support::names::fresh;
use crate::support::oracle::audit;
use crate::support::seal;
use crate::support::site::{Site, TOKEN_SECRET};
use crate::support::stores::{self, WriteLock};
use crate::support::wait::eventually;

/// Pays a new order, and repeats it: first answer, replay, refusal of another body.
async fn payments_work(shop: &Shop) {
    let order_no = shop.payable(10).await;
    let key = fresh("k");
    let answer = shop.pay(&order_no, &key, 10).await;
    answer.first(200);
    for _ in 0..3 {
        shop.pay(&order_no, &key, 10).await.replays(&answer);
    }
    let other = shop.pay(&order_no, &key, 11).await;
    other.problem(422, "idempotency_key_reused");
    let again = shop.pay(&order_no, &fresh("k"), 10).await;
    again.problem(409, "order_already_paid");
}

/// Waits for the cached answer of a payment, which may come after the answer itself.
async fn cached(site: &Site, payment: &Answer) -> (String, Vec<u8>) {
    let payment_id = payment.json()["payment_id"].as_str().unwrap().to_owned();
    eventually("a cached answer", async || {
        stores::entry_with(&site.key_value(), &payment_id)
    })
    .await
}

/// Overwrites a file in place: whoever has it open meets garbage.
fn spoil(path: &Path) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    let size = file.metadata().unwrap().len().max(4096);
    let garbage: Vec<u8> = (0..size).map(|byte| (byte % 251) as u8 ^ 0x5a).collect();
    file.write_all_at(&garbage, 0).unwrap();
}

/// Invariant 11: the file is no database when the service starts.
#[tokio::test]
async fn payments_work_when_the_key_value_file_is_garbage_from_the_start() {
    let site = Site::new();
    fs::write(site.key_value(), "this is not a database ".repeat(1000)).unwrap();
    let server = site.start();
    payments_work(&server.shop()).await;
    audit(&site);
}

/// Invariant 11: the file cannot be opened when the service starts.
#[tokio::test]
async fn payments_work_when_the_key_value_file_is_a_directory_from_the_start() {
    let site = Site::new();
    fs::create_dir(site.key_value()).unwrap();
    let server = site.start();
    payments_work(&server.shop()).await;
    audit(&site);
}

/// Invariant 11: the file turns to garbage under the running service.
#[tokio::test]
async fn payments_work_while_the_key_value_file_turns_to_garbage() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(10).await;
    let key = fresh("k");
    let answer = shop.pay(&order_no, &key, 10).await;
    answer.first(200);
    spoil(&site.key_value());
    shop.pay(&order_no, &key, 10).await.replays(&answer);
    payments_work(&shop).await;
    audit(&site);
}

/// Invariant 11: the file is taken away under the running service, and a directory put in its place.
#[tokio::test]
async fn payments_work_while_the_key_value_file_disappears() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(10).await;
    let key = fresh("k");
    let answer = shop.pay(&order_no, &key, 10).await;
    answer.first(200);
    fs::remove_file(site.key_value()).unwrap();
    shop.pay(&order_no, &key, 10).await.replays(&answer);
    payments_work(&shop).await;
    // The host may have made a new file meanwhile.
    eventually("a directory in its place", async || {
        let _ = fs::remove_file(site.key_value());
        fs::create_dir(site.key_value()).ok()
    })
    .await;
    shop.pay(&order_no, &key, 10).await.replays(&answer);
    payments_work(&shop).await;
    audit(&site);
}

/// Invariant 11: entries are lost or damaged while the service runs; replays stay byte-identical.
#[tokio::test]
async fn replays_are_byte_identical_whatever_became_of_their_entries() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(10).await;
    let poor = shop.order_of(&fresh("poor"), 10).await;
    let (paid, declined) = (
        shop.pay_call(&order_no, &fresh("k"), 10),
        shop.pay_call(&poor, &fresh("k"), 10),
    );
    let paid_answer = paid.clone().send().await;
    paid_answer.first(200);
    let declined_answer = declined.clone().send().await;
    declined_answer.problem(402, "insufficient_funds");
    let values: [&[u8]; 9] = [
        b"",
        b"garbage",
        b"\xff\xfe\x00\x01",
        b"null",
        b"{}",
        b"[]",
        b"{\"status\":200}",
        b"\x00",
        &[b'{'; 100_000],
    ];
    for value in values {
        stores::overwrite_all(&site.key_value(), value);
        paid.clone().send().await.replays(&paid_answer);
        declined.clone().send().await.replays(&declined_answer);
    }
    stores::wipe(&site.key_value());
    paid.clone().send().await.replays(&paid_answer);
    declined.clone().send().await.replays(&declined_answer);
    audit(&site);
}

/// Invariant 11: a cached answer cut short at any place is not taken for the answer.
#[tokio::test]
async fn a_truncated_entry_is_never_replayed() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(10).await;
    let key = fresh("k");
    let answer = shop.pay(&order_no, &key, 10).await;
    answer.first(200);
    let (name, value) = cached(&site, &answer).await;
    for length in (0..value.len()).step_by(value.len() / 40 + 1) {
        stores::overwrite(&site.key_value(), &name, &value[..length]);
        shop.pay(&order_no, &key, 10).await.replays(&answer);
    }
}

/// R9, invariants 3 and 10: what is cached for a key is for its merchant and its body only.
#[tokio::test]
async fn a_cached_answer_is_for_its_merchant_and_its_body_only() {
    let site = Site::new();
    let server = site.start();
    let (shop, other) = (server.shop(), server.other_shop());
    let (order_no, user_id, key) = (fresh("order"), fresh("user"), fresh("k"));
    let mut payments = Vec::new();
    for merchant in [&shop, &other] {
        merchant.deposit(&user_id, 10).await;
        let body = order_body(&order_no, &user_id, 10);
        let created = merchant.command("/v1/orders", &fresh("create"), &body);
        created.send().await.first(201);
        let payment = merchant.pay(&order_no, &key, 10).await;
        payment.first(200);
        cached(&site, &payment).await;
        let reused = merchant.pay(&order_no, &key, 11).await;
        reused.problem(422, "idempotency_key_reused");
        payments.push(payment);
    }
    shop.pay(&order_no, &key, 10).await.replays(&payments[0]);
    other.pay(&order_no, &key, 10).await.replays(&payments[1]);
    assert_eq!(audit(&site).succeeded, 2);
}

/// The walk, step 5: a replay from the journal repairs the cache.
#[tokio::test]
async fn a_lost_entry_comes_back_with_the_next_replay() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(10).await;
    let key = fresh("k");
    let answer = shop.pay(&order_no, &key, 10).await;
    answer.first(200);
    let (name, _) = cached(&site, &answer).await;
    stores::wipe(&site.key_value());
    shop.pay(&order_no, &key, 10).await.replays(&answer);
    let (repaired, _) = cached(&site, &answer).await;
    assert_eq!(repaired, name);
    let other = shop.pay(&order_no, &key, 11).await;
    other.problem(422, "idempotency_key_reused");
}

/// Invariant 11: the store does not answer, because somebody holds its file.
#[tokio::test]
async fn payments_work_while_the_key_value_file_is_locked() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(10).await;
    let key = fresh("k");
    let lock = WriteLock::take_all(&site.key_value());
    let answer = shop.pay(&order_no, &key, 10).await;
    answer.first(200);
    drop(lock);
    shop.pay(&order_no, &key, 10).await.replays(&answer);
    assert_eq!(audit(&site).succeeded, 1);
}

/// Invariants 9 and 11: a store that hangs is asked once in a while only. Asked each time, it would hold
/// these payments up for minutes.
#[tokio::test]
async fn a_store_that_hangs_is_left_alone() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let mut order_nos = Vec::new();
    for _ in 0..25 {
        order_nos.push(shop.payable(10).await);
    }
    let lock = WriteLock::take_all(&site.key_value());
    let all = async {
        for order_no in &order_nos {
            shop.pay(order_no, &fresh("k"), 10).await.first(200);
        }
    };
    let patience = std::time::Duration::from_secs(60);
    tokio::time::timeout(patience, all)
        .await
        .expect("payments do not wait for the store");
    drop(lock);
    assert_eq!(audit(&site).succeeded, 25);
}

/// Invariant 11: an entry that reads like an answer, but one that is never recorded, is none.
#[tokio::test]
async fn an_answer_that_cannot_be_is_never_replayed() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(10).await;
    let key = fresh("k");
    let answer = shop.pay(&order_no, &key, 10).await;
    answer.first(200);
    let (name, entry) = cached(&site, &answer).await;
    for status in [0, 101, 404, 500, 503, 1000] {
        let mut record: Value = serde_json::from_slice(seal::record(&entry).unwrap()).unwrap();
        record["response"]["answer"]["status"] = status.into();
        let nonsense = seal::sealed(TOKEN_SECRET, &name, record.to_string().as_bytes());
        stores::overwrite(&site.key_value(), &name, &nonsense);
        shop.pay(&order_no, &key, 10).await.replays(&answer);
    }
}

/// Who can write the store and does not know the secret cannot make answers up.
#[tokio::test]
async fn a_forged_answer_is_never_replayed() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(10).await;
    let key = fresh("k");
    let answer = shop.pay(&order_no, &key, 10).await;
    answer.first(200);
    let (name, entry) = cached(&site, &answer).await;
    let record = seal::record(&entry).unwrap();
    // Its maker knows everything but the secret.
    assert_eq!(seal::sealed(TOKEN_SECRET, &name, record), entry);
    let mut forged: Value = serde_json::from_slice(record).unwrap();
    forged["response"]["answer"]["body"] = "{}".into();
    let forged = forged.to_string();
    let old_seal = &entry[..entry.len() - record.len()];
    for entry in [
        [old_seal, forged.as_bytes()].concat(),
        seal::sealed("guessed-secret-0123456789", &name, forged.as_bytes()),
        seal::sealed("", &name, forged.as_bytes()),
        forged.clone().into_bytes(),
    ] {
        stores::overwrite(&site.key_value(), &name, &entry);
        shop.pay(&order_no, &key, 10).await.replays(&answer);
    }
}

/// Invariants 3 and 10: an entry counts under the key and the merchant that it was written for.
#[tokio::test]
async fn an_entry_moved_to_another_key_is_none() {
    let site = Site::new();
    let server = site.start();
    let mut paid = Vec::new();
    for shop in [server.shop(), server.shop(), server.other_shop()] {
        let call = shop.pay_call(&shop.payable(10).await, &fresh("k"), 10);
        let answer = call.clone().send().await;
        answer.first(200);
        let (name, entry) = cached(&site, &answer).await;
        paid.push((call, answer, name, entry));
    }
    for (_, _, name, _) in &paid {
        for (_, _, _, entry) in &paid {
            stores::overwrite(&site.key_value(), name, entry);
            for (call, answer, _, _) in &paid {
                call.clone().send().await.replays(answer);
            }
        }
    }
    assert_eq!(audit(&site).succeeded, 3);
}

/// Two versions of the service run beside each other during an update, and neither reads the other's entries.
#[tokio::test]
async fn an_entry_of_another_version_is_none() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(10).await;
    let key = fresh("k");
    let answer = shop.pay(&order_no, &key, 10).await;
    answer.first(200);
    let (name, entry) = cached(&site, &answer).await;
    for other in [
        [b"1".as_slice(), &entry[1..]].concat(),
        [b"3".as_slice(), &entry[1..]].concat(),
        seal::record(&entry).unwrap().to_vec(),
    ] {
        stores::overwrite(&site.key_value(), &name, &other);
        shop.pay(&order_no, &key, 10).await.replays(&answer);
    }
}

/// Cached answers are good while their secret is configured, first or not. The database is away, so nothing
/// else could answer.
#[tokio::test]
async fn a_cached_answer_is_good_while_its_secret_is() {
    const NEW: &str = "the-next-secret-0123456789";
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(10).await;
    let key = fresh("k");
    let answer = shop.pay(&order_no, &key, 10).await;
    answer.first(200);
    cached(&site, &answer).await;
    server.stop();
    fs::rename(site.database(), site.database().with_extension("good")).unwrap();
    fs::create_dir(site.database()).unwrap();

    let site = site.variable("token_secret", format!("{NEW},{TOKEN_SECRET}"));
    let server = site.start();
    let replay = server.shop().pay(&order_no, &key, 10).await;
    replay.replays(&answer);
    server.stop();
    let site = site.variable("token_secret", NEW);
    let server = site.start();
    let unknown = server.shop().pay(&order_no, &key, 10).await;
    unknown.problem(503, "storage_unavailable");
}

/// Without a secret nothing can be sealed: the journal answers everything.
#[tokio::test]
async fn without_a_token_secret_nothing_is_cached() {
    let site = Site::new().without("token_secret");
    let server = site.start();
    payments_work(&server.shop()).await;
    server.stop();
    assert!(stores::entries(&site.key_value()).is_empty());
    audit(&site);
}

/// Invariant 11 with a crowd: the store is wiped again and again while identical requests race.
#[tokio::test]
async fn identical_requests_charge_once_while_the_store_is_wiped() {
    let site = Site::new();
    let server = site.start();
    let shop = server.shop();
    let user_id = fresh("user");
    shop.deposit(&user_id, 1000).await;
    for _ in 0..10 {
        let order_no = shop.order_of(&user_id, 10).await;
        let call = shop.pay_call(&order_no, &fresh("k"), 10);
        let racing = (0..20).map(|number| {
            let call = call.clone();
            let path = site.key_value();
            async move {
                if number % 5 == 0 {
                    stores::wipe(&path);
                }
                call.send().await
            }
        });
        let answers = futures::future::join_all(racing).await;
        let settled = crate::scene::settled(&call).await;
        settled.ok(200);
        for answer in answers {
            if answer.status == 200 {
                answer.equals(&settled);
            } else {
                answer.problem(409, "idempotency_in_progress");
            }
        }
    }
    assert_eq!(shop.balance(&user_id).await, 900);
    assert_eq!(audit(&site).succeeded, 10);
}
