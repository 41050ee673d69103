//! A site whose orders are paid at a channel, and the comparison of the two books.

use payonce_channel::{
    Call as ChannelCall, Channel, Config, Event, Manner, Outcome, Step, Surface,
};
use serde_json::{Value, json};

use crate::support::answer::Answer;
use crate::support::client::{Call, Shop, pay_path};
use crate::support::names::fresh;
use crate::support::oracle::audit;
use crate::support::receiver::SECRET;
use crate::support::server::Server;
use crate::support::site::Site;

pub const SURFACES: [Surface; 2] = [Surface::Http, Surface::Stripe];

const CHANNEL_KEY: &str = "channelkey-71d0c2f94a";

/// How a charge can end.
pub fn outcomes() -> [Outcome; 2] {
    [
        Outcome::Succeeded,
        Outcome::Declined("card_declined".into()),
    ]
}

/// How a payment whose answer was lost gets its final one.
#[derive(Clone, Copy, Debug)]
pub enum Recovery {
    /// The client sends the same request again.
    Retry,
    /// The operator's timer calls `/admin/reconcile`.
    Reconcile,
}

pub const RECOVERIES: [Recovery; 2] = [Recovery::Retry, Recovery::Reconcile];

/// A channel, a site that uses it, and its host process.
pub struct Till {
    pub channel: Channel,
    pub site: Site,
    server: Option<Server>,
    /// A second process on the same data, which gives the channel up soon: for calls that hang.
    hasty: Option<Server>,
}

impl Till {
    /// Everything takes as long as it takes.
    pub fn open(surface: Surface) -> Self {
        Self::open_with(surface, |site| site)
    }

    /// The channel delivers its webhooks by itself.
    pub fn told(surface: Surface) -> Self {
        Self::begin(surface, true, |site| site)
    }

    /// With a second process for calls that hang.
    pub fn with_hasty(surface: Surface) -> Self {
        let mut till = Self::open(surface);
        let hasty = till.site.clone().variable("channel_timeout_ms", 200);
        till.hasty = Some(hasty.start());
        till
    }

    pub fn open_with(surface: Surface, configure: impl Fn(Site) -> Site) -> Self {
        Self::begin(surface, false, configure)
    }

    fn begin(
        surface: Surface,
        webhooks_by_themselves: bool,
        configure: impl Fn(Site) -> Site,
    ) -> Self {
        let config = Config {
            key: CHANNEL_KEY.to_owned(),
            webhook_secret: SECRET.to_owned(),
            webhooks_by_themselves,
        };
        let channel = Channel::start("127.0.0.1:0", config).expect("a port");
        let site = Site::new()
            .variable("channel", surface.name())
            .variable("channel_url", channel.url())
            .variable("channel_host", channel.url())
            .variable("channel_key", CHANNEL_KEY)
            .variable("webhook_secret", SECRET);
        let mut till = Self {
            channel,
            site: configure(site),
            server: None,
            hasty: None,
        };
        till.start();
        till
    }

    fn start(&mut self) {
        let server = self.site.start();
        self.channel.webhooks_to(&server.base);
        self.server = Some(server);
    }

    /// SIGKILL, and a new process.
    pub fn crash(&mut self) {
        self.server.take().expect("a server").kill();
        self.start();
    }

    /// SIGTERM.
    pub fn stop(&mut self) {
        self.server.take().expect("a server").stop();
    }

    /// A new process whose database loses the results of these statements.
    pub fn restart_losing_results(&mut self, statements: &[&str]) {
        self.server.take().expect("a server").stop();
        let server = self.site.start_losing_results(statements);
        self.channel.webhooks_to(&server.base);
        self.server = Some(server);
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("a server")
    }

    pub fn shop(&self) -> Shop {
        self.server().shop()
    }

    /// A new order.
    pub async fn order(&self, amount: u64) -> String {
        self.shop().order_of(&fresh("user"), amount).await
    }

    /// The call that pays an order with a card.
    pub fn pay_call(&self, order_no: &str, amount: u64) -> Call {
        let body = json!({"amount": amount, "payment_method": "pm_card_visa"});
        self.shop()
            .command(&pay_path(order_no), &fresh("pay"), &body)
    }

    /// An order that is paid at the channel.
    pub async fn paid(&self, amount: u64) -> String {
        let order_no = self.order(amount).await;
        self.pay_call(&order_no, amount).send().await.first(200);
        order_no
    }

    /// An order, and the call that pays it with a card and was answered that nobody knows yet.
    pub async fn unanswered(&self, step: impl Into<Step>) -> (String, Call) {
        let order_no = self.order(100).await;
        let call = self.pay_call(&order_no, 100);
        self.channel.script(ChannelCall::Charge, [step]);
        unknown(&call.clone().send().await);
        (order_no, call)
    }

