//! How a command becomes an operation: read a snapshot, decide, append one row.
//!
//! The decision is a pure function; the row it makes repeats what it was based on, so that the guards
//! in the database can check it again at the moment of the write (protocol: decide in Rust, arbitrate
//! in SQL).

use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    Activity, Amount, Answer, ChannelTerms, Code, Currency, Grant, Identifier, Order, OrderStatus,
    Payment, Problem, Profile, Timestamp,
};

/// What a client asks for, parsed.
pub trait Command: Send + Sync {
    /// The name of the operation, as in the journal: `order.pay`.
    fn operation(&self) -> &'static str;

    /// What to read before deciding.
    fn lookup(&self) -> Lookup<'_>;

    /// What the command changes, if it exists already: the order that it looks up, unless it says otherwise.
    /// Two commands with one subject are not decided on one snapshot.
    fn subject(&self) -> Option<String> {
        let order_no = self.lookup().order_no?;
        Some(format!("order/{}", order_no.as_str()))
    }

    /// Decides, without side effects.
    fn decide(&self, snapshot: &Snapshot, given: &Given) -> Decision;
}

/// The keys of the rows that a command wants to see. Without an order, the wallet is that of `user_id`
/// and `currency`, otherwise that of the order.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Lookup<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order_no: Option<&'a Identifier>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_no: Option<&'a Identifier>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refund_no: Option<&'a Identifier>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<&'a Identifier>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub currency: Option<Currency>,
    /// With `user_id` for the user's grant in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity_id: Option<&'a Identifier>,
    /// The user whose profile it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile_of: Option<&'a Identifier>,
}

/// What the database held when it was read.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub order: Option<Order>,
    /// The wallet's balance in minor units.
    pub balance: Option<i64>,
    /// The live payment of the order.
    pub live_payment: Option<Payment>,
    /// The payment that has the request number.
    pub request_no_payment: Option<Payment>,
    /// Whether a refund has the refund number.
    pub refund_no_used: bool,
    /// What refunds under way have reserved of the live payment, minor units.
    pub refunding: i64,
    pub activity: Option<Activity>,
    /// The user's grant in the activity.
    pub grant: Option<Grant>,
    pub profile: Option<Profile>,
}

impl Snapshot {
    /// The order, which the command needs.
    ///
    /// # Errors
    ///
    /// `order_not_found`.
    pub(super) fn order(&self, order_no: &Identifier) -> Result<&Order, Problem> {
        self.order.as_ref().ok_or_else(|| {
            let detail = format!("there is no order {}", order_no.as_str());
            Problem::new(Code::OrderNotFound, detail)
        })
    }

    /// The payment of the request number, which the command needs.
    ///
    /// # Errors
    ///
    /// `payment_not_found`.
    pub(super) fn request_no_payment(&self, request_no: &Identifier) -> Result<&Payment, Problem> {
        self.request_no_payment.as_ref().ok_or_else(|| {
            let detail = format!("there is no payment {}", request_no.as_str());
            Problem::new(Code::PaymentNotFound, detail)
        })
    }
}

/// Time and randomness of one attempt, and where payments may go.
#[derive(Clone, Copy, Debug)]
pub struct Given {
    pub now: Timestamp,
    /// For what the operation makes.
    pub subject: Uuid,
    /// For its event.
    pub event: Uuid,
    /// For the occurrence of a problem.
    pub instance: Uuid,
    /// The payment channel, if there is one beside the wallet.
    pub channel: Option<ChannelTerms>,
}

#[cfg(any(test, fuzzing))]
impl Given {
    /// The same every time, without a channel.
    pub fn fixed() -> Self {
        Self {
            now: Timestamp::from_millis(1_796_057_155_120),
            subject: Uuid::from_u128(1),
            event: Uuid::from_u128(2),
            instance: Uuid::from_u128(3),
            channel: None,
        }
    }
}

/// What to do about a command.
#[derive(Debug)]
pub enum Decision {
    /// Append this row: success or a final decline.
    Append(Box<Operation>),
    /// Answer this and record nothing: the corrected or later retry runs.
    Refuse(Problem),
}

impl From<Result<Operation, Problem>> for Decision {
    fn from(decided: Result<Operation, Problem>) -> Self {
        match decided {
            Ok(operation) => Self::Append(Box::new(operation)),
            Err(problem) => Self::Refuse(problem),
        }
    }
}

/// Whether an operation took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Applied,
    Declined,
}

