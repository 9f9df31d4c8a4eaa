//! What the caller offers to the model, and what it asks of the answer's shape: counted as JSON.

use serde::de::{MapAccess, SeqAccess};
use serde_json::value::RawValue;
use tollgate_budget::Caching;

use super::content::Part;
use super::shape::{Draft, Shape, next_key, raw, skip, take};
use super::{BodyError, Piece};

/// Whatever in a tool may be the key of a cache mark: its name, or letters written as escapes. To take something else
/// for one holds more, and is settled.
const CACHE_MARKS: [&str; 2] = ["cache_control", "\\u00"];

/// A list of tools; what is in one is the provider's to check.
#[derive(Clone, Copy)]
pub(super) struct Tools {
    pub(super) field: &'static str,
}

impl<'a> Shape<'a> for Tools {
    const FIELD: &'static str = "tools";

    fn seq<A: SeqAccess<'a>>(self, draft: &mut Draft<'a>, mut items: A) -> Result<(), A::Error> {
        while let Some(tool) = items.next_element::<&'a RawValue>()? {
            let tool = tool.get();
            if CACHE_MARKS.iter().any(|mark| tool.contains(mark)) {
                draft.caching = Caching::Marked;
            }
            let outcome = draft.push(Piece::Tool(tool));
            draft.check(outcome)?;
        }
        Ok(())
    }

    fn wrong(self) -> BodyError {
        BodyError::WrongType { field: self.field }
    }
}

/// `{type: json_schema, json_schema: …}`, or the schema itself beside its name; other formats cost nothing.
#[derive(Clone, Copy)]
pub(super) struct Format {
    pub(super) field: &'static str,
    pub(super) level: Level,
}

#[derive(Clone, Copy)]
pub(super) enum Level {
    /// An object that has it under `format`.
    Holder,
    Itself,
}

impl<'a> Shape<'a> for Format {
    const FIELD: &'static str = "response_format";

    fn map<A: MapAccess<'a>>(self, draft: &mut Draft<'a>, mut fields: A) -> Result<(), A::Error> {
        while let Some(key) = next_key(&mut fields)? {
            match (self.level, &*key) {
                (Level::Holder, "format") => {
                    take(&mut fields, draft, Self { field: "format", level: Level::Itself })?;
                }
                (Level::Itself, "json_schema" | "schema") => {
                    let outcome = draft.push(Piece::Schema(raw(&mut fields)?));
                    draft.check(outcome)?;
                }
                (Level::Itself, "description") => take(&mut fields, draft, Part::ANY)?,
                (Level::Itself | Level::Holder, _) => skip(&mut fields)?,
            }
        }
        Ok(())
    }

    fn wrong(self) -> BodyError {
        BodyError::WrongType { field: self.field }
    }
}
