//! Which amount counts for an account: the one that was set for it, or the smallest that gateways with
//! different policies ask for.
//!
//! Written once more in `terms.lua`; `tests/model.rs` holds one against the other.

use tollgate_budget::{Amount, Limit, Quota, Timestamp};

use super::SKEW;

/// What is remembered of an account's amounts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Terms {
    /// Stands above what charges say.
    pub(crate) set: Option<Amount>,
    /// The policy that asked last, and the amount that counted.
    last: Option<Asked>,
    /// Another policy, and when it last asked.
    rival: Option<(Asked, Timestamp)>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Asked {
    policy: u32,
    amount: Amount,
}

impl Terms {
    /// The limit that counts for a charge, noting that its policy has been seen.
    pub(crate) fn note(&mut self, limit: Limit, policy: u32, now: Timestamp) -> Limit {
        if let Some(set) = self.set {
            return Limit { quota: Quota::of(set), ..limit };
        }
        let (Some(last), true) = (self.last, policy != 0) else { return limit };
        if last.policy != policy {
            self.rival = Some((last, now));
        }
        // After a step back of the clock the time runs from now.
        self.rival = self.rival.map(|(asked, seen)| (asked, seen.min(now)));
        self.rival = self.rival.filter(|(_, seen)| seen.after(SKEW) > now);
        let Some((rival, _)) = self.rival else { return limit };
        let amount = limit.quota.amount().min(rival.amount);
        self.last = Some(Asked { policy, amount });
        Limit { quota: Quota::of(amount), ..limit }
    }

    /// A charge under this policy was taken with this limit.
    pub(crate) fn took(&mut self, limit: Limit, policy: u32) {
        if policy != 0 && self.set.is_none() {
            self.last = Some(Asked { policy, amount: limit.quota.amount() });
        }
    }

    /// The most that one request may hold: a policy that sets no share of its own amount sets none of another.
    pub(crate) fn largest(&self, presented: Limit, largest: Amount) -> Amount {
        if self.set.is_some() && largest >= presented.capacity() { Amount::MAX } else { largest }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_budget::{Span, Window};

    use super::*;

    fn limit(amount: u64) -> Limit {
        Limit { window: Window::Fixed(Span::from_secs(60)), quota: Quota::of(Amount::saturating(amount)) }
    }

    fn ask(terms: &mut Terms, amount: u64, policy: u32, seconds: u64) -> u64 {
        let limit = terms.note(limit(amount), policy, Timestamp::from_millis(seconds * 1000));
        terms.took(limit, policy);
        limit.quota.amount().units()
    }

    #[test]
    fn the_smaller_amount_counts_until_its_policy_has_not_been_seen_for_a_while() {
        let mut terms = Terms::default();
        assert_eq!(ask(&mut terms, 100, 1, 0), 100);
        assert_eq!(ask(&mut terms, 50, 2, 1), 50);
        assert_eq!(ask(&mut terms, 100, 1, 2), 50);
        assert_eq!(ask(&mut terms, 50, 2, 3), 50);
        assert_eq!(ask(&mut terms, 100, 1, 4), 50);
        assert_eq!(ask(&mut terms, 100, 1, 63), 50);
        assert_eq!(ask(&mut terms, 100, 1, 64), 100);
    }

    #[test]
    fn a_raise_counts_once_the_old_policy_is_gone() {
        let mut terms = Terms::default();
        assert_eq!(ask(&mut terms, 50, 1, 0), 50);
        assert_eq!(ask(&mut terms, 100, 2, 10), 50);
        assert_eq!(ask(&mut terms, 100, 2, 69), 50);
        assert_eq!(ask(&mut terms, 100, 2, 70), 100);
    }

    #[test]
    fn tiers_of_one_policy_do_not_bind_each_other_and_no_number_says_nothing() {
        let mut terms = Terms::default();
        for (amount, policy) in [(100, 1), (10, 1), (100, 1), (70, 0), (100, 1)] {
            assert_eq!(ask(&mut terms, amount, policy, 0), amount);
        }
    }

    #[test]
    fn what_was_set_stands_above_all() {
        let mut terms = Terms { set: Some(Amount::saturating(7)), ..Terms::default() };
        assert_eq!(ask(&mut terms, 100, 1, 0), 7);
        assert_eq!(terms.largest(limit(100), Amount::saturating(100)), Amount::MAX);
        assert_eq!(terms.largest(limit(100), Amount::saturating(50)), Amount::saturating(50));
    }
}
