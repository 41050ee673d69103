//! What goes wrong meanwhile: hosts die, the key-value store is gone, the disk is full, clocks are set, the channel
//! errs. And what runs beside the clients: timers, and webhooks that come again.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anyhow::Result;
use payonce_channel::{Call, Channel, Fault, Manner, Outcome, Step};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::world::World;

/// The calls that a channel of the `http` contract gets.
pub const CALLS: [Call; 4] = [Call::Charge, Call::Lookup, Call::Refund, Call::LookupRefund];

/// How far clocks are set, milliseconds: the channel's webhooks are good for five minutes.
const MOST_WRONG_MS: i64 = 120_000;

/// Starts all of it. It ends with the value.
pub fn start(world: &Arc<World>, seed: u64) -> JoinSet<()> {
    let dice = |number: u64| StdRng::seed_from_u64(!seed.wrapping_add(number));
    let mut chaos = JoinSet::new();
    chaos.spawn(kill_hosts(Arc::clone(world), dice(0)));
    chaos.spawn(confuse_channel(Arc::clone(world), dice(1)));
    chaos.spawn(set_clocks(Arc::clone(world), dice(4)));
    if world.disk.is_some() {
        chaos.spawn(fill_disk(Arc::clone(world), dice(5)));
    }
    chaos.spawn(settle_later(Arc::clone(world), dice(2)));
    chaos.spawn(repeat_webhooks(Arc::clone(world), dice(3)));
    for (number, (what, seconds)) in [("dispatch", 1), ("reconcile", 1), ("sweep", 5)]
        .into_iter()
        .enumerate()
    {
        let dice = dice(10 + number as u64);
        let every = Duration::from_secs(seconds);
        chaos.spawn(call_timer(Arc::clone(world), what, every, dice));
    }
    chaos
}

/// A random time of so many milliseconds.
fn millis(dice: &mut StdRng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(dice.random_range(range))
}

/// SIGKILL, mostly of one host, now and then of all; while all are dead the key-value store may go too.
async fn kill_hosts(world: Arc<World>, mut dice: StdRng) {
    loop {
        sleep(millis(&mut dice, 5_000..25_000)).await;
        let killed = kill_some(&world, &mut dice).await;
        world.violations.check(killed);
    }
}

async fn kill_some(world: &World, dice: &mut StdRng) -> Result<()> {
    let hosts = world.fleet.size();
    let all = hosts == 1 || dice.random_ratio(1, 3);
    let one = dice.random_range(0..hosts);
    for seat in (0..hosts).filter(|seat| all || *seat == one) {
        if world.fleet.kill(seat).await? {
            world.tally.note(|sample| sample.kills += 1);
        }
    }
    if all && dice.random_ratio(1, 2) {
        world.fleet.remove_key_value()?;
        world.tally.note(|sample| sample.key_value_removals += 1);
    }
    sleep(millis(dice, 0..1_500)).await;
    // A host needs room to start.
    let _room = world.room.lock().await;
    world.fleet.start_all().await?;
    let host = dice.random_range(0..hosts);
    world.channel.webhooks_to(&world.fleet.base(host));
    Ok(())
}

/// The wall clock of a host is set, forward or back, or right again.
async fn set_clocks(world: Arc<World>, mut dice: StdRng) {
    loop {
        sleep(millis(&mut dice, 3_000..20_000)).await;
        let ahead = match dice.random_ratio(1, 3) {
            true => 0,
            false => dice.random_range(-MOST_WRONG_MS..=MOST_WRONG_MS),
        };
        let seat = dice.random_range(0..world.fleet.size());
        world.violations.check(world.fleet.set_clock(seat, ahead));
        world.tally.note(|sample| sample.clock_steps += 1);
    }
}

/// There is no room on the disk, for seconds.
async fn fill_disk(world: Arc<World>, mut dice: StdRng) {
    let Some(disk) = &world.disk else {
        return;
    };
    loop {
        sleep(millis(&mut dice, 10_000..40_000)).await;
        let _room = world.room.lock().await;
        let filled = disk.fill().await;
        let full = filled.is_ok();
        world.violations.check(filled);
        sleep(millis(&mut dice, 200..3_000)).await;
        world.violations.check(disk.free());
        world
            .tally
            .note(|sample| sample.full_disks += u64::from(full));
    }
}

