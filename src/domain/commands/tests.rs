//! Properties of the decisions, over all states and any amounts.

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::domain::*;

fn id(text: &str) -> Identifier {
    text.to_owned().try_into().unwrap()
}

fn status() -> impl Strategy<Value = OrderStatus> {
    proptest::sample::select(OrderStatus::ALL.to_vec())
}

fn currency() -> impl Strategy<Value = Currency> {
    proptest::sample::select(vec!["EUR", "USD", "JPY"])
        .prop_map(|code| Currency::try_from(code.to_owned()).unwrap())
}

/// Few amounts, so that they often meet, and the largest.
fn amount() -> impl Strategy<Value = Amount> {
    prop_oneof![1i64..4, Just(MAX_AMOUNT)].prop_map(|units| Amount::try_from(units).unwrap())
}

prop_compose! {
    fn order()(status in status(), amount in amount(), currency in currency(), version in 1i64..9) -> Order {
        Order {
            order_no: id("o1"),
            user_id: id("u1"),
            amount,
            currency,
            status,
            refunded_amount: if status == OrderStatus::Refunded { amount.get() } else { 0 },
            version,
            metadata: Metadata::default(),
            created_at: Timestamp::from_millis(0),
            updated_at: Timestamp::from_millis(0),
        }
    }
}

fn payment(request_no: &str) -> Payment {
    Payment {
        payment_id: "pay_1".to_owned(),
        order_no: id("o1"),
        request_no: id(request_no),
        channel: "wallet".to_owned(),
        amount: Amount::try_from(1).unwrap(),
        currency: Currency::try_from("EUR".to_owned()).unwrap(),
        status: PaymentStatus::Succeeded,
        failure_code: None,
        created_at: Timestamp::from_millis(0),
        updated_at: Timestamp::from_millis(0),
        client_secret: None,
    }
}

fn body(operation: &Operation) -> Value {
    serde_json::from_str(&operation.answer.body).unwrap()
}

