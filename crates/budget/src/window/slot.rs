//! One window's sums, and what the algorithms made of whole windows have in common.

use super::{Closed, Phase, Stake, Used};
use crate::{Amount, OnLeaseEnd};

/// What was held and spent in one window. Windows are numbered as they come, so that a stake finds its own
/// again however the clock or the limit was moved meanwhile.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Slot {
    pub(crate) number: u64,
    pub(crate) held: Amount,
    pub(crate) spent: Amount,
}

impl Slot {
    pub(crate) const FIRST: Self = Self { number: 1, held: Amount::ZERO, spent: Amount::ZERO };
    /// The number of no window: nothing was ever taken in it.
    pub(crate) const NONE: Self = Self { number: 0, held: Amount::ZERO, spent: Amount::ZERO };

    pub(crate) fn next(&self) -> Self {
        Self { number: self.number.saturating_add(1), ..Self::NONE }
    }

    pub(crate) fn used(&self) -> Used {
        Used { held: self.held, spent: self.spent }
    }

    fn hold(&mut self, amount: Amount) {
        self.held = self.held.saturating_add(amount);
    }

    pub(crate) fn spend(&mut self, amount: Amount) {
        self.spent = self.spent.saturating_add(amount);
    }

    fn close(&mut self, phase: Phase, held: Amount, kept: Amount) {
        match phase {
            Phase::Open => {
                self.held = self.held.saturating_sub(held);
                self.spend(kept);
            }
            Phase::Ended => self.spent = self.spent.saturating_sub(held.saturating_sub(kept)),
        }
    }
}

/// An algorithm that counts in whole windows.
pub(super) trait Slots {
    fn current(&mut self) -> &mut Slot;

    /// The window of that number, while it counts.
    fn numbered(&mut self, number: u64) -> Option<&mut Slot>;

    fn take_slot(&mut self, amount: Amount) -> Stake {
        let slot = self.current();
        slot.hold(amount);
        Stake { held: amount, lapsed: Amount::ZERO, mark: slot.number }
    }

    fn grow_slot(&mut self, stake: &mut Stake, amount: Amount) {
        if let Some(slot) = self.numbered(stake.mark) {
            slot.hold(amount);
            stake.held = stake.held.saturating_add(amount);
        } else {
            let lapsed = stake.total();
            *stake = Stake { lapsed, ..self.take_slot(amount) };
        }
    }

    fn close_slot(&mut self, mut stake: Stake, phase: Phase, spent: Amount) -> Closed {
        if self.numbered(stake.mark).is_none() {
            stake.lapse();
        }
        let (kept, debt) = stake.divide(spent);
        if let Some(slot) = self.numbered(stake.mark) {
            slot.close(phase, stake.held, kept);
            slot.spend(debt);
        } else {
            self.current().spend(debt);
        }
        Closed { refunded: stake.held.saturating_sub(kept), debt }
    }

    fn end_slot(&mut self, stake: &mut Stake, how: OnLeaseEnd) -> Closed {
        let Some(slot) = self.numbered(stake.mark) else {
            stake.lapse();
            return Closed::default();
        };
        match how {
            OnLeaseEnd::Charge => {
                slot.close(Phase::Open, stake.held, stake.held);
                Closed::default()
            }
            OnLeaseEnd::Release => {
                slot.close(Phase::Open, stake.held, Amount::ZERO);
                let refunded = std::mem::take(&mut stake.held);
                Closed { refunded, debt: Amount::ZERO }
            }
        }
    }
}
