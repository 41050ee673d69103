//! Says what is wrong with a run, from what its clients got and what the files hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use payonce_channel::{Book, Charge};
use rusqlite::{Connection, OptionalExtension as _};

use crate::model::{self, Books, Row};
use crate::operations::{Key, MERCHANTS};

use crate::scenario::{Client, Outside, Scenario};
use crate::stage::Answer;
use crate::world::{Delivery, File};

/// Watches one run.
pub struct Oracle {
    file: Arc<File>,
    database: Option<Connection>,
    /// The journal at the beginning.
    initial: Vec<Row>,
    /// The events at the beginning, all of them delivered.
    events: BTreeSet<String>,
    clients: Vec<Seen>,
    /// Whether the database was made to fail.
    trouble: bool,
}

/// What was seen of a client.
#[derive(Clone, Default)]
struct Seen {
    /// How long the journal was when its attempt began.
    from: usize,
    /// Its final answers, and whether one of them was not a replay.
    answer: Option<Answer>,
    first: bool,
}

type Verdict = Result<(), String>;

impl Drop for Oracle {
    fn drop(&mut self) {
        if let Some(database) = self.database.take() {
            self.file.close(database);
        }
    }
}

impl Oracle {
    /// An oracle for a run on a database file.
    pub fn new(file: Arc<File>, scenario: &Scenario) -> Self {
        let mut oracle = Self {
            database: file.open().ok(),
            file,
            initial: Vec::new(),
            events: BTreeSet::new(),
            clients: vec![Seen::default(); scenario.clients.len()],
            trouble: false,
        };
        oracle.initial = oracle.journal();
        oracle.events = oracle.events().unwrap_or_default();
        oracle
    }

    /// The database has failed once: 503 is a good answer from now on.
    pub fn database_trouble(&mut self) {
        self.trouble = true;
    }

    /// An attempt of a client begins.
    pub fn sent(&mut self, client: usize) {
        self.clients[client].from = self.journal().len();
    }

    /// What an answer to a client is held against.
    pub fn window(&self, client: usize) -> (usize, bool) {
        (self.clients[client].from, self.trouble)
    }

    /// A client got an answer.
    pub fn answered(&mut self, scenario: &Scenario, index: usize, answer: &Answer) -> Verdict {
        let client = &scenario.clients[index];
        let expected = match answer.status {
            200..=299 => "application/json",
            _ => "application/problem+json",
        };
        if answer.content_type != expected {
            return Err(format!(
                "client {index} got the type {}",
                answer.content_type
            ));
        }
        if !client.key.is_recorded() && answer.status == 200 {
            return Ok(());
        }
        if answer.is_final() {
            return self.recorded(scenario, index, answer);
        }
        let code = answer.code();
        match (answer.status, code.as_str()) {
            (503, "busy" | "storage_unavailable") if self.trouble => self.may_come_back(answer),
            (409, "idempotency_in_progress") => self.may_come_back(answer),
            (202, _) if scenario.outside == Outside::Channel => self.may_come_back(answer),
            (422, "idempotency_key_reused") => match shares_key(scenario, client) {
                true => Ok(()),
                false => Err(format!("nobody else used the key of client {index}")),
            },
            (400..=499, _) => {
                let journal = self.journal();
                let recorded = journal.iter().find(|row| is_of(client, row));
                match recorded.filter(|_| !shares_key(scenario, client)) {
                    Some(row) => Err(format!(
                        "invariant 2: client {index} was refused with {code}, the journal has {}",
                        row.body
                    )),
                    None => self.explained(scenario, client, index, &code),
                }
            }
            _ => Err(format!("client {index} got {answer}")),
        }
    }

    fn may_come_back(&self, answer: &Answer) -> Verdict {
        match answer.retry_after {
            Some(_) => Ok(()),
            None => Err(format!("no Retry-After: {answer}")),
        }
    }

    /// Invariants 2 and 4: a final answer is in the journal before it is out.
    fn recorded(&mut self, scenario: &Scenario, index: usize, answer: &Answer) -> Verdict {
        let client = &scenario.clients[index];
        let mut journal = self.journal();
        if scenario.aged && !journal.iter().any(|row| is_of(client, row)) {
            // A sweep may have come after it was read.
            journal = self.initial.clone();
        }
        let ours = journal.iter().filter(|row| is_of(client, row));
        match ours.collect::<Vec<_>>()[..] {
            [row]
                if (row.status, &row.location, &row.body)
                    == (answer.status, &answer.location, &answer.body) => {}
            [row] => {
                return Err(format!(
                    "invariant 2: client {index} got {answer}, the journal has {} {}",
                    row.status, row.body
                ));
            }
            [] => {
                return Err(format!(
                    "invariant 4: client {index} got {answer}, unrecorded"
                ));
            }
            _ => return Err("invariant 2: a key has two operations".to_owned()),
        }
        let seen = &mut self.clients[index];
        seen.answer = Some(answer.clone());
        seen.first |= !answer.replayed;
        if scenario.outside == Outside::Channel {
            // Who began it and who took it over can both be the first to hear of its end.
            return Ok(());
        }
        let firsts = scenario.clients.iter().zip(&self.clients);
        let firsts = firsts.filter(|(other, seen)| seen.first && client.same_key(other));
        match firsts.count() {
            0 | 1 => Ok(()),
            _ => Err("invariant 2: two clients got a first answer for one key".to_owned()),
        }
    }

