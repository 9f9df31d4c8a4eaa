//! What one request takes by the kinds of token that are counted, and what each unit makes of it.
//!
//! Weights and prices are decimal fractions, so a token is worth a fraction of an account unit: rates are whole
//! billionths of one, sums are exact, and one rounding, up, ends each of them. Whoever holds, grows, renews or
//! settles asks the same function, so a hold and its settlement never differ by their arithmetic.

use crate::{Amount, Tokens};

/// How finely a rate divides an account unit: six decimals of a model's weight times six of a kind's make
/// billionths of a thousandth of a token, and six decimals of a price per million tokens fit in as well.
pub const PER_UNIT: u64 = 1_000_000_000;

/// A whole token in thousandths, unweighted. By the choice of units it is also one dollar per million tokens, in
/// nano-dollars a token.
pub const ONE: u64 = 1000 * PER_UNIT;

/// More than any request, and few enough that four of them at any rate stay inside `u128`.
const MOST_TOKENS: u64 = 1 << 60;

/// Counted tokens of one request, by kind.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Toll {
    /// All of the prompt, whatever of it was read from a cache or written to one.
    pub input: Tokens,
    /// The part of `input` read from the provider's cache.
    pub cached: Tokens,
    /// The part of `input` written to it.
    pub written: Tokens,
    /// Reasoning included.
    pub output: Tokens,
}

/// Whether a request asks the provider to keep some of its prompt.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Caching {
    #[default]
    Unmarked,
    /// How much of it is written, if any, only the provider knows.
    Marked,
}

/// What a token of each kind is worth, in billionths of an account unit ([`PER_UNIT`]).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rate {
    pub input: u64,
    /// At most `input`: what is not known to be cached yet is held as if it were not.
    pub cached: u64,
    /// At least `input`: what is marked for a cache is held as if all of it were written.
    pub written: u64,
    pub output: u64,
}

/// How one unit counts the requests to one model.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Tariff {
    /// Of every request, whatever its tokens.
    each: Amount,
    rate: Rate,
    above: Option<Step>,
}

/// Rates from a size of prompt on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Step {
    /// Requests with more input than this.
    pub input: Tokens,
    /// Of every kind at least the rate below the step, so that a larger prompt never costs less.
    pub rate: Rate,
}

impl Toll {
    /// A request that cost no token was a request all the same.
    pub const NO_TOKENS: Self =
        Self { input: Tokens::ZERO, cached: Tokens::ZERO, written: Tokens::ZERO, output: Tokens::ZERO };

    /// The most that a request can turn out to take.
    pub const fn held(input: Tokens, output: Tokens, caching: Caching) -> Self {
        let written = match caching {
            Caching::Unmarked => Tokens::ZERO,
            Caching::Marked => input,
        };
        Self { input, cached: Tokens::ZERO, written, output }
    }
}

impl Rate {
    pub const FREE: Self = Self { input: 0, cached: 0, written: 0, output: 0 };
    /// Every token as it is.
    pub const RAW: Self = Self { input: ONE, cached: ONE, written: ONE, output: ONE };

    /// In billionths; below 2^126 for any toll.
    fn sum(&self, toll: Toll) -> u128 {
        let input = toll.input.count().min(MOST_TOKENS);
        let written = toll.written.count().min(input);
        let cached = toll.cached.count().min(input - written);
        let plain = input - written - cached;
        let output = toll.output.count().min(MOST_TOKENS);
        [(plain, self.input), (cached, self.cached), (written, self.written), (output, self.output)]
            .into_iter()
            .map(|(tokens, rate)| u128::from(tokens) * u128::from(rate))
            .sum()
    }

    /// The most input that `output` leaves room for within `sum`; `None` where none of it counts.
    fn most_input(&self, sum: u128, output: Tokens, caching: Caching) -> Option<u64> {
        let rate = match caching {
            Caching::Unmarked => self.input,
            Caching::Marked => self.written,
        };
        let left = sum.saturating_sub(self.sum(Toll { output, ..Toll::NO_TOKENS }));
        let most = left.checked_div(u128::from(rate))?;
        Some(u64::try_from(most).unwrap_or(u64::MAX))
    }
}

impl Tariff {
    /// One unit for every request.
    pub const REQUESTS: Self = Self { each: Amount::ONE, rate: Rate::FREE, above: None };
    pub const RAW_TOKENS: Self = Self::of(Rate::RAW);
    pub const INPUT_TOKENS: Self = Self::of(Rate { output: 0, ..Rate::RAW });
    pub const OUTPUT_TOKENS: Self = Self::of(Rate { output: ONE, ..Rate::FREE });
    /// Of a model without a price, which the checker lets no limit in dollars meet: eighteen dollars a token, so that
    /// a gap in that check refuses requests rather than pay for them.
    pub const PRICELESS: Self =
        Self::of(Rate { input: u64::MAX, cached: u64::MAX, written: u64::MAX, output: u64::MAX });

