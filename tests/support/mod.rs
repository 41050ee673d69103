//! What the black-box suites share: a server of their own, a client that speaks the contract, and
//! checks of the shapes that the contract promises.
//!
//! Nothing here links to the component. It is seen through HTTP and, in the `faults` suite, through
//! the files of its data directory.
#![allow(
    dead_code,
    reason = "two test targets include this module and each uses a part"
)]

pub mod answer;
pub mod client;
pub mod document;
pub mod names;
pub mod oracle;
pub mod receiver;
pub mod seal;
pub mod server;
pub mod shapes;
pub mod site;
pub mod stores;
pub mod wait;
