//! The channel is what real ones are: idempotent by key, and by nothing else.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that fails panics"
)]

use payonce_channel::{Call, Channel, Config, Fault, Outcome};
use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};

const CHARGE: &str = "amount=4200&currency=eur&confirm=true&payment_method=pm_card_visa\
                      &metadata[request_no]=r1&metadata[order_no]=o1&metadata[merchant_id]=m1";

const VERSION: &str = "2025-03-31.basil";

struct Bench {
    channel: Channel,
    client: Client,
}

impl Bench {
    fn new() -> Self {
        let config = Config {
            key: "key".into(),
            webhook_secret: "whsec_c2VjcmV0".into(),
            webhooks_by_themselves: false,
        };
        Self {
            channel: Channel::start("127.0.0.1:0", config).unwrap(),
            client: Client::builder().no_proxy().build().unwrap(),
        }
    }

    fn get(&self, path: &str) -> RequestBuilder {
        let url = format!("{}{path}", self.channel.url());
        let request = self.client.get(url).bearer_auth("key");
        request.header("stripe-version", VERSION)
    }

    fn post(&self, path: &str, key: Option<&str>) -> RequestBuilder {
        let url = format!("{}{path}", self.channel.url());
        let request = self.client.post(url).bearer_auth("key");
        let request = request.header("stripe-version", VERSION);
        match key {
            Some(key) => request.header("idempotency-key", key),
            None => request,
        }
    }

    fn charge(&self, key: Option<&str>, amount: u64) -> RequestBuilder {
        let body = json!({"request_no": "r1", "order_no": "o1", "merchant_id": "m1",
                          "amount": amount, "currency": "EUR"});
        self.post("/charges", key).json(&body)
    }

    fn intent(&self, key: Option<&str>, form: &str) -> RequestBuilder {
        let content_type = "application/x-www-form-urlencoded";
        let request = self.post("/v1/payment_intents", key);
        let request = request.header("content-type", content_type);
        request.body(form.to_owned())
    }
}

