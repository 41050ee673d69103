//! Payments through an outside channel, which loses answers on request (`payonce-channel`): whatever is lost
//! on the way, there is one charge and one final answer, and the channel's book is ours.

mod charges;
mod clocks;
mod crashes;
mod reconcilers;
mod refunds;
mod tampering;
mod till;
mod webhooks;
