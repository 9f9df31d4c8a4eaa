//! An upper bound for a body that the host cannot show.

use tollgate_budget::Tokens;

use super::Estimate;
use crate::config::{HoldRules, ModelRule};

/// What a body of `size` bytes costs at most.
pub fn from_size(size: u64, model: &ModelRule, hold: &HoldRules) -> Estimate {
    let _ = (model, hold);
    Estimate { prompt: Tokens::new(size), output: Tokens::ZERO, basis: super::Basis::Size }
}