/// For moments, one kind of call errs, or has another outcome.
async fn confuse_channel(world: Arc<World>, mut dice: StdRng) {
    loop {
        sleep(millis(&mut dice, 50..400)).await;
        let call = CALLS[dice.random_range(0..CALLS.len())];
        world.channel.otherwise(call, confusion(&mut dice));
        sleep(millis(&mut dice, 20..250)).await;
        world.channel.otherwise(call, Step::default());
        if dice.random_ratio(1, 5) {
            world.channel.release();
        }
    }
}

fn confusion(dice: &mut StdRng) -> Step {
    let outcome = match dice.random_range(0..10) {
        0..6 => Outcome::Succeeded,
        6..8 => Outcome::Declined("card_declined".to_owned()),
        _ => Outcome::Processing,
    };
    let fault = match dice.random_ratio(3, 4) {
        true => Some(Fault::ALL[dice.random_range(0..Fault::ALL.len())]),
        false => None,
    };
    Step { outcome, fault }
}

/// What was processing ends, and a few charges that were declined succeed after all.
async fn settle_later(world: Arc<World>, mut dice: StdRng) {
    let mut seen = 0;
    loop {
        sleep(Duration::from_secs(4)).await;
        let late = |charge: usize, dice: &mut StdRng| charge >= seen && dice.random_ratio(1, 8);
        let (told, charges) = settle(&world.channel, &mut dice, late);
        seen = charges;
        let mut all = world.told.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(told);
    }
}

/// Ends what is processing, and lets declined charges succeed that are `late`. Returns the orders whose events
/// tell of it, and how many charges there are.
pub fn settle(
    channel: &Channel,
    dice: &mut StdRng,
    late: impl Fn(usize, &mut StdRng) -> bool,
) -> (BTreeSet<String>, usize) {
    let book = channel.book();
    let mut told = BTreeSet::new();
    let mut end = || match dice.random_ratio(4, 5) {
        true => Outcome::Succeeded,
        false => Outcome::Declined("card_declined".to_owned()),
    };
    let mut ends = Vec::new();
    for (index, charge) in book.charges.iter().enumerate() {
        if charge.outcome == Outcome::Processing {
            ends.push((index, end()));
        }
    }
    for refund in &book.refunds {
        if refund.outcome == Outcome::Processing {
            channel.settle_refund(&refund.refund_id, end());
            let charge = book.charge_by_id(&refund.asked.charge_id);
            told.extend(charge.map(|charge| charge.asked.order_no.clone()));
        }
    }
    for (index, charge) in book.charges.iter().enumerate() {
        if charge.outcome.code().is_some() && late(index, dice) {
            ends.push((index, Outcome::Succeeded));
        }
    }
    for (index, outcome) in ends {
        let charge = &book.charges[index];
        channel.settle_charge(&charge.charge_id, outcome);
        told.insert(charge.asked.order_no.clone());
    }
    (told, book.charges.len())
}

/// The channel tells again of what it has told, in any order.
async fn repeat_webhooks(world: Arc<World>, mut dice: StdRng) {
    loop {
        sleep(millis(&mut dice, 100..500)).await;
        let Some(order_no) = world.charged.any(&mut dice) else {
            continue;
        };
        let mut events = world.channel.events_of(&order_no);
        if dice.random_ratio(1, 2) {
            events.reverse();
        }
        for event in &events {
            let status = world.channel.deliver(event, Manner::Proper).await;
            if !matches!(status, None | Some(200 | 503)) {
                world
                    .violations
                    .add(format!("the webhook {} got {status:?}", event.body));
            }
        }
    }
}

/// What an operator's timer calls, at whichever host.
async fn call_timer(world: Arc<World>, what: &'static str, every: Duration, mut dice: StdRng) {
    loop {
        sleep(every).await;
        let host = dice.random_range(0..world.fleet.size());
        world.operate(what, &json!({}), host).await;
    }
}
