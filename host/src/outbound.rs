//! Outgoing requests: only to the hosts the manifest allows. And the headers of incoming ones.

use std::sync::Arc;

use http::{HeaderValue, Request, header};
use http_body_util::BodyExt as _;
use wasmtime_wasi_http::{
    Error, ForbiddenHeaderFilter, RequestOptions, WasiBody, WasiHttpHooks, default_send_request,
};

use crate::allowed_hosts::AllowedHosts;
use crate::app::Network;

type Answer = (
    http::Response<WasiBody>,
    Box<dyn Future<Output = Result<(), Error>> + Send>,
);
type Sending = Box<dyn Future<Output = Result<Answer, Error>> + Send>;
type Received = Box<dyn Future<Output = Result<(), Error>> + Send>;

/// How requests come in: with all their headers, as in Spin. Wasmtime would keep `Host` and a few
/// others from the component.
pub(crate) struct Inbound;

impl WasiHttpHooks for Inbound {
    fn forbidden_header_filter(&mut self) -> ForbiddenHeaderFilter {
        Arc::new(|_| false)
    }

    fn send_request(
        &mut self,
        _: Request<WasiBody>,
        _: Option<RequestOptions>,
        _: Received,
    ) -> Sending {
        Box::new(async { Err(Error::HttpRequestDenied) })
    }
}

/// Sends an instance's requests.
pub(crate) struct Outbound {
    pub(crate) allowed: Arc<AllowedHosts>,
    pub(crate) network: Option<Network>,
}

impl WasiHttpHooks for Outbound {
    fn set_host_header(&mut self) -> bool {
        // Done below: a request that came in and is passed on has one already.
        false
    }

    fn send_request(
        &mut self,
        mut request: Request<WasiBody>,
        options: Option<RequestOptions>,
        // What becomes of the response in the component makes no difference here.
        _: Received,
    ) -> Sending {
        let url = request.uri().to_string();
        if !self.allowed.allow(&url) {
            eprintln!(
                "The component may not send a request to {url}: no pattern of \
                 allowed_outbound_hosts allows it."
            );
            return Box::new(async { Err(Error::HttpRequestDenied) });
        }
        let host = request
            .uri()
            .authority()
            .map(|host| HeaderValue::from_str(host.as_str()));
        let Some(Ok(host)) = host else {
            return Box::new(async { Err(Error::HttpRequestUriInvalid) });
        };
        request.headers_mut().insert(header::HOST, host);
        if let Some(network) = &self.network {
            let answer = network(request);
            return Box::new(async {
                let connection = Box::new(std::future::ready(Ok(())));
                Ok((answer.await?, connection as _))
            });
        }
        Box::new(async move {
            let (response, connection) = default_send_request(request, options).await?;
            Ok((
                response.map(|body| body.boxed_unsync()),
                Box::new(connection) as _,
            ))
        })
    }
}
