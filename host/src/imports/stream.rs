//! A stream to the component that is fed from a channel.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::sync::mpsc;
use wasmtime::StoreContextMut;
use wasmtime::component::{Destination, StreamProducer, StreamResult};

/// Hands out what arrives, one item a read, until the channel's sender is dropped.
pub(super) struct FromChannel<T>(pub(super) mpsc::Receiver<T>);

impl<D, T: Send + Sync + 'static> StreamProducer<D> for FromChannel<T> {
    type Item = T;
    type Buffer = Option<T>;

    fn poll_produce<'a>(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        store: StoreContextMut<'a, D>,
        mut destination: Destination<'a, T, Option<T>>,
        finish: bool,
    ) -> Poll<wasmtime::Result<StreamResult>> {
        // A read of no items only asks whether the stream is ready.
        if destination.remaining(store) == Some(0) {
            return Poll::Ready(Ok(StreamResult::Completed));
        }
        let poll = self.get_mut().0.poll_recv(context);
        if finish && poll.is_pending() {
            return Poll::Ready(Ok(StreamResult::Cancelled));
        }
        Poll::Ready(Ok(match ready!(poll) {
            None => StreamResult::Dropped,
            item => {
                destination.set_buffer(item);
                StreamResult::Completed
            }
        }))
    }
}
