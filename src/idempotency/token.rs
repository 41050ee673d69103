//! Submit tokens: keys that this service hands out, signed and not stored.
//!
//! A token is base64url of `identifier (16 bytes) | expiry (8 bytes, seconds, big endian) | MAC`, where
//! the MAC is HMAC-SHA-256 over the merchant, identifier and expiry. Issuing writes nothing; redeeming
//! is an operation under the key that the identifier names (invariant 13).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use uuid::Uuid;

use crate::domain::{Identifier, Timestamp};
use crate::mac::mac;

/// A token whose MAC is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmitToken {
    pub id: Uuid,
    /// From when on it may not redeem; it may have done so before.
    pub expires_at: Timestamp,
}

/// The token was not issued by this service for this merchant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the token was not issued for this merchant")]
pub struct TokenError;

const ID: usize = 16;
const PAYLOAD: usize = ID + 8;

impl SubmitToken {
    /// Issues a token to `merchant`, valid until `expires_at` (whole seconds).
    pub fn issue(secret: &[u8], merchant: &Identifier, id: Uuid, expires_at: Timestamp) -> String {
        let seconds = expires_at.as_millis().div_euclid(1000);
        let mut token = Vec::with_capacity(PAYLOAD + 32);
        token.extend_from_slice(id.as_bytes());
        token.extend_from_slice(&seconds.to_be_bytes());
        let tag = over(secret, merchant, &token).finalize().into_bytes();
        token.extend_from_slice(&tag);
        URL_SAFE_NO_PAD.encode(token)
    }

    /// Checks a token that `merchant` presents. An expired one is no error: it may have redeemed.
    pub fn verify(
        secrets: &[Vec<u8>],
        merchant: &Identifier,
        token: &str,
    ) -> Result<Self, TokenError> {
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| TokenError)?;
        let (payload, tag) = bytes.split_at_checked(PAYLOAD).ok_or(TokenError)?;
        let signed = |secret: &Vec<u8>| over(secret, merchant, payload).verify_slice(tag).is_ok();
        if !secrets.iter().any(signed) {
            return Err(TokenError);
        }
        let (id, seconds) = payload.split_at_checked(ID).ok_or(TokenError)?;
        let seconds = i64::from_be_bytes(seconds.try_into().map_err(|_| TokenError)?);
        Ok(Self {
            id: Uuid::from_slice(id).map_err(|_| TokenError)?,
            expires_at: Timestamp::from_millis(seconds.saturating_mul(1000)),
        })
    }
}

fn over(secret: &[u8], merchant: &Identifier, payload: &[u8]) -> Hmac<Sha256> {
    let mut mac = mac(secret);
    mac.update(b"payonce submit token 1\0");
    mac.update(merchant.as_str().as_bytes());
    mac.update(b"\0");
    mac.update(payload);
    mac
}

#[cfg(any(test, fuzzing))]
pub mod fuzz {
    use super::*;

