//! A bucket that drains by the amount in one period, and holds `burst`.
//!
//! It drains at ticks of a thousandth of the period, counted from the Unix epoch; what a tick drains in
//! fractions is carried, so nothing drifts. The danger is the refund: water that has drained meanwhile must
//! not be given back once more. Spent water drains first; only when none is left do open holds lose theirs,
//! and then each is taken to have lost all of it, which errs on the side of the limit and needs no list.

use super::{Algorithm, Closed, LATEST, Moment, PARTS, Phase, Stake, Used};
use crate::{Amount, OnLeaseEnd, Timestamp};

/// Where the count of water drained from holds stops, below 2^53. A bucket that got here gives nothing back
/// until no hold is open.
const DRAINED_MOST: u64 = 9_000_000_000_000_000;

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Bucket {
    /// Water in the bucket: above the capacity is debt.
    pub(crate) used: Amount,
    /// The sum of all stakes that may still be refunded, drained or not.
    pub(crate) staked: Amount,
    /// The part of `staked` whose lease has ended: counted as spent.
    pub(crate) ended: Amount,
    /// Water drained from stakes since the bucket last was without any.
    pub(crate) drained: u64,
    /// Thousandths of a unit that have drained and not yet been taken off.
    pub(crate) carry: u64,
    /// The tick drained to.
    pub(crate) tick: u64,
}

impl Bucket {
    /// Whether these numbers can have come from this arithmetic; those of others could overflow it.
    pub(crate) fn is_possible(&self) -> bool {
        let ticks_most = LATEST.saturating_mul(PARTS).saturating_add(1);
        self.drained <= DRAINED_MOST && self.carry < PARTS && self.tick <= ticks_most
    }

    fn drain(&mut self, rate: Amount, ticks: u64) {
        let before = self.used.min(self.staked);
        let (drained, carry) = flow(rate, ticks, self.carry, self.used);
        self.used = self.used.saturating_sub(drained);
        self.carry = carry;
        let from_stakes = before.saturating_sub(self.used.min(self.staked));
        self.drained = self.drained.saturating_add(from_stakes.units()).min(DRAINED_MOST);
        self.settle_down();
    }

    fn pour(&mut self, now: Moment<'_>, amount: Amount) {
        if self.used == Amount::ZERO {
            // A tick already begun is not waited for in full, so it does not drain what comes during it.
            self.tick = tick(now.at, now.span()) + 1;
        }
        self.used = self.used.saturating_add(amount);
    }

    fn stake(&mut self, now: Moment<'_>, amount: Amount) {
        self.pour(now, amount);
        self.staked = self.staked.saturating_add(amount);
    }

    fn unstake(&mut self, stake: Stake, phase: Phase) {
        self.staked = self.staked.saturating_sub(stake.held);
        match phase {
            Phase::Open => {}
            Phase::Ended => self.ended = self.ended.saturating_sub(stake.held),
        }
    }

    fn refundable(&self, stake: Stake) -> Amount {
        if self.drained == DRAINED_MOST {
            return Amount::ZERO;
        }
        let lost = Amount::saturating(self.drained.saturating_sub(stake.mark));
        stake.held.saturating_sub(lost).min(self.used)
    }

    fn refund(&mut self, stake: Stake, phase: Phase, unused: Amount) -> Amount {
        let refunded = unused.min(self.refundable(stake));
        self.unstake(stake, phase);
        self.used = self.used.saturating_sub(refunded);
        self.settle_down();
        refunded
    }

    /// An empty bucket owes no fractions; one without stakes needs no count of what they lost.
    fn settle_down(&mut self) {
        if self.used == Amount::ZERO {
            self.carry = 0;
        }
        if self.staked == Amount::ZERO {
            self.drained = 0;
        }
    }
}

impl Algorithm for Bucket {
    fn roll(&mut self, from: Moment<'_>, to: Timestamp) {
        let now = tick(to, from.span());
        let ticks = now.saturating_sub(self.tick);
        self.drain(from.limit.quota.amount(), ticks);
        self.tick = self.tick.max(now);
    }

