//! Pictures, sounds and files in a chat → one piece each, never text, however large and however deep.
//!
//! The danger is the reverse: text that is made to look like a medium costs a flat figure instead of its
//! tokens. So only the fields known to hold a medium's data are passed over; what stands beside them is
//! read as text.

use std::borrow::Cow;
use std::fmt::Display;

use serde::de::{MapAccess, SeqAccess};

use super::content::{Part, deeper};
use super::shape::{Draft, Shape, each, next_key, raw, skip, take, text_of};
use super::{BodyError, Detail, Image, ImageSource, Piece};

#[derive(Clone, Copy)]
pub(super) enum MediaKind {
    Image,
    Audio,
    File,
}

impl MediaKind {
    /// Neither an address nor base64 has blanks in it; what has is text in the place of one.
    pub(super) fn piece(self, source: ImageSource<'_>) -> Piece<'_> {
        match (self, source) {
            (_, ImageSource::Url(text) | ImageSource::Base64(text)) if text.contains(' ') => {
                Piece::Text(text)
            }
            (Self::Image, source) => Piece::Image(Image { source, detail: None }),
            (Self::Audio, _) => Piece::Audio,
            (Self::File, _) => Piece::File,
        }
    }
}

/// A picture, sound or file: its URL, or an object with its data and something about it.
#[derive(Clone, Copy)]
pub(super) struct Media {
    pub(super) kind: MediaKind,
    pub(super) left: u8,
}

impl<'a> Shape<'a> for Media {
    const FIELD: &'static str = "content[]";

    fn text(self, draft: &mut Draft<'a>, url: Cow<'a, str>) -> Result<(), BodyError> {
        draft.push(self.kind.piece(ImageSource::Url(url)))
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
        let mut source = ImageSource::Elsewhere;
        let mut detail = None;
        while let Some(key) = next_key(&mut fields)? {
            match &*key {
                "url" => match (raw(&mut fields)?, &source) {
                    ("null", _) => {}
                    (literal, ImageSource::Elsewhere) => match text_of(literal) {
                        Some(url) => source = ImageSource::Url(url),
                        None => return Err(draft.stop(self.wrong())),
                    },
                    (_, ImageSource::Url(_) | ImageSource::Base64(_)) => {
                        return Err(draft.stop(BodyError::Duplicate { field: Self::FIELD }));
                    }
                },
                "detail" => detail = detail.max(detail_of(raw(&mut fields)?)),
                "data" | "format" | "id" | "type" | "mime_type" | "file_data" | "file_id" | "filename"
                | "expires_at" => skip(&mut fields)?,
                // Not known to belong to a medium: nothing may hide beside one.
                _ => take(&mut fields, draft, Part::within(left))?,
            }
        }
        let mut piece = [self.kind.piece(source)];
        apply(detail, &mut piece);
        let [piece] = piece;
        let outcome = draft.push(piece);
        draft.check(outcome)
    }
}

/// Anthropic's and Gemini's way to hold data, which many servers take in chat bodies too.
#[derive(Clone, Copy)]
pub(super) struct Source {
    pub(super) left: u8,
}

impl<'a> Shape<'a> for Source {
    const FIELD: &'static str = "content[].source";

    fn text(self, draft: &mut Draft<'a>, text: Cow<'a, str>) -> Result<(), BodyError> {
        Part::ANY.text(draft, text)
    }

    fn scalar(self, _draft: &mut Draft<'a>, _literal: &dyn Display) -> Result<(), BodyError> {
        Ok(())
    }

    fn seq<A: SeqAccess<'a>>(self, draft: &mut Draft<'a>, items: A) -> Result<(), A::Error> {
        let left = deeper(draft, self.left)?;
        each(draft, items, Part::within(left))
    }

    fn map<A: MapAccess<'a>>(self, draft: &mut Draft<'a>, mut fields: A) -> Result<(), A::Error> {
        let left = deeper(draft, self.left)?;
        let (mut class, mut medium, mut data, mut url) = (None, None, None, None);
        while let Some(key) = next_key(&mut fields)? {
            match &*key {
                "type" => class = text_of(raw(&mut fields)?),
                "media_type" | "mime_type" | "mimetype" => medium = text_of(raw(&mut fields)?),
                "data" if data.is_some() => {
                    return Err(draft.stop(BodyError::Duplicate { field: Self::FIELD }));
                }
                "data" => data = text_of(raw(&mut fields)?),
                "url" | "file_id" => url = text_of(raw(&mut fields)?),
                _ => take(&mut fields, draft, Part::within(left))?,
            }
        }
        let kind = match (class.as_deref(), medium.as_deref()) {
            (Some("text"), _) => None,
            (_, Some(mime)) => mime_kind(mime),
            (_, None) => Some(MediaKind::Image),
        };
        let outcome = match (kind, data, url) {
            (None, Some(text), _) => draft.text(text),
            (None, None, Some(_)) => draft.push(Piece::File),
            (Some(kind), Some(data), _) => draft.push(kind.piece(ImageSource::Base64(data))),
            (Some(kind), None, Some(url)) => draft.push(kind.piece(ImageSource::Url(url))),
            (_, None, None) => Ok(()),
        };
        draft.check(outcome)
    }
}

pub(super) fn detail_of(literal: &str) -> Option<Detail> {
    match (literal, text_of(literal).as_deref()) {
        ("null", _) => None,
        (_, Some("low")) => Some(Detail::Low),
        (_, Some("high")) => Some(Detail::High),
        (_, Some(_) | None) => Some(Detail::Auto),
    }
}

/// What the kind of a part, which may come last, says of the media found in it.
pub(super) fn reclassify(class: Option<&str>, pieces: &mut [Piece<'_>]) {
    for piece in pieces {
        match (class, &piece) {
            // An address says nothing of what is there.
            (
                Some("document"),
                Piece::Image(Image { source: ImageSource::Url(_) | ImageSource::Elsewhere, .. }),
            ) => *piece = Piece::File,
            (Some("input_image"), Piece::File) => {
                *piece = Piece::Image(Image { source: ImageSource::Elsewhere, detail: None });
            }
            (_, _) => {}
        }
    }
}

pub(super) fn apply(detail: Option<Detail>, pieces: &mut [Piece<'_>]) {
    for piece in pieces {
        if let Piece::Image(image) = piece {
            image.detail = image.detail.max(detail);
        }
    }
}

/// What a `data:` URL holds; `None` where the text is none. It is taken for one in base64 only, and only if
/// all of it is: a prompt must not become a picture by its first words.
pub(super) fn data_kind(text: &str) -> Option<MediaKind> {
    let (mime, data) = text.strip_prefix("data:")?.split_once(";base64,")?;
    data.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"+/=-_".contains(&byte))
        .then(|| mime_kind(mime))?
}

/// `None` for what a model reads as text.
fn mime_kind(mime: &str) -> Option<MediaKind> {
    match mime.split('/').next() {
        Some("image") => Some(MediaKind::Image),
        Some("audio") => Some(MediaKind::Audio),
        Some("text") => None,
        Some(_) | None => Some(MediaKind::File),
    }
}