    /// Any bytes are a token as it was issued, or refused; and under a MAC that is right only what has the length
    /// of a payload is a token, and says what the payload says.
    pub fn token(bytes: &[u8]) {
        let secret = b"secret".to_vec();
        let merchant = Identifier::try_from("shop".to_owned()).expect("an identifier");
        let issue = |token: &SubmitToken| {
            SubmitToken::issue(&secret, &merchant, token.id, token.expires_at)
        };
        let verify =
            |text: &str| SubmitToken::verify(std::slice::from_ref(&secret), &merchant, text);

        let presented = String::from_utf8_lossy(bytes);
        if let Ok(token) = verify(&presented) {
            assert_eq!(issue(&token), presented);
        }
        let tag = over(&secret, &merchant, bytes).finalize().into_bytes();
        let signed = URL_SAFE_NO_PAD.encode([bytes, tag.as_slice()].concat());
        let verified = verify(&signed);
        assert_eq!(verified.is_ok(), bytes.len() == PAYLOAD);
        if let Ok(token) = verified {
            let (id, seconds) = bytes.split_at(ID);
            assert_eq!(token.id.as_bytes(), id);
            // Nothing is issued for a time that no clock of ours says.
            let seconds = i64::from_be_bytes(seconds.try_into().expect("eight bytes"));
            let issuable = seconds.checked_mul(1000) == Some(token.expires_at.as_millis());
            assert!(!issuable || issue(&token) == signed);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::hostile::{damaged, hostile, identifier};

    fn merchant(name: &str) -> Identifier {
        name.to_owned().try_into().unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn verified(secrets: &[&str], name: &str, token: &str) -> Result<SubmitToken, TokenError> {
        let secrets: Vec<_> = secrets
            .iter()
            .map(|text| text.as_bytes().to_vec())
            .collect();
        SubmitToken::verify(&secrets, &merchant(name), token)
    }

    #[test]
    fn a_token_of_either_secret_is_good_while_they_change() {
        let token = SubmitToken::issue(b"old", &merchant("shop"), Uuid::from_u128(7), at(100));
        assert!(verified(&["new", "old"], "shop", &token).is_ok());
        assert_eq!(verified(&["new"], "shop", &token), Err(TokenError));
        assert_eq!(verified(&[], "shop", &token), Err(TokenError));
    }

    #[test]
    fn a_token_is_good_for_its_merchant_only() {
        let id = Uuid::from_u128(7);
        let token = SubmitToken::issue(b"secret", &merchant("shop"), id, at(100));
        let verify = |secret, name| verified(&[secret], name, &token);
        assert_eq!(
            verify("secret", "shop"),
            Ok(SubmitToken {
                id,
                expires_at: at(100)
            })
        );
        assert_eq!(verify("secret", "other"), Err(TokenError));
        assert_eq!(verify("Secret", "shop"), Err(TokenError));
    }

    #[test]
    fn no_changed_byte_passes() {
        let token = SubmitToken::issue(b"secret", &merchant("shop"), Uuid::from_u128(7), at(100));
        let bytes = URL_SAFE_NO_PAD.decode(&token).unwrap();
        for index in 0..bytes.len() {
            let mut forged = bytes.clone();
            forged[index] ^= 1;
            let forged = URL_SAFE_NO_PAD.encode(forged);
            assert_eq!(verified(&["secret"], "shop", &forged), Err(TokenError));
        }
        for length in 0..token.len() {
            let cut = &token[..length];
            assert_eq!(verified(&["secret"], "shop", cut), Err(TokenError));
        }
    }

    proptest! {
        #[test]
        fn a_token_says_what_it_was_issued_with(
            secret in vec(any::<u8>(), 0..100),
            merchant in identifier(),
            id in any::<u128>(),
            seconds in -9_000_000_000_000i64..9_000_000_000_000,
        ) {
            let id = Uuid::from_u128(id);
            let token = SubmitToken::issue(&secret, &merchant, id, at(seconds));
            let expected = SubmitToken { id, expires_at: at(seconds) };
            prop_assert_eq!(SubmitToken::verify(&[secret], &merchant, &token), Ok(expected));
        }

        #[test]
        fn a_damaged_token_is_refused((token, damaged) in damaged(token())) {
            let presented = String::from_utf8_lossy(&damaged);
            let same = presented == token;
            prop_assert_eq!(verified(&["secret"], "shop", &presented).is_ok(), same);
        }

        #[test]
        fn a_hostile_token_is_as_it_was_issued_or_refused(bytes in hostile(token())) {
            fuzz::token(&bytes);
        }
    }

    fn token() -> impl Strategy<Value = String> {
        any::<(u128, i64)>().prop_map(|(id, millis)| {
            let expires_at = Timestamp::from_millis(millis);
            SubmitToken::issue(
                b"secret",
                &merchant("shop"),
                Uuid::from_u128(id),
                expires_at,
            )
        })
    }
}
