//! The checkout itself, without any input or output: what an order, a payment and a wallet are, and
//! what a command does to them. Time and identifiers come in as arguments, so every decision can be
//! repeated and tested natively. Nothing here imports from the rest of the crate.

mod answer;
mod channel;
pub mod commands;
mod coupon;
mod horizon;
mod identifier;
mod message;
mod money;
mod operation;
mod order;
mod payment;
mod problem;
mod profile;
mod refund;
mod time;

pub use answer::Answer;
pub use channel::{CallKind, ChannelCall, ChannelTerms, DeclineCode, PaymentMethod, Settlement};
pub use coupon::{Activity, Grant, GrantLimit};
pub use horizon::Horizon;
pub use identifier::{Identifier, PlainText};
pub use message::{Message, MessageKind, MessageStatus, MessageText, Recipient};
pub use money::{Amount, Currency, MAX_AMOUNT};
pub use operation::{Command, Decision, Given, Lookup, Operation, Outcome, Snapshot};
pub use order::{Metadata, Order, OrderEvent, OrderStatus};
pub use payment::{Payment, PaymentStatus};
pub use problem::{Code, FieldError, Problem};
pub use profile::{Profile, ProfilePatch};
pub use refund::{Refund, RefundStatus};
pub use time::Timestamp;
