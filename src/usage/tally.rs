//! From the usage objects of an answer to one [`Usage`].

use tollgate_budget::{Tokens, Usage};

/// One usage object as it stands in the answer. `None` is missing, null, or no count.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Counts {
    pub(super) prompt: Option<Tokens>,
    pub(super) completion: Option<Tokens>,
    pub(super) total: Option<Tokens>,
    pub(super) cached: Option<Tokens>,
    pub(super) cache_write: Option<Tokens>,
    pub(super) reasoning: Option<Tokens>,
}

/// All usage objects of an answer so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Tally {
    counts: Option<Counts>,
    placeholder: Placeholder,
}

/// Whether a usage object came in which every count was zero.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Placeholder {
    #[default]
    Absent,
    Present,
}

impl Counts {
    /// As Anthropic counts: caches beside the input. An input side of nothing but zeros is none: servers that
    /// copy the API send such before they know.
    pub(super) fn with_caches_within(self) -> Self {
        let parts = [self.prompt, self.cached, self.cache_write];
        let sum = parts.into_iter().flatten().fold(Tokens::ZERO, Tokens::saturating_add);
        match sum {
            Tokens::ZERO => Self { prompt: None, cached: None, cache_write: None, ..self },
            _ => Self {
                prompt: Some(sum),
                cached: Some(self.cached.unwrap_or_default()),
                cache_write: Some(self.cache_write.unwrap_or_default()),
                ..self
            },
        }
    }

    fn sides(&self) -> impl Iterator<Item = Tokens> {
        [self.prompt, self.completion, self.total].into_iter().flatten()
    }

    pub(super) fn says_something(&self) -> bool {
        self.sides().any(|count| count != Tokens::ZERO)
    }
}

impl Tally {
    /// The last report wins, field by field where it is silent. Not so its total: one that spoke of fewer
    /// tokens than the last report knows would be a lie beside it.
    pub(super) fn add(&mut self, last: &Counts) {
        if last.says_something() {
            let earlier = self.counts.unwrap_or_default();
            self.counts = Some(Counts {
                prompt: last.prompt.or(earlier.prompt),
                completion: last.completion.or(earlier.completion),
                total: last.total,
                cached: last.cached.or(earlier.cached),
                cache_write: last.cache_write.or(earlier.cache_write),
                reasoning: last.reasoning.or(earlier.reasoning),
            });
        } else if last.sides().next().is_some() {
            self.placeholder = Placeholder::Present;
        }
    }

    pub(super) fn usage(&self) -> Option<Usage> {
        self.counts.map(|counts| normal_form(&counts))
    }

    /// Zero, where a provider said so and nothing contradicts it.
    pub(super) fn usage_of_nothing(&self) -> Option<Usage> {
        let zero = || Usage {
            input: Some(Tokens::ZERO),
            output: Some(Tokens::ZERO),
            provider_total: Some(Tokens::ZERO),
            ..Usage::default()
        };
        self.usage().or_else(|| (self.placeholder == Placeholder::Present).then(zero))
    }
}

fn normal_form(counts: &Counts) -> Usage {
    // Some providers leave reasoning out of the completion, and embeddings have no completion at all; the
    // total gives both away.
    let rest = counts.total.zip(counts.prompt).map(|(total, prompt)| total.saturating_sub(prompt));
    let output = counts.completion.max(rest);
    let within = |part: Option<Tokens>, whole: Option<Tokens>| {
        let part = part.unwrap_or_default();
        whole.map_or(part, |whole| part.min(whole))
    };
    Usage {
        input: counts.prompt,
        output,
        cached_input: within(counts.cached, counts.prompt),
        cache_write: within(counts.cache_write, counts.prompt),
        reasoning: within(counts.reasoning, output),
        provider_total: counts.total,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn tokens(count: u64) -> Option<Tokens> {
        Some(Tokens::new(count))
    }

    #[test]
    fn a_part_is_never_more_than_its_whole() {
        let mut tally = Tally::default();
        tally.add(&Counts {
            prompt: tokens(10),
            completion: tokens(5),
            cached: tokens(11),
            cache_write: tokens(10),
            reasoning: tokens(6),
            total: None,
        });
        let usage = tally.usage().unwrap();
        assert_eq!(usage.cached_input, Tokens::new(10));
        assert_eq!(usage.cache_write, Tokens::new(10));
        assert_eq!(usage.reasoning, Tokens::new(5));
    }

    #[test]
    fn zero_is_believed_only_where_nothing_contradicts_it() {
        let zero = Counts { prompt: tokens(0), completion: tokens(0), ..Counts::default() };
        let some = Counts { prompt: tokens(7), ..Counts::default() };
        let mut tally = Tally::default();
        assert_eq!(tally.usage_of_nothing(), None, "missing is not zero");
        tally.add(&zero);
        assert_eq!(tally.usage(), None);
        assert_eq!(tally.usage_of_nothing().and_then(|usage| usage.input), tokens(0));
        tally.add(&some);
        tally.add(&zero);
        assert_eq!(tally.usage().map(|usage| (usage.input, usage.output)), Some((tokens(7), None)));
    }
}
