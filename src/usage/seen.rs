//! Counts the output that passes, per choice, with the tokenizer of the policy.

use tollgate_bpe::{Counter, Encoding};
use tollgate_budget::Tokens;

use crate::config::{Tokenizer, Vocabulary};

/// Choices with a counter of their own; a request for more is rare and each counter takes memory.
const MOST_COUNTED: usize = 16;

/// What the remaining choices are taken to need: English has about four bytes to a token, and scripts of
/// three bytes a character about one token to a character.
const BYTES_PER_TOKEN: u64 = 4;

#[derive(Debug)]
pub(super) struct Seen {
    tokenizer: Tokenizer,
    counters: Vec<(u64, Counter)>,
    /// Of all choices.
    bytes: u64,
    /// Characters of all choices, where characters are what is counted.
    characters: u64,
    /// Bytes of the choices without a counter.
    uncounted: u64,
}

impl Seen {
    pub(super) const fn new(tokenizer: Tokenizer) -> Self {
        Self { tokenizer, counters: Vec::new(), bytes: 0, characters: 0, uncounted: 0 }
    }

    pub(super) fn push(&mut self, choice: u64, text: &str) {
        self.bytes = self.bytes.saturating_add(text.len() as u64);
        let vocabulary = match self.tokenizer {
            Tokenizer::Characters { .. } => {
                self.characters = self.characters.saturating_add(text.chars().count() as u64);
                return;
            }
            Tokenizer::Exact(vocabulary) | Tokenizer::Like { vocabulary, .. } => vocabulary,
        };
        if let Some((_, counter)) = self.counters.iter_mut().find(|(index, _)| *index == choice) {
            counter.push(text);
        } else if self.counters.len() < MOST_COUNTED {
            let mut counter = Counter::new(encoding(vocabulary));
            counter.push(text);
            self.counters.push((choice, counter));
        } else {
            self.uncounted = self.uncounted.saturating_add(text.len() as u64);
        }
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn total(&self) -> Tokens {
        match self.tokenizer {
            Tokenizer::Exact(_) => self.counted(),
            Tokenizer::Like { factor_milli, .. } => {
                Tokens::new(self.counted().saturating_mul(factor_milli).count().div_ceil(1000))
            }
            Tokenizer::Characters { per_token_milli } => {
                Tokens::new(self.characters.saturating_mul(1000).div_ceil(per_token_milli.max(1)))
            }
        }
    }

    fn counted(&self) -> Tokens {
        let rest = Tokens::new(self.uncounted.div_ceil(BYTES_PER_TOKEN));
        self.counters
            .iter()
            .fold(rest, |sum, (_, counter)| sum.saturating_add(Tokens::new(counter.total() as u64)))
    }
}

const fn encoding(vocabulary: Vocabulary) -> Encoding {
    match vocabulary {
        Vocabulary::O200kBase => Encoding::O200kBase,
        Vocabulary::Cl100kBase => Encoding::Cl100kBase,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_beyond_the_counted_ones_are_estimated_and_not_forgotten() {
        let mut seen = Seen::new(Tokenizer::Exact(Vocabulary::O200kBase));
        for choice in 0..MOST_COUNTED as u64 {
            seen.push(choice, "a");
        }
        let before = seen.total();
        seen.push(99, "four");
        seen.push(98, "five!");
        assert_eq!(seen.total(), before.saturating_add(Tokens::new(3)));
        assert_eq!(seen.counters.len(), MOST_COUNTED);
    }

    #[test]
    fn factors_and_characters_round_up() {
        let mut like = Seen::new(Tokenizer::Like { vocabulary: Vocabulary::Cl100kBase, factor_milli: 1001 });
        like.push(0, "x");
        assert_eq!(like.total(), Tokens::new(2));
        let mut characters = Seen::new(Tokenizer::Characters { per_token_milli: 4000 });
        characters.push(0, "äöü");
        characters.push(7, "ß!");
        assert_eq!(characters.total(), Tokens::new(2));
    }
}
