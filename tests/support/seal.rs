//! The seal of an entry in the key-value store, made from its description in docs/security.md.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The record in an entry of ours.
pub fn record(entry: &[u8]) -> Option<&[u8]> {
    entry.splitn(3, |byte| *byte == b'.').nth(2)
}

/// The entry that holds a record under a name, sealed with a secret.
pub fn sealed(secret: &str, name: &str, record: &[u8]) -> Vec<u8> {
    let key = hmac(secret.as_bytes(), &[b"payonce key of the seal 1"]);
    let tag = hmac(&key, &[b"2\0", name.as_bytes(), b"\0", record]);
    let head = format!("2.{}.", URL_SAFE_NO_PAD.encode(tag));
    [head.as_bytes(), record].concat()
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).expect("keys of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}
