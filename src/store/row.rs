//! Reads the columns of a row one after another.

use spin_sdk::sqlite::{RowResult, Value};

use super::{DatabaseError, Recorded};
use crate::domain::{
    Activity, Amount, Answer, Currency, Grant, Identifier, Order, OrderStatus, Payment,
    PaymentStatus, Profile, Refund, RefundStatus, Timestamp,
};

/// A cursor over the columns of a row. A column of the wrong type is an error: the database holds
/// something that this component did not write.
pub(super) struct Row<'a>(std::slice::Iter<'a, Value>);

/// The columns of an order, in the order in which [`Row::order`] reads them.
pub(super) const ORDER_COLUMNS: &str = "o.order_no, o.user_id, o.amount, o.currency, o.status, \
     o.refunded_amount, o.version, o.metadata, o.created_at, o.updated_at";

/// The columns of a refund, in the order in which [`Row::refund`] reads them.
pub(super) const REFUND_COLUMNS: &str = "r.refund_id, r.order_no, r.payment_id, r.refund_no, \
     r.amount, r.currency, r.status, r.reason, r.created_at";

/// The columns of an activity, a grant and a profile, in the order in which [`Row`] reads them.
pub(super) const ACTIVITY_COLUMNS: &str = "c.activity_id, c.grant_limit, c.granted";
pub(super) const GRANT_COLUMNS: &str = "g.grant_id, g.activity_id, g.user_id, g.created_at";
pub(super) const PROFILE_COLUMNS: &str = "p.user_id, p.fields, p.version, p.updated_at";

/// The columns of an operation, in the order in which [`Row::recorded`] reads them. The second is
/// [`crate::domain::Operation::mark`].
pub(super) const RECORDED_COLUMNS: &str = "op.fingerprint, \
    coalesce(op.event_id, op.details ->> '$.event.event_id', op.details ->> '$.attempt'), \
    op.response_status, op.response_location, op.response_body";

/// The columns of a payment of the table `alias`, in the order in which [`Row::payment`] reads them.
pub(super) fn payment_columns(alias: &str) -> String {
    const COLUMNS: [&str; 10] = [
        "payment_id",
        "order_no",
        "request_no",
        "channel",
        "amount",
        "currency",
        "status",
        "failure_code",
        "created_at",
        "updated_at",
    ];
    // Only who has a payment under way needs it.
    format!(
        "{}, (SELECT c.client_secret FROM channel_calls AS c \
              WHERE c.subject_id = {alias}.payment_id AND c.settled_at IS NULL)",
        COLUMNS.map(|column| format!("{alias}.{column}")).join(", ")
    )
}

impl<'a> Row<'a> {
    pub(super) fn new(row: &'a RowResult) -> Self {
        Self(row.values.iter())
    }

    /// The row of a statement that always finds one.
    pub(super) fn only(rows: &'a [RowResult]) -> Result<Self, DatabaseError> {
        rows.first().map(Self::new).ok_or_else(unexpected)
    }

    pub(super) fn text(&mut self) -> Result<String, DatabaseError> {
        self.optional_text()?.ok_or_else(unexpected)
    }

    pub(super) fn optional_text(&mut self) -> Result<Option<String>, DatabaseError> {
        match self.0.next() {
            Some(Value::Text(text)) => Ok(Some(text.clone())),
            Some(Value::Null) => Ok(None),
            _ => Err(unexpected()),
        }
    }

    pub(super) fn integer(&mut self) -> Result<i64, DatabaseError> {
        self.optional_integer()?.ok_or_else(unexpected)
    }

    pub(super) fn optional_integer(&mut self) -> Result<Option<i64>, DatabaseError> {
        match self.0.next() {
            Some(Value::Integer(number)) => Ok(Some(*number)),
            Some(Value::Null) => Ok(None),
            _ => Err(unexpected()),
        }
    }

    pub(super) fn time(&mut self) -> Result<Timestamp, DatabaseError> {
        self.integer().map(Timestamp::from_millis)
    }

    pub(super) fn optional_time(&mut self) -> Result<Option<Timestamp>, DatabaseError> {
        Ok(self.optional_integer()?.map(Timestamp::from_millis))
    }

    pub(super) fn identifier(&mut self) -> Result<Identifier, DatabaseError> {
        identifier(self.text()?)
    }

    pub(super) fn amount(&mut self) -> Result<Amount, DatabaseError> {
        self.integer()?.try_into().map_err(|_| unexpected())
    }

    pub(super) fn currency(&mut self) -> Result<Currency, DatabaseError> {
        self.text()?.try_into().map_err(|_| unexpected())
    }

