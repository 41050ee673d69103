//! Outgoing requests: only to the hosts the manifest allows.

use http::Request;
use http_body_util::BodyExt as _;
use wasmtime_wasi_http::{
    Error, RequestOptions, WasiBody, WasiHttpHooks, default_send_request,
};

use std::sync::Arc;

use crate::allowed_hosts::AllowedHosts;

/// Sends an instance's requests.
pub(crate) struct Outbound(pub(crate) Arc<AllowedHosts>);

type Answer = (http::Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>);

impl WasiHttpHooks for Outbound {
    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        // What becomes of the response in the component makes no difference here.
        _: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Result<Answer, Error>> + Send> {
        let url = request.uri().to_string();
        if !self.0.allow(&url) {
            eprintln!(
                "The component may not send a request to {url}: no pattern of \
                 allowed_outbound_hosts allows it."
            );
            return Box::new(async { Err(Error::HttpRequestDenied) });
        }
        Box::new(async move {
            let (response, connection) = default_send_request(request, options).await?;
            Ok((response.map(|body| body.boxed_unsync()), Box::new(connection) as _))
        })
    }
}
