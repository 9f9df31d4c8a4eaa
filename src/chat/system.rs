//! A text before the messages: one more message to the model, in a field of its own.

use std::borrow::Cow;

use serde::de::{MapAccess, SeqAccess};

use super::BodyError;
use super::content::Content;
use super::shape::{Draft, Shape};

/// Anthropic's `system`, the `instructions` of OpenAI's Responses: a text, or a list of parts.
#[derive(Clone, Copy)]
pub(super) struct System {
    pub(super) field: &'static str,
}

impl<'a> Shape<'a> for System {
    const FIELD: &'static str = "system";

    fn text(self, draft: &mut Draft<'a>, text: Cow<'a, str>) -> Result<(), BodyError> {
        draft.turn("system")?;
        draft.text(text)
    }

    fn seq<A: SeqAccess<'a>>(self, draft: &mut Draft<'a>, items: A) -> Result<(), A::Error> {
        let outcome = draft.turn("system");
        draft.check(outcome)?;
        Content::NEW.seq(draft, items)
    }

    fn map<A: MapAccess<'a>>(self, draft: &mut Draft<'a>, fields: A) -> Result<(), A::Error> {
        let outcome = draft.turn("system");
        draft.check(outcome)?;
        Content::NEW.map(draft, fields)
    }

    fn wrong(self) -> BodyError {
        BodyError::WrongType { field: self.field }
    }
}
