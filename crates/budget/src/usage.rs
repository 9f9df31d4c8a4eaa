//! What a provider says an answer cost.

use crate::Tokens;

/// Counts in one normal form for all providers. `None` means "not reported", which is never zero.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// All prompt tokens, cached reads and cache writes included.
    pub input: Option<Tokens>,
    /// All generated tokens, reasoning included.
    pub output: Option<Tokens>,
    /// The part of `input` read from a cache.
    pub cached_input: Tokens,
    /// The part of `input` written to a cache.
    pub cache_write: Tokens,
    /// The part of `output` that was reasoning.
    pub reasoning: Tokens,
    /// The provider's own total, where it gives one.
    pub provider_total: Option<Tokens>,
}
