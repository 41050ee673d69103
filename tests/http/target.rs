//! The deployment under test.

use std::sync::LazyLock;

use crate::support::client::Shop;
use crate::support::server::Server;
use crate::support::site::{ADMIN_KEY, KEY_A, KEY_B, Site};

struct Target {
    base: String,
    keys: [String; 2],
    /// The server that this process started, if it did. Its watchdog ends it with the process.
    _own: Option<(Site, Server)>,
}

static TARGET: LazyLock<Target> = LazyLock::new(|| match std::env::var("PAYONCE_URL") {
    Ok(base) => Target {
        base,
        keys: keys_from_env(),
        _own: None,
    },
    Err(_) => {
        let site = Site::new();
        let server = site.start();
        Target {
            base: server.base.clone(),
            keys: [KEY_A.to_owned(), KEY_B.to_owned()],
            _own: Some((site, server)),
        }
    }
});

/// The service as the first merchant sees it.
pub fn shop() -> Shop {
    Shop::new(&TARGET.base, &TARGET.keys[0])
}

/// The service as the second merchant sees it.
pub fn other_shop() -> Shop {
    Shop::new(&TARGET.base, &TARGET.keys[1])
}

/// The service as its operator sees it.
pub fn admin() -> Shop {
    Shop::new(&TARGET.base, &admin_key())
}

/// The key of the operator.
pub fn admin_key() -> String {
    match std::env::var("PAYONCE_URL") {
        Ok(_) => std::env::var("PAYONCE_ADMIN_KEY").expect("PAYONCE_ADMIN_KEY beside PAYONCE_URL"),
        Err(_) => ADMIN_KEY.to_owned(),
    }
}

/// The service as somebody without any key sees it.
pub fn stranger() -> Shop {
    Shop::new(&TARGET.base, "")
}

/// The API key of the first merchant.
pub fn api_key() -> &'static str {
    &TARGET.keys[0]
}

fn keys_from_env() -> [String; 2] {
    let pairs = std::env::var("PAYONCE_API_KEYS");
    let pairs = pairs.expect("PAYONCE_API_KEYS=merchant=key,merchant=key beside PAYONCE_URL");
    let key = |pair: &str| {
        let (_, key) = pair.trim().split_once('=').expect("merchant=key");
        key.to_owned()
    };
    let mut keys = pairs.split(',').map(key);
    let mut next = || keys.next().expect("the keys of two merchants");
    [next(), next()]
}
