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

/// Bytes of letters in one call, half of what the service takes. A single letter, of 64 accounts at most, is
/// always smaller.
pub(super) const BATCH_BYTES_MOST: usize = tollgate_budget::wire::BODY_MOST / 2;

/// After a delivery that failed, so that a service that comes back is not buried.
const FIRST_WAIT: Span = Span::from_millis(100);
const LONGEST_WAIT: Span = Span::from_secs(5);

/// Letters as they are sent.
#[derive(Debug)]
pub(super) struct Outbox {
    waiting: VecDeque<Vec<u8>>,
    /// So many of the oldest are on their way.
    flying: usize,
    /// So many of the oldest go one by one, to find the one among them that is not taken.
    singly: usize,
    /// Nothing is sent before.
    not_before: Timestamp,
    wait: Span,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            flying: 0,
            singly: 0,
            not_before: Timestamp::from_millis(0),
            wait: FIRST_WAIT,
        }
    }
}

impl Outbox {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// So many of the oldest are on their way.
    pub(super) const fn flying(&self) -> usize {
        self.flying
    }

    /// Returns how many were given up for it.
    pub(super) fn push(&mut self, letter: Vec<u8>) -> u64 {
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

    pub(super) fn next_batch(&mut self, now: Timestamp) -> Option<impl Iterator<Item = &[u8]>> {
        if !self.is_due(now) {
            return None;
        }
        let most = if self.singly > 0 { 1 } else { BATCH_MOST };
        let mut bytes = 0_usize;
        let fits = |letter: &&Vec<u8>| {
            bytes = bytes.saturating_add(letter.len());
            bytes <= BATCH_BYTES_MOST
        };
        self.flying = self.waiting.iter().take(most).take_while(fits).count().max(1);
        Some(self.waiting.iter().take(self.flying).map(Vec::as_slice))
    }

    /// The batch was answered. Those that `again` says, by their place in it, are sent once more, behind all
    /// others: what the service cannot do must not stand before what it can.
    pub(super) fn answered(&mut self, now: Timestamp, again: impl Fn(usize) -> bool) {
        let batch = self.take_batch();
        let all = batch.len();
        let kept: Vec<_> =
            batch.into_iter().enumerate().filter(|(place, _)| again(*place)).map(|(_, it)| it).collect();
        if kept.len() == all && all > 0 {
            self.pause(now);
        } else {
            self.wait = FIRST_WAIT;
        }
        self.waiting.extend(kept);
    }

    /// The batch may or may not have arrived, and is sent again.
    pub(super) fn failed(&mut self, now: Timestamp) {
        self.flying = 0;
        self.pause(now);
    }

    /// The batch will never be taken as it is. One letter may be the reason, so each gets its own call; one
    /// that went by itself is given up. Returns how many were.
    pub(super) fn refused(&mut self) -> u64 {
        if self.flying > 1 {
            self.singly = std::mem::take(&mut self.flying);
            return 0;
        }
        self.take_batch().len() as u64
    }

    fn take_batch(&mut self) -> Vec<Vec<u8>> {
        let flying = std::mem::take(&mut self.flying).min(self.waiting.len());
        self.singly = self.singly.saturating_sub(flying);
        self.waiting.drain(..flying).collect()
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

    fn letter(number: u32) -> Vec<u8> {
        number.to_string().into_bytes()
    }

    fn sent(outbox: &mut Outbox, now: u64) -> Vec<u32> {
        let number = |letter: &[u8]| std::str::from_utf8(letter).unwrap().parse().unwrap();
        outbox.next_batch(at(now)).map(|batch| batch.map(number).collect()).unwrap_or_default()
    }

    fn with(letters: std::ops::Range<u32>) -> Outbox {
        let mut outbox = Outbox::default();
        assert_eq!(letters.map(|number| outbox.push(letter(number))).sum::<u64>(), 0);
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
        outbox.push(letter(2));
        assert_eq!(sent(&mut outbox, now), [2]);
        outbox.failed(at(now));
        assert_eq!(sent(&mut outbox, now + 100), [2]);
    }

    #[test]
    fn what_the_service_could_not_do_goes_behind_what_it_can() {
        let mut outbox = with(0..4);
        assert_eq!(sent(&mut outbox, 0), [0, 1, 2, 3]);
        outbox.push(letter(4));
        outbox.answered(at(0), |place| place % 2 == 1);
        assert_eq!(sent(&mut outbox, 0), [4, 1, 3]);
        outbox.answered(at(0), |_| true);
        assert!(sent(&mut outbox, 99).is_empty(), "nothing of it was done");
        assert_eq!(sent(&mut outbox, 100), [4, 1, 3]);
    }

    #[test]
    fn of_a_batch_that_is_refused_for_good_only_the_letters_at_fault_are_given_up() {
        let mut outbox = with(0..200);
        assert_eq!(sent(&mut outbox, 0).len(), 128);
        assert_eq!(outbox.refused(), 0);
        let mut lost = 0;
        for number in 0..128 {
            assert_eq!(sent(&mut outbox, 0), [number]);
            match number {
                7 => lost += outbox.refused(),
                _ => outbox.answered(at(0), |_| false),
            }
        }
        assert_eq!((lost, sent(&mut outbox, 0).len()), (1, 72));
    }

    #[test]
    fn a_batch_is_no_larger_than_the_service_takes() {
        let mut outbox = Outbox::default();
        let large = vec![b'1'; BATCH_BYTES_MOST / 3];
        (0..5).for_each(|_| assert_eq!(outbox.push(large.clone()), 0));
        assert_eq!(outbox.next_batch(at(0)).unwrap().count(), 3);
        outbox.answered(at(0), |_| false);
        assert_eq!(outbox.next_batch(at(0)).unwrap().count(), 2);
        outbox.answered(at(0), |_| false);
        outbox.push(vec![b'1'; BATCH_BYTES_MOST + 1]);
        assert_eq!(outbox.next_batch(at(0)).unwrap().count(), 1, "or it would wait for ever");
    }

    #[test]
    fn a_full_box_gives_up_the_oldest_that_is_not_on_its_way() {
        let mut outbox = with(0..u32::try_from(WAITING_MOST).unwrap());
        assert_eq!(sent(&mut outbox, 0).len(), BATCH_MOST);
        assert_eq!(outbox.push(letter(1_000_000)), 1);
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