    /// The fingerprint, mark and answer of an operation in the next columns, or `None` where a left join found
    /// none.
    pub(super) fn recorded(&mut self) -> Result<Option<Recorded>, DatabaseError> {
        let Some(fingerprint) = self.present(5)? else {
            return Ok(None);
        };
        let mark = self.optional_text()?;
        let answer = Answer {
            status: self.integer()?.try_into().map_err(|_| unexpected())?,
            location: self.optional_text()?,
            body: self.text()?,
        };
        Ok(Some(Recorded {
            fingerprint,
            mark,
            answer,
        }))
    }

    /// The order in the next columns, or `None` where a left join found none.
    pub(super) fn order(&mut self) -> Result<Option<Order>, DatabaseError> {
        let Some(order_no) = self.present(10)? else {
            return Ok(None);
        };
        Ok(Some(Order {
            order_no: identifier(order_no)?,
            user_id: identifier(self.text()?)?,
            amount: self.integer()?.try_into().map_err(|_| unexpected())?,
            currency: self.text()?.try_into().map_err(|_| unexpected())?,
            status: OrderStatus::from_name(&self.text()?).ok_or_else(unexpected)?,
            refunded_amount: self.integer()?,
            version: self.integer()?,
            metadata: serde_json::from_str(&self.text()?).map_err(|_| unexpected())?,
            created_at: self.time()?,
            updated_at: self.time()?,
        }))
    }

    /// The payment in the next columns, or `None` where a left join found none.
    pub(super) fn payment(&mut self) -> Result<Option<Payment>, DatabaseError> {
        let Some(payment_id) = self.present(11)? else {
            return Ok(None);
        };
        Ok(Some(Payment {
            payment_id,
            order_no: identifier(self.text()?)?,
            request_no: identifier(self.text()?)?,
            channel: self.text()?,
            amount: self.integer()?.try_into().map_err(|_| unexpected())?,
            currency: self.text()?.try_into().map_err(|_| unexpected())?,
            status: PaymentStatus::from_name(&self.text()?).ok_or_else(unexpected)?,
            failure_code: self.optional_text()?,
            created_at: self.time()?,
            updated_at: self.time()?,
            client_secret: self.optional_text()?,
        }))
    }

    /// The refund in the next columns.
    pub(super) fn refund(&mut self) -> Result<Refund, DatabaseError> {
        Ok(Refund {
            refund_id: self.text()?,
            order_no: identifier(self.text()?)?,
            payment_id: self.text()?,
            refund_no: identifier(self.text()?)?,
            amount: self.integer()?.try_into().map_err(|_| unexpected())?,
            currency: self.text()?.try_into().map_err(|_| unexpected())?,
            status: RefundStatus::from_name(&self.text()?).ok_or_else(unexpected)?,
            reason: self
                .optional_text()?
                .map(|reason| reason.try_into().map_err(|_| unexpected()))
                .transpose()?,
            created_at: self.time()?,
        })
    }

    /// The activity in the next columns, or `None` where a left join found none.
    pub(super) fn activity(&mut self) -> Result<Option<Activity>, DatabaseError> {
        let Some(activity_id) = self.present(3)? else {
            return Ok(None);
        };
        Ok(Some(Activity {
            activity_id: identifier(activity_id)?,
            limit: self
                .optional_integer()?
                .map(|limit| limit.try_into().map_err(|_| unexpected()))
                .transpose()?,
            granted: self.integer()?,
        }))
    }

    /// The grant in the next columns, or `None` where a left join found none.
    pub(super) fn grant(&mut self) -> Result<Option<Grant>, DatabaseError> {
        let Some(grant_id) = self.present(4)? else {
            return Ok(None);
        };
        Ok(Some(Grant {
            grant_id,
            activity_id: identifier(self.text()?)?,
            user_id: identifier(self.text()?)?,
            created_at: self.time()?,
        }))
    }

    /// The profile in the next columns, or `None` where a left join found none.
    pub(super) fn profile(&mut self) -> Result<Option<Profile>, DatabaseError> {
        let Some(user_id) = self.present(4)? else {
            return Ok(None);
        };
        Ok(Some(Profile {
            user_id: identifier(user_id)?,
            fields: serde_json::from_str(&self.text()?).map_err(|_| unexpected())?,
            version: self.integer()?,
            updated_at: self.time()?,
        }))
    }

    /// The first of `columns` columns of an object; where it is null the others are skipped.
    fn present(&mut self, columns: usize) -> Result<Option<String>, DatabaseError> {
        let first = self.optional_text()?;
        if first.is_none() {
            self.0
                .by_ref()
                .take(columns.saturating_sub(1))
                .for_each(drop);
        }
        Ok(first)
    }
}

fn identifier(text: String) -> Result<Identifier, DatabaseError> {
    text.try_into().map_err(|_| unexpected())
}

fn unexpected() -> DatabaseError {
    DatabaseError::unexpected_row()
}
