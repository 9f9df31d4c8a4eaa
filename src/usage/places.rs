//! What the values of an answer are to us, told by the keys that lead to them.
//!
//! A usage object is believed at the places that its API has for it, and nowhere else: a model can write
//! whatever it likes into its texts and arguments, but it cannot add a key there.

mod anthropic;
mod openai;
mod responses;

use super::Dialect;
use super::report::Finish;

/// What a value of an answer is to us.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    Ignored,
    Root(Dialect),
    /// An element of a root that is an array: not JSON of the API, but `[DONE]` looks like it.
    Mark,
    /// What `object` says.
    Kind,
    /// What an event's `type` says.
    Type,
    Error,
    XGroq,
    Usage(Source),
    InputDetails,
    OutputDetails,
    Count(Field),
    Choices,
    Choice,
    Index,
    Finish,
    /// `message` or `delta` of a choice.
    Message,
    /// A string, or a list of parts with texts in them.
    Content,
    Part,
    Text,
    Reasoning,
    ReasoningContent,
    ToolCalls,
    ToolCall,
    Function,
    Audio,
    /// Output that is not text.
    Media,
    /// Arguments of a call as JSON: all texts in them.
    Argument,
    /// Anthropic's message as an event begins it.
    Started,
    Blocks,
    Block,
    /// What an event adds to a block, and says of the end.
    Delta,
    /// The object that events of the Responses API carry.
    Response,
    /// What an event adds: text, unless the event is of another kind.
    ResponseDelta,
    Status,
    Incomplete,
    Items,
    Item,
}

/// Where a usage object stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Source {
    Top,
    XGroq,
    FirstChoice,
    /// Of the Responses API, at the top or in the response that an event carries.
    Response,
    /// Of Anthropic's messages, whole or at the end.
    Message,
    /// As an answer begins: true of the prompt, not yet of the output.
    Start,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Field {
    Prompt,
    Completion,
    Total,
    Cached,
    CacheWrite,
    Reasoning,
}

impl Place {
    /// Of a value under `key` in the object that stands here. No two APIs share a place whose keys they use
    /// differently.
    pub(super) fn member(self, key: &[u8]) -> Self {
        if self == Self::Argument || self == Self::Media {
            self
        } else if matches!(self, Self::Started | Self::Block | Self::Delta | Self::Root(Dialect::Anthropic)) {
            anthropic::member(self, key)
        } else if matches!(self, Self::Usage(Source::Message | Source::Start)) {
            anthropic::usage(key)
        } else if matches!(
            self,
            Self::Response | Self::Incomplete | Self::Item | Self::Root(Dialect::Responses)
        ) {
            responses::member(self, key)
        } else if self == Self::Usage(Source::Response) {
            responses::usage(key)
        } else {
            openai::member(self, key)
        }
    }

    /// Of the values in the list that stands here.
    pub(super) fn element(self) -> Self {
        if matches!(self, Self::Root(_)) {
            Self::Mark
        } else if self == Self::Choices {
            Self::Choice
        } else if self == Self::Content {
            Self::Part
        } else if self == Self::ToolCalls {
            Self::ToolCall
        } else if self == Self::Blocks {
            Self::Block
        } else if self == Self::Items {
            Self::Item
        } else if self == Self::Media || self == Self::Argument {
            self
        } else {
            Self::Ignored
        }
    }
}

/// The providers' words for why an answer ended.
pub(super) fn finish(word: &[u8]) -> Option<Finish> {
    match word {
        b"stop" | b"eos" | b"end_turn" | b"stop_sequence" | b"pause_turn" | b"completed" => {
            Some(Finish::Stop)
        }
        b"length"
        | b"model_length"
        | b"max_tokens"
        | b"max_output_tokens"
        | b"model_context_window_exceeded" => Some(Finish::Length),
        b"tool_calls" | b"function_call" | b"tool_use" => Some(Finish::ToolCalls),
        b"content_filter" | b"refusal" => Some(Finish::ContentFilter),
        b"error" | b"failed" => Some(Finish::Error),
        _ => None,
    }
}
