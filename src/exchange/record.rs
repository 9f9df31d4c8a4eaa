//! What the operator's access log is told of one exchange.

use serde::Serialize;
use tollgate_budget::{HoldId, Tokens, Toll};

use crate::estimate::Estimate;
use crate::metrics::Outcome;

/// The packed field. Holds counts and names, never content; what a caller chose is cut to a bound.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) decision: Option<Outcome>,
    pub(super) limit: Option<String>,
    pub(super) tenant: Option<String>,
    pub(super) model: Option<String>,
    pub(super) estimate: Option<Estimate>,
    pub(super) actual: Option<Toll>,
    pub(super) over_hold: OverHold,
    pub(super) status: Status,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum OverHold {
    #[default]
    No,
    Yes,
}

/// How it ended.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Status {
    Ok,
    /// Also where nothing ever came back: the host tells no difference.
    #[default]
    ClientDisconnect,
    UpstreamError,
    Refused,
}

/// What a caller may put into one field of a log line.
const MAX_NAME: usize = 128;

/// At most [`MAX_NAME`] characters of a name that the caller chose.
pub(super) fn name(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().take(MAX_NAME).collect()
}

impl Record {
    pub(super) fn line(&self, id: HoldId) -> Option<String> {
        let decision = self.decision?;
        let count = |tokens: Tokens| tokens.count();
        let line = Line {
            decision: decision.label(),
            estimated_input: self.estimate.map(|estimate| count(estimate.prompt)),
            held_output: self.estimate.map(|estimate| count(estimate.output)),
            hold: id.to_string(),
            input: self.actual.map(|toll| count(toll.input)),
            limit: self.limit.as_deref(),
            model: self.model.as_deref(),
            output: self.actual.map(|toll| count(toll.output)),
            over_hold: self.over_hold == OverHold::Yes,
            status: self.status.label(),
            tenant: self.tenant.as_deref(),
        };
        serde_json::to_string(&line).ok()
    }
}

/// As it is written: by name.
#[derive(Serialize)]
struct Line<'a> {
    decision: &'static str,
    estimated_input: Option<u64>,
    held_output: Option<u64>,
    hold: String,
    input: Option<u64>,
    limit: Option<&'a str>,
    model: Option<&'a str>,
    output: Option<u64>,
    over_hold: bool,
    status: &'static str,
    tenant: Option<&'a str>,
}

impl Status {
    const fn label(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::ClientDisconnect => "client_disconnect",
            Self::UpstreamError => "upstream_error",
            Self::Refused => "refused",
        }
    }
}
