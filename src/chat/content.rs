//! Messages and what is in them → pieces.
//!
//! A kind of part that nobody knows must not stop the count: its strings are counted as text. What carries
//! binary data (a picture, a sound, a file) is one piece, however deep it sits, and never text.

use std::borrow::Cow;
use std::fmt::Display;

use serde::de::{MapAccess, SeqAccess};

use super::media::{Media, MediaKind, Source, apply, data_kind, detail_of, reclassify};
use super::shape::{Draft, Shape, each, next_key, raw, skip, take, text_of};
use super::{BodyError, ImageSource, Piece};

/// Levels below a message. No API nests a tenth of it; sixty-four frames of the reader are far from the
/// 1 MiB of stack that the module has.
pub(super) const DEPTH: u8 = 64;

/// The list of messages, and each message in it.
#[derive(Clone, Copy)]
pub(super) struct Messages;

impl<'a> Shape<'a> for Messages {
    const FIELD: &'static str = "messages";

    fn seq<A: SeqAccess<'a>>(self, draft: &mut Draft<'a>, items: A) -> Result<(), A::Error> {
        each(draft, items, Message)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Message;

impl<'a> Shape<'a> for Message {
    const FIELD: &'static str = "messages[]";

    fn map<A: MapAccess<'a>>(self, draft: &mut Draft<'a>, mut fields: A) -> Result<(), A::Error> {
        let outcome = draft.message();
        draft.check(outcome)?;
        while let Some(key) = next_key(&mut fields)? {
            match &*key {
                "role" => take(&mut fields, draft, Role)?,
                "name" => take(&mut fields, draft, Name)?,
                "content" => take(&mut fields, draft, Content::NEW)?,
                "tool_calls" => take(&mut fields, draft, Calls)?,
                "function_call" => take(&mut fields, draft, Call)?,
                // An earlier answer that was spoken, by its id.
                "audio" => take(&mut fields, draft, Media { kind: MediaKind::Audio, left: DEPTH })?,
                "id" | "tool_call_id" | "annotations" => skip(&mut fields)?,
                "cache_control" => draft.cache_control(&mut fields)?,
                // `refusal`, `reasoning_content` and whatever else a server may put into the prompt.
                _ => take(&mut fields, draft, Part { left: DEPTH, strings: Strings::Text })?,
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
pub(super) struct Role;

impl<'a> Shape<'a> for Role {
    const FIELD: &'static str = "role";

    fn text(self, draft: &mut Draft<'a>, role: Cow<'a, str>) -> Result<(), BodyError> {
        draft.push(Piece::Role(role))
    }
}

#[derive(Clone, Copy)]
pub(super) struct Name;

impl<'a> Shape<'a> for Name {
    const FIELD: &'static str = "name";

    fn text(self, draft: &mut Draft<'a>, name: Cow<'a, str>) -> Result<(), BodyError> {
        draft.push(Piece::Name(name))
    }
}

/// A text, a list of parts, or one part.
#[derive(Clone, Copy)]
pub(super) struct Content {
    left: u8,
}

impl Content {
    pub(super) const NEW: Self = Self { left: DEPTH };
}

impl<'a> Shape<'a> for Content {
    const FIELD: &'static str = "content";

    fn text(self, draft: &mut Draft<'a>, text: Cow<'a, str>) -> Result<(), BodyError> {
        draft.text(text)
    }

    fn seq<A: SeqAccess<'a>>(self, draft: &mut Draft<'a>, items: A) -> Result<(), A::Error> {
        let left = deeper(draft, self.left)?;
        each(draft, items, Part { left, strings: Strings::Text })
    }

    fn map<A: MapAccess<'a>>(self, draft: &mut Draft<'a>, fields: A) -> Result<(), A::Error> {
        Part { left: self.left, strings: Strings::Text }.map(draft, fields)
    }
}

/// One part of a content, or anything inside it or beside it.
#[derive(Clone, Copy)]
pub(super) struct Part {
    left: u8,
    strings: Strings,
}

/// What a string in the place of a part is.
#[derive(Clone, Copy)]
enum Strings {
    Text,
    /// Text, unless it is a `data:` URL.
    MaybeData,
}

impl Part {
    /// Whatever a field holds.
    pub(super) const ANY: Self = Self::within(DEPTH);

    /// Whatever is found this deep.
    pub(super) const fn within(left: u8) -> Self {
        Self { left, strings: Strings::MaybeData }
    }

    /// What a provider adds to the parts of an answer and takes back as it was. Elsewhere the same names may
    /// hold text: some servers put every member of a document into the prompt.
    fn is_kept_from_the_model(self, key: &str) -> bool {
        self.is_content()
            && matches!(key, "annotations" | "citations" | "logprobs" | "signature" | "tool_use_id")
    }

    const fn is_content(self) -> bool {
        matches!(self.strings, Strings::Text)
    }
}

impl<'a> Shape<'a> for Part {
    const FIELD: &'static str = "content[]";

    fn text(self, draft: &mut Draft<'a>, text: Cow<'a, str>) -> Result<(), BodyError> {
        match (self.strings, data_kind(&text)) {
            (Strings::Text, _) | (Strings::MaybeData, None) => draft.text(text),
            (Strings::MaybeData, Some(kind)) => draft.push(kind.piece(ImageSource::Url(text))),
        }
    }

    fn scalar(self, _draft: &mut Draft<'a>, _literal: &dyn Display) -> Result<(), BodyError> {
        Ok(())
    }

    fn seq<A: SeqAccess<'a>>(self, draft: &mut Draft<'a>, items: A) -> Result<(), A::Error> {
        let left = deeper(draft, self.left)?;
        each(draft, items, Self { left, ..self })
    }

    fn map<A: MapAccess<'a>>(self, draft: &mut Draft<'a>, mut fields: A) -> Result<(), A::Error> {
        let left = deeper(draft, self.left)?;
        let first = draft.pieces.len();
        let (mut class, mut detail) = (None, None);
        while let Some(key) = next_key(&mut fields)? {
            match &*key {
                "type" => class = text_of(raw(&mut fields)?),
                "id" => skip(&mut fields)?,
                "cache_control" => draft.cache_control(&mut fields)?,
                _ if self.is_kept_from_the_model(&key) => skip(&mut fields)?,
                "encrypted_content" if self.is_content() => draft.sealed(raw(&mut fields)?),
                // An earlier call, by which a model reads the names of what it gave as well.
                "input" => {
                    let outcome = draft.push(Piece::Call);
                    draft.check(outcome)?;
                    take(&mut fields, draft, Argument { left })?;
                }
                "text" | "content" => take(&mut fields, draft, Content { left })?,
                "image_url" | "image" | "input_image" => {
                    take(&mut fields, draft, Media { kind: MediaKind::Image, left })?;
                }
                "input_audio" | "audio_url" | "audio" => {
                    take(&mut fields, draft, Media { kind: MediaKind::Audio, left })?;
                }
                "file" | "input_file" | "video_url" | "input_video" | "document_url" | "file_id"
                | "file_data" | "file_url" => {
                    take(&mut fields, draft, Media { kind: MediaKind::File, left })?;
                }
                "source" | "inline_data" => take(&mut fields, draft, Source { left })?,
                "detail" => detail = detail.max(detail_of(raw(&mut fields)?)),
                _ => take(&mut fields, draft, Self { left, strings: Strings::MaybeData })?,
            }
        }
        let found = draft.pieces.get_mut(first..).unwrap_or_default();
        reclassify(class.as_deref(), found);
        apply(detail, found);
        Ok(())
    }
}