    /// An order whose first attempt the channel has declined.
    pub async fn declined(&self, amount: u64) -> String {
        let order_no = self.order(amount).await;
        let declined = Outcome::Declined("card_declined".into());
        self.channel.script(ChannelCall::Charge, [declined]);
        let answer = self.pay_call(&order_no, amount).send().await;
        answer.problem(402, "card_declined");
        order_no
    }

    /// Lets an hour pass: whoever was at work on a payment or refund has had its time.
    pub fn expire_leases(&self) {
        self.lapse(3_600_000);
    }

    /// Lets so many milliseconds pass for what is open.
    pub fn lapse(&self, milliseconds: u64) {
        let sql = "UPDATE channel_calls SET created_at = max(1, created_at - ?1),
                     lease_until = max(1, lease_until - ?1) WHERE settled_at IS NULL";
        let milliseconds = i64::try_from(milliseconds).expect("a number");
        let passed = self.site.connect().execute(sql, [milliseconds]);
        passed.expect("an update");
    }

    pub async fn reconcile(&self, body: Value) -> Value {
        sweep(self.server(), &body).await
    }

    /// What the operator sees of channels.
    pub async fn stats(&self) -> Value {
        let stats = self.server().admin().get("/admin/stats").send().await;
        stats.first(200)["channel"].clone()
    }

    /// Sends a call to the process that gives up soon.
    pub async fn hastily(&self, call: &Call) -> Answer {
        let hasty = self.hasty.as_ref().expect("a hasty process");
        now(&call.clone().to(&hasty.base)).await
    }

    /// Sweeps with the process that gives up soon.
    pub async fn reconcile_hastily(&self) -> Value {
        sweep(self.hasty.as_ref().expect("a hasty process"), &json!({})).await
    }

    /// The final answer to a call after one recovery: one retry, or one sweep and the replay of what it found.
    pub async fn recover(&self, call: &Call, by: Recovery, what: &str) -> Answer {
        self.expire_leases();
        if let Recovery::Reconcile = by {
            self.reconcile(json!({})).await;
        }
        let answer = call.settled().await;
        let text = answer.text();
        assert!(is_final(&answer), "{what}: {} {text}", answer.status);
        if let Recovery::Reconcile = by {
            assert!(answer.replayed(), "{what}: the sweep had left it: {text}");
        }
        call.clone().send().await.replays(&answer);
        answer
    }

    /// Delivers events as they are and asserts that each is taken.
    pub async fn deliver(&self, events: &[Event]) {
        for event in events {
            let status = self.channel.deliver(event, Manner::Proper).await;
            assert_eq!(status, Some(200), "{}", event.body);
        }
    }

    /// How many events of this type are in the outbox for an order.
    pub fn outbox(&self, order_no: &str, event_type: &str) -> i64 {
        let sql = "SELECT count(*) FROM outbox WHERE subject = ?1 AND type = ?2";
        let connection = self.site.connect();
        let count = connection.query_row(sql, [order_no, event_type], |row| row.get(0));
        count.expect("a count")
    }

    pub async fn status_of(&self, order_no: &str) -> String {
        let order = self.shop().order(order_no).await;
        order["status"].as_str().expect("a status").to_owned()
    }

    /// Invariants 1, 2, 5, 6, 7 and 8: our books are in order and to the unit those of the channel, each number
    /// has one charge there, and nothing is left to be done.
    pub fn books_agree(&self) {
        audit(&self.site);
        let book = self.channel.book();
        assert_eq!(book.number_used_twice(), None);
        let kept = payonce_oracle::kept_at_channel(&self.site.connect());
        assert_eq!(
            kept.as_ref(),
            Ok(&book.kept()),
            "our ledger, and the book of the channel"
        );
    }
}

async fn sweep(server: &Server, body: &Value) -> Value {
    let call = server.admin().post("/admin/reconcile").json(body);
    call.send().await.first(200)
}

/// Sends a call that does not wait for others to finish its work.
pub async fn now(call: &Call) -> Answer {
    call.clone().header("prefer", "wait=0").send().await
}

/// Whether the same key will be answered so for ever.
pub fn is_final(answer: &Answer) -> bool {
    matches!(answer.status, 200 | 201 | 402)
}

/// Asserts the answer of a payment or refund whose end is not known yet.
#[track_caller]
pub fn unknown(answer: &Answer) -> Value {
    let payment = answer.ok(202);
    assert_eq!(payment["status"], "processing");
    let pause = answer.header("retry-after").expect("Retry-After");
    pause.parse::<u32>().expect("Retry-After in whole seconds");
    payment
}

/// What the channel makes of a charge or refund, and what then goes wrong.
pub fn step(outcome: &Outcome, fault: payonce_channel::Fault) -> Step {
    Step {
        outcome: outcome.clone(),
        fault: Some(fault),
    }
}