proptest! {
    /// Invariants 1, 5 and 6: money moves only for an order that can be paid, for exactly its amount, out
    /// of a wallet that covers it, and the version grows by one.
    #[test]
    fn a_payment_is_made_exactly_when_everything_fits(
        order in proptest::option::weighted(0.9, order()),
        balance in proptest::option::of(0i64..6),
        amount in amount(),
        currency in proptest::option::of(currency()),
        request_no in proptest::option::of(Just(id("r1"))),
        request_no_used in proptest::bool::weighted(0.2),
    ) {
        let snapshot = Snapshot {
            order: order.clone(),
            balance,
            live_payment: None,
            request_no_payment: (request_no.is_some() && request_no_used).then(|| payment("r1")),
            ..Snapshot::default()
        };
        let command = PayOrder {
            order_no: id("o1"), amount, currency, request_no, payment_method: Some(PaymentMethod::wallet()),
        };
        let decision = command.decide(&snapshot, &Given::fixed());
        let fits = order.as_ref().is_some_and(|order| {
            matches!(order.status, OrderStatus::Pending | OrderStatus::Failed)
                && order.amount == amount
                && currency.is_none_or(|currency| currency == order.currency)
        }) && snapshot.request_no_payment.is_none();
        match decision {
            Decision::Refuse(problem) => {
                prop_assert!(!fits);
                // 402 is final and would have to be recorded.
                prop_assert_ne!(problem.code.status(), 402);
            }
            Decision::Append(row) => {
                prop_assert!(fits);
                let order = order.unwrap();
                prop_assert_eq!(row.from_status, Some(order.status));
                prop_assert_eq!(row.amount, Some(order.amount));
                prop_assert_eq!(row.currency, Some(order.currency));
                if balance.is_some_and(|balance| balance >= order.amount.get()) {
                    prop_assert_eq!(row.outcome, Outcome::Applied);
                    prop_assert_eq!(row.to_status, Some(OrderStatus::Paid));
                    prop_assert_eq!(row.version, Some(order.version + 1));
                    prop_assert_eq!(row.answer.status, 200);
                    prop_assert_eq!(&body(&row)["amount"], order.amount.get());
                    prop_assert_eq!(&body(&row)["status"], "succeeded");
                } else {
                    prop_assert_eq!(row.outcome, Outcome::Declined);
                    prop_assert_eq!(row.to_status, Some(order.status));
                    prop_assert_eq!(row.version, Some(order.version));
                    prop_assert_eq!(row.answer.status, 402);
                    prop_assert_eq!(row.event_id, None);
                }
            }
        }
    }

    /// A decision is a function of what it is given: repeated, it makes the same row.
    #[test]
    fn a_decision_can_be_repeated(order in order(), balance in proptest::option::of(0i64..6), amount in amount()) {
        let snapshot = Snapshot { order: Some(order), balance, ..Snapshot::default() };
        let command = PayOrder {
            order_no: id("o1"), amount, currency: None, request_no: None, payment_method: Some(PaymentMethod::wallet()),
        };
        let shown = || format!("{:?}", command.decide(&snapshot, &Given::fixed()));
        prop_assert_eq!(shown(), shown());
    }

    #[test]
    fn a_paid_order_is_said_to_be_paid_whatever_else_is_wrong(order in order(), amount in amount()) {
        use OrderStatus::*;
        let paid = matches!(order.status, Paid | Shipped | Completed | Refunded);
        let snapshot = Snapshot {
            order: Some(order), live_payment: Some(payment("r0")), ..Snapshot::default()
        };
        let command = PayOrder {
            order_no: id("o1"), amount, currency: None, request_no: None, payment_method: Some(PaymentMethod::wallet()),
        };
        let decision = command.decide(&snapshot, &Given::fixed());
        let already_paid = match &decision {
            Decision::Refuse(problem) if problem.code == Code::OrderAlreadyPaid => {
                prop_assert_eq!(problem.payment.as_deref(), snapshot.live_payment.as_ref());
                true
            }
            _ => false,
        };
        prop_assert_eq!(already_paid, paid);
    }

    /// Invariant 6: each command moves an order along its own edge of the state machine, and nothing else.
    #[test]
    fn an_order_moves_along_the_table_or_stays(order in proptest::option::weighted(0.9, order())) {
        use OrderStatus::*;
        let order_no = || id("o1");
        let commands: [(Box<dyn Command>, &[OrderStatus], OrderStatus); 3] = [
            (Box::new(ShipOrder { order_no: order_no(), tracking_no: None }), &[Paid], Shipped),
            (Box::new(CompleteOrder { order_no: order_no() }), &[Shipped], Completed),
            (Box::new(CancelOrder { order_no: order_no() }), &[Pending, Failed], Cancelled),
        ];
        let snapshot = Snapshot { order: order.clone(), ..Snapshot::default() };
        for (command, from, to) in commands {
            match (command.decide(&snapshot, &Given::fixed()), &order) {
                (Decision::Append(row), Some(order)) => {
                    prop_assert!(from.contains(&order.status));
                    prop_assert_eq!(row.from_status, Some(order.status));
                    prop_assert_eq!(row.to_status, Some(to));
                    prop_assert_eq!(row.version, Some(order.version + 1));
                    let body = body(&row);
                    prop_assert_eq!(&body["status"], to.name());
                    prop_assert_eq!(&body["version"], order.version + 1);
                    prop_assert_eq!(&body["refunded_amount"], order.refunded_amount);
                }
                (Decision::Refuse(problem), Some(order)) => {
                    prop_assert!(!from.contains(&order.status));
                    prop_assert_eq!(problem.code, Code::OrderStateInvalid);
                    prop_assert!(problem.detail.contains(order.status.name()));
                }
                (decision, None) => prop_assert!(
                    matches!(&decision, Decision::Refuse(problem) if problem.code == Code::OrderNotFound)
                ),
            }
        }
    }

    /// Invariant 7: refunds never add up to more than was paid, and the order is refunded exactly when
    /// they add up to it.
    #[test]
    fn a_refund_is_made_exactly_when_enough_is_left(
        order in order(),
        part in 0i64..4,
        amount in proptest::option::of(amount()),
        balance in prop_oneof![9 => 0i64..9, 1 => Just(MAX_AMOUNT)],
        refund_no_used in proptest::bool::weighted(0.1),
        succeeded in proptest::bool::weighted(0.9),
    ) {
        use OrderStatus::*;
        let refundable = matches!(order.status, Paid | Shipped | Completed);
        let refunded_amount = if refundable { part.min(order.amount.get() - 1) } else { order.refunded_amount };
        let order = Order { refunded_amount, ..order };
        let mut live = payment("r1");
        if !succeeded {
            live.status = PaymentStatus::Processing;
        }
        let snapshot = Snapshot {
            order: Some(order.clone()),
            balance: Some(balance),
            live_payment: Some(live),
            refund_no_used,
            ..Snapshot::default()
        };
        let command = RefundOrder { order_no: id("o1"), amount, refund_no: Some(id("f1")), reason: None };
        let left = order.amount.get() - order.refunded_amount;
        let wanted = amount.map_or(left, Amount::get);
        let room = i128::from(balance) + i128::from(wanted) <= i128::from(MAX_AMOUNT);
        let fits = refundable && wanted <= left && room && !refund_no_used && succeeded;
        match command.decide(&snapshot, &Given::fixed()) {
            Decision::Append(row) => {
                prop_assert!(fits);
                prop_assert_eq!(row.amount.map(Amount::get), Some(wanted));
                let to_status = if wanted == left { Refunded } else { order.status };
                prop_assert_eq!((row.from_status, row.to_status), (Some(order.status), Some(to_status)));
                prop_assert_eq!(row.version, Some(order.version + 1));
                prop_assert_eq!(&body(&row)["amount"], wanted);
                prop_assert_eq!(&body(&row)["payment_id"], "pay_1");
            }
            Decision::Refuse(problem) => {
                prop_assert!(!fits);
                let expected = if refund_no_used {
                    Code::RefundNoUsed
                } else if !refundable {
                    Code::OrderStateInvalid
                } else if wanted > left {
                    Code::RefundExceedsPayment
                } else if !succeeded {
                    Code::OrderStateInvalid
                } else {
                    Code::BodyInvalid
                };
                prop_assert_eq!(problem.code, expected);
            }
        }
    }

    /// A user has one grant of an activity for ever, and new ones are made while its limit allows.
    #[test]
    fn a_coupon_is_granted_once_and_within_the_limit(
        has_one in proptest::bool::ANY,
        activity in proptest::option::of((proptest::option::of(0i64..4), 0i64..4)),
    ) {
        let grant = has_one.then(|| Grant {
            grant_id: "gra_1".to_owned(),
            activity_id: id("c1"),
            user_id: id("u1"),
            created_at: Timestamp::from_millis(0),
        });
        let exhausted = matches!(activity, Some((Some(limit), granted)) if granted >= limit);
        let activity = activity.map(|(limit, granted)| Activity {
            activity_id: id("c1"),
            limit: limit.map(|limit| limit.try_into().unwrap()),
            granted,
        });
        let snapshot = Snapshot { activity, grant: grant.clone(), ..Snapshot::default() };
        let command = GrantCoupon { activity_id: id("c1"), user_id: id("u1") };
        match command.decide(&snapshot, &Given::fixed()) {
            Decision::Append(row) => {
                prop_assert!(has_one || !exhausted);
                prop_assert_eq!(row.answer.status, if has_one { 200 } else { 201 });
                prop_assert_eq!(row.event_id.is_some(), !has_one);
                if let Some(grant) = grant {
                    prop_assert_eq!(body(&row), serde_json::to_value(&grant).unwrap());
                }
            }
            Decision::Refuse(problem) => {
                prop_assert!(!has_one && exhausted);
                prop_assert_eq!(problem.code, Code::CouponExhausted);
            }
        }
    }

    /// Invariant 5: no balance leaves the range that is exact everywhere.
    #[test]
    fn a_deposit_adds_or_is_refused(
        balance in proptest::option::of(prop_oneof![0i64..9, Just(MAX_AMOUNT), Just(MAX_AMOUNT - 2)]),
        amount in amount(),
    ) {
        let command = DepositMoney {
            user_id: id("u1"), amount, currency: Currency::try_from("EUR".to_owned()).unwrap(), reference: None,
        };
        let after = i128::from(balance.unwrap_or(0)) + i128::from(amount.get());
        match command.decide(&Snapshot { balance, ..Snapshot::default() }, &Given::fixed()) {
            Decision::Append(row) => {
                prop_assert_eq!(row.balance.map(i128::from), Some(after));
                prop_assert_eq!(&body(&row)["balance"], &Value::from(row.balance));
            }
            Decision::Refuse(problem) => {
                prop_assert!(after > i128::from(MAX_AMOUNT));
                prop_assert_eq!(problem.code, Code::BodyInvalid);
            }
        }
    }

    #[test]
    fn an_order_begins_pending_unless_its_number_is_taken(taken in proptest::option::of(order()), amount in amount()) {
        let command = CreateOrder {
            order_no: Some(id("o1")),
            user_id: id("u1"),
            amount,
            currency: Currency::try_from("EUR".to_owned()).unwrap(),
            metadata: Metadata::default(),
        };
        let is_taken = taken.is_some();
        match command.decide(&Snapshot { order: taken, ..Snapshot::default() }, &Given::fixed()) {
            Decision::Append(row) => {
                prop_assert!(!is_taken);
                prop_assert_eq!((row.from_status, row.to_status), (None, Some(OrderStatus::Pending)));
                prop_assert_eq!(row.version, Some(1));
                prop_assert_eq!(row.answer.location.as_deref(), Some("/v1/orders/o1"));
            }
            Decision::Refuse(problem) => {
                prop_assert!(is_taken);
                prop_assert_eq!(problem.code, Code::OrderExists);
            }
        }
    }
}
