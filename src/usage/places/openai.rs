//! Chat and text completions and embeddings, as OpenAI and those who copy it answer.
//!
//! <https://platform.openai.com/docs/api-reference/chat/object>
//!
//! Usage is believed under `usage`, `x_groq.usage` and `choices[0].usage`.

use super::super::Dialect;
use super::{Field, Place, Source};

pub(super) fn member(place: Place, key: &[u8]) -> Place {
    match (place, key) {
        (Place::Root(Dialect::OpenAi), b"choices") => Place::Choices,
        (Place::Root(Dialect::OpenAi), b"usage") => Place::Usage(Source::Top),
        (Place::Root(Dialect::OpenAi), b"x_groq") => Place::XGroq,
        (Place::Root(Dialect::OpenAi), b"object") => Place::Kind,
        (Place::Root(Dialect::OpenAi) | Place::Choice, b"error") => Place::Error,

        (Place::Choice, b"index") => Place::Index,
        (Place::Choice, b"delta" | b"message") => Place::Message,
        (Place::Choice, b"text") => Place::Text,
        (Place::Choice, b"finish_reason") => Place::Finish,
        (Place::Choice, b"usage") => Place::Usage(Source::FirstChoice),

        (Place::Message, b"content") => Place::Content,
        (Place::Message, b"reasoning_content") => Place::ReasoningContent,
        (Place::Message, b"reasoning") => Place::Reasoning,
        (Place::Message, b"refusal") => Place::Text,
        (Place::Message, b"tool_calls") => Place::ToolCalls,
        (Place::Message, b"function_call") => Place::Function,
        (Place::Message, b"audio") => Place::Audio,
        (Place::Message, b"images") => Place::Media,
        (Place::Part, b"text" | b"refusal") => Place::Text,
        (Place::Part, b"thinking") => Place::Content,
        (Place::ToolCall, b"function" | b"custom") => Place::Function,
        (Place::Function, b"name" | b"arguments" | b"input") => Place::Text,
        (Place::Audio, b"transcript") => Place::Text,
        (Place::Audio, _) => Place::Media,

        (Place::XGroq, b"usage") => Place::Usage(Source::XGroq),
        (Place::Usage(_), b"prompt_tokens") => Place::Count(Field::Prompt),
        (Place::Usage(_), b"completion_tokens") => Place::Count(Field::Completion),
        (Place::Usage(_), b"total_tokens") => Place::Count(Field::Total),
        (Place::Usage(_), b"prompt_tokens_details") => Place::InputDetails,
        (Place::Usage(_), b"completion_tokens_details") => Place::OutputDetails,
        (Place::InputDetails, b"cached_tokens") => Place::Count(Field::Cached),
        (Place::InputDetails, b"cache_write_tokens") => Place::Count(Field::CacheWrite),
        (Place::OutputDetails, b"reasoning_tokens" | b"thinking_tokens") => Place::Count(Field::Reasoning),
        // DeepSeek's and Moonshot's words for it.
        (Place::Usage(_), b"prompt_cache_hit_tokens" | b"cached_tokens") => Place::Count(Field::Cached),
        _ => Place::Ignored,
    }
}
