//! An upper bound for a body that the host cannot show (Kong keeps 8 KiB of it).

use tollgate_budget::Tokens;

use super::text::scale_up;
use super::{Basis, Estimate};
use crate::config::{HoldRules, ModelRule, Tokenizer};

/// What a body of `size` bytes costs at most in text: no token is shorter than a byte, and the JSON around
/// a message, a call or a tool is longer than what framing costs. Pictures by URL can cost more; settlement
/// corrects both ways. Several answers cannot be seen, so the output is the whole of what a hold may be.
pub fn from_size(size: u64, model: &ModelRule, hold: &HoldRules) -> Estimate {
    let prompt = match model.tokenizer {
        Tokenizer::Exact(_) => size,
        Tokenizer::Like { vocabulary: _, factor_milli } => scale_up(size, factor_milli, 1000),
        Tokenizer::Characters { per_token_milli } => scale_up(size, 1000, per_token_milli),
    };
    Estimate {
        prompt: Tokens::new(prompt),
        output: model.default_output.min(model.max_output).min(hold.max_output),
        basis: Basis::Size,
    }
}
