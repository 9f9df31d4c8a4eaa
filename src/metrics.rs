//! Every metric the filter keeps: a closed list, so that no label value is ever a caller's words.
//!
//! A metric is named by indices into the policy, not by strings: the host defines each series once per VM
//! and finds it again by comparing a few bytes. Labels ride in the name as `;label=value`, which the
//! proxy's `stats_tags` take apart.

use tollgate_budget::Tokens;

use crate::config::{FilterConfig, OnOutage};

/// One series. Limits and models are indices into the policy's lists.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Metric {
    /// Requests by what became of them. `limit` is the one that refused.
    Decisions {
        outcome: Outcome,
        limit: Option<usize>,
    },
    /// Tokens settled.
    Tokens {
        kind: TokenKind,
        model: usize,
    },
    /// What the tokenizers of the policy count for prompts whose true size the provider then reported, and what
    /// it reported: their ratio is the tokenizer's error, whatever is then corrected of it.
    EstimatedInput {
        model: usize,
    },
    ReportedInput {
        model: usize,
    },
    /// The same prompts by how near their hold came to what was reported.
    InputEstimates {
        model: usize,
        outcome: Nearness,
    },
    /// What was learned of a model could not be read, and was begun anew.
    CorrectionsBegunAnew {
        model: usize,
    },
    /// Requests answered with a 4xx for what they contain.
    BodiesRefused {
        reason: BodyReason,
    },
    /// Charges that went to a limit's overflow account, since its shard had no room for another subject.
    OverflowCharges {
        limit: usize,
    },
    /// Requests of a tier that no amount names; the default tier's amount was used.
    UnknownTiers,
    /// Streams that outgrew their hold.
    StreamsOverHold,
    /// Settlements by what the store said.
    Settlements {
        outcome: SettledAs,
    },
    StoreErrors {
        kind: StoreErrorKind,
    },
    /// Requests whose headers went upstream before the body was seen.
    HeadersReleased,
    /// Answers of the upstream that ended without saying what they cost.
    UsageMissing {
        model: usize,
    },
    /// Bytes of an answer's event that were too many to keep, so that it was passed on unread.
    EventsTooLarge,
    /// Calls to the counter service, by what came back.
    CounterCalls {
        call: Call,
        outcome: CallOutcome,
    },
    /// How long the calls took that were answered, in milliseconds.
    CounterCallMillis {
        call: Call,
    },
    /// Requests decided without the counter service, by what the policy says of them.
    OutageRequests {
        verdict: OnOutage,
    },
    /// Workers that do not ask the counter service for a while, since it failed.
    BreakersOpen,
    /// Settlements and renewals that the counter service has not acknowledged yet.
    OutboxDepth,
}

/// How the host keeps a series.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    Counter = 0,
    /// The host adds up what its workers add and take away.
    Gauge = 1,
    Histogram = 2,
}