    fn rebase(&mut self, to: Moment<'_>) {
        self.tick = tick(to.at, to.span()) + 1;
    }

    fn relimit(&mut self, now: Moment<'_>) {
        self.tick = tick(now.at, now.span()) + 1;
    }

    fn used(&self, _now: Moment<'_>) -> Used {
        let held = self.used.min(self.staked).min(self.staked.saturating_sub(self.ended));
        Used { held, spent: self.used.saturating_sub(held) }
    }

    fn until(&self, now: Moment<'_>, target: Amount) -> Timestamp {
        let excess = self.used.saturating_sub(target).units();
        let rate = now.limit.quota.amount();
        if excess == 0 {
            return now.at;
        }
        if rate == Amount::ZERO {
            return Timestamp::from_millis(LATEST);
        }
        // At least one unit is left for the last period: what is carried may make it come a tick sooner.
        let periods = (excess - 1) / rate.units();
        let rest = Amount::saturating(excess - periods * rate.units());
        let ticks = self.tick % PARTS + least_ticks(rate, self.carry, rest);
        moment_of(self.tick / PARTS + periods + ticks / PARTS, ticks % PARTS, now.span())
    }

    fn take(&mut self, now: Moment<'_>, amount: Amount) -> Stake {
        self.stake(now, amount);
        Stake { held: amount, lapsed: Amount::ZERO, mark: self.drained }
    }

    fn grow(&mut self, now: Moment<'_>, stake: &mut Stake, amount: Amount) {
        self.stake(now, amount);
        stake.held = stake.held.saturating_add(amount);
    }

    fn close(&mut self, now: Moment<'_>, stake: Stake, phase: Phase, spent: Amount) -> Closed {
        let (kept, debt) = stake.divide(spent);
        let refunded = self.refund(stake, phase, stake.held.saturating_sub(kept));
        if debt > Amount::ZERO {
            self.pour(now, debt);
        }
        Closed { refunded, debt }
    }

    fn end(&mut self, stake: &mut Stake, how: OnLeaseEnd) -> Closed {
        match how {
            OnLeaseEnd::Charge => {
                self.ended = self.ended.saturating_add(stake.held);
                Closed::default()
            }
            OnLeaseEnd::Release => {
                let refunded = self.refund(*stake, Phase::Open, stake.held);
                stake.lapse();
                stake.lapsed = stake.lapsed.saturating_sub(refunded);
                Closed { refunded, debt: Amount::ZERO }
            }
        }
    }

    fn forget(&mut self, stake: Stake) {
        self.unstake(stake, Phase::Ended);
        self.settle_down();
    }

    fn owe(&mut self, now: Moment<'_>, amount: Amount) {
        self.pour(now, amount);
    }
}

/// Thousandths of a period since the epoch.
fn tick(at: Timestamp, span: u64) -> u64 {
    let at = at.as_millis();
    at / span * PARTS + at % span * PARTS / span
}

/// The first moment of a tick, told as whole periods and thousandths; no later than times are told apart.
fn moment_of(periods: u64, parts: u64, span: u64) -> Timestamp {
    if periods > LATEST / span {
        return Timestamp::from_millis(LATEST);
    }
    Timestamp::from_millis((periods * span + (parts * span).div_ceil(PARTS)).min(LATEST))
}

/// What flows in `ticks`, no more than `most`, and the thousandths left over.
fn flow(rate: Amount, ticks: u64, carry: u64, most: Amount) -> (Amount, u64) {
    let (whole, rest) = (rate.units() / PARTS, rate.units() % PARTS);
    if whole > 0 && ticks > most.units() / whole {
        return (most, 0);
    }
    let thousandths = ticks % PARTS * rest + carry;
    let units = whole * ticks + ticks / PARTS * rest + thousandths / PARTS;
    (Amount::saturating(units), thousandths % PARTS)
}

