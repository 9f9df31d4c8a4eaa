//! An upper bound for a body that the host cannot show (Kong keeps 8 KiB of it).

use tollgate_budget::{Caching, Tokens};

use super::learned::Correction;
use super::text::scale_up;
use super::{Basis, Doubt, Estimate, PRIMING};
use crate::config::{HoldRules, ModelRule, Tokenizer};

/// Of JSON for each token of framing, at least: 26 for the three of a message, 50 for the twelve of a tool.
const BYTES_PER_FRAMING: u64 = 4;

/// What a body of `size` bytes costs at most in text and framing, if a provider would take it: no token is
/// shorter than a byte, and the JSON around a message, a call or a tool is longer than what those cost. A
/// picture by its URL can cost more, a suffix that every prompt of a batch gets, and what the provider
/// keeps; how many answers are asked for cannot be seen either: the output is one answer's default.
/// Settlement corrects both ways.
pub fn from_size(size: u64, model: &ModelRule, hold: &HoldRules) -> Estimate {
    let text = match model.tokenizer {
        Tokenizer::Exact(_) => size,
        Tokenizer::Like { vocabulary: _, factor_milli } => scale_up(size, factor_milli, 1000),
        // Here the bytes of the JSON count for less than the framing they stand for.
        Tokenizer::Characters { per_token_milli } => {
            scale_up(size, 1000, per_token_milli).saturating_add(size.div_ceil(BYTES_PER_FRAMING))
        }
    };
    Estimate {
        prompt: Tokens::new(text.saturating_add(PRIMING)),
        output: model.default_output.min(model.max_output).min(hold.max_output),
        basis: Basis::Size,
        text: Tokens::ZERO,
        correction: Correction::NONE,
        doubt: Doubt::More,
        // Nobody has seen that it is not.
        caching: Caching::Marked,
    }
}
