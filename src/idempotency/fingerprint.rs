//! Fingerprints: whether two requests with one key are the same request.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// Hexadecimal SHA-256 over the canonical JSON (RFC 8785) of operation, path parameters and body. The
/// order of keys and white space do not matter.
pub fn fingerprint(
    operation: &str,
    path: &[&str],
    body: &Value,
) -> Result<String, serde_json::Error> {
    let canonical = serde_jcs::to_vec(&(operation, path, body))?;
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(canonical) {
        text.extend(
            [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16).unwrap_or('0')),
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(operation: &str, path: &[&str], body: &str) -> String {
        fingerprint(operation, path, &serde_json::from_str(body).unwrap()).unwrap()
    }

    /// R11.
    #[test]
    fn the_order_of_keys_and_white_space_do_not_matter() {
        let one = of("order.pay", &["o1"], r#"{"amount":1,"request_no":"r"}"#);
        assert_eq!(
            one,
            of(
                "order.pay",
                &["o1"],
                "{ \"request_no\": \"r\",\n\t\"amount\": 1 }"
            )
        );
        assert_eq!(one.len(), 64);
    }

    #[test]
    fn everything_else_matters() {
        let all = [
            of("order.pay", &["o1"], r#"{"amount":1}"#),
            of("order.pay", &["o2"], r#"{"amount":1}"#),
            of("order.pay", &[], r#"{"amount":1}"#),
            of("order.pay", &["o1"], r#"{"amount":2}"#),
            of("order.pay", &["o1"], r#"{"amount":1,"currency":"EUR"}"#),
            of("order.refund", &["o1"], r#"{"amount":1}"#),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(all.iter().skip(i + 1).all(|other| other != one), "{i}");
        }
    }
}
