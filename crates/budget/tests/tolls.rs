//! What a tariff makes of any toll, beside a reference that does long arithmetic digit by digit.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngSeed};
use tollgate_budget::toll::{ONE, PER_UNIT};
use tollgate_budget::{Amount, Caching, Rate, Step, Tariff, Tokens, Toll};

fn config() -> ProptestConfig {
    ProptestConfig {
        rng_seed: RngSeed::Fixed(0x70_11_6a_7e),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct("proptest-regressions/tolls.txt"))),
        ..ProptestConfig::default()
    }
}

/// Decimal digits, the lowest first.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Long(Vec<u8>);

impl Long {
    fn of(number: u64) -> Self {
        Self(number.to_string().bytes().rev().map(|digit| digit - b'0').collect())
    }

    fn plus(&self, other: &Self) -> Self {
        let digit = |long: &Self, place: usize| long.0.get(place).copied().unwrap_or(0);
        let mut carry = 0;
        let places = self.0.len().max(other.0.len()) + 1;
        let add = |place| {
            let sum = digit(self, place) + digit(other, place) + carry;
            carry = sum / 10;
            sum % 10
        };
        Self((0..places).map(add).collect())
    }

    fn times(&self, other: &Self) -> Self {
        let mut product = Self::default();
        for digit in self.0.iter().rev() {
            product.0.insert(0, 0);
            product = (0..*digit).fold(product, |sum, _| sum.plus(other));
        }
        product
    }

    /// In account units, rounded up: all digits but the last nine, and one more where these say anything.
    fn units(&self) -> Amount {
        let (rest, whole) = self.0.split_at(self.0.len().min(PER_UNIT.ilog10() as usize));
        let more = u64::from(rest.iter().any(|digit| *digit > 0));
        let text: String = whole.iter().rev().map(|digit| char::from(digit + b'0')).collect();
        let whole = text.trim_start_matches('0').parse::<u64>();
        let empty = text.trim_start_matches('0').is_empty();
        Amount::saturating(if empty {
            more
        } else {
            whole.map_or(u64::MAX, |whole| whole.saturating_add(more))
        })
    }
}

fn exactly(rate: &Rate, [plain, cached, written, output]: [u64; 4]) -> Amount {
    [(plain, rate.input), (cached, rate.cached), (written, rate.written), (output, rate.output)]
        .into_iter()
        .map(|(tokens, rate)| Long::of(tokens).times(&Long::of(rate)))
        .fold(Long::default(), |sum, part| sum.plus(&part))
        .units()
}

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![0..20_u64, 0..300_000_u64, 0..(1_u64 << 58)]
}

fn fraction() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(ONE), 1..1000_u64, 1..20 * ONE, 0..u64::MAX / 4]
}

/// As the checker lets them pass: cached reads are not dearer than input, cache writes not cheaper.
fn rate() -> impl Strategy<Value = Rate> {
    (fraction(), 0..=1000_u64, fraction(), fraction()).prop_map(|(input, cached, more, output)| Rate {
        input,
        cached: u64::try_from(u128::from(input) * u128::from(cached) / 1000).unwrap(),
        written: input.saturating_add(more),
        output,
    })
}

fn tariff() -> impl Strategy<Value = Tariff> {
    let dearer = |base: Rate, more: Rate, input| Step {
        input: Tokens::new(input),
        rate: Rate {
            input: base.input.saturating_add(more.input),
            cached: base.cached.saturating_add(more.cached),
            written: base.written.saturating_add(more.written),
            output: base.output.saturating_add(more.output),
        },
    };
    (rate(), prop::option::of((rate(), count()))).prop_map(move |(base, step)| match step {
        None => Tariff::of(base),
        Some((more, input)) => Tariff::of(base).with_step(dearer(base, more, input)),
    })
}

fn toll([plain, cached, written, output]: [u64; 4]) -> Toll {
    let input = Tokens::new(plain + cached + written);
    Toll { input, cached: Tokens::new(cached), written: Tokens::new(written), output: Tokens::new(output) }
}

fn counts() -> impl Strategy<Value = [u64; 4]> {
    prop::array::uniform4(count())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_cost_is_exact_and_rounded_once(rate in rate(), counts in counts()) {
        prop_assert_eq!(Tariff::of(rate).cost(toll(counts)), exactly(&rate, counts));
    }

    #[test]
    fn the_step_decides_by_the_whole_prompt(tariff in tariff(), counts in counts()) {
        let [plain, cached, written, _] = counts;
        let rate = match tariff.step() {
            Some(step) if plain + cached + written > step.input.count() => step.rate,
            Some(_) | None => tariff.rate(),
        };
        prop_assert_eq!(tariff.cost(toll(counts)), exactly(&rate, counts));
    }

    /// More of any kind never costs less, and a hold is never below what the request may turn out to cost.
    #[test]
    fn more_never_costs_less(tariff in tariff(), counts in counts(), more in counts()) {
        let less = tariff.cost(toll(counts));
        for kind in 0..4 {
            let grown: Vec<u64> =
                (0..4).map(|i| counts[i] + if i == kind { more[i] } else { 0 }).collect();
            prop_assert!(tariff.cost(toll(grown.try_into().unwrap())) >= less);
        }
        let whole = toll(counts);
        let marked = tariff.cost(Toll::held(whole.input, whole.output, Caching::Marked));
        let unmarked = tariff.cost(Toll::held(whole.input, whole.output, Caching::Unmarked));
        prop_assert!(marked >= less);
        prop_assert!(marked >= unmarked);
        let unwritten = Toll { written: Tokens::ZERO, ..whole };
        prop_assert!(unmarked >= tariff.cost(unwritten));
    }

    /// Counting may stop at what fits and no earlier.
    #[test]
    fn the_most_input_is_the_last_that_fits(
        tariff in tariff(),
        units in 0..=Amount::MAX.units(),
        output in 0..5000_u64,
        marked in any::<bool>(),
    ) {
        let caching = if marked { Caching::Marked } else { Caching::Unmarked };
        let amount = Amount::saturating(units);
        let cost = |input| tariff.cost(Toll::held(Tokens::new(input), Tokens::new(output), caching));
        match tariff.most_input(amount, Tokens::new(output), caching) {
            Some(most) if most.count() < 1 << 60 => {
                prop_assert!(most == Tokens::ZERO || cost(most.count()) <= amount || cost(0) > amount);
                prop_assert!(cost(most.count() + 1) > amount);
            }
            Some(_) | None => prop_assert!(cost(1 << 60) <= amount || cost(0) > amount),
        }
    }
}
