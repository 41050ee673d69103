//! How an idempotency key may and may not be written.

use reqwest::Method;
use serde_json::json;

use crate::support::answer::Answer;
use crate::support::client::Call;
use crate::support::names::fresh;
use crate::target::shop;

/// A deposit without a key, by a fresh user, and that user.
fn keyless() -> (String, Call) {
    let user_id = fresh("user");
    let body = json!({"amount": 10, "currency": "EUR"});
    let path = format!("/v1/accounts/{user_id}/deposits");
    (user_id, shop().post(&path).json(&body))
}

/// Sends a deposit whose keys are `lines`; it must be refused with `code` and move nothing.
async fn refused(lines: &[(&str, &[u8])], code: &str) {
    let (user_id, mut call) = keyless();
    for (name, value) in lines {
        call = call.header_bytes(name, value);
    }
    let shown = || format!("{lines:?}");
    let answer: Answer = call.send().await;
    assert_eq!(answer.status, 400, "{}: {}", shown(), answer.text());
    answer.problem(400, code);
    let path = format!("/v1/accounts/{user_id}");
    let account = shop().get(&path).send().await;
    account.problem(404, "account_not_found");
}

/// Sends one request with `first`, then with `second` in the key's place; one must replay the other.
async fn same_key(first: &[(&str, &str)], second: &[(&str, &str)]) {
    let (_, call) = keyless();
    let with = |lines: &[(&str, &str)]| {
        lines
            .iter()
            .fold(call.clone(), |call, (name, value)| call.header(name, value))
    };
    let answer = with(first).send().await;
    answer.first(201);
    with(second).send().await.replays(&answer);
}

const KEY: &str = "idempotency-key";
const ALIAS: &str = "x-idempotency-key";

/// Contract, Idempotency: every `POST` and `PATCH` below `/v1` needs a key.
#[tokio::test]
async fn a_command_without_a_key_is_refused() {
    refused(&[], "idempotency_key_missing").await;
    let shop = shop();
    let order_no = shop.paid(1).await;
    let of_order = |verb: &str| shop.post(&format!("/v1/orders/{order_no}/{verb}"));
    let order = json!({"user_id": "u", "amount": 1, "currency": "EUR"});
    let message = json!({"kind": "sms", "to": "1", "text": "x"});
    for call in [
        shop.post("/v1/orders").json(&order),
        of_order("pay").json(&json!({"amount": 1})),
        of_order("ship"),
        of_order("complete"),
        of_order("cancel"),
        of_order("refunds"),
        shop.post("/v1/coupons/x/grants")
            .json(&json!({"user_id": "u"})),
        shop.post("/v1/messages").json(&message),
        shop.request(Method::PATCH, "/v1/users/x/profile")
            .json(&json!({})),
    ] {
        let answer = call.send().await;
        answer.problem(400, "idempotency_key_missing");
    }
}

/// Contract, Idempotency: 1 to 255 characters after unquoting.
#[tokio::test]
async fn an_empty_key_is_refused() {
    for value in ["\"\"", "", "\"\";a=1"] {
        refused(&[(KEY, value.as_bytes())], "idempotency_key_invalid").await;
    }
}

/// Contract, Idempotency: 1 to 255 characters after unquoting.
#[tokio::test]
async fn a_key_of_255_characters_passes_and_of_256_does_not() {
    let unique = fresh("k");
    let longest = format!("{unique}{}", "x".repeat(255 - unique.len()));
    let quoted = format!("\"{longest}\"");
    same_key(&[(KEY, &quoted)], &[(KEY, &longest)]).await;
    let too_long = format!("{longest}x");
    refused(&[(KEY, too_long.as_bytes())], "idempotency_key_invalid").await;
    let quoted = format!("\"{too_long}\"");
    refused(&[(KEY, quoted.as_bytes())], "idempotency_key_invalid").await;
}

/// Contract, Idempotency: visible ASCII only.
#[tokio::test]
async fn a_key_with_other_than_visible_ascii_is_refused() {
    let bad: [&[u8]; 7] = [
        b"\"a b\"",
        b"\"a\tb\"",
        b"\"\xc3\xa4\"",
        b"\xc3\xa4",
        b"k\xe2\x82\xac",
        b"\" a\"",
        b"\"a \"",
    ];
    for value in bad {
        refused(&[(KEY, value)], "idempotency_key_invalid").await;
    }
}

/// Contract, Idempotency: a key that is not even UTF-8 is refused, by Spin already (500) or here.
#[tokio::test]
async fn a_key_that_is_not_utf8_never_executes() {
    let bad: [&[u8]; 4] = [b"\"\xff\"", b"\xff", b"a\xc3", b"\xe4"];
    for value in bad {
        let (user_id, call) = keyless();
        let call = call.header_bytes(KEY, value).refused_by_spin();
        let answer = call.send().await;
        assert!(matches!(answer.status, 400 | 500), "{}", answer.text());
        let path = format!("/v1/accounts/{user_id}");
        let account = shop().get(&path).send().await;
        account.problem(404, "account_not_found");
    }
}

/// Contract, Idempotency: a bare value has no quotes, commas, semicolons and white space.
#[tokio::test]
async fn a_bare_value_with_separators_is_refused() {
    for value in ["a,b", "a, b", "a;b", "a;b=1", "a b", "a\"b", "a\"", "\"a"] {
        refused(&[(KEY, value.as_bytes())], "idempotency_key_invalid").await;
    }
}

