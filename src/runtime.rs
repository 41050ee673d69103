//! Time, randomness and waiting, from WASI 0.3. The domain gets time and randomness as arguments.

use spin_sdk::wasip3::clocks::{monotonic_clock, system_clock};
use spin_sdk::wasip3::random::random;
use spin_sdk::wasip3::wit_bindgen::{
    StreamReader, StreamWriter, backpressure_dec, backpressure_inc,
};
use spin_sdk::wasip3::wit_stream;
use uuid::{Builder, Uuid};

use crate::domain::{Given, Timestamp};

/// The wall clock.
pub fn now() -> Timestamp {
    let now = system_clock::now();
    let millis = now
        .seconds
        .saturating_mul(1000)
        .saturating_add(i64::from(now.nanoseconds / 1_000_000));
    Timestamp::from_millis(millis)
}

/// A clock that never goes back, in nanoseconds.
pub fn monotonic_nanos() -> u64 {
    monotonic_clock::now()
}

/// The end of a wait, by the clock that never goes back.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(u64);

impl Deadline {
    /// So many milliseconds from now.
    pub fn after_millis(millis: u64) -> Self {
        Self(monotonic_nanos().saturating_add(millis.saturating_mul(1_000_000)))
    }

    /// What is left until then, whole milliseconds, rounded up.
    pub fn left_millis(self) -> u64 {
        self.0.saturating_sub(monotonic_nanos()).div_ceil(1_000_000)
    }
}

/// Waits.
pub async fn sleep_millis(millis: u64) {
    monotonic_clock::wait_for(millis.saturating_mul(1_000_000)).await;
}

/// Gives the host's scheduler a turn, which takes it about a millisecond.
pub async fn yield_to_host() {
    monotonic_clock::wait_for(1).await;
}

/// Fresh UUIDv7s.
pub fn uuids<const N: usize>(now: Timestamp) -> [Uuid; N] {
    let millis = u64::try_from(now.as_millis()).unwrap_or(0);
    let random = random::get_random_bytes((N as u64).saturating_mul(10));
    let mut random = random.chunks_exact(10);
    std::array::from_fn(|_| {
        let bytes = random
            .next()
            .and_then(|chunk| chunk.try_into().ok())
            .unwrap_or([0; 10]);
        Builder::from_unix_timestamp_millis(millis, &bytes).into_uuid()
    })
}

/// A fresh UUIDv7.
pub fn uuid(now: Timestamp) -> Uuid {
    let [uuid] = uuids(now);
    uuid
}

/// Time and randomness for a decision.
pub fn given() -> Given {
    let now = now();
    let [subject, event, instance] = uuids(now);
    Given {
        now,
        subject,
        event,
        instance,
        channel: None,
    }
}

/// Asks the host to send requests to other instances, for some time.
///
/// A request that is on its way already waits until then: the host may have handed it over before it
/// heard of this.
pub async fn step_aside(millis: u64) {
    struct Aside;
    impl Drop for Aside {
        fn drop(&mut self) {
            backpressure_dec();
        }
    }
    backpressure_inc();
    let _aside = Aside;
    sleep_millis(millis).await;
}

/// Whether a die of so many sides shows its first.
pub fn one_in(sides: u64) -> bool {
    random().is_multiple_of(sides)
}

/// A random number.
pub fn random() -> u64 {
    random::get_random_u64()
}

/// Wakes its [`Wait`] when it is dropped.
pub struct Signal(#[expect(dead_code, reason = "held for its drop")] StreamWriter<u8>);

/// Waits for the other end, maybe in another request of this instance.
///
/// Requests are tasks of the component model. One cannot be woken from another by a Rust `Waker`, as the
/// channels of `futures` do, but by the end of a stream.
pub struct Wait(StreamReader<u8>);

impl Wait {
    /// Waits until the [`Signal`] is dropped.
    pub async fn wait(mut self) {
        _ = self.0.next().await;
    }
}

/// A signal between two tasks.
pub fn signal() -> (Signal, Wait) {
    let (writer, reader) = wit_stream::new();
    (Signal(writer), Wait(reader))
}
