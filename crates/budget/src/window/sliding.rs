//! Two fixed windows counted from the Unix epoch; the earlier one counts by as much of it as the sliding
//! window still covers, in thousandths, rounded up.

use super::slot::{Slot, Slots};
use super::{Algorithm, Closed, Moment, PARTS, Phase, Stake, Used, most_parts, offset_of, share};
use crate::{Amount, OnLeaseEnd, Timestamp};

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Sliding {
    pub(crate) current: Slot,
    pub(crate) previous: Slot,
}

impl Default for Sliding {
    fn default() -> Self {
        Self { current: Slot::FIRST, previous: Slot::NONE }
    }
}

impl Slots for Sliding {
    fn current(&mut self) -> &mut Slot {
        &mut self.current
    }

    fn numbered(&mut self, number: u64) -> Option<&mut Slot> {
        if self.current.number == number {
            Some(&mut self.current)
        } else {
            (self.previous.number == number).then_some(&mut self.previous)
        }
    }
}

impl Algorithm for Sliding {
    fn roll(&mut self, from: Moment<'_>, to: Timestamp) {
        match to.as_millis().saturating_sub(from.start()) / from.span() {
            0 => {}
            1 => *self = Self { current: self.current.next(), previous: self.current },
            _ => *self = Self { current: self.current.next(), previous: Slot::NONE },
        }
    }

    fn rebase(&mut self, _to: Moment<'_>) {
        self.previous = Slot::NONE;
    }

    /// The windows go on under their numbers; what is in them ages by the new length.
    fn relimit(&mut self, _now: Moment<'_>) {}

    fn used(&self, now: Moment<'_>) -> Used {
        let left = PARTS - now.parts();
        // Rounded up as one sum: two halves of a request are one request.
        let previous = share(self.previous.used().total(), left);
        let held = share(self.previous.held, left).min(previous);
        Used {
            held: self.current.held.saturating_add(held),
            spent: self.current.spent.saturating_add(previous.saturating_sub(held)),
        }
    }

    fn until(&self, now: Moment<'_>, target: Amount) -> Timestamp {
        if self.used(now).total() <= target {
            return now.at;
        }
        let (start, span) = (now.start(), now.span());
        let current = self.current.used().total();
        let (start, fading, room) = if current <= target {
            (start, self.previous.used().total(), target.saturating_sub(current))
        } else {
            (start + span, current, target)
        };
        Timestamp::from_millis(start + offset_of(PARTS - most_parts(fading, room), span))
    }

    fn take(&mut self, _now: Moment<'_>, amount: Amount) -> Stake {
        self.take_slot(amount)
    }

    fn grow(&mut self, _now: Moment<'_>, stake: &mut Stake, amount: Amount) {
        self.grow_slot(stake, amount);
    }

    fn close(&mut self, _now: Moment<'_>, stake: Stake, phase: Phase, spent: Amount) -> Closed {
        self.close_slot(stake, phase, spent)
    }

    fn end(&mut self, stake: &mut Stake, how: OnLeaseEnd) -> Closed {
        self.end_slot(stake, how)
    }

    fn forget(&mut self, _stake: Stake) {}

    fn owe(&mut self, _now: Moment<'_>, amount: Amount) {
        self.current.spend(amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limit, Quota, Span, Window};

    const LIMIT: Limit =
        Limit { window: Window::Sliding(Span::from_millis(1000)), quota: Quota::Of(Amount::saturating(100)) };

    fn at(millis: u64) -> Moment<'static> {
        Moment { limit: &LIMIT, at: Timestamp::from_millis(millis) }
    }

    fn rolled(sliding: &Sliding, from: u64, to: u64) -> Sliding {
        let mut rolled = sliding.clone();
        rolled.roll(at(from), Timestamp::from_millis(to));
        rolled
    }

    #[test]
    fn the_earlier_window_fades_as_the_current_one_passes() {
        let mut sliding = Sliding::default();
        sliding.take(at(100), Amount::saturating(80));
        for (to, used) in [(999, 80), (1000, 80), (1500, 40), (1999, 1), (2000, 0)] {
            let later = rolled(&sliding, 100, to);
            assert_eq!(later.used(at(to)).total(), Amount::saturating(used), "at {to}");
        }
    }

    #[test]
    fn a_wait_may_reach_into_the_second_window() {
        let mut sliding = Sliding::default();
        sliding.take(at(100), Amount::saturating(100));
        let wait = sliding.until(at(100), Amount::saturating(10));
        assert_eq!(wait, Timestamp::from_millis(1900));
        assert_eq!(rolled(&sliding, 100, 1900).used(at(1900)).total(), Amount::saturating(10));
        assert_eq!(rolled(&sliding, 100, 1899).used(at(1899)).total(), Amount::saturating(11));
        assert_eq!(sliding.until(at(100), Amount::ZERO), Timestamp::from_millis(2000));
    }

    #[test]
    fn a_refund_finds_its_window_when_it_has_become_the_earlier_one() {
        let mut sliding = Sliding::default();
        let stake = sliding.take(at(900), Amount::saturating(100));
        let mut later = rolled(&sliding, 900, 1500);
        assert_eq!(later.used(at(1500)).held, Amount::saturating(50));
        later.close(at(1500), stake, Phase::Open, Amount::saturating(20));
        let used = later.used(at(1500));
        assert_eq!((used.held, used.spent), (Amount::ZERO, Amount::saturating(10)));
    }
}
