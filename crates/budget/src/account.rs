//! One account: a limit, what counts against it, and the time it goes by.
//!
//! An account goes by the latest time it has seen, so a clock that steps back neither re-arms a window nor
//! refunds. Once the clock has been behind for a whole window, it rules again: nobody is locked out by a
//! clock that was years ahead for a moment.

use crate::window::{Algorithm, LATEST, Moment, State, span_of};
use crate::{AccountId, Amount, Limit, Quota, Span, Standing, Timestamp};

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Account {
    pub(crate) id: AccountId,
    pub(crate) limit: Limit,
    /// The time rolled to: the latest seen.
    pub(crate) at: Timestamp,
    /// When the clock was first seen behind `at`.
    pub(crate) behind_since: Option<Timestamp>,
    /// Holds that have a stake in this account, open or ended.
    pub(crate) stakes: u32,
    pub(crate) state: State,
}

/// Whether a new limit could go on with the old numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Adopted {
    Continued,
    /// All that was used counts as spent now; the account's stakes have lapsed.
    Converted,
}

impl Account {
    pub(crate) fn new(id: AccountId, limit: Limit, now: Timestamp) -> Self {
        Self { id, limit, at: now, behind_since: None, stakes: 0, state: State::new(limit.window) }
    }

    fn now(&self) -> Moment<'_> {
        Moment { limit: &self.limit, at: self.at }
    }

    /// Does something to the account's numbers, at the time rolled to.
    pub(crate) fn change<T>(&mut self, change: impl FnOnce(&mut dyn Algorithm, Moment<'_>) -> T) -> T {
        let moment = Moment { limit: &self.limit, at: self.at };
        change(self.state.algorithm_mut(), moment)
    }

    /// Lets time pass up to what the clock says.
    pub(crate) fn advance(&mut self, clock: Timestamp) {
        self.notice(clock);
        if let Some(resume) = self.resume().filter(|resume| *resume <= clock) {
            self.at = resume;
            self.change(|algorithm, moment| algorithm.rebase(moment));
        }
        if clock >= self.at {
            self.change(|algorithm, moment| algorithm.roll(moment, clock));
            self.at = clock;
            self.behind_since = None;
        }
    }

    /// Remembers that the clock is behind; changes nothing when it is not.
    pub(crate) fn notice(&mut self, clock: Timestamp) {
        if clock < self.at {
            self.behind_since = Some(self.behind_since.map_or(clock, |since| since.min(clock)));
        }
    }

    /// When a clock that is behind will rule again, if it has not caught up by then.
    fn resume(&self) -> Option<Timestamp> {
        let window = Span::from_millis(span_of(&self.limit));
        self.behind_since.map(|since| since.after(window)).filter(|resume| *resume < self.at)
    }

    /// Takes over a limit that may have changed since the account was last used. Call after
    /// [`advance`](Self::advance).
    pub(crate) fn adopt(&mut self, limit: &Limit) -> Adopted {
        if self.limit == *limit {
            return Adopted::Continued;
        }
        let used = self.used();
        self.limit = *limit;
        if self.state.is_for(limit.window) {
            self.change(|algorithm, moment| algorithm.relimit(moment));
            return Adopted::Continued;
        }
        self.state = State::new(limit.window);
        self.owe(used);
        Adopted::Converted
    }

    pub(crate) fn used(&self) -> Amount {
        self.state.algorithm().used(self.now()).total()
    }

    pub(crate) fn owe(&mut self, amount: Amount) {
        if amount > Amount::ZERO {
            self.change(|algorithm, moment| algorithm.owe(moment, amount));
        }
    }

    /// How long from `clock` until no more than `target` is used.
    pub(crate) fn wait(&self, clock: Timestamp, target: Amount) -> Span {
        if self.used() <= target {
            return Span::ZERO;
        }
        match self.resume() {
            None => self.state.algorithm().until(self.now(), target).since(clock),
            Some(resume) => {
                let mut later = self.clone();
                later.advance(resume);
                later.state.algorithm().until(later.now(), target).since(clock)
            }
        }
    }

    pub(crate) fn standing(&self, clock: Timestamp) -> Standing {
        let used = self.state.algorithm().used(self.now());
        Standing {
            capacity: self.limit.capacity(),
            held: used.held,
            spent: used.spent,
            reset: self.wait(clock, Amount::ZERO),
        }
    }

    /// Nothing would be lost by forgetting the account at this time. A suspended account gives out nothing,
    /// whatever is forgotten.
    pub(crate) fn is_idle(&self, clock: Timestamp) -> bool {
        let mut now = self.clone();
        now.advance(clock);
        self.stakes == 0 && (now.used() == Amount::ZERO || self.limit.quota == Quota::Suspended)
    }
}

/// Times beyond the last one whose thousandths can be counted are taken as that one.
pub(crate) fn within_range(clock: Timestamp) -> Timestamp {
    clock.min(Timestamp::from_millis(LATEST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Window;

    const SECOND: Span = Span::from_millis(1000);

    fn full(window: Window, at: u64) -> Account {
        let limit = Limit { window, quota: Quota::of(Amount::saturating(100)) };
        let mut account = Account::new(AccountId::from_bits(1), limit, Timestamp::from_millis(at));
        account.owe(Amount::saturating(100));
        account
    }

    fn windows() -> [Window; 3] {
        [Window::Sliding(SECOND), Window::Fixed(SECOND), Window::Bucket { period: SECOND, burst: None }]
    }

    #[test]
    fn a_step_back_gives_nothing_back() {
        for window in windows() {
            let mut account = full(window, 5_900);
            for clock in [5_100, 4_000, 4_500, 4_999] {
                account.advance(Timestamp::from_millis(clock));
                assert_eq!(account.used(), Amount::saturating(100), "{window:?} at {clock}");
            }
        }
    }

    #[test]
    fn a_clock_that_was_years_ahead_locks_nobody_out_for_long() {
        for window in windows() {
            let mut account = full(window, 315_360_000_000);
            let clock = Timestamp::from_millis(7_300);
            account.advance(clock);
            let wait = account.wait(clock, Amount::ZERO);
            assert!(wait <= Span::from_millis(3_010), "{window:?}: {wait}");
            let mut later = account.clone();
            later.advance(clock.after(wait));
            assert_eq!(later.used(), Amount::ZERO, "{window:?}");
        }
    }

    #[test]
    fn once_the_clock_rules_again_only_what_was_current_counts() {
        let mut account = full(Window::Sliding(SECOND), 5_500);
        account.advance(Timestamp::from_millis(6_100));
        account.owe(Amount::saturating(5));
        assert_eq!(account.used(), Amount::saturating(95));
        account.advance(Timestamp::from_millis(3_000));
        account.advance(Timestamp::from_millis(4_000));
        assert_eq!((account.at, account.used()), (Timestamp::from_millis(4_000), Amount::saturating(5)));
    }

    #[test]
    fn an_account_changes_its_algorithm_and_keeps_its_debt() {
        for from in windows() {
            for to in windows().into_iter().filter(|to| !State::new(from).is_for(*to)) {
                let mut account = full(from, 500);
                let limit = Limit { window: to, quota: Quota::of(Amount::saturating(50)) };
                assert_eq!(account.adopt(&limit), Adopted::Converted);
                assert_eq!(account.standing(account.at).debt(), Amount::saturating(50));
            }
        }
    }
}
