//! Prompts without turns: one text, several, the token ids of one, or those of several.

use std::borrow::Cow;
use std::fmt::Display;

use serde::de::{MapAccess, SeqAccess};

use super::BodyError;
use super::content::Part;
use super::shape::{Draft, Shape, each};

/// What a prompt field holds, or an item of it. A batch of prompts is paid for prompt by prompt, so each
/// counts, whatever is in it.
#[derive(Clone, Copy)]
pub(super) struct Prompts {
    field: &'static str,
    level: Level,
}

#[derive(Clone, Copy)]
enum Level {
    Field,
    Item,
    /// In one prompt: its token ids.
    Ids,
}

impl Prompts {
    pub(super) const fn new(field: &'static str) -> Self {
        Self { field, level: Level::Field }
    }

    fn open(self, draft: &mut Draft<'_>) {
        match self.level {
            Level::Field | Level::Item => draft.prompts = draft.prompts.saturating_add(1),
            Level::Ids => {}
        }
    }
}

impl<'a> Shape<'a> for Prompts {
    const FIELD: &'static str = "prompt";

    fn text(self, draft: &mut Draft<'a>, text: Cow<'a, str>) -> Result<(), BodyError> {
        self.open(draft);
        draft.text(text)
    }

    /// A token of the model's own vocabulary, whichever it is.
    fn scalar(self, draft: &mut Draft<'a>, _id: &dyn Display) -> Result<(), BodyError> {
        match self.level {
            Level::Field => Err(self.wrong()),
            Level::Item | Level::Ids => {
                draft.given_tokens = draft.given_tokens.saturating_add(1);
                Ok(())
            }
        }
    }

    fn seq<A: SeqAccess<'a>>(self, draft: &mut Draft<'a>, items: A) -> Result<(), A::Error> {
        match self.level {
            Level::Field => {
                let before = draft.prompts;
                each(draft, items, Self { level: Level::Item, ..self })?;
                // Nothing in the list is a prompt by itself, so together they are one.
                if draft.prompts == before {
                    self.open(draft);
                }
                Ok(())
            }
            Level::Item => {
                self.open(draft);
                each(draft, items, Self { level: Level::Ids, ..self })
            }
            Level::Ids => Err(draft.stop(self.wrong())),
        }
    }

    /// Some servers embed pictures too.
    fn map<A: MapAccess<'a>>(self, draft: &mut Draft<'a>, fields: A) -> Result<(), A::Error> {
        self.open(draft);
        Part::ANY.map(draft, fields)
    }

    fn wrong(self) -> BodyError {
        BodyError::WrongType { field: self.field }
    }
}
