//! Text → tokens, in the unit of the model's tokenizer first (tokens of a vocabulary, or characters) and
//! turned into the model's tokens once, rounded up.
//!
//! The ceiling is turned the other way, so that counting can stop in the middle of a text.

use std::borrow::Cow;

use tollgate_bpe::Encoding;
use tollgate_budget::Tokens;

use super::json;
use super::memo::{Kind, MEMORABLE, ScopedMemo};
use crate::chat::{Chat, Piece};
use crate::config::{Tokenizer, Vocabulary};

/// The longest token of either vocabulary, in bytes (a run of blanks): a text of `n` bytes has at least
/// `n / 128` tokens, whatever is in it.
const LONGEST_TOKEN: u64 = 128;

/// A count under way.
pub(super) struct TextCount<'m> {
    tokenizer: Tokenizer,
    memo: ScopedMemo<'m>,
    counted: u64,
    limit: u64,
}

impl<'m> TextCount<'m> {
    /// The tokens of all text in `chat`; `None` when there are more than `limit`.
    pub(super) fn of(
        chat: &Chat<'_>,
        tokenizer: Tokenizer,
        limit: Option<Tokens>,
        memo: ScopedMemo<'m>,
    ) -> Option<Tokens> {
        let limit = limit.map_or(u64::MAX, |limit| limit_in_units(tokenizer, limit));
        let mut count = Self { tokenizer, memo, counted: 0, limit };
        if count.is_plainly_over(chat) {
            return None;
        }
        for piece in &chat.pieces {
            match piece {
                Piece::Role(text) | Piece::Name(text) | Piece::Text(text) => {
                    count.add(Kind::Text, text, 1)?;
                }
                Piece::Suffix(text) => count.add(Kind::Text, text, chat.prompts)?,
                Piece::Tool(json) | Piece::Schema(json) => count.add(Kind::Json, json, 1)?,
                Piece::Call | Piece::Image(_) | Piece::Audio | Piece::File => {}
            }
        }
        Some(in_tokens(tokenizer, count.counted))
    }

    /// Whether the length alone says it: a look at no byte.
    fn is_plainly_over(&self, chat: &Chat<'_>) -> bool {
        let bytes = chat.pieces.iter().fold(0_u64, |sum, piece| match piece {
            Piece::Text(text) | Piece::Suffix(text) => sum.saturating_add(text.len() as u64),
            // JSON may shrink to nothing when its blanks go.
            Piece::Role(_)
            | Piece::Name(_)
            | Piece::Tool(_)
            | Piece::Schema(_)
            | Piece::Call
            | Piece::Image(_)
            | Piece::Audio
            | Piece::File => sum,
        });
        bytes / LONGEST_TOKEN > self.limit
    }

    /// A text that the prompt has so many `times`, at least once.
    fn add(&mut self, kind: Kind, text: &str, times: u64) -> Option<()> {
        let left = self.limit.saturating_sub(self.counted) / times.max(1);
        let units = match self.tokenizer {
            Tokenizer::Exact(vocabulary) | Tokenizer::Like { vocabulary, .. } => {
                self.tokens(vocabulary, kind, text, left)?
            }
            Tokenizer::Characters { .. } => as_read(kind, text).chars().count() as u64,
        };
        if units > left {
            return None;
        }
        self.counted = self.counted.saturating_add(units.saturating_mul(times));
        Some(())
    }

    fn tokens(&mut self, vocabulary: Vocabulary, kind: Kind, text: &str, limit: u64) -> Option<u64> {
        if text.len() < MEMORABLE {
            return count(vocabulary, &as_read(kind, text), limit);
        }
        let name = self.memo.name(vocabulary, kind, text);
        if let Some(known) = self.memo.recall(name) {
            return Some(known);
        }
        let tokens = count(vocabulary, &as_read(kind, text), limit)?;
        self.memo.remember(name, tokens);
        Some(tokens)
    }
}

/// Tokens of one whole text; `None` when there are more than `limit`.
fn count(vocabulary: Vocabulary, text: &str, limit: u64) -> Option<u64> {
    let encoding = match vocabulary {
        Vocabulary::O200kBase => Encoding::O200kBase,
        Vocabulary::Cl100kBase => Encoding::Cl100kBase,
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    encoding.count_till_limit(text, limit).map(|tokens| tokens as u64)
}

/// JSON is counted in its compact form, strings as they are.
fn as_read(kind: Kind, text: &str) -> Cow<'_, str> {
    match kind {
        Kind::Text => Cow::Borrowed(text),
        Kind::Json => json::compact(text),
    }
}

fn in_tokens(tokenizer: Tokenizer, units: u64) -> Tokens {
    Tokens::new(match tokenizer {
        Tokenizer::Exact(_) => units,
        Tokenizer::Like { vocabulary: _, factor_milli } => scale_up(units, factor_milli, 1000),
        Tokenizer::Characters { per_token_milli } => scale_up(units, 1000, per_token_milli),
    })
}

/// The most units that are not more than `limit` tokens.
fn limit_in_units(tokenizer: Tokenizer, limit: Tokens) -> u64 {
    match tokenizer {
        Tokenizer::Exact(_) => limit.count(),
        Tokenizer::Like { vocabulary: _, factor_milli } => scale_down(limit.count(), 1000, factor_milli),
        Tokenizer::Characters { per_token_milli } => scale_down(limit.count(), per_token_milli, 1000),
    }
}

/// `count × by / over`, rounded up. Neither factor is zero in a checked policy; a zero means one here.
pub(super) fn scale_up(count: u64, by: u64, over: u64) -> u64 {
    let scaled = (u128::from(count) * u128::from(by.max(1))).div_ceil(u128::from(over.max(1)));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// `count × by / over`, rounded down.
pub(super) fn scale_down(count: u64, by: u64, over: u64) -> u64 {
    let scaled = u128::from(count) * u128::from(by.max(1)) / u128::from(over.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(2026), ..ProptestConfig::default() })]

        #[test]
        fn a_limit_in_units_is_the_last_count_within_the_limit(limit in 0_u64..1 << 40, milli in 1_u64..10_000) {
            for tokenizer in [
                Tokenizer::Exact(Vocabulary::O200kBase),
                Tokenizer::Like { vocabulary: Vocabulary::O200kBase, factor_milli: milli },
                Tokenizer::Characters { per_token_milli: milli },
            ] {
                let units = limit_in_units(tokenizer, Tokens::new(limit));
                prop_assert!(in_tokens(tokenizer, units).count() <= limit);
                prop_assert!(in_tokens(tokenizer, units + 1).count() > limit);
            }
        }
    }
}