/// The fewest ticks in which `amount`, at most one period's and not nothing, flows.
fn least_ticks(rate: Amount, carry: u64, amount: Amount) -> u64 {
    let (mut short, mut enough) = (0, PARTS);
    while enough - short > 1 {
        let middle = short.midpoint(enough);
        if flow(rate, middle, carry, Amount::MAX).0 >= amount {
            enough = middle;
        } else {
            short = middle;
        }
    }
    enough
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limit, Quota, Span, Window};

    const LIMIT: Limit = Limit {
        window: Window::Bucket { period: Span::from_millis(10_000), burst: None },
        quota: Quota::Of(Amount::saturating(100)),
    };

    fn at(millis: u64) -> Moment<'static> {
        Moment { limit: &LIMIT, at: Timestamp::from_millis(millis) }
    }

    fn units(amount: u64) -> Amount {
        Amount::saturating(amount)
    }

    #[test]
    fn it_drains_by_the_amount_in_one_period_without_drift() {
        let mut bucket = Bucket::default();
        bucket.owe(at(0), units(100));
        let mut from = 0;
        for to in (0..=10_010).step_by(7) {
            bucket.roll(at(from), Timestamp::from_millis(to));
            let drained = (to.saturating_sub(10)) / 10 * 10 * 100 / 10_000;
            assert_eq!(bucket.used, units(100 - drained), "at {to}");
            from = to;
        }
    }

    #[test]
    fn water_that_has_drained_is_not_given_back_once_more() {
        let mut bucket = Bucket::default();
        let stake = bucket.take(at(0), units(100));
        bucket.roll(at(0), Timestamp::from_millis(9_910));
        assert_eq!(bucket.used, units(1));
        let closed = bucket.close(at(9_910), stake, Phase::Open, Amount::ZERO);
        assert_eq!(closed.refunded, units(1));
        assert_eq!(bucket.used, Amount::ZERO);
    }

    #[test]
    fn two_holds_do_not_get_back_the_same_water() {
        let mut bucket = Bucket::default();
        let first = bucket.take(at(0), units(50));
        let second = bucket.take(at(0), units(50));
        bucket.roll(at(0), Timestamp::from_millis(7_510));
        assert_eq!(bucket.used, units(25));
        bucket.take(at(7_510), units(75));
        bucket.close(at(7_510), first, Phase::Open, Amount::ZERO);
        bucket.close(at(7_510), second, Phase::Open, Amount::ZERO);
        assert!(bucket.used >= units(75), "the third hold is still there in full");
    }

    #[test]
    fn spent_water_drains_before_that_of_a_hold() {
        let mut bucket = Bucket::default();
        bucket.owe(at(0), units(50));
        let stake = bucket.take(at(0), units(50));
        bucket.roll(at(0), Timestamp::from_millis(5_010));
        let used = bucket.used(at(5_010));
        assert_eq!((used.held, used.spent), (units(50), Amount::ZERO));
        assert_eq!(bucket.close(at(5_010), stake, Phase::Open, Amount::ZERO).refunded, units(50));
    }

    #[test]
    fn the_wait_is_the_first_millisecond_that_serves() {
        let mut bucket = Bucket::default();
        bucket.owe(at(5), units(250));
        for target in [249, 200, 150, 51, 0] {
            let until = bucket.until(at(5), units(target));
            let used_at = |to| {
                let mut later = bucket.clone();
                later.roll(at(5), to);
                later.used
            };
            assert!(used_at(until) <= units(target));
            assert!(used_at(Timestamp::from_millis(until.as_millis() - 1)) > units(target));
        }
    }

    #[test]
    fn a_fraction_already_drained_brings_the_end_of_a_wait_nearer() {
        let limit = Limit { quota: Quota::Of(units(52)), ..LIMIT };
        let moment = |millis| Moment { limit: &limit, at: Timestamp::from_millis(millis) };
        let mut bucket = Bucket::default();
        bucket.owe(moment(0), units(407));
        bucket.roll(moment(0), Timestamp::from_millis(11_760));
        assert!(bucket.carry > 0);
        let until = bucket.until(moment(11_760), bucket.used.saturating_sub(units(104)));
        assert!(until < Timestamp::from_millis(11_760 + 20_000), "{until:?}");
    }
}
