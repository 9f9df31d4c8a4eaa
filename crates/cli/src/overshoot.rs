//! The most by which a limit can be overshot, and why.
//!
//! Holds never exceed a limit; only cost beyond a hold does. A hold covers the output that a request may
//! ask for, cut in two places: a request without a cap is held at the model's default, and no answer is
//! held above `max_output_tokens`, the model's and the policy's. What a model can still produce beyond
//! that, times the requests that fit side by side, is the bound. It is as true as the table of models.

use std::collections::BTreeSet;
use std::fmt;

use tollgate::config::{FilterConfig, Glob, LimitRule, ModelRule, Tier, Tokenizer};
use tollgate_budget::{Amount, Tokens, Unit};

use crate::summary::grouped;
use crate::warnings::counts_output;

/// The least that any request is held at beside its output: a completion may have an empty prompt.
const LEAST_PROMPT: u64 = 0;

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
    model: Glob,
    cut: Cut,
    /// Beyond the hold, by one answer.
    each: Tokens,
    /// Holds of this kind that fit into the account at once.
    at_once: u64,
}

impl Worst {
    pub(crate) const fn total(&self) -> u64 {
        self.each.count().saturating_mul(self.at_once)
    }
}

impl fmt::Display for Worst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (each, at_once, model) = (grouped(self.each.count()), grouped(self.at_once), &self.model);
        let why = match self.cut {
            Cut::Default => "an answer without a cap is held at the model's default and can be longer",
            Cut::Hold => "an answer is held at `hold.max_output_tokens` at most and can be longer",
        };
        write!(f, "{} (model {model}: {at_once} answers at once, {each} each; {why})", grouped(self.total()))
    }
}

/// By answers; `None` when no answer can cost more than its hold.
pub(crate) fn worst(config: &FilterConfig, limit: &LimitRule, tier: Tier) -> Option<Worst> {
    if !counts_output(limit.unit) {
        return None;
    }
    let capacity = limit.limit(tier).capacity();
    seen(config, limit)
        .flat_map(|model| [Cut::Default, Cut::Hold].map(|cut| by(cut, model, config, limit.unit, capacity)))
        .filter(|worst| worst.total() > 0)
        // Of equals the first in the table.
        .reduce(|worst, next| if next.total() > worst.total() { next } else { worst })
}

/// The rules that may decide for a model that the limit looks at.
fn seen<'a>(config: &'a FilterConfig, limit: &'a LimitRule) -> impl Iterator<Item = &'a ModelRule> {
    let decides = |i: usize, rule: &ModelRule, glob: &Glob| {
        let taken = config.models.iter().take(i).any(|earlier| earlier.matches(glob.as_str()));
        let named = overlap(glob.as_str().as_bytes(), rule.pattern.as_str().as_bytes());
        (named && !taken) || rule.alias.as_ref().is_some_and(|alias| glob.matches(alias))
    };
    let names = &limit.when.models;
    let seen = move |(i, rule): &(usize, &ModelRule)| {
        names.is_empty() || names.iter().any(|glob| decides(*i, rule, glob))
    };
    config.models.iter().enumerate().filter(seen).map(|(_, rule)| rule)
}

/// Whether some name matches both patterns. Each pair of tails is looked at once.
fn overlap(a: &[u8], b: &[u8]) -> bool {
    let mut met = BTreeSet::new();
    let mut open = vec![(a, b)];
    while let Some((a, b)) = open.pop() {
        if !met.insert((a.len(), b.len())) {
            continue;
        }
        match (a, b) {
            ([], []) => return true,
            ([b'*', rest @ ..], other) => {
                open.push((rest, other));
                open.extend(other.split_first().map(|(_, tail)| (a, tail)));
            }
            (other, [b'*', rest @ ..]) => {
                open.push((other, rest));
                open.extend(other.split_first().map(|(_, tail)| (tail, b)));
            }
            ([x, a @ ..], [y, b @ ..]) if x == y => open.push((a, b)),
            (_, _) => {}
        }
    }
    false
}

fn by(cut: Cut, model: &ModelRule, config: &FilterConfig, unit: Unit, capacity: Amount) -> Worst {
    let most = model.max_output;
    let held = match cut {
        Cut::Default => model.default_output.min(config.hold.max_output),
        Cut::Hold => most.min(config.hold.max_output),
    };
    let prompt = match unit {
        Unit::Tokens | Unit::RawTokens | Unit::InputTokens => LEAST_PROMPT,
        Unit::OutputTokens | Unit::Requests => 0,
    };
    // An answer that is held at nothing still comes with a request; one token is the least we can say.
    let least = held.count().saturating_add(prompt).max(1);
    Worst {
        model: model.pattern.clone(),
        cut,
        each: most.saturating_sub(held),
        at_once: unit.whole_floor(capacity) / least,
    }
}

/// Whether some prompts are only estimated.
pub(crate) fn estimates(config: &FilterConfig, limit: &LimitRule) -> bool {
    seen(config, limit).any(|rule| match rule.tokenizer {
        Tokenizer::Exact(_) => false,
        Tokenizer::Like { .. } | Tokenizer::Characters { .. } => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_overlap_when_some_name_matches_both() {
        let cases = [
            ("gpt-4o", "gpt-4*", true),
            ("gpt-*-mini", "gpt-4o*", true),
            ("*a", "b*", true),
            ("gpt-4o", "gpt-4", false),
            ("a*b", "a*c", false),
            ("*", "", true),
            ("", "x", false),
            ("a*", "*b*", true),
        ];
        for (a, b, expected) in cases {
            assert_eq!(overlap(a.as_bytes(), b.as_bytes()), expected, "{a} {b}");
            assert_eq!(overlap(b.as_bytes(), a.as_bytes()), expected, "{b} {a}");
        }
        assert!(!overlap("*a".repeat(120).as_bytes(), ("*a".repeat(120) + "b").as_bytes()));
    }

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
            (worst.model.as_str(), worst.cut, worst.at_once, worst.each.count()),
            ("*", Cut::Default, 9, 15_360)
        );
    }

    #[test]
    fn a_hold_cut_short_is_a_bound_of_its_own() {
        let config = config(r#", "hold": {"max_output_tokens": 500}"#);
        let tier = crate::warnings::tiers_of(&config, &config.limits[0])[0].1;
        let worst = worst(&config, &config.limits[0], tier).unwrap();
        assert_eq!(
            (worst.model.as_str(), worst.at_once, worst.each.count()),
            ("*", 10_030 / 500, 16_384 - 500)
        );
    }
}
