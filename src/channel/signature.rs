//! Signatures of webhooks, over the raw body, compared in constant time. Several secrets may be valid at
//! once, while they are changed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::Mac;

use crate::domain::{Code, Problem, Timestamp};
use crate::mac::mac;

/// How far the time of an event may be from now, seconds.
const TOLERANCE_SECONDS: u64 = 300;

/// Checks the headers of the Standard Webhooks specification (version 1.0, symmetric):
/// `webhook-signature` is a list of `v1,<base64>` over `<id>.<timestamp>.<body>`.
pub(super) fn verify_standard(
    secrets: &[Vec<u8>],
    id: &str,
    timestamp: &str,
    signatures: &str,
    body: &[u8],
    now: Timestamp,
) -> Result<(), Problem> {
    check_time(timestamp, now)?;
    let signatures = signatures
        .split(' ')
        .filter_map(|signature| STANDARD.decode(signature.strip_prefix("v1,")?).ok());
    check(
        secrets,
        &[id.as_bytes(), b".", timestamp.as_bytes(), b".", body],
        signatures,
    )
}

/// Checks the header `Stripe-Signature`: `t=<timestamp>,v1=<hexadecimal>[,v1=…]` over `<timestamp>.<body>`.
pub(super) fn verify_stripe(
    secrets: &[Vec<u8>],
    header: &str,
    body: &[u8],
    now: Timestamp,
) -> Result<(), Problem> {
    let parts = || {
        header
            .split(',')
            .filter_map(|part| part.trim().split_once('='))
    };
    let timestamp = parts().find(|(name, _)| *name == "t");
    let (_, timestamp) = timestamp.ok_or_else(|| invalid("the signature has no time"))?;
    check_time(timestamp, now)?;
    let signatures = parts()
        .filter(|(name, _)| *name == "v1")
        .filter_map(|(_, signature)| from_hex(signature));
    check(secrets, &[timestamp.as_bytes(), b".", body], signatures)
}

fn check_time(timestamp: &str, now: Timestamp) -> Result<(), Problem> {
    let seconds: i64 = timestamp
        .parse()
        .map_err(|_| invalid("the time of the signature is no number"))?;
    let now = now.as_millis().div_euclid(1000);
    if seconds.abs_diff(now) <= TOLERANCE_SECONDS {
        Ok(())
    } else {
        Err(invalid(
            "the time of the signature is not within five minutes",
        ))
    }
}

fn check(
    secrets: &[Vec<u8>],
    signed: &[&[u8]],
    signatures: impl Iterator<Item = Vec<u8>>,
) -> Result<(), Problem> {
    let signatures: Vec<Vec<u8>> = signatures.collect();
    let is_of = |secret: &Vec<u8>| {
        // Once for all signatures: there is no limit to how many a stranger sends.
        let mut mac = mac(secret);
        signed.iter().for_each(|part| mac.update(part));
        let mut signatures = signatures.iter();
        signatures.any(|signature| mac.clone().verify_slice(signature).is_ok())
    };
    match secrets.iter().any(is_of) {
        true => Ok(()),
        false => Err(invalid("no configured secret made this signature")),
    }
}

/// The problem of a request that proves nothing.
pub(super) fn invalid(detail: &str) -> Problem {
    Problem::new(Code::SignatureInvalid, detail)
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    let bytes = digits.chunks_exact(2).map(|pair| {
        let value = pair.iter().fold(0, |value, digit| (value << 4) | digit);
        u8::try_from(value).unwrap_or(0)
    });
    Some(bytes.collect())
}

#[cfg(any(test, fuzzing))]
pub mod fuzz {
    use super::*;

    const SECRET: &[u8] = b"a secret of 24 bytes ...";
    pub(super) const NOW: i64 = 1_614_265_330;

    /// Any headers and body are heard if, and only if, the time is right and the true signature is there. They are
    /// three lines, `webhook-id`, `webhook-timestamp` and `webhook-signature`, the last of which is `Stripe-Signature`
    /// too, and the body after them.
    pub fn webhook_signature(bytes: &[u8]) {
        let mut parts = bytes.splitn(4, |byte| *byte == b'\n');
        let [id, time, header, body] = std::array::from_fn(|_| parts.next().unwrap_or_default());
        let [id, time, header] = [id, time, header].map(String::from_utf8_lossy);
        heard_as_standard_if_true(&id, &time, &header, body);
        heard_as_stripe_if_true(&header, body);
    }

    pub(super) fn heard_as_standard_if_true(id: &str, time: &str, signatures: &str, body: &[u8]) {
        let signed = standard(id, time, body);
        let is_there = signatures.split(' ').any(|signature| signature == signed);
        let fresh = is_fresh(time);
        assert_eq!(
            hears_standard(id, time, signatures, body),
            fresh && is_there
        );
        let completed = format!("{signatures} {signed}");
        assert_eq!(hears_standard(id, time, &completed, body), fresh);
    }

    pub(super) fn heard_as_stripe_if_true(header: &str, body: &[u8]) {
        let parts = || header.split(',').map(str::trim);
        let time = parts().find_map(|part| part.strip_prefix("t="));
        let fresh = time.is_some_and(is_fresh);
        let signed = hexadecimal(time.unwrap_or_default(), body);
        let mut signatures = parts().filter_map(|part| part.strip_prefix("v1="));
        let is_there = signatures.any(|signature| signature.eq_ignore_ascii_case(&signed));
        assert_eq!(hears_stripe(header, body), fresh && is_there);
        let completed = format!("{header},v1={signed}");
        assert_eq!(hears_stripe(&completed, body), fresh);
    }

    fn is_fresh(time: &str) -> bool {
        let seconds = time.parse::<i64>();
        seconds.is_ok_and(|seconds| (NOW - 300..=NOW + 300).contains(&seconds))
    }