    /// A refusal was right at some moment of the attempt.
    fn explained(&self, scenario: &Scenario, client: &Client, index: usize, code: &str) -> Verdict {
        if scenario.aged {
            return self.expired(client, index, code);
        }
        let from = self.clients[index].from;
        let merchant = MERCHANTS[client.merchant];
        let mut books = Books::default();
        let mut reasons = Vec::new();
        for (length, row) in self.journal().iter().map(Some).chain([None]).enumerate() {
            if length >= from {
                reasons.push(books.refusal(merchant, &client.request.act));
            }
            if let Some(row) = row {
                books.apply(row)?;
            }
        }
        match reasons.contains(&Some(code)) {
            true => Ok(()),
            false => Err(format!(
                "client {index} was refused with {code}, where only {reasons:?} are right"
            )),
        }
    }

    /// A refusal of a key that may be past its retention: by the state of things, or because it is.
    fn expired(&self, client: &Client, index: usize, code: &str) -> Verdict {
        let database = self.database()?;
        let books = Books::read(database).map_err(|error| error.to_string())?;
        let right = books.refusal(MERCHANTS[client.merchant], &client.request.act);
        let old = self.initial.iter().any(|row| is_of(client, row));
        match right == Some(code) || old && code == "idempotency_key_expired" {
            true => Ok(()),
            false => Err(format!(
                "client {index} was refused with {code}, not {right:?}"
            )),
        }
    }

    /// Invariant 2: a client that had a final answer has asked once more.
    pub fn replayed(
        &self,
        scenario: &Scenario,
        index: usize,
        answer: &Answer,
        again: &Answer,
    ) -> Verdict {
        let client = &scenario.clients[index];
        if scenario.aged && again.status == 409 {
            return self.expired(client, index, &again.code());
        }
        let same = |answer: &Answer| Answer {
            replayed: true,
            ..answer.clone()
        };
        match same(answer) == *again {
            true => Ok(()),
            false => Err(format!(
                "invariant 2: client {index} got {answer}, and later {again}"
            )),
        }
    }

    /// Invariant 3: a client has used its key for another request.
    pub fn reused(
        &self,
        scenario: &Scenario,
        index: usize,
        first: &Answer,
        answer: &Answer,
    ) -> Verdict {
        let code = answer.code();
        let refused = answer.status == 422 && code == "idempotency_key_reused"
            || scenario.aged && answer.status == 409 && code == "idempotency_key_expired";
        match refused && !answer.body.contains(&first.body) {
            true => Ok(()),
            false => Err(format!(
                "invariant 3: the key of client {index} on another request got {answer}"
            )),
        }
    }

    /// The files are in order. The last gates are tried, too, where that is wanted.
    pub fn audit(&self, scenario: &Scenario, gates: bool) -> Verdict {
        let database = self.database()?;
        payonce_oracle::audit(database)?;
        if gates {
            payonce_oracle::gates(database)?;
        }
        match scenario.aged {
            true => Ok(()),
            false => self.replay(database, &self.journal()),
        }
    }

    /// The run is over: nothing is in the journal that nobody asked for.
    pub fn finish(&self, scenario: &Scenario) -> Verdict {
        let journal = self.journal();
        let strange = |row: &&Row| {
            let known = |client: &Client| is_of(client, row);
            let ours = row.key.starts_with("fixture-") || row.is_of_channel();
            !ours && !scenario.clients.iter().any(known)
        };
        match journal.iter().find(strange) {
            Some(row) => Err(format!("nobody sent the operation {}", row.key)),
            None => Ok(()),
        }
    }

    /// The tables hold what the journal says.
    fn replay(&self, database: &Connection, journal: &[Row]) -> Verdict {
        let mut books = Books::default();
        for row in journal {
            books.apply(row)?;
        }
        let held = Books::read(database).map_err(|error| error.to_string())?;
        match held == books {
            true => Ok(()),
            false => Err(format!(
                "the tables hold {held:?}, the journal says {books:?}"
            )),
        }
    }

    fn events(&self) -> rusqlite::Result<BTreeSet<String>> {
        let Some(database) = &self.database else {
            return Ok(BTreeSet::new());
        };
        let mut statement = database.prepare_cached("SELECT event_id FROM outbox")?;
        statement.query_map([], |row| row.get(0))?.collect()
    }

    /// How many events wait for their delivery.
    pub fn undelivered(&self) -> Result<i64, String> {
        let database = self.database()?;
        let sql =
            "SELECT count(*) FROM deliveries WHERE destination = 'notify' AND state = 'pending'";
        let count = database.query_row(sql, [], |row| row.get(0));
        count.map_err(|error| error.to_string())
    }

