//! A run in words.

use std::fmt;

use crate::run::{Event, Fate, LEAP};
use crate::stage::Slot;
use crate::world::{Effect, Sleeper, What, World};

/// An event in words, before it happens.
pub fn describe(event: &Event, world: &World, slots: &[Slot]) -> String {
    let call = |index: usize| {
        let call = &world.calls[index];
        format!("{} #{} {}", call.instance, call.number, call.what)
    };
    match event {
        Event::Send(index) => format!("client {index} comes"),
        Event::Call(index, effect) => format!("{}: {}", call(*index), words(*effect)),
        Event::Effect(index, effect) if world.calls[*index].is_orphan() => {
            format!(
                "{}: {}, when nobody waits for it",
                call(*index),
                words(*effect)
            )
        }
        Event::Effect(index, effect) => {
            format!("{}: {}, not told yet", call(*index), words(*effect))
        }
        Event::Deliver(index) => format!("{}: told", call(*index)),
        Event::Tick => match world.next_timer().map(|timer| timer.sleeper) {
            Some(Sleeper::Client(index)) => format!("client {index} has waited"),
            Some(Sleeper::Instance(id)) => format!("{id} wakes up"),
            None => "nobody wakes up".to_owned(),
        },
        Event::Reversal => "the channel has the money of a declined charge".to_owned(),
        Event::Leap => format!("{} s pass", LEAP.as_secs()),
        Event::Wipe => "the key-value store loses everything".to_owned(),
        Event::Crash(slot, fates) => {
            let id = slots[usize::from(*slot)].id;
            let calls = world.calls_of(id).map(|call| {
                let fate = fates.iter().find(|(number, _)| *number == call.number);
                let fate = match fate {
                    Some((_, Fate::Dropped)) => "never done",
                    Some((_, Fate::Orphaned)) => "still on its way",
                    Some((_, Fate::Done)) | None => "done, not told",
                };
                format!("#{} {}: {fate}", call.number, call.what)
            });
            let fates: Vec<String> = calls.collect();
            format!("{id} DIES; {}", fates.join(", "))
        }
    }
}

fn words(effect: Effect) -> String {
    match effect {
        Effect::Good => "done".to_owned(),
        Effect::Fails(trouble) => format!("FAILS ({trouble:?}), nothing done"),
        Effect::FailsAfter(trouble) => format!("done, but REPORTED AS FAILED ({trouble:?})"),
        Effect::Lost => "REPORTED AS DONE, but lost".to_owned(),
        Effect::Stale(by) => format!("reads a STALE value, {by} writes old"),
        Effect::Garbage => "reads GARBAGE".to_owned(),
        Effect::Refused => "is answered with 500".to_owned(),
        Effect::RefusedAfter => "done, but is ANSWERED WITH 500".to_owned(),
        Effect::Hangs => "HANGS".to_owned(),
        Effect::Declined => "is DECLINED".to_owned(),
        Effect::Processed => "is being PROCESSED".to_owned(),
    }
}

impl fmt::Display for What {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |text: &str| {
            let words: Vec<&str> = text.split_whitespace().collect();
            let text = words.join(" ");
            match text.char_indices().nth(60) {
                Some((end, _)) => format!("{}…", &text[..end]),
                None => text,
            }
        };
        let key = |key: &String| key.chars().take(18).collect::<String>();
        match self {
            Self::Open => write!(out, "key-value open"),
            Self::Get(name) => write!(out, "key-value get {}", key(name)),
            Self::Set(name, value) => {
                let value = String::from_utf8_lossy(value);
                write!(out, "key-value set {} {}", key(name), short(&value))
            }
            Self::Delete(name) => write!(out, "key-value delete {}", key(name)),
            Self::Exists(name) => write!(out, "key-value exists {}", key(name)),
            Self::Keys => write!(out, "key-value keys"),
            Self::Sql(_, sql, _) => write!(out, "sqlite {}", short(sql)),
            Self::Channel(request) => {
                let body = String::from_utf8_lossy(request.body());
                let path = request.uri().path();
                write!(out, "channel {} {path} {}", request.method(), short(&body))
            }
            Self::Deliver(delivery) => {
                write!(
                    out,
                    "webhook {} {}",
                    delivery.event_id,
                    short(&delivery.payload)
                )
            }
        }
    }
}
