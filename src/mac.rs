//! HMAC-SHA-256 (RFC 2104), which signs tokens, cached entries and events.

use hmac::{Hmac, KeyInit};
use sha2::Sha256;

/// A MAC under a key of any length.
pub(crate) fn mac(key: &[u8]) -> Hmac<Sha256> {
    <Hmac<Sha256> as KeyInit>::new_from_slice(key)
        .unwrap_or_else(|_| <Hmac<Sha256> as KeyInit>::new(&Default::default()))
}
