//! Anthropic's messages: the message itself, or events that build it up.
//!
//! <https://docs.claude.com/en/build-with-claude/streaming>
//!
//! The first event knows the prompt, the last but one what the output has come to.

use super::{Field, Place, Source};

pub(super) fn member(place: Place, key: &[u8]) -> Place {
    match (place, key) {
        (Place::Root(_), b"type") => Place::Type,
        (Place::Root(_), b"error") => Place::Error,
        (Place::Root(_), b"usage") => Place::Usage(Source::Message),
        (Place::Root(_), b"message") => Place::Started,
        (Place::Started, b"usage") => Place::Usage(Source::Start),
        (Place::Root(_) | Place::Started, b"content") => Place::Blocks,
        (Place::Root(_) | Place::Started | Place::Delta, b"stop_reason") => Place::Finish,
        (Place::Root(_), b"content_block") => Place::Block,
        (Place::Root(_), b"delta") => Place::Delta,
        (Place::Block, b"text" | b"thinking" | b"name") => Place::Text,
        (Place::Block, b"input") => Place::Argument,
        // Thoughts that only the provider can read.
        (Place::Block, b"data") => Place::Media,
        (Place::Delta, b"text" | b"thinking" | b"partial_json") => Place::Text,
        _ => Place::Ignored,
    }
}

/// What was read from a cache and what was written to one stand beside `input_tokens`, not within. The split
/// of what was written (`cache_creation`) repeats it.
pub(super) fn usage(key: &[u8]) -> Place {
    match key {
        b"input_tokens" => Place::Count(Field::Prompt),
        b"cache_read_input_tokens" => Place::Count(Field::Cached),
        b"cache_creation_input_tokens" => Place::Count(Field::CacheWrite),
        b"output_tokens" => Place::Count(Field::Completion),
        b"output_tokens_details" => Place::OutputDetails,
        _ => Place::Ignored,
    }
}
