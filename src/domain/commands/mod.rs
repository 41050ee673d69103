//! The commands, one file each and all of one shape: a struct that is the parsed request, and its
//! decision.

mod cancel_order;
mod complete_order;
mod create_order;
mod deposit;
mod pay_order;
mod refund_order;
mod ship_order;

pub use cancel_order::CancelOrder;
pub use complete_order::CompleteOrder;
pub use create_order::CreateOrder;
pub use deposit::{Deposit, DepositMoney};
pub use pay_order::{PayOrder, PaymentMethod};
pub use refund_order::RefundOrder;
pub use ship_order::ShipOrder;

use super::Identifier;

/// The subject of the commands that change an order.
fn order_subject(order_no: &Identifier) -> String {
    format!("order/{}", order_no.as_str())
}

#[cfg(test)]
mod tests;
