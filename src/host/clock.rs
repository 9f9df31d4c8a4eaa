//! The only reader of time.

use std::cell::Cell;

use tollgate_budget::Timestamp;

use super::calls;

#[derive(Debug)]
pub(super) struct Clock {
    last: Cell<Timestamp>,
}

impl Clock {
    pub(super) fn start() -> Self {
        let clock = Self { last: Cell::new(Timestamp::from_millis(0)) };
        clock.now();
        clock
    }

    /// A host that cannot tell the time is taken to stand at the epoch: windows then never roll, so budgets
    /// err on the side of refusing.
    pub(super) fn now(&self) -> Timestamp {
        let now = Timestamp::from_millis(calls::current_time().map_or(0, |nanos| nanos / 1_000_000));
        self.last.set(now);
        now
    }

    /// When the time was last read: half a second ago at most, as every tick begins with a reading. Never for a
    /// ledger, which would take it for a clock that stepped back.
    pub(super) fn recently(&self) -> Timestamp {
        self.last.get()
    }
}
