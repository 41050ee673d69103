//! A payment channel for tests and demonstrations: an HTTP server that charges and refunds as it is asked,
//! keeps a book of it, and loses answers as it is told.
//!
//! It speaks the `http` contract of `docs/channels.md` and as much of Stripe's API as payonce uses, and like
//! real channels it is idempotent by key and by nothing else: whoever asks twice without a key is charged
//! twice. Start reading at [`Channel`] and [`Fault`], or at
//! [`Desk`], which needs no network; `server.rs` plays the faults, `contract.rs` and
//! `stripe.rs` are the two surfaces on one [`Book`].

mod book;
mod contract;
mod control;
mod desk;
mod events;
mod request;
mod script;
mod server;
mod state;
mod stripe;

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, mpsc};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

pub use book::{Book, Charge, ChargeRequest, Outcome, Refund, RefundRequest};
pub use desk::Desk;
pub use events::{Event, Surface};
pub use script::{Call, Fault, Manner, Step};

use server::{Reachable, Shared, serve};
use state::State;

/// What a channel knows from the start.
#[derive(Clone, Debug)]
pub struct Config {
    /// What callers have to bring as bearer.
    pub key: String,
    /// `whsec_` and base64; signs the webhooks of both surfaces.
    pub webhook_secret: String,
    /// Webhooks are delivered as soon as something happens, and again until they are taken. Otherwise a test
    /// delivers what it wants to.
    pub webhooks_by_themselves: bool,
}

/// A running channel. Dropping it ends it.
pub struct Channel {
    shared: Arc<Shared>,
    address: SocketAddr,
    reachable: UnboundedSender<Reachable>,
}

impl Channel {
    /// Starts a channel, on a thread of its own.
    ///
    /// # Errors
    /// When the address cannot be listened on.
    pub fn start(listen: &str, config: Config) -> std::io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let shared = Arc::new(Shared::new(config, runtime.handle().clone()));
        let (reachable, changes) = unbounded_channel();
        let of_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            runtime.block_on(async {
                match tokio::net::TcpListener::from_std(listener) {
                    Ok(listener) => serve(of_thread, listener, changes).await,
                    Err(error) => eprintln!("payonce-channel: {error}"),
                }
            });
        });
        Ok(Self {
            shared,
            address,
            reachable,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL of the `http` contract, and of Stripe's API.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Appends to what becomes of the next calls of this kind.
    pub fn script<S: Into<Step>>(&self, call: Call, steps: impl IntoIterator<Item = S>) {
        let steps = steps.into_iter().map(Into::into);
        self.shared.state().script(call, steps);
    }

    /// What becomes of every call of this kind that no script is for.
    pub fn otherwise(&self, call: Call, step: impl Into<Step>) {
        self.shared.state().otherwise(call, step.into());
    }

    /// Lets every call that is held go on.
    pub fn release(&self) {
        self.shared.release();
    }

    /// How many calls of this kind came, lost ones among them.
    pub fn seen(&self, call: Call) -> usize {
        self.shared.state().seen(call)
    }

    /// A day passes: Stripe forgets the keys that it knows.
    pub fn forget_keys(&self) {
        self.shared.state().forget_keys();
    }

    pub fn book(&self) -> Book {
        self.shared.state().book.clone()
    }

    /// Changes how a charge stands, whatever it was: there is an event of it.
    ///
    /// # Panics
    /// When there is no such charge.
    pub fn settle_charge(&self, charge_id: &str, outcome: Outcome) {
        let settle = |state: &mut State| state.settle_charge(charge_id, outcome);
        let (settled, _) = self.shared.change(settle);
        assert!(settled, "there is no charge {charge_id}");
    }

    /// Changes how a refund stands, whatever it was: there is an event of it.
    ///
    /// # Panics
    /// When there is no such refund.
    pub fn settle_refund(&self, refund_id: &str, outcome: Outcome) {
        let settle = |state: &mut State| state.settle_refund(refund_id, outcome);
        let (settled, _) = self.shared.change(settle);
        assert!(settled, "there is no refund {refund_id}");
    }

    /// The events of an order, in the order in which things happened.
    pub fn events_of(&self, order_no: &str) -> Vec<Event> {
        let state = self.shared.state();
        let events = state.events.iter();
        events
            .filter(|event| event.order_no == order_no)
            .cloned()
            .collect()
    }

    /// Where webhooks go: the address of payonce.
    pub fn webhooks_to(&self, payonce: &str) {
        self.shared.state().payonce = Some(payonce.to_owned());
    }

    /// Delivers an event and returns the status of the answer; `None` when none came.
    pub async fn deliver(&self, event: &Event, manner: Manner) -> Option<u16> {
        self.shared.deliver(event, manner).await
    }

    /// Refuses connections from now on and ends those that are open.
    pub fn go_down(&self) {
        self.reach(false);
    }

    /// Can be reached again.
    pub fn come_back(&self) {
        self.reach(true);
    }

    fn reach(&self, whether: bool) {
        let (done, answer) = mpsc::sync_channel(1);
        let asked = self.reachable.send(Reachable(whether, done));
        assert!(asked.is_ok(), "the channel has ended");
        let answer = answer.recv().expect("the channel has ended");
        answer.expect("the port is taken");
    }
}
