//! The most by which a limit can be overshot, and why.
//!
//! Holds never exceed a limit; only cost beyond a hold does. A hold covers the output that a request may
//! ask for, cut in two places: a request without a cap is held at the model's default, and no answer is
//! held above `max_output_tokens`, the model's and the policy's. What a model can still produce beyond
//! that, times the requests that fit side by side, is the bound. It is as true as the table of models.

use std::fmt;

use tollgate::config::{FilterConfig, Glob, LimitRule, ModelRule, Tier, Tokenizer};
use tollgate_budget::{Amount, Caching, Tariff, Tokens, Toll, Unit};

use crate::summary::{figure, grouped};
use crate::warnings::counts_output;

/// The least that any request is held at beside its output: a completion may have an empty prompt.
const LEAST_PROMPT: Tokens = Tokens::ZERO;

/// How one request can cost more than was held for it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cut {
    /// The request declares no cap, and the default is less than the model can produce.
    Default,
    /// The policy's bound on a hold is less than the model can produce.
    Hold,
}

/// The worst that answers can do to one account.
#[derive(Clone, Debug)]
pub(crate) struct Worst {
    unit: Unit,
    model: Glob,
    cut: Cut,
    /// Beyond the hold, by one answer.
    each: Amount,
    /// Holds of this kind that fit into the account at once.
    at_once: u64,
}

impl Worst {
    pub(crate) const fn total(&self) -> Amount {
        Amount::saturating(self.each.units().saturating_mul(self.at_once))
    }
}

impl fmt::Display for Worst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |amount| match self.unit {
            Unit::Usd => figure(self.unit.ceil(amount)) + " dollars",
            Unit::Tokens | Unit::RawTokens | Unit::InputTokens | Unit::OutputTokens | Unit::Requests => {
                figure(self.unit.ceil(amount))
            }
        };
        let (each, at_once, model) = (told(self.each), grouped(self.at_once), &self.model);
        let why = match self.cut {
            Cut::Default => "an answer without a cap is held at the model's default and can be longer",
            Cut::Hold => "an answer is held at `hold.max_output_tokens` at most and can be longer",
        };
        write!(f, "{} (model {model}: {at_once} answers at once, {each} each; {why})", told(self.total()))
    }
}

/// By answers; `None` when no answer can cost more than its hold.
pub(crate) fn worst(config: &FilterConfig, limit: &LimitRule, tier: Tier) -> Option<Worst> {
    if !counts_output(limit.unit) {
        return None;
    }
    let capacity = limit.limit(tier).capacity();
    let kinds = |model| {
        let tariff = ModelRule::tariff(model, limit.unit);
        // Whoever sends a prompt above a price step pays more for what comes beyond the hold as well.
        let prompts =
            [Some(LEAST_PROMPT), tariff.step().map(|step| step.input.saturating_add(Tokens::new(1)))];
        let cuts =
            prompts.into_iter().flatten().flat_map(|prompt| [(Cut::Default, prompt), (Cut::Hold, prompt)]);
        cuts.map(move |(cut, prompt)| (cut, prompt, model, tariff))
    };
    config
        .models_met(limit)
        .flat_map(kinds)
        .map(|(cut, prompt, model, tariff)| {
            let (held, most) = outputs(cut, model, config);
            let cost = |output| Tariff::cost(&tariff, Toll::held(prompt, output, Caching::Unmarked));
            Worst {
                unit: limit.unit,
                model: model.pattern.clone(),
                cut,
                each: cost(most).saturating_sub(cost(held)),
                at_once: at_once(capacity, cost(held), limit.unit),
            }
        })
        .filter(|worst| worst.total() > Amount::ZERO)
        // Of equals the first in the table.
        .reduce(|worst, next| if next.total() > worst.total() { next } else { worst })
}

/// What an answer is held at, and the most that it can be.
fn outputs(cut: Cut, model: &ModelRule, config: &FilterConfig) -> (Tokens, Tokens) {
    let most = model.max_output;
    let held = match cut {
        Cut::Default => model.default_output.min(config.hold.max_output),
        Cut::Hold => most.min(config.hold.max_output),
    };
    (held, most)
}

/// An answer that is held at nothing still comes with a request; one token, or a unit of money, is the least we
/// can say.
fn at_once(capacity: Amount, held: Amount, unit: Unit) -> u64 {
    let least = match unit {
        Unit::Usd => 1,
        Unit::Tokens | Unit::RawTokens | Unit::InputTokens | Unit::OutputTokens | Unit::Requests => {
            unit.scale()
        }
    };
    capacity.units() / held.units().max(least)
}

/// Whether some prompts are only estimated.
pub(crate) fn estimates(config: &FilterConfig, limit: &LimitRule) -> bool {
    config.models_met(limit).any(|rule| match rule.tokenizer {
        Tokenizer::Exact(_) => false,
        Tokenizer::Like { .. } | Tokenizer::Characters { .. } => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(rest: &str) -> FilterConfig {
        let limit =
            r#""name": "t", "per": [], "unit": "tokens", "window": {"fixed": "60s"}, "amount": 10030"#;
        let model = r#"{"match": "m*", "default_output_tokens": 1000, "max_output_tokens": 5000}"#;
        let policy = format!(r#"{{"version": 1, "models": [{model}], "limits": [{{{limit}}}] {rest}}}"#);
        FilterConfig::from_slice(policy.as_bytes()).unwrap()
    }

    #[test]
    fn uncapped_answers_side_by_side_are_the_bound() {
        let config = config("");
        let tier = crate::warnings::tiers_of(&config, &config.limits[0])[0].1;
        let worst = worst(&config, &config.limits[0], tier).unwrap();
        // The rule for `*`: 10,030 / 1,024 = 9 of them, 15,360 each; the rule for `m*`: 10 × 4,000.
        assert_eq!(
            (worst.model.as_str(), worst.cut, worst.at_once, worst.each.units()),
            ("*", Cut::Default, 9, 15_360_000)
        );
    }

    #[test]
    fn a_hold_cut_short_is_a_bound_of_its_own() {
        let config = config(r#", "hold": {"max_output_tokens": 500}"#);
        let tier = crate::warnings::tiers_of(&config, &config.limits[0])[0].1;
        let worst = worst(&config, &config.limits[0], tier).unwrap();
        assert_eq!(
            (worst.model.as_str(), worst.at_once, worst.each.units()),
            ("*", 10_030 / 500, (16_384 - 500) * 1000)
        );
    }
}
