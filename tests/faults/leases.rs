//! Claims whose owner is gone.

use crate::scene::{claimed, settled};
use crate::support::names::fresh;
use crate::support::oracle::{audit, journal_rows};
use crate::support::seal;
use crate::support::site::{Site, TOKEN_SECRET};
use crate::support::stores::{self, WriteLock};
use crate::support::wait::eventually;

/// A payable order over 100, and the claim of the process that was killed while it paid it.
struct Abandoned {
    order_no: String,
    key: String,
    name: String,
    claim: Vec<u8>,
}

/// Kills a process in the middle of a payment that it has claimed.
async fn abandoned(site: &Site) -> Abandoned {
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(100).await;
    let key = fresh("k");
    let lock = WriteLock::take(&site.database());
    let first = claimed(site, &shop, &order_no, &key, 100).await;
    server.kill();
    first.answer.await.unwrap().status(0);
    drop(lock);
    let (name, claim) = first.claim;
    Abandoned {
        order_no,
        key,
        name,
        claim,
    }
}

/// R2, invariant 9: the process dies after the claim, before the answer: a retry after the lease
/// finishes the work, without an operator.
#[tokio::test]
async fn a_claim_of_a_killed_process_is_taken_over_after_its_lease() {
    let site = Site::new().variable("claim_lease_ms", 2000);
    let Abandoned {
        order_no,
        key,
        name,
        claim,
    } = abandoned(&site).await;
    assert_eq!(journal_rows(&site, &key), 0);
    let left = stores::claims(&site.key_value());
    assert_eq!(
        left.get(&name),
        Some(&claim),
        "a claim outlives its process"
    );

    let server = site.start();
    let call = server.shop().pay_call(&order_no, &key, 100);
    let retry = call.header("prefer", "wait=0");
    let answer = settled(&retry).await;
    answer.first(200);
    retry.send().await.replays(&answer);
    assert_eq!(audit(&site).succeeded, 1);
}

/// Invariant 9: a claim from a clock that was ahead blocks nobody for as long as that.
#[tokio::test]
async fn a_claim_from_the_future_is_no_claim() {
    let site = Site::new();
    for ahead in [3_600_000, i64::MAX] {
        let left = abandoned(&site).await;
        let record = seal::record(&left.claim).unwrap();
        let mut claim: serde_json::Value = serde_json::from_slice(record).unwrap();
        let lease = claim["claim"]["lease_until"].as_i64().unwrap();
        claim["claim"]["lease_until"] = lease.saturating_add(ahead).into();
        let claim = seal::sealed(TOKEN_SECRET, &left.name, claim.to_string().as_bytes());
        stores::overwrite(&site.key_value(), &left.name, &claim);

        let server = site.start();
        let call = server.shop().pay_call(&left.order_no, &left.key, 100);
        call.header("prefer", "wait=0").send().await.first(200);
    }
    assert_eq!(audit(&site).succeeded, 2);
}

/// R2: a waiting duplicate does not need to come again: it takes over when the lease ends.
#[tokio::test]
async fn a_request_that_waits_beyond_the_lease_does_the_work_itself() {
    let site = Site::new().variable("claim_lease_ms", 1000);
    let Abandoned { order_no, key, .. } = abandoned(&site).await;
    let server = site.start();
    let call = server.shop().pay_call(&order_no, &key, 100);
    let waiting = call.header("prefer", "wait=20").send().await;
    waiting.first(200);
    assert_eq!(audit(&site).succeeded, 1);
}

/// Invariant 3: a claim that nobody holds any more does not let another body in while it lasts, and
/// never mixes the two.
#[tokio::test]
async fn another_body_under_an_abandoned_claim_is_refused_or_runs_alone() {
    let site = Site::new().variable("claim_lease_ms", 1000);
    let server = site.start();
    let shop = server.shop();
    let user_id = fresh("user");
    shop.deposit(&user_id, 1000).await;
    let (first_order, second_order) = (
        shop.order_of(&user_id, 100).await,
        shop.order_of(&user_id, 200).await,
    );
    let key = fresh("k");
    let lock = WriteLock::take(&site.database());
    let first = claimed(&site, &shop, &first_order, &key, 100).await;
    server.kill();
    first.answer.await.unwrap().status(0);
    drop(lock);
    let server = site.start();
    let shop = server.shop();
    // After the lease the key is free: nothing was ever done under it.
    let other = shop.pay_call(&second_order, &key, 200);
    let answer = eventually("the end of the lease", async || {
        let answer = other.clone().send().await;
        if answer.status == 422 {
            answer.problem(422, "idempotency_key_reused");
        }
        (answer.status != 422).then_some(answer)
    })
    .await;
    answer.first(200);
    let late = shop.pay(&first_order, &key, 100).await;
    late.problem(422, "idempotency_key_reused");
    assert_eq!(shop.order(&first_order).await["status"], "pending");
    assert_eq!(audit(&site).succeeded, 1);
}

/// Invariant 11: a stale store shows the claim of a request that is long done. It may cost a wait
/// until the lease ends, never another answer.
#[tokio::test]
async fn a_stale_claim_over_a_finished_operation_gives_way_to_its_answer() {
    let site = Site::new().variable("claim_lease_ms", 3000);
    let server = site.start();
    let shop = server.shop();
    let order_no = shop.payable(100).await;
    let key = fresh("k");
    let lock = WriteLock::take(&site.database());
    let first = claimed(&site, &shop, &order_no, &key, 100).await;
    drop(lock);
    let answer = first.answer.await.unwrap();
    answer.first(200);
    let (name, claim) = first.claim;
    let replay = shop
        .pay_call(&order_no, &key, 100)
        .header("prefer", "wait=0");
    eventually("a replay", async || {
        stores::overwrite(&site.key_value(), &name, &claim);
        let again = replay.clone().send().await;
        if again.status == 409 {
            again.problem(409, "idempotency_in_progress");
            return None;
        }
        again.replays(&answer);
        Some(())
    })
    .await;
    // The claim is over now, and planted once more it is over at once.
    stores::overwrite(&site.key_value(), &name, &claim);
    let other = shop.pay(&order_no, &key, 101).await;
    other.problem(422, "idempotency_key_reused");
    stores::overwrite(&site.key_value(), &name, &claim);
    replay.send().await.replays(&answer);
    assert_eq!(audit(&site).succeeded, 1);
}

/// The walk, step 3: garbage in the place of a claim is as good as nothing.
#[tokio::test]
async fn a_damaged_claim_holds_nobody_up() {
    let site = Site::new().variable("claim_lease_ms", 600_000);
    for garbage in [&b""[..], b"{", b"\xff\x00\xfe", b"null", b"{}", b"[1,2]"] {
        let Abandoned {
            order_no,
            key,
            name,
            ..
        } = abandoned(&site).await;
        stores::overwrite(&site.key_value(), &name, garbage);
        let server = site.start();
        let retry = server.shop().pay_call(&order_no, &key, 100);
        let answer = retry.header("prefer", "wait=0").send().await;
        answer.first(200);
    }
    audit(&site);
}
