//! The walk that `cargo xtask up` prints: a payment, its double tap and what came of it.

/// One `curl` a step, ready to paste. The keys are fixed: doing the walk again replays it.
pub fn walk(url: &str, key: &str) -> String {
    let post = |title: &str, path: &str, key_of_request: &str, body: &str| {
        format!(
            "# {title}\n\
             curl -i {url}{path} \\\n  \
             -H 'Authorization: Bearer {key}' \\\n  \
             -H 'Content-Type: application/json' \\\n  \
             -H 'Idempotency-Key: \"{key_of_request}\"' \\\n  \
             -d '{body}'\n"
        )
    };
    let get = |title: &str, path: &str| {
        format!("# {title}\ncurl -i {url}{path} \\\n  -H 'Authorization: Bearer {key}'\n")
    };
    let pay = ("/v1/orders/demo-1/pay", "demo-pay-1", r#"{"amount":2500}"#);
    [
        post(
            "1. Alice puts 100.00 into her wallet",
            "/v1/accounts/alice/deposits",
            "demo-deposit-1",
            r#"{"amount":10000,"currency":"USD"}"#,
        ),
        post(
            "2. she orders something for 25.00",
            "/v1/orders",
            "demo-order-1",
            r#"{"order_no":"demo-1","user_id":"alice","amount":2500,"currency":"USD"}"#,
        ),
        post("3. and pays", pay.0, pay.1, pay.2),
        post(
            "4. the double tap: the same answer, with `idempotent-replayed: true`",
            pay.0,
            pay.1,
            pay.2,
        ),
        get("5. the order is paid", "/v1/orders/demo-1"),
        get("6. and paid once: 75.00 are left", "/v1/accounts/alice"),
    ]
    .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_the_address_and_the_key() {
        let text = walk("http://127.0.0.1:3000", "sesame");
        assert_eq!(text.matches("curl -i http://127.0.0.1:3000/v1/").count(), 6);
        assert_eq!(text.matches("'Authorization: Bearer sesame'").count(), 6);
    }

    #[test]
    fn the_double_tap_is_the_payment_again() {
        let text = walk("http://x", "y");
        let steps: Vec<_> = text.split("\n\n").collect();
        let command = |step: &str| step.split_once('\n').unwrap().1.to_owned();
        assert_eq!(command(steps[2]), command(steps[3]));
    }
}
