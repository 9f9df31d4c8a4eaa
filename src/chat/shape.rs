//! What a field accepts: a thin dress over serde's visitors, so that each shape states only the kinds of
//! value it takes and every other kind becomes a [`BodyError`] that names the field.
//!
//! Nothing here recurses by itself: values that nobody reads are skipped iteratively by `serde_json`
//! (`IgnoredAny` and `RawValue` alike), and shapes that nest carry their remaining depth.

use std::borrow::Cow;
use std::fmt::{self, Display};

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use tollgate_budget::Caching;

use super::any::AnyShape;
use super::{BodyError, Context, MAX_PIECES, Piece};

/// Characters of base64 that stand for one token: three bytes, where text has rather four.
const SEALED: usize = 4;

/// What has been read so far.
#[derive(Debug, Default)]
pub(super) struct Draft<'a> {
    pub(super) pieces: Vec<Piece<'a>>,
    pub(super) messages: u64,
    pub(super) prompts: u64,
    pub(super) given_tokens: u64,
    pub(super) context: Context,
    pub(super) caching: Caching,
    /// Why reading stopped, where it was not the syntax.
    pub(super) fault: Option<BodyError>,
}

impl<'a> Draft<'a> {
    pub(super) fn push(&mut self, piece: Piece<'a>) -> Result<(), BodyError> {
        if self.pieces.len() >= MAX_PIECES {
            return Err(BodyError::TooManyParts);
        }
        self.pieces.push(piece);
        Ok(())
    }

    /// Opens a message. Empty ones make no piece, but each costs its framing and our time.
    pub(super) fn message(&mut self) -> Result<(), BodyError> {
        if self.messages >= MAX_PIECES as u64 {
            return Err(BodyError::TooManyParts);
        }
        self.messages += 1;
        Ok(())
    }

    /// A message that is given by its text alone, to or from `role`.
    pub(super) fn turn(&mut self, role: &'static str) -> Result<(), BodyError> {
        self.message()?;
        self.push(Piece::Role(Cow::Borrowed(role)))
    }

    /// What only the provider can read, such as a model's earlier thoughts.
    pub(super) fn sealed(&mut self, literal: &str) {
        if literal != "null" {
            let tokens = literal.len().div_ceil(SEALED) as u64;
            self.given_tokens = self.given_tokens.saturating_add(tokens);
        }
    }

    /// Marks what the provider is asked to keep. The mark itself costs nothing; writing the cache may.
    pub(super) fn cache_control<A: MapAccess<'a>>(&mut self, fields: &mut A) -> Result<(), A::Error> {
        if raw(fields)? != "null" {
            self.caching = Caching::Marked;
        }
        Ok(())
    }

    pub(super) fn suffix(&mut self, literal: &'a str) -> Result<(), BodyError> {
        match (literal, text_of(literal)) {
            ("null", _) => Ok(()),
            (_, Some(text)) => self.push(Piece::Suffix(text)),
            (_, None) => Err(BodyError::WrongType { field: "suffix" }),
        }
    }

    pub(super) fn text(&mut self, text: Cow<'a, str>) -> Result<(), BodyError> {
        if text.is_empty() { Ok(()) } else { self.push(Piece::Text(text)) }
    }

    /// Stops reading. serde's errors are prose, so the reason is kept here.
    pub(super) fn stop<E: de::Error>(&mut self, why: BodyError) -> E {
        self.fault = Some(why);
        E::custom("refused")
    }

    pub(super) fn check<E: de::Error>(&mut self, outcome: Result<(), BodyError>) -> Result<(), E> {
        outcome.map_err(|why| self.stop(why))
    }
}

/// The kinds of value that one field takes. Null is the same as missing unless a shape says otherwise.
pub(super) trait Shape<'a>: Copy {
    /// For the error.
    const FIELD: &'static str;

    fn text(self, _draft: &mut Draft<'a>, _text: Cow<'a, str>) -> Result<(), BodyError> {
        Err(self.wrong())
    }

    /// A number or a boolean.
    fn scalar(self, _draft: &mut Draft<'a>, _literal: &dyn Display) -> Result<(), BodyError> {
        Err(self.wrong())
    }

    fn seq<A: SeqAccess<'a>>(self, draft: &mut Draft<'a>, _items: A) -> Result<(), A::Error> {
        Err(draft.stop(self.wrong()))
    }

    fn map<A: MapAccess<'a>>(self, draft: &mut Draft<'a>, _fields: A) -> Result<(), A::Error> {
        Err(draft.stop(self.wrong()))
    }

    fn wrong(self) -> BodyError {
        BodyError::WrongType { field: Self::FIELD }
    }
}

