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
mod return_payment;
mod send_message;
mod settle_payment;
mod settle_refund;
mod ship_order;
mod update_profile;

pub use cancel_order::CancelOrder;
pub use complete_order::CompleteOrder;
pub use create_order::CreateOrder;
pub use deposit::{Deposit, DepositMoney};
pub use grant_coupon::GrantCoupon;
pub use limit_coupon::LimitCoupon;
pub use pay_order::PayOrder;
pub use refund_order::RefundOrder;
pub use return_payment::ReturnPayment;
pub use send_message::SendMessage;
pub use settle_payment::SettlePayment;
pub use settle_refund::SettleRefund;
pub use ship_order::ShipOrder;
pub use update_profile::UpdateProfile;

#[cfg(test)]
mod tests;
