//! What to settle a hold at, once the answer is over.
//!
//! Missing is not zero: whatever the provider does not say is taken from the estimate and from what was
//! seen, so hiding usage buys nothing.

use tollgate_budget::{Tokens, Toll, Usage};

use super::{Answered, Reach, Report};

/// The true cost, as well as it can be known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cost {
    pub toll: Toll,
    pub outcome: Outcome,
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
/// `held`: what was set aside for the request.
pub fn charge(report: &Report, held: Toll) -> Cost {
    match (report.usage, report.answered) {
        (Some(usage), _) => reported(usage, report, held),
        (None, Answered::ErrorOnly) => Cost { toll: Toll::NO_TOKENS, outcome: Outcome::NoCharge },
        (None, Answered::Nothing | Answered::Output | Answered::OutputThenError) => {
            Cost { toll: Toll { output: report.seen, ..held }, outcome: Outcome::Estimate }
        }
        // None of it was seen, so none of the hold can be given back.
        (None, Answered::Unreadable) => Cost { toll: held, outcome: Outcome::Estimate },
    }
}

fn reported(usage: Usage, report: &Report, held: Toll) -> Cost {
    let at_least_seen = |output: Tokens| match report.reach {
        Reach::Everything => output,
        Reach::Earlier | Reach::Begin => output.max(report.seen),
    };
    let outcome = match report.reach {
        Reach::Everything | Reach::Earlier => Outcome::ProviderUsage,
        Reach::Begin => Outcome::PartialUsage,
    };
    let (cached, written) = (usage.cached_input, usage.cache_write);
    match (usage.input, usage.output, usage.provider_total) {
        (Some(input), Some(output), _) => {
            Cost { toll: Toll { input, cached, written, output: at_least_seen(output) }, outcome }
        }
        (None, None, Some(total)) => {
            let input = held.input.min(total);
            let output = at_least_seen(total.saturating_sub(input));
            Cost { toll: Toll { input, output, ..held }, outcome: Outcome::ProviderUsage }
        }
        (Some(input), None, _) => Cost {
            toll: Toll { input, cached, written, output: report.seen },
            outcome: Outcome::PartialUsage,
        },
        // What a cache did with a prompt of unknown size is unknown as well.
        (None, output, _) => {
            let output = output.map_or(report.seen, at_least_seen);
            Cost { toll: Toll { output, ..held }, outcome: Outcome::PartialUsage }
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_budget::Caching;

    use super::super::{Ending, Finish};
    use super::*;

    const HELD: Toll = Toll::held(Tokens::new(40), Tokens::new(400), Caching::Unmarked);

    fn report(answered: Answered, usage: Option<Usage>) -> Report {
        Report {
            usage,
            reach: Reach::Everything,
            seen: Tokens::new(12),
            answered,
            finish: Some(Finish::Stop),
            ending: Ending::Whole,
        }
    }

    fn usage(input: Option<u64>, output: Option<u64>, total: Option<u64>) -> Option<Usage> {
        Some(Usage {
            input: input.map(Tokens::new),
            output: output.map(Tokens::new),
            provider_total: total.map(Tokens::new),
            ..Usage::default()
        })
    }

    #[track_caller]
    fn assert_cost(report: &Report, input: u64, output: u64, outcome: Outcome) {
        let toll = Toll { input: Tokens::new(input), output: Tokens::new(output), ..Toll::NO_TOKENS };
        assert_eq!(charge(report, HELD), Cost { toll, outcome });
    }

    #[test]
    fn a_side_that_is_not_reported_is_estimated_or_seen() {
        let output_only = report(Answered::Output, usage(None, Some(2), Some(1)));
        assert_cost(&output_only, 40, 2, Outcome::PartialUsage);
        let input_only = report(Answered::Output, usage(Some(50), None, None));
        assert_cost(&input_only, 50, 12, Outcome::PartialUsage);
    }

    #[test]
    fn a_total_alone_is_charged_as_it_is() {
        assert_cost(
            &report(Answered::Output, usage(None, None, Some(1000))),
            40,
            960,
            Outcome::ProviderUsage,
        );
        assert_cost(&report(Answered::Output, usage(None, None, Some(30))), 30, 0, Outcome::ProviderUsage);
    }

    #[test]
    fn a_report_that_lags_behind_the_output_is_a_lower_bound() {
        let lagging = |output| Report {
            reach: Reach::Earlier,
            ..report(Answered::Output, usage(Some(300), Some(output), Some(300 + output)))
        };
        assert_cost(&lagging(5), 300, 12, Outcome::ProviderUsage);
        assert_cost(&lagging(20), 300, 20, Outcome::ProviderUsage);
    }

    #[test]
    fn without_usage_the_estimate_and_what_was_seen_stand_unless_there_was_only_an_error() {
        assert_cost(&report(Answered::OutputThenError, None), 40, 12, Outcome::Estimate);
        assert_cost(&report(Answered::ErrorOnly, None), 0, 0, Outcome::NoCharge);
        let nothing = Report { seen: Tokens::ZERO, ..report(Answered::Nothing, None) };
        assert_cost(&nothing, 40, 0, Outcome::Estimate);
    }

    #[test]
    fn what_cannot_be_read_gives_nothing_back() {
        let unreadable = Report { seen: Tokens::ZERO, ..report(Answered::Unreadable, None) };
        assert_cost(&unreadable, 40, 400, Outcome::Estimate);
    }
}
