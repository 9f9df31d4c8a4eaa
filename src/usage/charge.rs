//! What to settle a hold at, once the answer is over.
//!
//! Missing is not zero: whatever the provider does not say is taken from the estimate and from what was
//! seen, so hiding usage buys nothing.

use tollgate_budget::{Tokens, Usage};

use super::{Answered, Reach, Report};

/// What was set aside for the request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Held {
    pub prompt: Tokens,
    pub output: Tokens,
}

/// The true cost, as well as it can be known. `input + output` is what is charged to tokens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cost {
    pub input: Tokens,
    pub output: Tokens,
    pub outcome: Outcome,
}

impl Cost {
    pub const fn total(&self) -> Tokens {
        self.input.saturating_add(self.output)
    }
}

/// Whose word a [`Cost`] is.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Outcome {
    /// The provider's, as far as its report goes.
    ProviderUsage,
    /// The provider's on one side, ours on the other.
    PartialUsage,
    /// The estimate, and the output seen.
    Estimate,
    /// Nothing was consumed.
    NoCharge,
}

/// For an answer with a good status. One with an error status is settled at zero by whoever reads the status.
pub fn charge(report: &Report, held: Held) -> Cost {
    match (report.usage, report.answered) {
        (Some(usage), _) => reported(usage, report, held),
        (None, Answered::ErrorOnly) => {
            Cost { input: Tokens::ZERO, output: Tokens::ZERO, outcome: Outcome::NoCharge }
        }
        (None, Answered::Nothing | Answered::Output | Answered::OutputThenError) => {
            Cost { input: held.prompt, output: report.seen, outcome: Outcome::Estimate }
        }
        // None of it was seen, so none of the hold can be given back.
        (None, Answered::Unreadable) => {
            Cost { input: held.prompt, output: held.output, outcome: Outcome::Estimate }
        }
    }
}

fn reported(usage: Usage, report: &Report, held: Held) -> Cost {
    let at_least_seen = |output: Tokens| match report.reach {
        Reach::Everything => output,
        Reach::Earlier => output.max(report.seen),
    };
    match (usage.input, usage.output, usage.provider_total) {
        (Some(input), Some(output), _) => {
            Cost { input, output: at_least_seen(output), outcome: Outcome::ProviderUsage }
        }
        (None, None, Some(total)) => {
            let input = held.prompt.min(total);
            let output = at_least_seen(total.saturating_sub(input));
            Cost { input, output, outcome: Outcome::ProviderUsage }
        }
        (input, output, _) => Cost {
            input: input.unwrap_or(held.prompt),
            output: output.map_or(report.seen, at_least_seen),
            outcome: Outcome::PartialUsage,
        },
    }
}