/// A row of the operations journal, without the key of the request.
#[derive(Clone, Debug, Serialize)]
pub struct Operation {
    pub operation: &'static str,
    pub outcome: Outcome,
    pub order_no: Option<Identifier>,
    pub user_id: Option<Identifier>,
    pub from_status: Option<OrderStatus>,
    pub to_status: Option<OrderStatus>,
    /// The version of the order or profile after the operation.
    pub version: Option<i64>,
    pub amount: Option<Amount>,
    pub currency: Option<Currency>,
    /// The wallet's balance after the operation, where the answer shows it.
    pub balance: Option<i64>,
    /// The identifier of what the operation made.
    pub subject_id: Option<String>,
    /// The client's number for it.
    pub reference: Option<String>,
    /// What only this kind of operation has.
    pub details: Option<Value>,
    pub event_id: Option<String>,
    pub event_type: Option<&'static str>,
    pub answer: Answer,
    #[serde(serialize_with = "as_millis")]
    pub created_at: Timestamp,
}

fn as_millis<S: serde::Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_i64(time.as_millis())
}

impl Operation {
    /// An applied operation that answers `status` with `object` and emits an event of `event_type`
    /// with it. The command fills in the rest.
    pub(super) fn applied(
        operation: &'static str,
        given: &Given,
        status: u16,
        object: &impl Serialize,
        event_type: &'static str,
    ) -> Self {
        Self {
            event_id: Some(format!("evt_{}", given.event)),
            event_type: Some(event_type),
            ..Self::silent(operation, given, status, object)
        }
    }

    /// An applied operation that answers `status` with `object` and is of no interest to anybody else.
    pub(super) fn silent(
        operation: &'static str,
        given: &Given,
        status: u16,
        object: &impl Serialize,
    ) -> Self {
        let answer = Answer {
            status,
            location: None,
            // Derived from plain structs: this cannot fail.
            body: serde_json::to_string(object).unwrap_or_default(),
        };
        Self {
            details: Some(json!({ "attempt": given.instance })),
            ..Self::empty(operation, Outcome::Applied, given, answer)
        }
    }

    /// What the row of no other attempt has, also where the answers are equal. A decline has its own answer.
    pub fn mark(&self) -> Option<&str> {
        let detail = |pointer| self.details.as_ref()?.pointer(pointer)?.as_str();
        let event_id = self.event_id.as_deref();
        event_id
            .or_else(|| detail("/event/event_id"))
            .or_else(|| detail("/attempt"))
    }

    /// The first of two rows: `object` is what is under way, and the second row brings the answer.
    pub(super) fn under_way(
        operation: &'static str,
        given: &Given,
        object: &impl Serialize,
    ) -> Self {
        Self::silent(operation, given, Answer::UNDER_WAY, object)
    }

    /// A final decline. The command fills in what its guard checks.
    pub(super) fn declined(
        operation: &'static str,
        given: &Given,
        code: Code,
        detail: String,
    ) -> Self {
        let answer = Problem::new(code, detail).answer(given.instance);
        Self::empty(operation, Outcome::Declined, given, answer)
    }

    /// The operation emits an event of `event_type` that tells its consumers `data` instead of the answer. The
    /// trigger `apply_detailed_event` finds it in the details.
    pub(super) fn with_event(
        self,
        event_type: &'static str,
        given: &Given,
        data: &impl Serialize,
    ) -> Self {
        let event_id = format!("evt_{}", given.event);
        Self {
            event_type: Some(event_type),
            details: Some(json!({ "event": { "event_id": event_id, "data": data } })),
            ..self
        }
    }

    /// The operation takes an order from `before` to `after`.
    pub(super) fn moving(self, before: &Order, after: &Order) -> Self {
        Self {
            order_no: Some(after.order_no.clone()),
            user_id: Some(after.user_id.clone()),
            from_status: Some(before.status),
            to_status: Some(after.status),
            version: Some(after.version),
            ..self
        }
    }

    /// The operation is about an order and does not move it.
    pub(super) fn about(self, order: &Order) -> Self {
        Self {
            order_no: Some(order.order_no.clone()),
            user_id: Some(order.user_id.clone()),
            version: Some(order.version),
            ..self
        }
    }

    fn empty(operation: &'static str, outcome: Outcome, given: &Given, answer: Answer) -> Self {
        Self {
            operation,
            outcome,
            order_no: None,
            user_id: None,
            from_status: None,
            to_status: None,
            version: None,
            amount: None,
            currency: None,
            balance: None,
            subject_id: None,
            reference: None,
            details: None,
            event_id: None,
            event_type: None,
            answer,
            created_at: given.now,
        }
    }
}