/// The calls that the model made in an earlier turn.
#[derive(Clone, Copy)]
pub(super) struct Calls;

impl<'a> Shape<'a> for Calls {
    const FIELD: &'static str = "tool_calls";

    fn seq<A: SeqAccess<'a>>(self, draft: &mut Draft<'a>, items: A) -> Result<(), A::Error> {
        each(draft, items, Call)
    }
}

/// One call: `{id, type, function: {name, arguments}}`, or the older `{name, arguments}`.
#[derive(Clone, Copy)]
pub(super) struct Call;

impl<'a> Shape<'a> for Call {
    const FIELD: &'static str = "tool_calls[]";

    fn map<A: MapAccess<'a>>(self, draft: &mut Draft<'a>, mut fields: A) -> Result<(), A::Error> {
        let outcome = draft.push(Piece::Call);
        draft.check(outcome)?;
        while let Some(key) = next_key(&mut fields)? {
            match &*key {
                "id" | "type" | "index" => skip(&mut fields)?,
                "function" | "custom" => take(&mut fields, draft, CallBody)?,
                _ => take(&mut fields, draft, Argument::NEW)?,
            }
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
pub(super) struct CallBody;

impl<'a> Shape<'a> for CallBody {
    const FIELD: &'static str = "tool_calls[].function";

    fn map<A: MapAccess<'a>>(self, draft: &mut Draft<'a>, mut fields: A) -> Result<(), A::Error> {
        while next_key(&mut fields)?.is_some() {
            take(&mut fields, draft, Argument::NEW)?;
        }
        Ok(())
    }
}

/// A call's name or arguments. Arguments given as JSON instead of a string are read with their keys.
#[derive(Clone, Copy)]
pub(super) struct Argument {
    left: u8,
}

impl Argument {
    pub(super) const NEW: Self = Self { left: DEPTH };
}

impl<'a> Shape<'a> for Argument {
    const FIELD: &'static str = "tool_calls[].function";

    fn text(self, draft: &mut Draft<'a>, text: Cow<'a, str>) -> Result<(), BodyError> {
        draft.text(text)
    }

    fn scalar(self, draft: &mut Draft<'a>, literal: &dyn Display) -> Result<(), BodyError> {
        draft.text(literal.to_string().into())
    }

    fn seq<A: SeqAccess<'a>>(self, draft: &mut Draft<'a>, items: A) -> Result<(), A::Error> {
        let left = deeper(draft, self.left)?;
        each(draft, items, Self { left })
    }

    fn map<A: MapAccess<'a>>(self, draft: &mut Draft<'a>, mut fields: A) -> Result<(), A::Error> {
        let left = deeper(draft, self.left)?;
        while let Some(key) = next_key(&mut fields)? {
            let outcome = draft.text(key);
            draft.check(outcome)?;
            take(&mut fields, draft, Self { left })?;
        }
        Ok(())
    }
}

pub(super) fn deeper<E: serde::de::Error>(draft: &mut Draft<'_>, left: u8) -> Result<u8, E> {
    left.checked_sub(1).ok_or_else(|| draft.stop(BodyError::TooDeep))
}