/// Reads every item of a list in the same shape.
pub(super) fn each<'a, A: SeqAccess<'a>>(
    draft: &mut Draft<'a>,
    mut items: A,
    shape: impl Into<AnyShape>,
) -> Result<(), A::Error> {
    let shape = shape.into();
    while items.next_element_seed(Slot { draft, shape })?.is_some() {}
    Ok(())
}

/// The next key of an object, folded.
pub(super) fn next_key<'a, A: MapAccess<'a>>(fields: &mut A) -> Result<Option<Cow<'a, str>>, A::Error> {
    fields.next_key_seed(Key)
}

pub(super) fn take<'a, A: MapAccess<'a>>(
    fields: &mut A,
    draft: &mut Draft<'a>,
    shape: impl Into<AnyShape>,
) -> Result<(), A::Error> {
    fields.next_value_seed(Slot { draft, shape: shape.into() })
}

pub(super) fn raw<'a, A: MapAccess<'a>>(fields: &mut A) -> Result<&'a str, A::Error> {
    fields.next_value::<&'a RawValue>().map(RawValue::get)
}

pub(super) fn skip<'a, A: MapAccess<'a>>(fields: &mut A) -> Result<(), A::Error> {
    fields.next_value::<IgnoredAny>().map(|_| ())
}

/// A string's text out of its JSON literal; `None` for every other kind of value.
pub(super) fn text_of(literal: &str) -> Option<Cow<'_, str>> {
    let inner = literal.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        serde_json::from_str(literal).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

/// One value on its way into a draft.
struct Slot<'d, 'a> {
    draft: &'d mut Draft<'a>,
    shape: AnyShape,
}

impl<'a> DeserializeSeed<'a> for Slot<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Slot<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that the field takes")
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'a str) -> Result<(), E> {
        let outcome = self.shape.text(self.draft, Cow::Borrowed(text));
        self.draft.check(outcome)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        let outcome = self.shape.text(self.draft, Cow::Owned(text.to_owned()));
        self.draft.check(outcome)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<(), E> {
        let outcome = self.shape.scalar(self.draft, &value);
        self.draft.check(outcome)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        let outcome = self.shape.scalar(self.draft, &value);
        self.draft.check(outcome)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        let outcome = self.shape.scalar(self.draft, &value);
        self.draft.check(outcome)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<(), E> {
        let outcome = self.shape.scalar(self.draft, &value);
        self.draft.check(outcome)
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(self, items: A) -> Result<(), A::Error> {
        self.shape.seq(self.draft, items)
    }

    fn visit_map<A: MapAccess<'a>>(self, fields: A) -> Result<(), A::Error> {
        self.shape.map(self.draft, fields)
    }
}

/// A key, folded as Go's `encoding/json` compares them: a server written in it reads `"MAX_TOKENS"` and
/// even `"meſſages"`.
struct Key;

impl<'a> DeserializeSeed<'a> for Key {
    type Value = Cow<'a, str>;

    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_str(self)
    }
}

impl<'a> Visitor<'a> for Key {
    type Value = Cow<'a, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E: de::Error>(self, key: &'a str) -> Result<Self::Value, E> {
        Ok(folded(Cow::Borrowed(key)))
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(folded(Cow::Owned(key.to_owned())))
    }
}

fn folded(key: Cow<'_, str>) -> Cow<'_, str> {
    if key.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return key;
    }
    key.chars()
        .map(|c| match c {
            'ſ' => 's',
            '\u{212a}' => 'k',
            other => other.to_ascii_lowercase(),
        })
        .collect::<String>()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_folded_as_a_server_in_go_would() {
        for (key, folded_key) in [
            ("max_tokens", "max_tokens"),
            ("MAX_Tokens", "max_tokens"),
            ("meſſages", "messages"),
            ("max_to\u{212a}ens", "max_tokens"),
            ("Ä", "Ä"),
        ] {
            assert_eq!(folded(Cow::Borrowed(key)), folded_key);
        }
    }

    #[test]
    fn a_string_literal_is_borrowed_unless_it_has_escapes() {
        assert!(matches!(text_of(r#""plain""#), Some(Cow::Borrowed("plain"))));
        assert_eq!(text_of(r#""a\n\u00e9""#).as_deref(), Some("a\né"));
        assert_eq!(text_of(r#""\ud800""#), None);
        assert_eq!(text_of("1"), None);
    }
}
