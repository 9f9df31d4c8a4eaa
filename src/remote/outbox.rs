//! What is still to be delivered: bounded, in batches, oldest first.
//!
//! Sans-IO like all else: [`Outbox::next_batch`] hands out what is to be sent, and whoever sends it says
//! how it went. Nothing leaves before its delivery is known.

use std::collections::VecDeque;

use tollgate_budget::{Span, Timestamp};

/// Letters that wait at most, of about 300 bytes each: a worker's settlements for half a minute at a rate that
/// no worker reaches. Beyond it the oldest are given up: their holds end with their leases first.
pub(super) const WAITING_MOST: usize = 16_384;

/// In one call: a service that is asked for more keeps others waiting.
pub(super) const BATCH_MOST: usize = 128;

/// After a delivery that failed, so that a service that comes back is not buried.
const FIRST_WAIT: Span = Span::from_millis(100);
const LONGEST_WAIT: Span = Span::from_secs(5);

#[derive(Debug)]
pub(super) struct Outbox<T> {
    waiting: VecDeque<T>,
    /// So many of the oldest are on their way.
    flying: usize,
    /// Nothing is sent before.
    not_before: Timestamp,
    wait: Span,
}

impl<T> Default for Outbox<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), flying: 0, not_before: Timestamp::from_millis(0), wait: FIRST_WAIT }
    }
}

impl<T> Outbox<T> {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// So many of the oldest are on their way.
    pub(super) const fn flying(&self) -> usize {
        self.flying
    }

    /// Returns how many were given up for it.
    pub(super) fn push(&mut self, letter: T) -> u64 {
        let mut lost = 0;
        while self.waiting.len() >= WAITING_MOST {
            // What is on its way may arrive, so the oldest that is not goes.
            let oldest = if self.flying < self.waiting.len() { self.flying } else { 0 };
            lost += u64::from(self.waiting.remove(oldest).is_some());
        }
        self.waiting.push_back(letter);
        lost
    }

    /// Whether there is something to send now; one batch at a time.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        // A clock that has stepped back by more than a wait must not hold the letters.
        let early = now < self.not_before && self.not_before.since(now) <= LONGEST_WAIT;
        self.flying == 0 && !self.waiting.is_empty() && !early
    }

    pub(super) fn next_batch(&mut self, now: Timestamp) -> Option<impl Iterator<Item = &T>> {
        if !self.is_due(now) {
            return None;
        }
        self.flying = self.waiting.len().min(BATCH_MOST);
        Some(self.waiting.iter().take(self.flying))
    }

    /// The batch was answered. Those that `again` says, by their place in it, stay to be sent once more.
    pub(super) fn answered(&mut self, now: Timestamp, again: impl Fn(usize) -> bool) {
        let batch: Vec<T> = self.waiting.drain(..self.flying.min(self.waiting.len())).collect();
        self.flying = 0;
        let kept: Vec<T> =
            batch.into_iter().enumerate().filter(|(place, _)| again(*place)).map(|(_, it)| it).collect();
        if kept.is_empty() {
            self.wait = FIRST_WAIT;
        } else {
            kept.into_iter().rev().for_each(|letter| self.waiting.push_front(letter));
            self.pause(now);
        }
    }

    /// The batch may or may not have arrived, and is sent again.
    pub(super) fn failed(&mut self, now: Timestamp) {
        self.flying = 0;
        self.pause(now);
    }

    /// The batch will never be taken. Returns how many were given up.
    pub(super) fn refused(&mut self) -> u64 {
        let lost = self.waiting.drain(..self.flying.min(self.waiting.len())).count();
        self.flying = 0;
        lost as u64
    }

    fn pause(&mut self, now: Timestamp) {
        self.not_before = now.after(self.wait);
        self.wait = Span::from_millis(self.wait.as_millis().saturating_mul(2)).min(LONGEST_WAIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + millis)
    }

    fn sent(outbox: &mut Outbox<u32>, now: u64) -> Vec<u32> {
        outbox.next_batch(at(now)).map(|batch| batch.copied().collect()).unwrap_or_default()
    }

    fn with(letters: std::ops::Range<u32>) -> Outbox<u32> {
        let mut outbox = Outbox::default();
        assert_eq!(letters.map(|letter| outbox.push(letter)).sum::<u64>(), 0);
        outbox
    }

    #[test]
    fn letters_go_oldest_first_one_batch_at_a_time() {
        let mut outbox = with(0..300);
        assert_eq!(sent(&mut outbox, 0), (0..128).collect::<Vec<_>>());
        assert!(sent(&mut outbox, 0).is_empty());
        outbox.answered(at(0), |_| false);
        assert_eq!(sent(&mut outbox, 0), (128..256).collect::<Vec<_>>());
        outbox.answered(at(0), |_| false);
        assert_eq!(sent(&mut outbox, 0), (256..300).collect::<Vec<_>>());
        outbox.answered(at(0), |_| false);
        assert!(outbox.len() == 0);
    }

    #[test]
    fn what_failed_goes_again_after_waits_that_double() {
        let mut outbox = with(0..2);
        let mut now = 0;
        for wait in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            assert_eq!(sent(&mut outbox, now), [0, 1]);
            outbox.failed(at(now));
            assert!(sent(&mut outbox, now + wait - 1).is_empty());
            now += wait;
        }
        assert_eq!(sent(&mut outbox, now), [0, 1]);
        outbox.answered(at(now), |_| false);
        outbox.push(2);
        assert_eq!(sent(&mut outbox, now), [2]);
        outbox.failed(at(now));
        assert_eq!(sent(&mut outbox, now + 100), [2]);
    }

    #[test]
    fn what_the_service_could_not_do_stays_in_its_order() {
        let mut outbox = with(0..4);
        assert_eq!(sent(&mut outbox, 0), [0, 1, 2, 3]);
        outbox.push(4);
        outbox.answered(at(0), |place| place % 2 == 1);
        assert!(sent(&mut outbox, 99).is_empty());
        assert_eq!(sent(&mut outbox, 100), [1, 3, 4]);
    }

    #[test]
    fn what_is_refused_for_good_is_given_up_and_counted() {
        let mut outbox = with(0..200);
        assert_eq!(sent(&mut outbox, 0).len(), 128);
        assert_eq!(outbox.refused(), 128);
        assert_eq!(sent(&mut outbox, 0).first(), Some(&128));
    }

    #[test]
    fn a_full_box_gives_up_the_oldest_that_is_not_on_its_way() {
        let mut outbox = with(0..u32::try_from(WAITING_MOST).unwrap());
        assert_eq!(sent(&mut outbox, 0).len(), BATCH_MOST);
        assert_eq!(outbox.push(1_000_000), 1);
        assert_eq!(outbox.len(), WAITING_MOST);
        outbox.answered(at(0), |_| false);
        assert_eq!(sent(&mut outbox, 0).first(), Some(&129), "128 was the oldest that waited");
    }

    #[test]
    fn a_clock_that_steps_back_does_not_hold_letters() {
        let mut outbox = with(0..1);
        assert_eq!(sent(&mut outbox, 900_000), [0]);
        outbox.failed(at(900_000));
        assert_eq!(sent(&mut outbox, 0), [0]);
    }
}
