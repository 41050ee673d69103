//! The HTTP/1.1 server around a [`Handler`].

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};

use crate::handler::Handler;

/// Serves until `stop` is ready, then takes no new connections, lets requests finish, and lets the
/// component finish its work after them. Whatever is not done `grace` later is left behind.
///
/// Returns whether everything finished.
pub async fn serve(
    handler: Handler,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
    grace: Duration,
) -> bool {
    let connections = GracefulShutdown::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, client)) => serve_connection(&handler, stream, client, &connections),
                Err(error) => {
                    // Out of file descriptors, for example: better later than never.
                    eprintln!("Cannot accept a connection: {error}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
    drop(listener);
    handler.close();
    let finish = async {
        // Only when no request can come any more does no instance mean that everything is done.
        connections.shutdown().await;
        handler.closed().await;
    };
    tokio::time::timeout(grace, finish).await.is_ok()
}

fn serve_connection(
    handler: &Handler,
    stream: TcpStream,
    client: SocketAddr,
    connections: &GracefulShutdown,
) {
    // The head and the body of an answer are often two writes; without this the second one waits for
    // the client's acknowledgement of the first.
    if let Err(error) = stream.set_nodelay(true) {
        eprintln!("Cannot set TCP_NODELAY: {error}");
    }
    let handler = handler.clone();
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let handler = handler.clone();
        async move {
            let request = request.map(|body| body.map_err(Into::into).boxed_unsync());
            Ok::<_, Infallible>(handler.handle(request, client).await)
        }
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let connection = connections.watch(connection);
    // An error is the client's doing, or was reported already.
    tokio::spawn(async move { drop(connection.await) });
}
