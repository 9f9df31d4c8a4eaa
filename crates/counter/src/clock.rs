//! The only reader of time, for stores that have none of their own, and for durations that are measured.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tollgate_budget::Timestamp;

/// Tells the time of day. A test gives its own.
pub type Clock = fn() -> Timestamp;

#[expect(clippy::disallowed_methods, reason = "the service's only reader of the time of day")]
pub fn system() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Measures how long something takes.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "the service's only reader of a stopwatch")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
