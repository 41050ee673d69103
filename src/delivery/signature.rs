//! Signatures as the Standard Webhooks specification has them (version 1.0, symmetric).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::Mac;

use crate::mac::mac;

/// The value of `webhook-signature`: one signature for each secret, so that a receiver can change its own
/// at any time between two of ours.
pub(super) fn sign(secrets: &[Vec<u8>], event_id: &str, seconds: i64, payload: &str) -> String {
    let signatures: Vec<_> = secrets
        .iter()
        .map(|secret| {
            let mut mac = mac(secret);
            mac.update(format!("{event_id}.{seconds}.{payload}").as_bytes());
            format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
        })
        .collect();
    signatures.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vector of the specification's reference libraries.
    #[test]
    fn a_signature_is_that_of_the_reference_libraries() {
        let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let (id, payload) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", r#"{"test": 2432232314}"#);
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(
            sign(std::slice::from_ref(&secret), id, 1_614_265_330, payload),
            expected
        );
        let two = sign(&[secret, vec![0; 24]], id, 1_614_265_330, payload);
        let (first, second) = two.split_once(' ').unwrap();
        assert_eq!(first, expected);
        assert!(second.starts_with("v1,") && second != expected);
    }
}