/// What is asked of the counter service.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Call {
    Holds,
    Settlements,
    Renewals,
    Standings,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum CallOutcome {
    Answered,
    Unsent,
    Silent,
    Failing,
    Rejected,
    Nonsense,
    Full,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Outcome {
    Granted,
    /// Would have been refused, had the limit not been in shadow mode.
    Shadowed,
    /// Not yet: a retry can succeed.
    OverLimit,
    NeverFits,
    Suspended,
    Unidentified,
    /// Something in the request that cannot be metered.
    BadRequest,
    StoreUnavailable,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum TokenKind {
    Input,
    Output,
    Cached,
    Reasoning,
}

/// What was held for a prompt, beside what it turned out to be.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Nearness {
    /// Within a tenth.
    Close,
    Under,
    Over,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum BodyReason {
    NotJson,
    Nonsense,
    TooLarge,
    Compressed,
    Missing,
    Unreadable,
    Upgrade,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum SettledAs {
    Closed,
    AfterLease,
    Unknown,
    Duplicate,
    /// The store did not take it; the hold ends with its lease.
    Lost,
    /// The answer is fetched later, by whoever wants it; the hold ends with its lease.
    Later,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum StoreErrorKind {
    /// No room for another open hold in the shard.
    Full,
    /// Other workers won every race for the shard.
    Contended,
    /// The shard's bytes are not a ledger's, or the host refused to show them.
    Unreadable,
    /// The counter service is away, and the policy lets nothing through without it.
    Away,
}

impl Metric {
    /// The series' name as the host takes it: `tollgate_decisions_total;outcome=granted`.
    pub fn name(self, config: &FilterConfig) -> String {
        let limit = |index: usize| config.limits.get(index).map_or("?", |limit| limit.name.as_str());
        let model = |index: usize| config.model_rule(index).pattern.as_str();
        match self {
            Self::Decisions { outcome, limit: None } => {
                series("tollgate_decisions_total", &[("outcome", outcome.label())])
            }
            Self::Decisions { outcome, limit: Some(index) } => {
                series("tollgate_decisions_total", &[("outcome", outcome.label()), ("limit", limit(index))])
            }
            Self::Tokens { kind, model: index } => {
                series("tollgate_tokens_total", &[("kind", kind.label()), ("model", model(index))])
            }
            Self::EstimatedInput { model: index } => {
                series("tollgate_estimated_input_tokens_total", &[("model", model(index))])
            }
            Self::ReportedInput { model: index } => {
                series("tollgate_reported_input_tokens_total", &[("model", model(index))])
            }
            Self::InputEstimates { model: index, outcome } => series(
                "tollgate_input_estimates_total",
                &[("model", model(index)), ("outcome", outcome.label())],
            ),
            Self::CorrectionsBegunAnew { model: index } => {
                series("tollgate_corrections_begun_anew_total", &[("model", model(index))])
            }
            Self::BodiesRefused { reason } => {
                series("tollgate_bodies_refused_total", &[("reason", reason.label())])
            }
            Self::OverflowCharges { limit: index } => {
                series("tollgate_overflow_charges_total", &[("limit", limit(index))])
            }
            Self::UnknownTiers => series("tollgate_unknown_tiers_total", &[]),
            Self::StreamsOverHold => series("tollgate_streams_over_hold_total", &[]),
            Self::Settlements { outcome } => {
                series("tollgate_settlements_total", &[("outcome", outcome.label())])
            }
            Self::StoreErrors { kind } => series("tollgate_store_errors_total", &[("kind", kind.label())]),
            Self::HeadersReleased => series("tollgate_headers_released_total", &[]),
            Self::UsageMissing { model: index } => {
                series("tollgate_usage_missing_total", &[("model", model(index))])
            }
            Self::EventsTooLarge => series("tollgate_events_too_large_total", &[]),
            Self::CounterCalls { call, outcome } => series(
                "tollgate_counter_calls_total",
                &[("kind", call.label()), ("outcome", outcome.label())],
            ),
            Self::CounterCallMillis { call } => {
                series("tollgate_counter_call_milliseconds", &[("kind", call.label())])
            }
            Self::OutageRequests { verdict } => {
                let word = match verdict {
                    OnOutage::Local => "local",
                    OnOutage::Allow => "allow",
                    OnOutage::Deny => "deny",
                };
                series("tollgate_outage_requests_total", &[("outcome", word)])
            }
            Self::BreakersOpen => series("tollgate_breakers_open", &[]),
            Self::OutboxDepth => series("tollgate_outbox_depth", &[]),
        }
    }

    pub const fn kind(self) -> Kind {
        match self {
            Self::BreakersOpen | Self::OutboxDepth => Kind::Gauge,
            Self::CounterCallMillis { .. } => Kind::Histogram,
            Self::Decisions { .. }
            | Self::Tokens { .. }
            | Self::EstimatedInput { .. }
            | Self::ReportedInput { .. }
            | Self::BodiesRefused { .. }
            | Self::OverflowCharges { .. }
            | Self::UnknownTiers
            | Self::StreamsOverHold
            | Self::Settlements { .. }
            | Self::StoreErrors { .. }
            | Self::HeadersReleased
            | Self::UsageMissing { .. }
            | Self::EventsTooLarge
            | Self::InputEstimates { .. }
            | Self::CorrectionsBegunAnew { .. }
            | Self::CounterCalls { .. }
            | Self::OutageRequests { .. } => Kind::Counter,
        }
    }
}

/// `;` ends a label in the proxy's regular expressions, so a value must not contain one.
fn series(name: &str, labels: &[(&str, &str)]) -> String {
    let mut series = name.to_owned();
    for (label, value) in labels {
        series.push(';');
        series.push_str(label);
        series.push('=');
        series.extend(value.chars().map(|c| if c == ';' { '_' } else { c }));
    }
    series
}

impl Outcome {
    pub const fn label(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Shadowed => "shadowed",
            Self::OverLimit => "over_limit",
            Self::NeverFits => "never_fits",
            Self::Suspended => "suspended",
            Self::Unidentified => "unidentified",
            Self::BadRequest => "bad_request",
            Self::StoreUnavailable => "store_unavailable",
        }
    }
}

impl Call {
    const fn label(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Settlements => "settlements",
            Self::Renewals => "renewals",
            Self::Standings => "standings",
        }
    }
}

impl CallOutcome {
    const fn label(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Unsent => "unsent",
            Self::Silent => "silent",
            Self::Failing => "failing",
            Self::Rejected => "rejected",
            Self::Nonsense => "nonsense",
            Self::Full => "full",
        }
    }
}

impl TokenKind {
    const fn label(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
            Self::Cached => "cached",
            Self::Reasoning => "reasoning",
        }
    }
}

impl Nearness {
    pub fn of(held: Tokens, reported: Tokens) -> Self {
        let tenth = reported.count() / 10;
        if held.count().abs_diff(reported.count()) <= tenth {
            Self::Close
        } else if held < reported {
            Self::Under
        } else {
            Self::Over
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Close => "close",
            Self::Under => "under",
            Self::Over => "over",
        }
    }
}

impl BodyReason {
    pub const fn label(self) -> &'static str {
        match self {
            Self::NotJson => "not_json",
            Self::Nonsense => "nonsense",
            Self::TooLarge => "too_large",
            Self::Compressed => "compressed",
            Self::Missing => "missing",
            Self::Unreadable => "unreadable",
            Self::Upgrade => "upgrade",
        }
    }
}

impl SettledAs {
    const fn label(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::AfterLease => "after_lease",
            Self::Unknown => "unknown",
            Self::Duplicate => "duplicate",
            Self::Lost => "lost",
            Self::Later => "later",
        }
    }
}

impl StoreErrorKind {
    const fn label(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Contended => "contended",
            Self::Unreadable => "unreadable",
            Self::Away => "away",
        }
    }
}

impl From<tollgate_budget::Outcome> for SettledAs {
    fn from(outcome: tollgate_budget::Outcome) -> Self {
        match outcome {
            tollgate_budget::Outcome::Closed => Self::Closed,
            tollgate_budget::Outcome::CorrectedAfterLease => Self::AfterLease,
            tollgate_budget::Outcome::Unknown => Self::Unknown,
            tollgate_budget::Outcome::Duplicate => Self::Duplicate,
        }
    }
}
