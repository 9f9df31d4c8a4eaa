//! How an account counts and forgets: one file an algorithm, one trait for all.
//!
//! All arithmetic is in whole numbers below 2^53, products are split into thousandths first, so that a
//! store that computes in doubles comes to the same result. What must not go wrong is giving back: a
//! refund larger than what the hold still takes up would let the same room be granted twice.

mod bucket;
mod fixed;
mod sliding;
mod slot;

pub(crate) use bucket::Bucket;
pub(crate) use fixed::Fixed;
pub(crate) use sliding::Sliding;
pub(crate) use slot::Slot;

use crate::{Amount, Limit, OnLeaseEnd, Timestamp, Window};

/// Time within a window is counted in this many parts.
pub(crate) const PARTS: u64 = 1000;

/// Year 2255, in milliseconds: the last moment whose thousandths stay below 2^53. Later times count as
/// this one, longer windows as this long.
pub(crate) const LATEST: u64 = 9_000_000_000_000;

/// A limit at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment<'a> {
    pub(crate) limit: &'a Limit,
    pub(crate) at: Timestamp,
}

impl Moment<'_> {
    /// The window's length in milliseconds, never zero.
    pub(crate) fn span(&self) -> u64 {
        span_of(self.limit)
    }

    fn start(&self) -> u64 {
        let at = self.at.as_millis();
        at - at % self.span()
    }

    /// Whole parts of the window that have passed.
    fn parts(&self) -> u64 {
        let span = self.span();
        self.at.as_millis() % span * PARTS / span
    }
}

pub(crate) fn span_of(limit: &Limit) -> u64 {
    limit.window.span().as_millis().clamp(1, LATEST)
}

/// The first millisecond of a window in which `parts` of it have passed.
fn offset_of(parts: u64, span: u64) -> u64 {
    (parts * span).div_ceil(PARTS)
}

/// `parts` thousandths of `amount`, rounded up.
fn share(amount: Amount, parts: u64) -> Amount {
    let units = amount.units();
    Amount::saturating(units / PARTS * parts + (units % PARTS * parts).div_ceil(PARTS))
}

/// The most parts of `amount` that fit into `room`.
fn most_parts(amount: Amount, room: Amount) -> u64 {
    let (mut fits, mut beyond) = (0, PARTS + 1);
    while beyond - fits > 1 {
        let middle = fits.midpoint(beyond);
        if share(amount, middle) <= room {
            fits = middle;
        } else {
            beyond = middle;
        }
    }
    fits
}

/// What counts at one moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Used {
    pub(crate) held: Amount,
    pub(crate) spent: Amount,
}

impl Used {
    pub(crate) fn total(self) -> Amount {
        self.held.saturating_add(self.spent)
    }
}

/// One hold's part in one account.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Stake {
    /// Set aside, and as far as the algorithm can tell still there to give back.
    pub(crate) held: Amount,
    /// Set aside once, but no longer counted: paid for by having aged.
    pub(crate) lapsed: Amount,
    /// When it was taken, in the algorithm's own terms.
    pub(crate) mark: u64,
}

impl Stake {
    pub(crate) fn total(&self) -> Amount {
        self.held.saturating_add(self.lapsed)
    }

    /// From here on there is nothing to give back.
    pub(crate) fn lapse(&mut self) {
        *self = Self { held: Amount::ZERO, lapsed: self.total(), mark: self.mark };
    }

    /// How the true cost divides: kept of what is held, and owed beyond it.
    fn divide(&self, spent: Amount) -> (Amount, Amount) {
        let beyond_lapsed = spent.saturating_sub(self.lapsed);
        (beyond_lapsed.min(self.held), beyond_lapsed.saturating_sub(self.held))
    }
}

/// Whether a stake still counts as held, or its lease end has made it spent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    Open,
    Ended,
}

/// What closing a stake did to its account.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Closed {
    pub(crate) refunded: Amount,
    pub(crate) debt: Amount,
}

