//! Whole windows counted from the Unix epoch; each starts empty.

use super::slot::{Slot, Slots};
use super::{Algorithm, Closed, Moment, Phase, Stake, Used};
use crate::{Amount, OnLeaseEnd, Timestamp};

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Fixed {
    pub(crate) current: Slot,
}

impl Default for Fixed {
    fn default() -> Self {
        Self { current: Slot::FIRST }
    }
}

impl Slots for Fixed {
    fn current(&mut self) -> &mut Slot {
        &mut self.current
    }

    fn numbered(&mut self, number: u64) -> Option<&mut Slot> {
        (self.current.number == number).then_some(&mut self.current)
    }
}

impl Algorithm for Fixed {
    fn roll(&mut self, from: Moment<'_>, to: Timestamp) {
        if to.as_millis() >= from.start() + from.span() {
            self.current = self.current.next();
        }
    }

    fn rebase(&mut self, _to: Moment<'_>) {}

    /// The windows go on under their numbers; what is in them ages by the new length.
    fn relimit(&mut self, _now: Moment<'_>) {}

    fn used(&self, _now: Moment<'_>) -> Used {
        self.current.used()
    }

    fn until(&self, now: Moment<'_>, target: Amount) -> Timestamp {
        if self.current.used().total() <= target {
            now.at
        } else {
            Timestamp::from_millis(now.start() + now.span())
        }
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
        Limit { window: Window::Fixed(Span::from_millis(1000)), quota: Quota::Of(Amount::saturating(100)) };

    fn at(millis: u64) -> Moment<'static> {
        Moment { limit: &LIMIT, at: Timestamp::from_millis(millis) }
    }

    #[test]
    fn a_window_is_forgotten_at_its_end_and_not_before() {
        let mut fixed = Fixed::default();
        fixed.take(at(900), Amount::saturating(60));
        fixed.roll(at(900), Timestamp::from_millis(999));
        assert_eq!(fixed.used(at(999)).held, Amount::saturating(60));
        assert_eq!(fixed.until(at(999), Amount::ZERO), Timestamp::from_millis(1000));
        fixed.roll(at(999), Timestamp::from_millis(1000));
        assert_eq!(fixed.used(at(1000)), Used::default());
    }

    #[test]
    fn a_refund_into_a_window_that_is_over_gives_nothing_and_debt_goes_to_the_current_one() {
        let mut fixed = Fixed::default();
        let stake = fixed.take(at(900), Amount::saturating(60));
        fixed.roll(at(900), Timestamp::from_millis(1500));
        fixed.take(at(1500), Amount::saturating(10));
        let refund = fixed.close(at(1500), stake, Phase::Open, Amount::saturating(5));
        assert_eq!(refund, Closed::default());
        assert_eq!(fixed.used(at(1500)).total(), Amount::saturating(10));
        let debt = fixed.close(at(1500), stake, Phase::Open, Amount::saturating(75));
        assert_eq!(debt.debt, Amount::saturating(15));
        assert_eq!(fixed.used(at(1500)).total(), Amount::saturating(25));
    }
}
