//! Holds that have been settled or withdrawn, each remembered for as long as [`MEMORY`] says.

use std::collections::{HashSet, VecDeque};

use tollgate_budget::{HoldId, Timestamp};

use crate::store::MEMORY;

/// An hour at 280 settlements a second, some 64 bytes each. Beyond it the oldest is forgotten: a settlement
/// that is repeated so late would be charged twice, and a store that stops settling would lose all.
const MOST: usize = 1_000_000;

#[derive(Debug, Default)]
pub(super) struct Marks {
    ids: HashSet<HoldId>,
    /// By the time from which they are remembered.
    order: VecDeque<(Timestamp, HoldId)>,
}

impl Marks {
    pub(super) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(super) fn contain(&self, id: HoldId) -> bool {
        self.ids.contains(&id)
    }

    pub(super) fn put(&mut self, id: HoldId, now: Timestamp) {
        if self.order.len() >= MOST
            && let Some((_, oldest)) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        if self.ids.insert(id) {
            self.order.push_back((now, id));
        }
    }

    /// Forgets what has been remembered long enough.
    pub(super) fn pass(&mut self, now: Timestamp) {
        // After a step back of the clock the time runs from now, or it would last until the clock is back.
        for (from, _) in self.order.iter_mut().rev().take_while(|(from, _)| *from > now) {
            *from = now;
        }
        while let Some((from, id)) = self.order.front()
            && from.after(MEMORY.settled) <= now
        {
            self.ids.remove(id);
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_lasts_as_long_as_it_must_whatever_the_clock_does() {
        let hour = MEMORY.settled.as_millis();
        let at = Timestamp::from_millis;
        let mut marks = Marks::default();
        marks.put(HoldId::from_bits(1), at(10 * hour));
        marks.pass(at(5 * hour));
        marks.put(HoldId::from_bits(2), at(5 * hour + 1));
        marks.pass(at(6 * hour - 1));
        assert!(marks.contain(HoldId::from_bits(1)) && marks.contain(HoldId::from_bits(2)));
        marks.pass(at(6 * hour));
        assert!(!marks.contain(HoldId::from_bits(1)) && marks.contain(HoldId::from_bits(2)));
        marks.pass(at(6 * hour + 1));
        assert!(marks.is_empty());
    }
}