/// One account's arithmetic. Every method but [`roll`](Algorithm::roll) and
/// [`rebase`](Algorithm::rebase) is called with the moment rolled to.
pub(crate) trait Algorithm {
    /// Lets time pass from the moment rolled to before.
    fn roll(&mut self, from: Moment<'_>, to: Timestamp);

    /// The clock was ahead and is set back to this moment, at least one window after it was noticed: what
    /// was current still is, what was older no longer counts.
    fn rebase(&mut self, to: Moment<'_>);

    /// Another length or amount from this moment on.
    fn relimit(&mut self, now: Moment<'_>);

    fn used(&self, now: Moment<'_>) -> Used;

    /// The first moment at which no more than `target` is used, if nothing else happens.
    fn until(&self, now: Moment<'_>, target: Amount) -> Timestamp;

    fn take(&mut self, now: Moment<'_>, amount: Amount) -> Stake;

    /// Adds to an open stake.
    fn grow(&mut self, now: Moment<'_>, stake: &mut Stake, amount: Amount);

    /// Replaces the stake by the true cost.
    fn close(&mut self, now: Moment<'_>, stake: Stake, phase: Phase, spent: Amount) -> Closed;

    /// The lease of an open stake has ended. What is left in the stake is what has been charged.
    fn end(&mut self, stake: &mut Stake, how: OnLeaseEnd) -> Closed;

    /// An ended stake will not be corrected any more.
    fn forget(&mut self, stake: Stake);

    /// Spends without a hold.
    fn owe(&mut self, now: Moment<'_>, amount: Amount);
}

/// An account's algorithm with its numbers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum State {
    Sliding(Sliding),
    Fixed(Fixed),
    Bucket(Bucket),
}

impl State {
    pub(crate) fn new(window: Window) -> Self {
        match window {
            Window::Sliding(_) => Self::Sliding(Sliding::default()),
            Window::Fixed(_) => Self::Fixed(Fixed::default()),
            Window::Bucket { .. } => Self::Bucket(Bucket::default()),
        }
    }

    pub(crate) fn is_for(&self, window: Window) -> bool {
        match (self, window) {
            (Self::Sliding(_), Window::Sliding(_))
            | (Self::Fixed(_), Window::Fixed(_))
            | (Self::Bucket(_), Window::Bucket { .. }) => true,
            (Self::Sliding(_), Window::Fixed(_) | Window::Bucket { .. })
            | (Self::Fixed(_), Window::Sliding(_) | Window::Bucket { .. })
            | (Self::Bucket(_), Window::Sliding(_) | Window::Fixed(_)) => false,
        }
    }

    pub(crate) fn algorithm(&self) -> &dyn Algorithm {
        match self {
            Self::Sliding(sliding) => sliding,
            Self::Fixed(fixed) => fixed,
            Self::Bucket(bucket) => bucket,
        }
    }

    pub(crate) fn algorithm_mut(&mut self) -> &mut dyn Algorithm {
        match self {
            Self::Sliding(sliding) => sliding,
            Self::Fixed(fixed) => fixed,
            Self::Bucket(bucket) => bucket,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Quota, Span};

    #[test]
    fn a_share_is_rounded_up_and_never_more_than_the_whole() {
        for (amount, parts, expected) in
            [(0, 1000, 0), (1, 1, 1), (1, 0, 0), (1000, 1, 1), (1001, 1, 2), (1001, 1000, 1001)]
        {
            assert_eq!(share(Amount::saturating(amount), parts), Amount::saturating(expected));
        }
        assert_eq!(share(Amount::MAX, 1000), Amount::MAX);
    }

    #[test]
    fn most_parts_is_the_inverse_of_share() {
        for amount in [1, 2, 999, 1000, 1001, 123_456_789, Amount::MAX.units()] {
            let amount = Amount::saturating(amount);
            for room in [0, 1, 17, 999, 1000, 61_728_394, Amount::MAX.units() / 3] {
                let room = Amount::saturating(room);
                let parts = most_parts(amount, room);
                assert!(share(amount, parts) <= room);
                assert!(parts == PARTS || share(amount, parts + 1) > room);
            }
        }
    }

    #[test]
    fn the_offset_of_a_part_is_the_first_millisecond_in_it() {
        for span in [1, 7, 999, 1000, 1001, 60_000, LATEST] {
            let limit = Limit { window: Window::Fixed(Span::from_millis(span)), quota: Quota::Suspended };
            for parts in [1, 2, 499, 999] {
                let offset = offset_of(parts, span);
                let parts_at = |at| Moment { limit: &limit, at: Timestamp::from_millis(at) }.parts();
                assert!(offset == span || parts_at(offset) >= parts);
                assert!(parts_at(offset - 1) < parts);
            }
        }
    }
}
