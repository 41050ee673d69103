//! Problem details and the pages that explain them.

use serde_json::json;

use crate::support::names::fresh;
use crate::support::shapes::CODES;
use crate::target::{shop, stranger};

/// Contract, Conventions: `type` is a page that this service serves.
#[tokio::test]
async fn every_code_has_a_page_that_is_open_to_all_and_names_it() {
    for code in CODES {
        let path = format!("/problems/{code}");
        let page = stranger().get(&path).send().await;
        page.status(200);
        assert!(page.text().contains(code), "{path}: {}", page.text());
        assert!(
            page.text().len() > code.len() + 50,
            "{path} explains nothing"
        );
        assert!(page.header("content-type").is_some());
    }
}

/// Contract, Error codes: `not_found`, for pages too.
#[tokio::test]
async fn a_code_that_does_not_exist_has_no_page() {
    for code in ["nonsense", "NOT_FOUND", "%3Cscript%3E", "not_found%00"] {
        let path = format!("/problems/{code}");
        let answer = stranger().get(&path).send().await;
        answer.problem(404, "not_found");
        assert!(!answer.text().contains("<script>"));
    }
}

/// Contract, Conventions: `instance` names one occurrence; `type` can be followed.
#[tokio::test]
async fn every_occurrence_has_its_own_name_and_a_type_to_follow() {
    let shop = shop();
    let path = format!("/v1/orders/{}", fresh("nowhere"));
    let first = shop.get(&path).send().await;
    let second = shop.get(&path).send().await;
    let (first, second) = (
        first.problem(404, "order_not_found"),
        second.problem(404, "order_not_found"),
    );
    assert_ne!(first["instance"], second["instance"]);
    let page = stranger().get(first["type"].as_str().unwrap()).send().await;
    page.status(200);
}

/// Contract, Conventions: several wrong fields, or at least the first, are pointed at.
#[tokio::test]
async fn a_wrong_field_is_pointed_at() {
    let shop = shop();
    let body = json!({"user_id": "u", "amount": 0, "currency": "EUR"});
    let call = shop.command("/v1/orders", &fresh("k"), &body);
    let problem = call.send().await.body_invalid("amount");
    let errors = problem["errors"].as_array().expect("errors");
    let pointed = errors
        .iter()
        .any(|error| error["pointer"].as_str().unwrap().ends_with("/amount"));
    assert!(pointed, "{problem}");
}

/// Contract, Conventions: what a client sent comes back in no answer as markup or header.
#[tokio::test]
async fn an_answer_repeats_no_secret_of_the_request() {
    let shop = shop();
    let token = shop.token().await;
    let call = shop.post("/v1/orders").header("submit-token", &token);
    let body = json!({"user_id": "u", "amount": "secret-amount-1", "currency": "EUR"});
    let answer = call.json(&body).send().await;
    answer.problem(400, "body_invalid");
    assert!(!answer.text().contains(&token));
    assert!(!answer.text().contains(crate::target::api_key()));
}
