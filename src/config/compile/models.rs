//! The table of models: what a rule leaves open comes from what its alias names, or from the rule for `*`.

use tollgate_budget::Tokens;

use super::{Place, Problems, quotable, rates, raw, tokens};
use crate::config::number::Ratio;
use crate::config::read::List;
use crate::config::{Glob, Media, ModelRule, Tokenizer, builtin};

/// A factor or a number of characters outside these, in thousandths, is a slip of the decimal point.
const RATIOS: std::ops::RangeInclusive<u64> = 100..=100_000;

/// The table as written, and the rule for `*`, which it ends in when it does not have one.
pub(super) fn models(
    list: Option<&List<raw::Model>>,
    at: Place<'_>,
    problems: &mut Problems,
) -> (Vec<ModelRule>, ModelRule) {
    let Some(list) = list else {
        return (builtin::models(), builtin::unknown_model());
    };
    let written: Vec<Written<'_>> =
        list.read_items().filter_map(|(i, raw)| Written::new(i, raw, at.item(i), problems)).collect();
    let star = written.iter().find(|rule| rule.pattern.as_str() == "*");
    let unknown = match star {
        Some(rule) => rule.over(&builtin::unknown_model(), at.item(rule.index), problems),
        None => builtin::unknown_model(),
    };
    let compiled = |rule: &Written<'_>| match &rule.raw.alias {
        _ if star.is_some_and(|star| star.index == rule.index) => unknown.clone(),
        None => rule.over(&unknown, at.item(rule.index), problems),
        Some(alias) => {
            let base = target(alias, rule, &written, at, problems);
            let base = base.map(|base| base.over(&unknown, at.item(base.index), &mut Problems::default()));
            rule.over(base.as_ref().unwrap_or(&unknown), at.item(rule.index), problems)
        }
    };
    let mut rules: Vec<ModelRule> = written.iter().map(compiled).collect();
    if star.is_none() {
        rules.push(unknown.clone());
    }
    (rules, unknown)
}

/// The rule that an alias stands for; `None` for the one that ends every table.
fn target<'a, 'w>(
    alias: &str,
    from: &Written<'_>,
    written: &'a [Written<'w>],
    at: Place<'_>,
    problems: &mut Problems,
) -> Option<&'a Written<'w>> {
    let item = at.item(from.index);
    let base = written.iter().find(|rule| rule.pattern.matches(alias))?;
    let name = quotable(alias);
    if base.index == from.index {
        problems.add(
            item.key("alias"),
            format!("`{name}` is matched by this very rule; put the rule it means first"),
        );
        return None;
    }
    if base.raw.alias.is_some() {
        let which = format!("models[{}]", base.index);
        problems.add(
            item.key("alias"),
            format!("`{name}` is an alias itself ({which}); name what that stands for"),
        );
        return None;
    }
    Some(base)
}

struct Written<'a> {
    index: usize,
    pattern: Glob,
    raw: &'a raw::Model,
}

impl<'a> Written<'a> {
    fn new(index: usize, raw: &'a raw::Model, at: Place<'_>, problems: &mut Problems) -> Option<Self> {
        let at = at.key("match");
        let Some(pattern) = &raw.pattern else {
            problems
                .add_unless_touched(at, "missing; write the name of a model, such as `match: \"gpt-4o*\"`");
            return None;
        };
        if pattern.is_empty() {
            problems.add(at, "empty; write the name of a model, or `\"*\"` for every other");
        }
        Some(Self { index, pattern: Glob(pattern.clone()), raw })
    }

    /// This rule, with what it leaves open taken from `base`.
    fn over(&self, base: &ModelRule, at: Place<'_>, problems: &mut Problems) -> ModelRule {
        let raw = self.raw;
        if self.pattern.as_str() == "*" && raw.alias.is_some() {
            problems.add(
                at.key("alias"),
                "the rule for `*` is what the others fall back on; it cannot be an alias",
            );
        }
        let default = tokens(raw.default_output_tokens, 0, at.key("default_output_tokens"), problems);
        let max = tokens(raw.max_output_tokens, 1, at.key("max_output_tokens"), problems);
        if let (Some(default), Some(max)) = (default, max)
            && default > max
        {
            let problem = format!("{default} tokens are more than this rule's `max_output_tokens`, {max}");
            problems.add(at.key("default_output_tokens"), problem);
        }
        let max_output = max.unwrap_or_else(|| base.max_output.max(default.unwrap_or_default()));
        ModelRule {
            pattern: self.pattern.clone(),
            alias: raw.alias.clone(),
            tokenizer: tokenizer(raw.tokenizer.as_ref(), at.key("tokenizer"), problems)
                .unwrap_or(base.tokenizer),
            default_output: default.unwrap_or(base.default_output).min(max_output),
            max_output,
            media: media(raw.media.as_ref(), base.media, at.key("media"), problems),
            weights: rates::weights(raw, base.weights, at, problems),
            price: match &raw.price {
                Some(price) => rates::price(price, at.key("price"), problems),
                None => base.price,
            },
        }
    }
}

fn tokenizer(
    raw: Option<&raw::TokenizerChoice>,
    at: Place<'_>,
    problems: &mut Problems,
) -> Option<Tokenizer> {
    let near = match raw? {
        raw::TokenizerChoice::Named(vocabulary) => return Some(Tokenizer::Exact(*vocabulary)),
        raw::TokenizerChoice::Near(near) => near,
    };
    match (near.like, near.factor, near.characters) {
        (Some(vocabulary), Some(factor), None) => {
            check_ratio(factor, at.key("factor"), problems);
            Some(Tokenizer::Like { vocabulary, factor_milli: factor.milli_ceil })
        }
        (None, None, Some(characters)) => {
            check_ratio(characters, at.key("characters"), problems);
            Some(Tokenizer::Characters { per_token_milli: characters.milli_floor })
        }
        (_, _, _) => {
            problems.add_unless_touched(at, "write `{like: o200k_base, factor: 1.1}` or `{characters: 4}`");
            None
        }
    }
}

fn check_ratio(ratio: Ratio, at: Place<'_>, problems: &mut Problems) {
    if !RATIOS.contains(&ratio.milli_floor) || !RATIOS.contains(&ratio.milli_ceil) {
        problems.add(at, format!("found {ratio}, expected 0.1 to 100"));
    }
}

fn media(raw: Option<&raw::MediaTokens>, base: Media, at: Place<'_>, problems: &mut Problems) -> Media {
    let Some(raw) = raw else { return base };
    let mut flat = |count, key, base: Tokens| tokens(count, 0, at.key(key), problems).unwrap_or(base);
    Media {
        image: flat(raw.image, "image", base.image),
        audio: flat(raw.audio, "audio", base.audio),
        file: flat(raw.file, "file", base.file),
    }
}
