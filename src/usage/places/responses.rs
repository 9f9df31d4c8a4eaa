//! OpenAI's Responses: the object itself, or events of which the last carries it.
//!
//! <https://platform.openai.com/docs/api-reference/responses-streaming>
//!
//! Events tell every text twice and thrice, piece by piece, whole, and in the object at the end: only the
//! pieces are counted, and an object's texts only where it comes alone.

use super::{Field, Place, Source};

pub(super) fn member(place: Place, key: &[u8]) -> Place {
    match (place, key) {
        (Place::Root(_) | Place::Response, b"usage") => Place::Usage(Source::Response),
        (Place::Root(_) | Place::Response, b"status") => Place::Status,
        (Place::Root(_) | Place::Response, b"incomplete_details") => Place::Incomplete,
        (Place::Root(_) | Place::Response, b"error") => Place::Error,
        (Place::Incomplete, b"reason") => Place::Finish,

        (Place::Root(_), b"type") => Place::Type,
        (Place::Root(_), b"response") => Place::Response,
        (Place::Root(_), b"delta") => Place::ResponseDelta,
        (Place::Root(_), b"partial_image_b64") => Place::Media,
        (Place::Root(_), b"output") => Place::Items,
        (Place::Item, b"content" | b"summary") => Place::Content,
        (Place::Item, b"name" | b"arguments" | b"input") => Place::Text,
        (Place::Item, b"result") => Place::Media,
        _ => Place::Ignored,
    }
}

/// Cached input lies within the input.
pub(super) fn usage(key: &[u8]) -> Place {
    match key {
        b"input_tokens" => Place::Count(Field::Prompt),
        b"output_tokens" => Place::Count(Field::Completion),
        b"total_tokens" => Place::Count(Field::Total),
        b"input_tokens_details" => Place::InputDetails,
        b"output_tokens_details" => Place::OutputDetails,
        _ => Place::Ignored,
    }
}
