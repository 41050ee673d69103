//! A merchant's client: builds requests as the contract words them, one call for a common one.

use std::time::Duration;

use http_body_util::{BodyExt, Full};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Body, Client, Method};
use serde_json::{Value, json};

use super::answer::Answer;
use super::document;
use super::names::fresh;
use super::wait::eventually;

/// Far above any wait of the contract: only a hanging server meets it.
const HANGING: Duration = Duration::from_secs(90);

/// A service at an address, seen by one merchant (or by nobody, with an empty key).
#[derive(Clone, Debug)]
pub struct Shop {
    client: Client,
    base: String,
    api_key: String,
}

impl Shop {
    pub fn new(base: &str, api_key: &str) -> Self {
        let client = Client::builder()
            .no_proxy()
            .timeout(HANGING)
            .build()
            .expect("a client");
        Self {
            client,
            base: base.trim_end_matches('/').to_owned(),
            api_key: api_key.to_owned(),
        }
    }

    /// The same service with another API key.
    pub fn with_key(&self, api_key: &str) -> Self {
        Self {
            api_key: api_key.to_owned(),
            ..self.clone()
        }
    }

    pub fn request(&self, method: Method, path: &str) -> Call {
        let mut headers = HeaderMap::new();
        if !self.api_key.is_empty() {
            let bearer = format!("Bearer {}", self.api_key);
            headers.insert(AUTHORIZATION, bearer.parse().expect("an API key"));
        }
        Call {
            client: self.client.clone(),
            method,
            url: format!("{}{path}", self.base),
            headers,
            body: None,
            reaches_component: true,
        }
    }

    pub fn get(&self, path: &str) -> Call {
        self.request(Method::GET, path)
    }

    pub fn post(&self, path: &str) -> Call {
        self.request(Method::POST, path)
    }

    /// `POST` of a JSON body under an idempotency key.
    pub fn command(&self, path: &str, key: &str, body: &Value) -> Call {
        self.post(path).key(key).json(body)
    }

    /// The call that pays an order.
    pub fn pay_call(&self, order_no: &str, key: &str, amount: u64) -> Call {
        self.command(&pay_path(order_no), key, &json!({"amount": amount}))
    }

    pub async fn pay(&self, order_no: &str, key: &str, amount: u64) -> Answer {
        self.pay_call(order_no, key, amount).send().await
    }

    /// The call that puts money into a wallet.
    pub fn deposit_call(&self, user_id: &str, key: &str, amount: u64) -> Call {
        self.command(
            &format!("/v1/accounts/{user_id}/deposits"),
            key,
            &json!({"amount": amount, "currency": "EUR"}),
        )
    }

    /// Puts money (EUR) into a wallet.
    pub async fn deposit(&self, user_id: &str, amount: u64) -> Value {
        let call = self.deposit_call(user_id, &fresh("fund"), amount);
        call.send().await.first(201)
    }

    /// Creates an order (EUR) of a user and returns its number.
    pub async fn order_of(&self, user_id: &str, amount: u64) -> String {
        let order_no = fresh("order");
        let body = order_body(&order_no, user_id, amount);
        let call = self.command("/v1/orders", &fresh("create"), &body);
        call.send().await.first(201);
        order_no
    }

    /// Creates an order of a new user whose wallet holds exactly its amount.
    pub async fn payable(&self, amount: u64) -> String {
        let user_id = fresh("user");
        self.deposit(&user_id, amount).await;
        self.order_of(&user_id, amount).await
    }

    /// Creates an order that is paid.
    pub async fn paid(&self, amount: u64) -> String {
        let order_no = self.payable(amount).await;
        self.pay(&order_no, &fresh("pay"), amount).await.first(200);
        order_no
    }

    /// The call that ships, completes or cancels an order.
    pub fn move_call(&self, order_no: &str, verb: &str, key: &str) -> Call {
        self.command(&format!("/v1/orders/{order_no}/{verb}"), key, &json!({}))
    }

