//! How much of what, in how long.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{AccountId, Figure, Span, Tokens};

/// What a limit counts.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Unit {
    /// Weighted input and output.
    Tokens,
    /// Unweighted input and output: what a provider's own ceiling counts.
    RawTokens,
    InputTokens,
    OutputTokens,
    Requests,
    /// Dollars, by the prices of the policy's models.
    Usd,
}

impl Unit {
    /// Account units per token, request or dollar: tokens are kept in thousandths, since weights are fractions,
    /// and money in nano-dollars.
    pub const fn scale(self) -> u64 {
        match self {
            Self::Tokens | Self::RawTokens | Self::InputTokens | Self::OutputTokens => 1000,
            Self::Requests => 1,
            Self::Usd => 1_000_000_000,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::RawTokens => "raw_tokens",
            Self::InputTokens => "input_tokens",
            Self::OutputTokens => "output_tokens",
            Self::Requests => "requests",
            Self::Usd => "usd",
        }
    }

    /// As an amount in this unit, each token as it is.
    pub const fn amount(self, count: Tokens) -> Amount {
        Amount::saturating(count.count().saturating_mul(self.scale()))
    }

    /// Whole tokens, requests or dollars in `amount`, rounded up.
    pub const fn whole_ceil(self, amount: Amount) -> u64 {
        amount.units().div_ceil(self.scale())
    }

    /// Whole tokens, requests or dollars in `amount`, rounded down.
    pub const fn whole_floor(self, amount: Amount) -> u64 {
        amount.units() / self.scale()
    }

    /// For people, rounded up: what is used or asked for.
    pub const fn ceil(self, amount: Amount) -> Figure {
        Figure::new(self, self.rounded(self.whole_ceil(amount), amount))
    }

    /// For people, rounded down: what there is, or is left.
    pub const fn floor(self, amount: Amount) -> Figure {
        Figure::new(self, self.rounded(self.whole_floor(amount), amount))
    }

    /// Nobody counts in parts of a token, and everybody in parts of a dollar.
    const fn rounded(self, whole: u64, amount: Amount) -> Amount {
        match self {
            Self::Tokens | Self::RawTokens | Self::InputTokens | Self::OutputTokens | Self::Requests => {
                Amount(whole.saturating_mul(self.scale()))
            }
            Self::Usd => amount,
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What an account counts in: thousandths of a token, whole requests, or nano-dollars. Never above [`Amount::MAX`].
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Amount(u64);

impl Amount {
    pub const ZERO: Self = Self(0);
    pub const ONE: Self = Self(1);
    /// 4 × 10^15: two of them still add up below 2^53, so that Lua's doubles hold every sum.
    pub const MAX: Self = Self(4_000_000_000_000_000);

    pub const fn new(units: u64) -> Option<Self> {
        if units <= Self::MAX.0 { Some(Self(units)) } else { None }
    }

    pub const fn saturating(units: u64) -> Self {
        if units <= Self::MAX.0 { Self(units) } else { Self::MAX }
    }

    pub const fn units(self) -> u64 {
        self.0
    }

    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self::saturating(self.0.saturating_add(other.0))
    }

    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl TryFrom<u64> for Amount {
    type Error = TooLarge;

    fn try_from(units: u64) -> Result<Self, TooLarge> {
        Self::new(units).ok_or(TooLarge)
    }
}

impl From<Amount> for u64 {
    fn from(amount: Amount) -> Self {
        amount.0
    }
}

/// Above [`Amount::MAX`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TooLarge;

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an amount is at most {} units", Amount::MAX.0)
    }
}

impl std::error::Error for TooLarge {}

/// How much an account may give out. Suspended is not "nothing left": waiting does not help.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Quota {
    Suspended,
    /// Never zero.
    Of(Amount),
}

impl Quota {
    pub const fn of(amount: Amount) -> Self {
        if amount.0 == 0 { Self::Suspended } else { Self::Of(amount) }
    }

    pub const fn amount(self) -> Amount {
        match self {
            Self::Suspended => Amount::ZERO,
            Self::Of(amount) => amount,
        }
    }
}

/// The algorithm by which an account forgets. Spans are never zero.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Window {
    /// Two fixed windows, the earlier one weighted by how much of it the sliding window still covers.
    Sliding(Span),
    /// Whole windows counted from the Unix epoch.
    Fixed(Span),
    /// Fills by the amount in one `period`, up to `burst` (by default the amount).
    Bucket {
        #[serde(rename = "period_ms")]
        period: Span,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        burst: Option<Amount>,
    },
}

impl Window {
    pub const fn span(self) -> Span {
        match self {
            Self::Sliding(span) | Self::Fixed(span) | Self::Bucket { period: span, burst: _ } => span,
        }
    }
}

/// How much in how long.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Limit {
    pub window: Window,
    pub quota: Quota,
}

impl Limit {
    /// The most that can ever be taken at once.
    pub const fn capacity(&self) -> Amount {
        match (self.quota, self.window) {
            (Quota::Suspended, _) => Amount::ZERO,
            (Quota::Of(_), Window::Bucket { burst: Some(burst), .. }) => burst,
            (
                Quota::Of(amount),
                Window::Bucket { burst: None, .. } | Window::Sliding(_) | Window::Fixed(_),
            ) => amount,
        }
    }
}

/// Whether a limit refuses, or only counts and tells.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    Enforce,
    Shadow,
}

/// What one request takes from one account.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Charge {
    pub account: AccountId,
    pub limit: Limit,
    pub cost: Amount,
    /// The most that one request may hold of this account; a cost beyond it never fits.
    pub largest: Amount,
    pub mode: Mode,
}