async fn send(request: RequestBuilder) -> (u16, Value) {
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

#[tokio::test]
async fn the_contract_acts_once_for_a_key_and_twice_without() {
    let bench = Bench::new();
    let (status, first) = send(bench.charge(Some("k"), 100)).await;
    assert_eq!((status, &first["status"]), (201, &json!("succeeded")));
    let (status, again) = send(bench.charge(Some("k"), 100)).await;
    assert_eq!((status, &again), (200, &first));
    let (status, other) = send(bench.charge(Some("k"), 101)).await;
    assert_eq!(
        (status, &other["code"]),
        (422, &json!("idempotency_key_reused"))
    );
    assert_eq!(bench.channel.book().charges.len(), 1);
    for _ in 0..2 {
        send(bench.charge(None, 100)).await;
    }
    assert_eq!(bench.channel.book().charges.len(), 3);
    let kept: u64 = bench.channel.book().kept().into_values().sum();
    assert_eq!(kept, 300);
}

#[tokio::test]
async fn the_contract_refunds_no_more_than_it_charged() {
    let bench = Bench::new();
    send(bench.charge(Some("r1"), 100)).await;
    let refund = |number: &str, amount: u64| {
        let body =
            json!({"refund_no": number, "request_no": "r1", "amount": amount, "currency": "EUR"});
        bench.post("/refunds", Some(number)).json(&body)
    };
    assert_eq!(send(refund("f1", 60)).await.0, 201);
    assert_eq!(send(refund("f1", 60)).await.0, 200);
    assert_eq!(send(refund("f2", 60)).await.0, 422);
    assert_eq!(
        send(bench.get("/refunds/f1")).await.1["status"],
        "succeeded"
    );
    assert_eq!(send(bench.get("/refunds/f2")).await.0, 404);
    let kept: u64 = bench.channel.book().kept().into_values().sum();
    assert_eq!(kept, 40);
}

#[tokio::test]
async fn stripe_repeats_the_first_answer_of_a_key_whatever_became_of_it() {
    let bench = Bench::new();
    bench.channel.script(Call::Charge, [Outcome::Processing]);
    let (_, first) = send(bench.intent(Some("k"), CHARGE)).await;
    assert_eq!(first["status"], "processing");
    let id = first["id"].as_str().unwrap();
    bench.channel.settle_charge(id, Outcome::Succeeded);
    let (_, again) = send(bench.intent(Some("k"), CHARGE)).await;
    assert_eq!(again["status"], "processing");
    let (_, now) = send(bench.get(&format!("/v1/payment_intents/{id}"))).await;
    assert_eq!(now["status"], "succeeded");

    let other = CHARGE.replace("4200", "4300");
    let (status, error) = send(bench.intent(Some("k"), &other)).await;
    assert_eq!(
        (status, &error["error"]["type"]),
        (400, &json!("idempotency_error"))
    );
    assert_eq!(bench.channel.book().charges.len(), 1);
}

#[tokio::test]
async fn stripe_repeats_a_failure_too_and_the_search_knows_better() {
    let bench = Bench::new();
    bench.channel.script(Call::Charge, [Fault::FailAfter]);
    for _ in 0..2 {
        assert_eq!(send(bench.intent(Some("k"), CHARGE)).await.0, 500);
    }
    let search = "/v1/payment_intents/search?query=metadata%5B'request_no'%5D:'r1'";
    let (_, found) = send(bench.get(search)).await;
    assert_eq!(found["data"][0]["status"], "succeeded");
    assert_eq!(found["data"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn stripe_declines_with_the_error_of_a_card() {
    let bench = Bench::new();
    let form = CHARGE.replace("pm_card_visa", "pm_card_chargeDeclined");
    let (status, body) = send(bench.intent(Some("k"), &form)).await;
    assert_eq!(status, 402);
    let error = &body["error"];
    assert_eq!(
        (&error["type"], &error["code"]),
        (&json!("card_error"), &json!("card_declined"))
    );
    assert_eq!(error["decline_code"], "generic_decline");
    assert_eq!(error["payment_intent"]["status"], "requires_payment_method");
    assert!(bench.channel.book().kept().is_empty());
}

#[tokio::test]
async fn stripe_cancels_what_waits_for_its_customer_and_nothing_else() {
    let bench = Bench::new();
    let cancel = |id: &Value, key: &str| {
        let path = format!("/v1/payment_intents/{}/cancel", id.as_str().unwrap());
        bench.post(&path, Some(key))
    };
    bench
        .channel
        .script(Call::Charge, [Outcome::RequiresAction]);
    let (_, waiting) = send(bench.intent(Some("k"), CHARGE)).await;
    for _ in 0..2 {
        let (status, canceled) = send(cancel(&waiting["id"], "k~cancel")).await;
        assert_eq!((status, &canceled["status"]), (200, &json!("canceled")));
    }
    let (_, paid) = send(bench.intent(Some("l"), CHARGE)).await;
    for (intent, key) in [(&waiting, "again"), (&paid, "l~cancel")] {
        let (status, refused) = send(cancel(&intent["id"], key)).await;
        let code = &refused["error"]["code"];
        assert_eq!(
            (status, code),
            (400, &json!("payment_intent_unexpected_state"))
        );
    }
    assert_eq!(send(cancel(&json!("pi_9"), "m")).await.0, 404);
    let kept: u64 = bench.channel.book().kept().into_values().sum();
    assert_eq!(kept, 4200);
}

/// A call that is done late is done once, however often it was asked for meanwhile; Stripe says that it is in
/// flight, the contract does it at once.
#[tokio::test]
async fn a_call_that_is_done_late_is_done_once() {
    let bench = Bench::new();
    bench.channel.script(Call::Charge, [Fault::LateAct]);
    let lost = tokio::spawn(bench.intent(Some("k"), CHARGE).send());
    while bench.channel.seen(Call::Charge) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(send(bench.intent(Some("k"), CHARGE)).await.0, 409);
    bench.channel.release();
    assert_eq!(send(bench.intent(Some("k"), CHARGE)).await.0, 200);
    lost.abort();

    bench.channel.script(Call::Charge, [Fault::LateAct]);
    let lost = tokio::spawn(bench.charge(Some("r1"), 100).send());
    while bench.channel.seen(Call::Charge) < 4 {
        tokio::task::yield_now().await;
    }
    assert_eq!(send(bench.charge(Some("r1"), 100)).await.0, 201);
    bench.channel.release();
    lost.abort();
    assert_eq!(bench.channel.book().charges.len(), 2);
}

#[tokio::test]
async fn a_lost_call_has_no_answer_and_one_that_acts_is_in_the_book() {
    let bench = Bench::new();
    for (fault, charges) in [(Fault::Refuse, 0), (Fault::Drop, 1)] {
        bench.channel.script(Call::Charge, [fault]);
        assert!(bench.charge(Some("k"), 100).send().await.is_err());
        assert_eq!(bench.channel.book().charges.len(), charges);
    }
    bench.channel.go_down();
    assert!(bench.charge(Some("k"), 100).send().await.is_err());
    bench.channel.come_back();
    assert_eq!(send(bench.charge(Some("k"), 100)).await.0, 200);
}

#[tokio::test]
async fn nobody_is_charged_without_the_key_of_the_account() {
    let bench = Bench::new();
    let request = bench.charge(Some("k"), 100).build().unwrap();
    let mut stranger = request;
    stranger.headers_mut().remove("authorization");
    let answer = bench.client.execute(stranger).await.unwrap();
    assert_eq!(answer.status().as_u16(), 401);
    assert!(bench.channel.book().charges.is_empty());
}

#[tokio::test]
async fn stripe_answers_in_the_version_that_a_request_names() {
    let bench = Bench::new();
    for other in [None, Some("2022-11-15"), Some("basil")] {
        let mut request = bench.intent(Some("k"), CHARGE).build().unwrap();
        let headers = request.headers_mut();
        headers.remove("stripe-version");
        if let Some(other) = other {
            headers.insert("stripe-version", other.parse().unwrap());
        }
        let answer = bench.client.execute(request).await.unwrap();
        assert_eq!(answer.status().as_u16(), 400, "{other:?}");
    }
    assert!(bench.channel.book().charges.is_empty());
    assert_eq!(send(bench.intent(Some("k"), CHARGE)).await.0, 200);
}

/// As the README and `docs/channels.md` do it: with `curl` and nothing else.
#[tokio::test]
async fn whoever_has_curl_can_script_a_call_settle_it_and_read_the_book() {
    let bench = Bench::new();
    let control = |path: &str, body: &'static str| {
        let url = format!("{}/control/{path}", bench.channel.url());
        bench.client.post(url).body(body)
    };
    let script = control("script", r#"{"call": "charge", "fault": "drop"}"#);
    assert_eq!(send(script).await.0, 200);
    assert!(bench.charge(Some("r1"), 100).send().await.is_err());
    let (status, again) = send(bench.charge(Some("r1"), 100)).await;
    assert_eq!((status, &again["status"]), (200, &json!("succeeded")));

    let declined = r#"{"charge_id": "ch_000001", "outcome": {"declined": "fraud"}}"#;
    assert_eq!(send(control("settle", declined)).await.0, 200);
    let book = bench.client.get(format!("{}/book", bench.channel.url()));
    let (_, book) = send(book).await;
    assert_eq!(book["charges"][0]["outcome"]["declined"], "fraud");
    let events = bench.client.get(format!("{}/events", bench.channel.url()));
    let (_, events) = send(events).await;
    assert_eq!(events["events"].as_array().unwrap().len(), 2);
    // Nobody to deliver them to.
    let (_, delivered) = send(control("webhooks", r#"{"manner": "stale", "times": 2}"#)).await;
    assert_eq!(delivered["answers"].as_array().unwrap().len(), 4);
    assert!(delivered["answers"][0]["status"].is_null());

    for wrong in [
        r#"{"call": "charge", "fault": "typo"}"#,
        r#"{"calls": "charge"}"#,
        "",
    ] {
        assert_eq!(send(control("script", wrong)).await.0, 400, "{wrong}");
    }
}
