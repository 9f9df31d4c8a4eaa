//! What tokens count for and cost: a model's weights and prices, checked and made exact rates.

use tollgate_budget::{Rate, Step, Tariff};

use super::{Place, Problems, raw, tokens};
use crate::config::Weights;
use crate::config::number::Millionths;

const MILLION: u64 = 1_000_000;
/// A token that counts for more than ten thousand is a slip of the decimal point.
const MAX_WEIGHT: u64 = 10_000 * MILLION;
/// Output of the dearest models is worth eight times their input, and a cache write twice.
const MAX_KIND: u64 = 1000 * MILLION;
/// A dollar a token, in millionths of a dollar per million tokens.
const MAX_PRICE: u64 = MILLION * MILLION;

/// One dollar per million tokens is a thousand nano-dollars a token: a millionth of it in billionths of a nano-dollar.
const RATE_PER_MILLIONTH: u64 = tollgate_budget::toll::ONE / MILLION;

/// A rate at both bounds is one that `u64` holds.
const _: () = assert!(MAX_WEIGHT.checked_mul(MAX_KIND).is_some());
const _: () = assert!(MAX_PRICE.checked_mul(RATE_PER_MILLIONTH).is_some());

/// The model's weight and those of its kinds fall back on `base` each for itself. A kind that the rule's `weights`
/// leave out is 1, and not what it is for another model.
pub(super) fn weights(raw: &raw::Model, base: Weights, at: Place<'_>, problems: &mut Problems) -> Weights {
    let model = raw.weight.and_then(|weight| within(weight, 1, MAX_WEIGHT, at.key("weight"), problems));
    let weights = Weights { model: model.unwrap_or(base.model), ..base };
    let Some(raw) = &raw.weights else { return weights };
    let at = at.key("weights");
    let mut kind = |given: Option<Millionths>, least, most, key| {
        given.and_then(|given| within(given, least, most, at.key(key), problems)).unwrap_or(MILLION)
    };
    Weights {
        cached_input: kind(raw.cached_input, 0, MILLION, "cached_input"),
        cache_write: kind(raw.cache_write, MILLION, MAX_KIND, "cache_write"),
        output: kind(raw.output, 0, MAX_KIND, "output"),
        ..weights
    }
}

fn within(given: Millionths, least: u64, most: u64, at: Place<'_>, problems: &mut Problems) -> Option<u64> {
    if (least..=most).contains(&given.0) {
        return Some(given.0);
    }
    let (least, most) = (Millionths(least), Millionths(most));
    problems.add(at, format!("found {given}, expected {least} to {most}"));
    None
}

/// A price is taken whole: what one model's leaves out is not another's.
pub(super) fn price(raw: &raw::Price, at: Place<'_>, problems: &mut Problems) -> Option<Tariff> {
    let kinds = Kinds {
        input: raw.input,
        cached_input: raw.cached_input,
        cache_write: raw.cache_write,
        output: raw.output,
    };
    let base = kinds.rate(Rate::FREE, at, problems);
    let Some(above) = &raw.above else { return base.map(Tariff::of) };
    let at = at.key("above");
    let from = at.key("input_tokens");
    if above.input_tokens.is_none() {
        problems.add_unless_touched(from, "missing; write the last size of prompt at the lower prices");
    }
    let input = tokens(above.input_tokens, 1, from, problems);
    let kinds = Kinds {
        input: above.input,
        cached_input: above.cached_input,
        cache_write: above.cache_write,
        output: above.output,
    };
    let rate = kinds.rate(base.unwrap_or(Rate::FREE), at, problems);
    Some(Tariff::of(base?).with_step(Step { input: input?, rate: rate? }))
}

/// Prices as they are written, below a step or above it.
struct Kinds {
    input: Option<Millionths>,
    cached_input: Option<Millionths>,
    cache_write: Option<Millionths>,
    output: Option<Millionths>,
}

impl Kinds {
    /// A hold is made before anybody knows what a cache has, or how the prompt really counts: the bounds on
    /// each kind are what makes it the most that a request can cost.
    fn rate(&self, below: Rate, at: Place<'_>, problems: &mut Problems) -> Option<Rate> {
        let input = required(self.input, "input", at, problems);
        let output = required(self.output, "output", at, problems);
        let plain = input.unwrap_or(Millionths(0));
        let (cached, written) = (self.cached_input.unwrap_or(plain), self.cache_write.unwrap_or(plain));
        if input.is_some() && cached.0 > plain.0 {
            let problem = format!("found {cached}, expected the price of input, {plain}, at most");
            problems.add(at.key("cached_input"), problem);
        }
        if written.0 < plain.0 {
            let problem = format!("found {written}, expected the price of input, {plain}, at least");
            problems.add(at.key("cache_write"), problem);
        }
        let mut rate = |price: Millionths, below: u64, key| {
            let at = at.key(key);
            let rate = within(price, 0, MAX_PRICE, at, problems)?.saturating_mul(RATE_PER_MILLIONTH);
            if rate < below {
                let below = Millionths(below / RATE_PER_MILLIONTH);
                problems.add_unless_touched(
                    at,
                    format!(
                        "found {price}, less than below the step, {below}: a larger prompt never costs less"
                    ),
                );
            }
            Some(rate)
        };
        Some(Rate {
            input: rate(input?, below.input, "input")?,
            cached: rate(cached, below.cached, "cached_input")?,
            written: rate(written, below.written, "cache_write")?,
            output: rate(output?, below.output, "output")?,
        })
    }
}

fn required(
    price: Option<Millionths>,
    key: &str,
    at: Place<'_>,
    problems: &mut Problems,
) -> Option<Millionths> {
    if price.is_none() {
        problems
            .add_unless_touched(at.key(key), "missing; write dollars per million tokens, such as `\"2.50\"`");
    }
    price
}