    /// Invariant 12: what was delivered is every event, each under one identifier and always the same.
    pub fn delivered(&self, received: &[Delivery]) -> Verdict {
        if self.undelivered()? > 0 {
            return Err("invariant 12: an event waits for ever".to_owned());
        }
        let database = self.database()?;
        let mut payloads: BTreeMap<&str, &str> = BTreeMap::new();
        for delivery in received {
            let payload = payloads
                .entry(&delivery.event_id)
                .or_insert(&delivery.payload);
            if *payload != delivery.payload {
                return Err(format!("invariant 12: {} is two events", delivery.event_id));
            }
            if !delivery.payload.contains(&delivery.event_id) || delivery.signature.is_empty() {
                return Err(format!("invariant 12: a bad delivery: {delivery:?}"));
            }
        }
        let sql = "SELECT o.event_id, d.state FROM outbox o JOIN deliveries d USING (event_id) \
                   WHERE d.destination = 'notify'";
        let failed = |error: rusqlite::Error| error.to_string();
        let mut statement = database.prepare_cached(sql).map_err(failed)?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        let rows: Result<Vec<(String, String)>, _> = rows.map_err(failed)?.collect();
        let mut known = BTreeSet::new();
        for (event_id, state) in rows.map_err(failed)? {
            let got = payloads.contains_key(event_id.as_str());
            if state == "sent" && !got && !self.events.contains(&event_id) {
                return Err(format!(
                    "invariant 12: {event_id} counts as sent, and never was"
                ));
            }
            known.insert(event_id);
        }
        match payloads.keys().find(|event_id| !known.contains(**event_id)) {
            Some(stray) => Err(format!("invariant 12: {stray} is no event")),
            None => Ok(()),
        }
    }

    /// Whether something waits for the channel, and belongs to nobody at this time in milliseconds.
    pub fn is_due(&self, now: i64) -> bool {
        let sql = "SELECT 1 FROM channel_calls WHERE settled_at IS NULL AND lease_until <= ?1";
        let due = self.database.as_ref().map(|database| {
            let mut statement = database.prepare_cached(sql)?;
            statement.exists([now])
        });
        matches!(due, Some(Ok(true)))
    }

    /// Invariant 9: a sweep leaves nothing of a kind that waits for the channel.
    pub fn nothing_waits(&self, kind: &str) -> Verdict {
        let sql = "SELECT number FROM channel_calls WHERE settled_at IS NULL AND kind = ?1";
        let database = self.database()?;
        let number = database.query_row(sql, [kind], |row| row.get::<_, String>(0));
        match number.optional().map_err(|error| error.to_string())? {
            Some(number) => Err(format!("invariant 9: {number} waits after a sweep")),
            None => Ok(()),
        }
    }

    /// Invariant 8: the channel has the money of the orders that are paid, and no other, to the unit. What it
    /// has `reversed` went back; nothing else did.
    pub fn same_money(&self, book: &Book, reversed: bool) -> Verdict {
        let database = self.database()?;
        let (booked, kept) = (payonce_oracle::kept_at_channel(database)?, book.kept());
        if booked != kept {
            return Err(format!(
                "invariant 8: the ledger has {booked:?}, the channel {kept:?}"
            ));
        }
        let failed = |error: rusqlite::Error| error.to_string();
        let sql =
            "SELECT merchant_id || '~' || request_no FROM payments WHERE status = 'succeeded'";
        let mut statement = database.prepare_cached(sql).map_err(failed)?;
        let rows = statement.query_map([], |row| row.get(0)).map_err(failed)?;
        let paid: Result<BTreeSet<String>, _> = rows.collect();
        let paid = paid.map_err(failed)?;
        let stray = |charge: &&Charge| {
            let returned = reversed && book.kept_of(charge) == 0;
            charge.outcome.is_success() && !returned && !paid.contains(&charge.asked.request_no)
        };
        match book.charges.iter().find(stray) {
            Some(charge) => Err(format!("invariant 8: {charge:?} is nobody's payment")),
            None => Ok(()),
        }
    }

    fn database(&self) -> Result<&Connection, &'static str> {
        self.database
            .as_ref()
            .ok_or("the database cannot be opened")
    }

    /// The journal; empty while there is none.
    fn journal(&self) -> Vec<Row> {
        let database = self.database.as_ref();
        let rows = database.and_then(|database| model::journal(database).ok());
        rows.unwrap_or_default()
    }
}

/// Whether another client uses the key of `client` for another request.
fn shares_key(scenario: &Scenario, client: &Client) -> bool {
    let asks = |client: &Client| (client.request.path.clone(), client.request.body.clone());
    let other = |other: &Client| client.same_key(other) && asks(client) != asks(other);
    scenario.clients.iter().any(other)
}

/// Whether a row is what a client asked for.
fn is_of(client: &Client, row: &Row) -> bool {
    row.merchant == MERCHANTS[client.merchant]
        && match client.key {
            Key::Given(key) => row.key == key,
            Key::Token => row.key.starts_with("token:"),
            Key::Event(id) => row.key == format!("event /queue {id}"),
            Key::Operator | Key::Channel(_) => false,
        }
}