/// Draft, section 2.1: an Item whose value is a String; other structured values are none.
#[tokio::test]
async fn a_structured_value_that_is_no_string_is_refused() {
    for value in [
        "\"a\", \"b\"",
        "\"a\" \"b\"",
        "\"a\"b",
        "(\"a\")",
        ":YQ==:;a",
        "\"a\\x\"",
        "\"a\";",
        "\"a\";=1",
    ] {
        refused(&[(KEY, value.as_bytes())], "idempotency_key_invalid").await;
    }
}

/// Contract, Idempotency: quoted and bare are the same key.
#[tokio::test]
async fn a_quoted_and_a_bare_value_are_the_same_key() {
    for key in [fresh("k"), fresh("8e03978e-40d5-43dd-bc93:/+=._~!#$%&'*()")] {
        let quoted = format!("\"{key}\"");
        same_key(&[(KEY, &quoted)], &[(KEY, &key)]).await;
    }
}

/// Contract, Idempotency: parameters of the structured field are ignored.
#[tokio::test]
async fn parameters_of_a_quoted_key_do_not_matter() {
    for tail in [";a=1", ";a", "; ttl=60;who=\"me\"", ";a=?0;b=:YQ==:;c=1.5"] {
        let plain = format!("\"{}\"", fresh("k"));
        let with_parameters = format!("{plain}{tail}");
        same_key(&[(KEY, &plain)], &[(KEY, &with_parameters)]).await;
    }
}

/// RFC 8941: escapes of a quoted string stand for the characters themselves.
#[tokio::test]
async fn an_escaped_quote_belongs_to_the_key() {
    let key = fresh("k");
    let first = format!("\"{key}\\\"q\\\\\"");
    let (_, call) = keyless();
    let answer = call.clone().header(KEY, &first).send().await;
    answer.first(201);
    let again = call.clone().header(KEY, &first).send().await;
    again.replays(&answer);
    // The bare value without the escapes is a key of its own or none, not this one.
    let plain = call.header(KEY, &format!("{key}q")).send().await;
    plain.first(201);
}

/// Contract, Idempotency: keys are compared as they are.
#[tokio::test]
async fn keys_that_differ_in_case_are_two_keys() {
    let key = fresh("k");
    let (user_id, call) = keyless();
    let lower = call.clone().key(&key).send().await.first(201);
    let upper = call.key(&key.to_uppercase()).send().await.first(201);
    assert_ne!(lower["deposit_id"], upper["deposit_id"]);
    assert_eq!(shop().balance(&user_id).await, 20);
}

/// R10: a header that occurs twice is refused, with equal and with different values.
#[tokio::test]
async fn a_key_that_occurs_twice_is_refused() {
    for (first, second) in [("a", "a"), ("a", "b"), ("\"a\"", "\"a\""), ("a", "")] {
        for name in [KEY, ALIAS] {
            let lines = [(name, first.as_bytes()), (name, second.as_bytes())];
            refused(&lines, "idempotency_key_invalid").await;
        }
    }
}

/// R10: what two lines would be joined to is not a key of its own.
#[tokio::test]
async fn joined_lines_are_no_key() {
    for value in ["a, a", "\"a\", \"a\"", "a,a", "a,", ",a"] {
        refused(&[(KEY, value.as_bytes())], "idempotency_key_invalid").await;
    }
}

/// Contract, Idempotency: `X-Idempotency-Key` is an alias.
#[tokio::test]
async fn the_alias_is_the_same_key() {
    let key = fresh("k");
    let quoted = format!("\"{key}\"");
    same_key(&[(ALIAS, &key)], &[(KEY, &quoted)]).await;
    let key = fresh("k");
    same_key(&[(KEY, &key)], &[(KEY, &key), (ALIAS, &key)]).await;
}

/// Contract, Idempotency: key and alias with different values are refused.
#[tokio::test]
async fn a_key_and_an_alias_that_differ_are_refused() {
    let lines: [(&str, &[u8]); 2] = [(KEY, b"a"), (ALIAS, b"b")];
    refused(&lines, "idempotency_key_invalid").await;
    let lines: [(&str, &[u8]); 2] = [(KEY, b"a"), (ALIAS, b"")];
    refused(&lines, "idempotency_key_invalid").await;
    let lines: [(&str, &[u8]); 2] = [(KEY, b"\"\""), (ALIAS, b"b")];
    refused(&lines, "idempotency_key_invalid").await;
}

/// Recording: what was refused for its key may come again with a proper one.
#[tokio::test]
async fn a_request_refused_for_its_key_runs_with_a_proper_one() {
    let (user_id, call) = keyless();
    let bad = call.clone().header(KEY, "a b").send().await;
    bad.problem(400, "idempotency_key_invalid");
    call.key(&fresh("k")).send().await.first(201);
    assert_eq!(shop().balance(&user_id).await, 10);
}

/// Contract, Idempotency: reading needs no key and minds none.
#[tokio::test]
async fn a_get_takes_no_notice_of_a_key() {
    let shop = shop();
    let order_no = shop.payable(1).await;
    let key = fresh("k");
    let path = format!("/v1/orders/{order_no}");
    let before = shop.get(&path).key(&key).send().await.first(200);
    assert_eq!(before["status"], "pending");
    shop.pay(&order_no, &key, 1).await.first(200);
    let after = shop.get(&path).key(&key).send().await.first(200);
    assert_eq!(after["status"], "paid");
}
