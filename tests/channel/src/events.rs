//! The webhooks of the channel, as the two surfaces sign them.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use reqwest::header::CONTENT_TYPE;
use serde::Serialize;
use serde_json::Value;
use sha2::Sha256;

use crate::script::Manner;

/// Beyond any tolerance of a receiver.
const TEN_MINUTES: u64 = 600;

/// Which protocol a call came by, and its events go by.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Surface {
    /// The contract of `docs/channels.md`.
    Http,
    /// As much of Stripe's API as payonce uses.
    Stripe,
}

impl Surface {
    /// As payonce names its channels.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Stripe => "stripe",
        }
    }
}

/// Something that happened, as it is told to payonce: the same bytes with each delivery.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    pub id: String,
    pub surface: Surface,
    /// The order that it is about, for whoever looks for an event.
    pub order_no: String,
    pub body: Value,
}

impl Event {
    /// Delivers the event to payonce and returns the status of the answer.
    ///
    /// # Errors
    /// When no answer comes.
    pub async fn deliver(
        &self,
        payonce: &str,
        secret: &str,
        manner: Manner,
    ) -> reqwest::Result<u16> {
        let seconds = match manner {
            Manner::Stale => now().saturating_sub(TEN_MINUTES),
            Manner::Early => now() + TEN_MINUTES,
            _ => now(),
        };
        let forged = format!("whsec_{}", STANDARD.encode([0x5a; 32]));
        let secret = match manner {
            Manner::Forged => &forged,
            _ => secret,
        };
        let payload = self.body.to_string();
        let url = format!(
            "{}/v1/webhooks/{}",
            payonce.trim_end_matches('/'),
            self.surface.name()
        );
        // No connection is kept: deliveries come from several runtimes.
        let client = reqwest::Client::builder()
            .no_proxy()
            .pool_max_idle_per_host(0)
            .build()?;
        let mut request = client.post(url).header(CONTENT_TYPE, "application/json");
        for (name, value) in self.headers(secret, seconds, &payload) {
            let signature = name.ends_with("ignature");
            if !(signature && manner == Manner::Unsigned) {
                request = request.header(name, value);
            }
        }
        let sent = match manner {
            Manner::Altered => payload.replacen('{', "{ ", 1),
            _ => payload,
        };
        let answer = request.body(sent).send().await?;
        Ok(answer.status().as_u16())
    }

    /// The headers that sign its body now.
    pub fn signed(&self, secret: &str) -> Vec<(&'static str, String)> {
        self.headers(secret, now(), &self.body.to_string())
    }

    /// The headers that sign a payload, sent at a time in seconds.
    pub fn headers(
        &self,
        secret: &str,
        seconds: u64,
        payload: &str,
    ) -> Vec<(&'static str, String)> {
        match self.surface {
            Surface::Http => {
                let key = secret.strip_prefix("whsec_").unwrap_or(secret);
                let key = STANDARD.decode(key).unwrap_or_default();
                let mac = mac(&key, &format!("{}.{seconds}.{payload}", self.id));
                vec![
                    ("webhook-id", self.id.clone()),
                    ("webhook-timestamp", seconds.to_string()),
                    ("webhook-signature", format!("v1,{}", STANDARD.encode(mac))),
                ]
            }
            Surface::Stripe => {
                let mac = mac(secret.as_bytes(), &format!("{seconds}.{payload}"));
                let mut digits = String::new();
                for byte in mac {
                    write!(digits, "{byte:02x}").ok();
                }
                vec![("Stripe-Signature", format!("t={seconds},v1={digits}"))]
            }
        }
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs())
}

fn mac(key: &[u8], signed: &str) -> Vec<u8> {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key)
        .unwrap_or_else(|_| <Hmac<Sha256> as KeyInit>::new(&Default::default()));
    mac.update(signed.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(surface: Surface, id: &str) -> Event {
        Event {
            id: id.to_owned(),
            surface,
            order_no: String::new(),
            body: json!({}),
        }
    }

    /// The test vector of the Standard Webhooks libraries.
    #[test]
    fn an_event_of_the_contract_is_signed_as_standard_webhooks_are() {
        let event = event(Surface::Http, "msg_p5jXN8AQM9LWM0D4loKWxJek");
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let headers = event.headers(secret, 1_614_265_330, r#"{"test": 2432232314}"#);
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(headers[2], ("webhook-signature", expected.to_owned()));
    }

    /// HMAC-SHA256 of `t.payload` under the whole secret, prefix and all, in hexadecimal digits.
    #[test]
    fn an_event_of_stripe_is_signed_as_stripe_signs() {
        let headers = event(Surface::Stripe, "evt_1").headers("whsec_test_secret", 1, "{}");
        let (name, value) = &headers[0];
        assert_eq!(*name, "Stripe-Signature");
        let digits = value.strip_prefix("t=1,v1=").unwrap();
        let expected = "5bf3deb7e4bfc9899b179a53c4675ef3ab9ca8c5cd0df9e0ed182c5d798cfbb2";
        assert_eq!(digits, expected);
    }
}
