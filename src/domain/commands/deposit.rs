//! `account.deposit`: money into a customer's wallet.

use serde::Serialize;

use crate::domain::{
    Amount, Code, Command, Currency, Decision, Given, Identifier, Lookup, MAX_AMOUNT, Operation,
    PlainText, Problem, Snapshot, Timestamp,
};

/// Deposit money; the first deposit opens the account.
#[derive(Clone, Debug)]
pub struct DepositMoney {
    pub user_id: Identifier,
    pub amount: Amount,
    pub currency: Currency,
    pub reference: Option<PlainText>,
}

/// A deposit, complete as clients see it.
#[derive(Clone, Debug, Serialize)]
pub struct Deposit {
    pub deposit_id: String,
    pub user_id: Identifier,
    pub amount: Amount,
    pub currency: Currency,
    /// The wallet's balance after the deposit, in minor units.
    pub balance: i64,
    pub reference: Option<PlainText>,
    pub created_at: Timestamp,
}

impl Command for DepositMoney {
    fn operation(&self) -> &'static str {
        "account.deposit"
    }

    fn lookup(&self) -> Lookup<'_> {
        Lookup {
            user_id: Some(&self.user_id),
            currency: Some(self.currency),
            ..Lookup::default()
        }
    }

    fn subject(&self) -> Option<String> {
        Some(format!(
            "wallet/{}/{}",
            self.user_id.as_str(),
            self.currency.code()
        ))
    }

    fn decide(&self, snapshot: &Snapshot, given: &Given) -> Decision {
        let before = snapshot.balance.unwrap_or(0);
        let Some(balance) = before
            .checked_add(self.amount.get())
            .filter(|sum| *sum <= MAX_AMOUNT)
        else {
            let detail = format!("the balance would exceed {MAX_AMOUNT}");
            return Decision::Refuse(Problem::at(Code::BodyInvalid, "/amount", detail));
        };
        let deposit = Deposit {
            deposit_id: format!("dep_{}", given.subject),
            user_id: self.user_id.clone(),
            amount: self.amount,
            currency: self.currency,
            balance,
            reference: self.reference.clone(),
            created_at: given.now,
        };
        let mut row =
            Operation::applied(self.operation(), given, 201, &deposit, "account.deposited");
        row.user_id = Some(deposit.user_id);
        row.amount = Some(deposit.amount);
        row.currency = Some(deposit.currency);
        row.balance = Some(deposit.balance);
        row.subject_id = Some(deposit.deposit_id);
        Decision::Append(Box::new(row))
    }
}