    /// The call that refunds a part of an order.
    pub fn refund_call(&self, order_no: &str, key: &str, amount: u64) -> Call {
        let body = json!({"amount": amount});
        self.command(&refunds_path(order_no), key, &body)
    }

    /// The call that grants a coupon.
    pub fn grant_call(&self, activity_id: &str, key: &str, user_id: &str) -> Call {
        let path = format!("/v1/coupons/{activity_id}/grants");
        self.command(&path, key, &json!({"user_id": user_id}))
    }

    /// Sets or lifts the limit of an activity.
    pub async fn limit(&self, activity_id: &str, limit: Option<u64>) -> Value {
        let path = format!("/v1/coupons/{activity_id}");
        let call = self.request(Method::PUT, &path);
        call.json(&json!({"limit": limit})).send().await.first(200)
    }

    /// The call that changes a profile.
    pub fn profile_call(&self, user_id: &str, key: &str, patch: &Value) -> Call {
        let path = format!("/v1/users/{user_id}/profile");
        self.request(Method::PATCH, &path).key(key).json(patch)
    }

    /// All refunds of an order.
    pub async fn refunds(&self, order_no: &str) -> Vec<Value> {
        let page = self.get(&refunds_path(order_no)).send().await.ok(200);
        page["data"].as_array().expect("data").clone()
    }

    /// The audit trail of an order.
    pub async fn trail(&self, order_no: &str) -> Vec<Value> {
        let path = format!("/v1/orders/{order_no}/events");
        let page = self.get(&path).send().await.ok(200);
        page["data"].as_array().expect("data").clone()
    }

    /// The order as it is now.
    pub async fn order(&self, order_no: &str) -> Value {
        let path = format!("/v1/orders/{order_no}");
        self.get(&path).send().await.ok(200)
    }

    /// All payments of an order.
    pub async fn payments(&self, order_no: &str) -> Vec<Value> {
        let path = format!("/v1/orders/{order_no}/payments");
        let page = self.get(&path).send().await.ok(200);
        page["data"].as_array().expect("data").clone()
    }

    /// The EUR balance of a wallet.
    pub async fn balance(&self, user_id: &str) -> i64 {
        let path = format!("/v1/accounts/{user_id}");
        let account = self.get(&path).send().await.ok(200);
        let balances = account["balances"].as_array().expect("balances");
        let eur = balances.iter().find(|entry| entry["currency"] == "EUR");
        eur.map_or(0, |entry| entry["balance"].as_i64().expect("an integer"))
    }

    /// A new submit token.
    pub async fn token(&self) -> String {
        let answer = self.post("/v1/tokens").send().await.first(201);
        answer["token"].as_str().expect("a token").to_owned()
    }
}

/// The path that pays an order.
pub fn pay_path(order_no: &str) -> String {
    format!("/v1/orders/{order_no}/pay")
}

/// The path of an order's refunds.
pub fn refunds_path(order_no: &str) -> String {
    format!("/v1/orders/{order_no}/refunds")
}

