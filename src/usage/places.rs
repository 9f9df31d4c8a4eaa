//! What the values of an OpenAI answer are to us, told by the keys that lead to them.
//!
//! The usage object is believed under `usage`, `x_groq.usage` and `choices[0].usage`, and nowhere else: a
//! model can write whatever it likes into its texts and arguments, but it cannot add a key here.

use super::report::Finish;

/// What a value of an answer is to us.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    Ignored,
    Root,
    /// An element of a root that is an array: not JSON of the API, but `[DONE]` looks like it.
    Mark,
    /// What `object` says.
    Kind,
    Error,
    XGroq,
    Usage(Source),
    PromptDetails,
    CompletionDetails,
    Count(Field),
    Choices,
    Choice,
    Index,
    Finish,
    /// `message` or `delta`.
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
}

/// Where a usage object stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Source {
    Top,
    XGroq,
    FirstChoice,
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
    /// Of a value under `key` in the object that stands here.
    pub(super) fn member(self, key: &[u8]) -> Self {
        match (self, key) {
            (Self::Root, b"choices") => Self::Choices,
            (Self::Root, b"usage") => Self::Usage(Source::Top),
            (Self::Root, b"x_groq") => Self::XGroq,
            (Self::Root, b"object") => Self::Kind,
            (Self::Root | Self::Choice, b"error") => Self::Error,

            (Self::Choice, b"index") => Self::Index,
            (Self::Choice, b"delta" | b"message") => Self::Message,
            (Self::Choice, b"text") => Self::Text,
            (Self::Choice, b"finish_reason") => Self::Finish,
            (Self::Choice, b"usage") => Self::Usage(Source::FirstChoice),

            (Self::Message, b"content") => Self::Content,
            (Self::Message, b"reasoning_content") => Self::ReasoningContent,
            (Self::Message, b"reasoning") => Self::Reasoning,
            (Self::Message, b"refusal") => Self::Text,
            (Self::Message, b"tool_calls") => Self::ToolCalls,
            (Self::Message, b"function_call") => Self::Function,
            (Self::Message, b"audio") => Self::Audio,
            (Self::Message, b"images") => Self::Media,
            (Self::Part, b"text" | b"refusal") => Self::Text,
            (Self::Part, b"thinking") => Self::Content,
            (Self::ToolCall, b"function" | b"custom") => Self::Function,
            (Self::Function, b"name" | b"arguments" | b"input") => Self::Text,
            (Self::Audio, b"transcript") => Self::Text,
            (Self::Audio | Self::Media, _) => Self::Media,

            (Self::XGroq, b"usage") => Self::Usage(Source::XGroq),
            (Self::Usage(_), b"prompt_tokens") => Self::Count(Field::Prompt),
            (Self::Usage(_), b"completion_tokens") => Self::Count(Field::Completion),
            (Self::Usage(_), b"total_tokens") => Self::Count(Field::Total),
            (Self::Usage(_), b"prompt_tokens_details") => Self::PromptDetails,
            (Self::Usage(_), b"completion_tokens_details") => Self::CompletionDetails,
            (Self::PromptDetails, b"cached_tokens") => Self::Count(Field::Cached),
            (Self::PromptDetails, b"cache_write_tokens") => Self::Count(Field::CacheWrite),
            (Self::CompletionDetails, b"reasoning_tokens") => Self::Count(Field::Reasoning),
            // DeepSeek's and Moonshot's words for it.
            (Self::Usage(_), b"prompt_cache_hit_tokens" | b"cached_tokens") => Self::Count(Field::Cached),
            _ => Self::Ignored,
        }
    }

    /// Of the values in the list that stands here.
    pub(super) fn element(self) -> Self {
        if self == Self::Root {
            Self::Mark
        } else if self == Self::Choices {
            Self::Choice
        } else if self == Self::Content {
            Self::Part
        } else if self == Self::ToolCalls {
            Self::ToolCall
        } else if self == Self::Media {
            Self::Media
        } else {
            Self::Ignored
        }
    }
}

/// The providers' words for why a choice ended.
pub(super) fn finish(word: &[u8]) -> Option<Finish> {
    match word {
        b"stop" | b"eos" => Some(Finish::Stop),
        b"length" | b"model_length" | b"max_tokens" => Some(Finish::Length),
        b"tool_calls" | b"function_call" => Some(Finish::ToolCalls),
        b"content_filter" => Some(Finish::ContentFilter),
        b"error" => Some(Finish::Error),
        _ => None,
    }
}