    pub const fn of(rate: Rate) -> Self {
        Self { each: Amount::ZERO, rate, above: None }
    }

    #[must_use]
    pub const fn with_step(self, step: Step) -> Self {
        Self { above: Some(step), ..self }
    }

    pub const fn rate(&self) -> Rate {
        self.rate
    }

    pub const fn step(&self) -> Option<Step> {
        self.above
    }

    /// What the toll takes: exact, and rounded once, up.
    pub fn cost(&self, toll: Toll) -> Amount {
        let rate = match &self.above {
            Some(step) if toll.input > step.input => &step.rate,
            Some(_) | None => &self.rate,
        };
        let units = rate.sum(toll).div_ceil(u128::from(PER_UNIT));
        self.each.saturating_add(Amount::saturating(u64::try_from(units).unwrap_or(u64::MAX)))
    }

    /// The largest prompt that fits into `amount` beside `output`; `None` where every prompt does.
    pub fn most_input(&self, amount: Amount, output: Tokens, caching: Caching) -> Option<Tokens> {
        let room = amount.saturating_sub(self.each);
        let sum = u128::from(room.units()) * u128::from(PER_UNIT);
        let below = self.rate.most_input(sum, output, caching);
        let most = match (&self.above, below) {
            (None, below) => below?,
            // A prompt this small is not above the step, whose rates leave no more room.
            (Some(step), Some(below)) if below <= step.input.count() => below,
            (Some(step), _) => step.rate.most_input(sum, output, caching)?.max(step.input.count()),
        };
        Some(Tokens::new(most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toll(input: u64, cached: u64, written: u64, output: u64) -> Toll {
        let [input, cached, written, output] = [input, cached, written, output].map(Tokens::new);
        Toll { input, cached, written, output }
    }

    /// Weight 2.5: cached reads at a tenth, cache writes at five quarters, output at four.
    const WEIGHTED: Tariff =
        Tariff::of(Rate { input: ONE * 5 / 2, cached: ONE / 4, written: ONE * 25 / 8, output: ONE * 10 });

    #[test]
    fn each_kind_counts_at_its_rate_and_a_token_only_once() {
        assert_eq!(WEIGHTED.cost(toll(100, 0, 0, 10)).units(), 350_000);
        assert_eq!(WEIGHTED.cost(toll(100, 60, 0, 10)).units(), 100_000 + 15_000 + 100_000);
        assert_eq!(WEIGHTED.cost(toll(100, 60, 40, 0)).units(), 15_000 + 125_000);
        // More parts than the whole has: the dearer one is believed.
        assert_eq!(WEIGHTED.cost(toll(100, 60, 90, 0)).units(), 2_500 + 281_250);
    }

    #[test]
    fn a_sum_is_rounded_once_and_up() {
        let third = Tariff::of(Rate { input: 333_333, cached: 333_333, written: 333_333, output: 333_333 });
        for (count, units) in [(0, 0), (1, 1), (3000, 1), (3001, 2), (6000, 2)] {
            assert_eq!(third.cost(toll(count / 2, 0, 0, count - count / 2)).units(), units, "{count}");
        }
    }

    #[test]
    fn what_is_too_much_for_any_account_is_the_most_that_one_can_hold() {
        for tariff in [WEIGHTED, Tariff::PRICELESS, Tariff::RAW_TOKENS] {
            assert_eq!(tariff.cost(toll(u64::MAX, u64::MAX, u64::MAX, u64::MAX)), Amount::MAX);
        }
        assert_eq!(Tariff::PRICELESS.cost(toll(0, 0, 0, 1)).units(), u64::MAX.div_ceil(PER_UNIT));
        assert_eq!(Tariff::PRICELESS.cost(Toll::NO_TOKENS), Amount::ZERO);
        assert_eq!(Tariff::REQUESTS.cost(toll(9, 0, 0, 9)), Amount::ONE);
    }

    #[test]
    fn the_step_is_taken_by_prompts_above_it() {
        let tariff = Tariff::RAW_TOKENS.with_step(Step {
            input: Tokens::new(1000),
            rate: Rate { input: 2 * ONE, cached: ONE, written: 2 * ONE, output: 3 * ONE },
        });
        assert_eq!(tariff.cost(toll(1000, 0, 0, 10)).units(), 1_010_000);
        assert_eq!(tariff.cost(toll(1001, 0, 0, 10)).units(), 2_032_000);
        assert_eq!(tariff.cost(toll(1001, 1001, 0, 0)).units(), 1_001_000);
    }

    #[test]
    fn a_prompt_marked_for_a_cache_is_held_as_if_all_of_it_were_written() {
        let of = |caching| WEIGHTED.cost(Toll::held(Tokens::new(100), Tokens::new(10), caching)).units();
        assert_eq!((of(Caching::Unmarked), of(Caching::Marked)), (350_000, 412_500));
    }
}
