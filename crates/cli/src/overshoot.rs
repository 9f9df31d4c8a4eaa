//! The most by which a limit can be overshot, and why.
//!
//! Holds never exceed a limit; only cost beyond a hold does. A hold covers the output that a request may
//! ask for, cut in two places: a request without a cap is held at the model's default, and no answer is
//! held above `max_output_tokens`, the model's and the policy's. What a model can still produce beyond
//! that, times the requests that fit side by side, is the bound. It is as true as the table of models.

use std::fmt;

use tollgate::config::{FilterConfig, Glob, LimitRule, ModelRule, Tier, Tokenizer};
use tollgate_budget::{Amount, Tokens, Unit};

use crate::summary::grouped;
use crate::warnings::counts_output;

/// The least that any chat is held at beside its output: the opening of the answer.
const LEAST_PROMPT: u64 = 3;

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
    let models = config.models.iter().filter(|rule| seen(limit, rule));
    models
        .flat_map(|model| [Cut::Default, Cut::Hold].map(|cut| by(cut, model, config, limit.unit, capacity)))
        .filter(|worst| worst.total() > 0)
        .max_by_key(Worst::total)
}

/// Whether a limit may look at some model of a rule; in doubt it does.
fn seen(limit: &LimitRule, rule: &ModelRule) -> bool {
    let names = &limit.when.models;
    let pattern = rule.pattern.as_str();
    let related = |glob: &Glob| {
        glob.matches(pattern)
            || rule.matches(glob.as_str())
            || rule.alias.as_ref().is_some_and(|alias| glob.matches(alias))
    };
    names.is_empty() || names.iter().any(related)
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
    config.models.iter().filter(|rule| seen(limit, rule)).any(|rule| match rule.tokenizer {
        Tokenizer::Exact(_) => false,
        Tokenizer::Like { .. } | Tokenizer::Characters { .. } => true,
    })
}
