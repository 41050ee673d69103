//! Requests to other services: one attempt, within its time, with as much of the answer as is wanted.

use std::pin::pin;

use futures::future::{Either, select};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Limited};
use spin_sdk::wasip3::http::types::RequestOptions;
use spin_sdk::wasip3::http_compat::RequestOptionsExtension;

use crate::runtime;

/// Sends a request and reads the answer, its body up to `limit` bytes; of 0 it is not read.
///
/// # Errors
///
/// A short text for the operator. Whether the other side has acted is unknown then.
pub(crate) async fn exchange(
    mut request: Request<String>,
    timeout_ms: u64,
    limit: usize,
) -> Result<(StatusCode, Vec<u8>), String> {
    request.extensions_mut().insert(options(timeout_ms));
    let answer = pin!(async {
        let answer = spin_sdk::http::send(request)
            .await
            .map_err(|error| error.to_string())?;
        let (head, body) = answer.into_parts();
        let body = match limit {
            0 => Vec::new(),
            limit => {
                let body = Limited::new(body, limit).collect().await;
                let body = body.map_err(|error| format!("the answer broke off: {error}"))?;
                body.to_bytes().to_vec()
            }
        };
        Ok((head.status, body))
    });
    // The options above are the host's to keep; this one is ours.
    let patience = pin!(runtime::sleep_millis(timeout_ms));
    match select(answer, patience).await {
        Either::Left((answer, _)) => answer,
        Either::Right(_) => Err(format!("no answer within {timeout_ms} ms")),
    }
}

fn options(timeout_ms: u64) -> RequestOptionsExtension {
    let nanos = Some(timeout_ms.saturating_mul(1_000_000));
    let options = RequestOptions::new();
    // A host may know none of them.
    _ = options.set_connect_timeout(nanos);
    _ = options.set_first_byte_timeout(nanos);
    _ = options.set_between_bytes_timeout(nanos);
    RequestOptionsExtension(options)
}
