//! What an answer turned out to be.

use tollgate_budget::{Tokens, Usage};

/// The sum of one answer, as far as it has been read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Report {
    /// What the provider says; `None` when it says nothing, or only placeholders.
    pub usage: Option<Usage>,
    /// How much of the answer `usage` speaks of.
    pub reach: Reach,
    /// Output counted as it passed.
    pub seen: Tokens,
    pub answered: Answered,
    /// The last word of a choice on why it ended.
    pub finish: Option<Finish>,
    pub ending: Ending,
}

/// A provider that reports in every chunk may be cut off between a text and its report.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reach {
    /// No output came after the last usage.
    Everything,
    /// Output came after it: the report is a lower bound.
    Earlier,
    /// It was made as the answer began: true of the prompt, a lower bound of the output.
    Begin,
}

/// What the client got.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answered {
    Nothing,
    /// An error and no output: nothing was consumed.
    ErrorOnly,
    Output,
    OutputThenError,
    /// Bytes came, but neither JSON nor events: compressed, or not from the API at all.
    Unreadable,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Finish {
    Stop,
    Length,
    ToolCalls,
    ContentFilter,
    Error,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// `[DONE]` or the event that stands for it, a closed body, or a finish reason for every choice.
    Whole,
    Cut,
}