    pub(super) fn standard(id: &str, time: &str, body: &[u8]) -> String {
        let tag = tag(&[id.as_bytes(), b".", time.as_bytes(), b".", body]);
        format!("v1,{}", STANDARD.encode(tag))
    }

    pub(super) fn hexadecimal(time: &str, body: &[u8]) -> String {
        let tag = tag(&[time.as_bytes(), b".", body]);
        tag.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn tag(parts: &[&[u8]]) -> Vec<u8> {
        let mut mac = mac(SECRET);
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes().to_vec()
    }

    pub(super) fn hears_standard(id: &str, time: &str, signatures: &str, body: &[u8]) -> bool {
        verify_standard(&[SECRET.to_vec()], id, time, signatures, body, at(NOW)).is_ok()
    }

    pub(super) fn hears_stripe(header: &str, body: &[u8]) -> bool {
        verify_stripe(&[SECRET.to_vec()], header, body, at(NOW)).is_ok()
    }

    pub(super) fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::fuzz::{NOW, at, hears_standard, hears_stripe, hexadecimal, standard};
    use super::*;
    use crate::hostile::{damaged, hostile, text};

    /// The test vector of the reference libraries of the Standard Webhooks specification.
    #[test]
    fn a_standard_signature_is_that_of_the_reference_libraries() {
        let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let good = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        let secrets = [vec![7; 24], secret];
        let verify = |signature: &str, body: &[u8], now| {
            let (id, time) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330");
            verify_standard(&secrets, id, time, signature, body, at(now)).is_ok()
        };
        let body = br#"{"test": 2432232314}"#;
        for now in [1_614_265_330, 1_614_265_030, 1_614_265_630] {
            assert!(verify(good, body, now));
            assert!(verify(&format!("v1,AAAA v2,x {good}"), body, now));
        }
        assert!(!verify(good, body, 1_614_265_631));
        assert!(!verify(good, body, 1_614_265_029));
        assert!(!verify(good, b"{}", 1_614_265_330));
        for bad in ["", "v1,", "v1,AAAA", good.strip_prefix("v1,").unwrap()] {
            assert!(!verify(bad, body, 1_614_265_330), "{bad}");
        }
    }

    #[test]
    fn a_stripe_signature_is_over_time_and_body() {
        let secrets = [b"whsec_old".to_vec(), b"whsec_test_secret".to_vec()];
        let body = br#"{"id":"evt_1"}"#;
        let mut mac = mac(b"whsec_test_secret");
        mac.update(b"1614265330.");
        mac.update(body);
        let hex: String = mac
            .finalize()
            .into_bytes()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let verify = |header: &str| verify_stripe(&secrets, header, body, at(1_614_265_400));
        assert!(verify(&format!("t=1614265330,v1={hex}")).is_ok());
        assert!(verify(&format!("t=1614265330,v1=00,v1={hex},v0=1")).is_ok());
        for bad in [
            String::new(),
            format!("v1={hex}"),
            format!("t=1614265331,v1={hex}"),
            format!("t=1614265330,v0={hex}"),
            format!("t=x,v1={hex}"),
            "t=1614265330,v1=zz".to_owned(),
        ] {
            let problem = verify(&bad).unwrap_err();
            assert_eq!(problem.code, Code::SignatureInvalid, "{bad}");
        }
    }

    fn stripe(time: &str, body: &[u8]) -> String {
        format!("t={time},v1={}", hexadecimal(time, body))
    }

    proptest! {
        #[test]
        fn any_event_of_the_channel_is_heard(
            id in text(), seconds in NOW - 300..=NOW + 300, body in vec(any::<u8>(), 0..300),
        ) {
            let time = seconds.to_string();
            prop_assert!(hears_standard(&id, &time, &standard(&id, &time, &body), &body));
            prop_assert!(hears_stripe(&stripe(&time, &body), &body));
        }

        #[test]
        fn a_damaged_body_is_not_heard((body, damaged) in damaged(vec(any::<u8>(), 0..100))) {
            let same = body == damaged;
            let time = NOW.to_string();
            let signature = standard("id", &time, &body);
            prop_assert_eq!(hears_standard("id", &time, &signature, &damaged), same);
            prop_assert_eq!(hears_stripe(&stripe(&time, &body), &damaged), same);
        }

        #[test]
        fn an_old_event_is_not_heard(seconds in any::<i64>(), body in vec(any::<u8>(), 0..20)) {
            let recent = seconds.abs_diff(NOW) <= TOLERANCE_SECONDS;
            let time = seconds.to_string();
            let signature = standard("id", &time, &body);
            prop_assert_eq!(hears_standard("id", &time, &signature, &body), recent);
            prop_assert_eq!(hears_stripe(&stripe(&time, &body), &body), recent);
        }

        #[test]
        fn a_hostile_signature_of_the_standard_is_not_heard_unless_it_holds_the_true_one(
            header in hostile(Just(standard("id", &NOW.to_string(), b"{}"))),
            time in hostile(Just(NOW.to_string())),
        ) {
            let header = String::from_utf8_lossy(&header);
            let time = String::from_utf8_lossy(&time);
            prop_assert!(!hears_standard("id", &time, &header, b"[]"));
            fuzz::heard_as_standard_if_true("id", &time, &header, b"{}");
        }

        #[test]
        fn a_hostile_signature_of_stripe_is_not_heard_unless_it_holds_the_true_one(
            header in hostile(Just(stripe(&NOW.to_string(), b"{}"))),
        ) {
            let header = String::from_utf8_lossy(&header);
            prop_assert!(!hears_stripe(&header, b"[]"));
            fuzz::heard_as_stripe_if_true(&header, b"{}");
        }
    }
}