/// A query value in which nothing has a meaning of its own.
pub fn escaped(value: &str) -> String {
    let escape = |byte: u8| match byte {
        b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'_' | b'.' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    value.bytes().map(escape).collect()
}

/// A complete body of `POST /v1/orders` in EUR.
pub fn order_body(order_no: &str, user_id: &str, amount: u64) -> Value {
    json!({"order_no": order_no, "user_id": user_id, "amount": amount, "currency": "EUR"})
}

/// One request under construction. Cloning it sends the same request again.
#[derive(Clone, Debug)]
pub struct Call {
    client: Client,
    method: Method,
    url: String,
    headers: HeaderMap,
    body: Option<Vec<u8>>,
    reaches_component: bool,
}

impl Call {
    /// A request that Spin itself may refuse, with an answer that no document of ours describes.
    pub fn refused_by_spin(mut self) -> Self {
        self.reaches_component = false;
        self
    }

    /// The idempotency key as the draft writes it: a structured-field string.
    pub fn key(self, key: &str) -> Self {
        self.header("idempotency-key", &format!("\"{key}\""))
    }

    /// Adds one header line; an earlier line of the same name stays.
    pub fn header(self, name: &str, value: &str) -> Self {
        self.header_bytes(name, value.as_bytes())
    }

    /// Adds one header line of any bytes that HTTP lets through.
    pub fn header_bytes(mut self, name: &str, value: &[u8]) -> Self {
        let name: HeaderName = name.parse().expect("a header name");
        let value = HeaderValue::from_bytes(value).expect("a header value");
        self.headers.append(name, value);
        self
    }

    /// The same request to the same service at another address.
    pub fn to(mut self, base: &str) -> Self {
        let path = self.url.splitn(4, '/').nth(3).expect("a path");
        self.url = format!("{base}/{path}");
        self
    }

    /// Replaces the API key by this whole header value.
    pub fn authorization(mut self, value: &str) -> Self {
        self.headers.remove(AUTHORIZATION);
        self.header("authorization", value)
    }

    pub fn json(self, body: &Value) -> Self {
        self.text(&body.to_string())
    }

    /// A body sent as `application/json`, valid or not.
    pub fn text(self, body: &str) -> Self {
        self.bytes("application/json", body.as_bytes())
    }

    pub fn bytes(mut self, content_type: &str, body: &[u8]) -> Self {
        let value = content_type.parse().expect("a content type");
        self.headers.insert(CONTENT_TYPE, value);
        self.body = Some(body.to_vec());
        self
    }

    /// Drops the content type that came with the body.
    pub fn untyped(mut self) -> Self {
        self.headers.remove(CONTENT_TYPE);
        self
    }

    /// Sends the request and reads the whole answer.
    ///
    /// # Panics
    /// When no complete answer arrives.
    pub async fn send(self) -> Answer {
        let shown = format!("{} {}", self.method, self.url);
        let answer = self.attempt().await;
        answer.unwrap_or_else(|error| panic!("{shown}: {error:?}"))
    }

    /// Sends the request until it gets an answer that is final, as a client told `retryable` does.
    pub async fn settled(&self) -> Answer {
        eventually("a final answer", async || {
            let answer = self.clone().send().await;
            let again = matches!(answer.status, 409 | 503) && answer.json()["retryable"] == true;
            (!again).then_some(answer)
        })
        .await
    }

    /// Sends the request; the server may die under it.
    pub async fn attempt(self) -> reqwest::Result<Answer> {
        let body = self.body.clone().map(Body::from);
        self.attempt_with(body).await
    }

    /// Sends the body in chunks, without announcing its length.
    pub async fn send_chunked(self) -> Answer {
        let bytes: &'static [u8] = self.body.clone().expect("a body").leak();
        // Mapping the frames hides the length.
        let body = Body::wrap(Full::new(bytes).map_frame(|frame| frame));
        let answer = self.attempt_with(Some(body)).await;
        answer.expect("an answer to a chunked body")
    }

    async fn attempt_with(self, body: Option<Body>) -> reqwest::Result<Answer> {
        let mut request = self
            .client
            .request(self.method.clone(), &self.url)
            .headers(self.headers.clone());
        if let Some(body) = body {
            request = request.body(body);
        }
        let response = request.send().await?;
        let path = response.url().path().to_owned();
        let answer = Answer {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response.bytes().await?.to_vec(),
        };
        if self.reaches_component {
            let media_type = self.headers.get(CONTENT_TYPE);
            let media_type = media_type.and_then(|value| value.to_str().ok());
            let sent = media_type.zip(self.body.as_deref());
            document::check(&self.method, &path, sent, &answer);
        }
        Ok(answer)
    }
}
