//! The commands, one file each and all of one shape: a struct that is the parsed request, and its
//! decision.

mod cancel_order;
mod complete_order;
mod create_order;
mod deposit;
mod grant_coupon;
mod limit_coupon;
mod pay_order;
mod refund_order;
mod send_message;
mod ship_order;
mod update_profile;

pub use cancel_order::CancelOrder;
pub use complete_order::CompleteOrder;
pub use create_order::CreateOrder;
pub use deposit::{Deposit, DepositMoney};
pub use grant_coupon::GrantCoupon;
pub use limit_coupon::LimitCoupon;
pub use pay_order::{PayOrder, PaymentMethod};
pub use refund_order::RefundOrder;
pub use send_message::SendMessage;
pub use ship_order::ShipOrder;
pub use update_profile::UpdateProfile;

#[cfg(test)]
mod tests;
