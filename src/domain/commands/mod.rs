//! The commands, one file each and all of one shape: a struct that is the parsed request, and its
//! decision.

mod create_order;
mod deposit;
mod pay_order;

pub use create_order::CreateOrder;
pub use deposit::{Deposit, DepositMoney};
pub use pay_order::{PayOrder, PaymentMethod};

#[cfg(test)]
mod tests;
