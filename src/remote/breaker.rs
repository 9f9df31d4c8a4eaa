//! When to stop asking a sick service, and when to ask it again.
//!
//! One per worker; what a worker finds out is told to the others through a record in shared memory, the
//! latest of which counts. While the breaker is open one call at a time is let through to see whether the
//! service is back, after waits that double.

use tollgate_budget::{Span, Timestamp};

/// One call in so many fails on a healthy network now and then; so many in a row do not.
const FAILURES: u32 = 5;

/// A service that restarts is back in about this time.
const FIRST_WAIT: Span = Span::from_secs(1);

/// However long an outage lasts, it is over for us this long after it is over.
const LONGEST_WAIT: Span = Span::from_secs(8);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Breaker {
    state: Standing,
    /// In a row, while closed.
    failures: u32,
}

/// What workers tell each other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Standing {
    /// When it came to be so.
    since: Timestamp,
    /// Zero while the breaker is closed.
    wait: Span,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { state: Standing::CLOSED, failures: 0 }
    }
}

impl Breaker {
    pub(super) const fn is_open(&self) -> bool {
        self.state.is_open()
    }

    /// Whether a call may be made. When an open breaker lets one through, the next waits anew.
    pub(super) fn admits(&mut self, now: Timestamp) -> bool {
        if !self.state.is_open() {
            return true;
        }
        // A clock that has stepped back must not keep it open.
        let due = now < self.state.since || now.since(self.state.since) >= self.state.wait;
        if due {
            self.state.since = now;
        }
        due
    }

    pub(super) fn succeeded(&mut self, now: Timestamp) {
        self.failures = 0;
        if self.state.is_open() {
            self.state = Standing { since: now, wait: Span::ZERO };
        }
    }

    pub(super) fn failed(&mut self, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        if self.state.is_open() {
            let twice = Span::from_millis(self.state.wait.as_millis().saturating_mul(2));
            self.state = Standing { since: now, wait: twice.min(LONGEST_WAIT) };
        } else if self.failures >= FAILURES {
            self.state = Standing { since: now, wait: FIRST_WAIT };
        }
    }

    pub(super) const fn standing(&self) -> Standing {
        self.state
    }

    /// Another worker's finding, if it is later than ours.
    pub(super) fn hear(&mut self, other: Standing) {
        if other.since > self.state.since {
            self.state = other;
            self.failures = 0;
        }
    }
}

impl Standing {
    const CLOSED: Self = Self { since: Timestamp::from_millis(0), wait: Span::ZERO };

    const fn is_open(&self) -> bool {
        self.wait.as_millis() > 0
    }

    pub(super) fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let (since, wait) = bytes.split_at_mut(8);
        since.copy_from_slice(&self.since.as_millis().to_le_bytes());
        wait.copy_from_slice(&self.wait.as_millis().to_le_bytes());
        bytes
    }

    /// `None` for what no breaker has written.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (since, wait) = bytes.split_first_chunk::<8>()?;
        let wait = Span::from_millis(u64::from_le_bytes(wait.try_into().ok()?));
        let since = Timestamp::from_millis(u64::from_le_bytes(*since));
        Some(Self { since, wait: wait.min(LONGEST_WAIT) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + millis)
    }

    fn broken(at_millis: u64) -> Breaker {
        let mut breaker = Breaker::default();
        (0..FAILURES).for_each(|_| breaker.failed(at(at_millis)));
        breaker
    }

    #[test]
    fn failures_in_a_row_open_it_and_others_do_not() {
        let mut breaker = Breaker::default();
        for _ in 0..100 {
            (1..FAILURES).for_each(|_| breaker.failed(at(0)));
            assert!(breaker.admits(at(0)) && !breaker.is_open());
            breaker.succeeded(at(0));
        }
        assert!(broken(0).is_open());
    }

    #[test]
    fn while_open_one_call_at_a_time_is_let_through_after_waits_that_double() {
        let mut breaker = broken(0);
        let mut now = 0;
        for wait in [1000, 2000, 4000, 8000, 8000] {
            assert!(!breaker.admits(at(now + wait - 1)));
            now += wait;
            assert!(breaker.admits(at(now)));
            assert!(!breaker.admits(at(now)), "a second probe");
            breaker.failed(at(now));
        }
        assert!(breaker.admits(at(now + 8000)));
        breaker.succeeded(at(now + 8001));
        assert!(!breaker.is_open() && breaker.admits(at(now + 8001)));
    }

    #[test]
    fn a_probe_that_is_never_answered_is_followed_by_another() {
        let mut breaker = broken(0);
        assert!(breaker.admits(at(1000)) && !breaker.admits(at(1999)) && breaker.admits(at(2000)));
    }

    #[test]
    fn a_clock_that_steps_back_lets_a_call_through() {
        assert!(broken(5000).admits(at(0)));
    }

    #[test]
    fn the_latest_finding_counts_for_all_workers() {
        let (mut one, mut other) = (broken(100), Breaker::default());
        other.hear(Standing::from_bytes(&one.standing().to_bytes()).unwrap());
        assert!(other.is_open() && !other.admits(at(1000)) && other.admits(at(1100)));
        other.succeeded(at(1101));
        one.hear(other.standing());
        assert!(!one.is_open());
        one.hear(broken(50).standing());
        assert!(!one.is_open(), "an older finding");
        for unread in [&b""[..], &[0; 8], &[0; 17]] {
            assert_eq!(Standing::from_bytes(unread), None);
        }
        let never = [[0xff; 8], [0xff; 8]].concat();
        assert_eq!(Standing::from_bytes(&never).map(|standing| standing.wait), Some(LONGEST_WAIT));
    }
}
