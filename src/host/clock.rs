//! The only reader of time.

use tollgate_budget::Timestamp;

use super::calls;

/// A host that cannot tell the time is taken to stand at the epoch: windows then never roll, so budgets
/// err on the side of refusing.
pub(super) fn now() -> Timestamp {
    Timestamp::from_millis(calls::current_time().map_or(0, |nanos| nanos / 1_000_000))
}
