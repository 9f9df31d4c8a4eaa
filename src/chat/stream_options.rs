//! `stream_options`: whether the client asks for usage in the stream, and the edit that asks for it.

use std::fmt;
use std::ops::Range;

use serde::de::{self, MapAccess, Visitor};

use super::shape::{next_key, raw};
use super::{BodyError, Edit, UsageAsk};

/// What the client says of usage in a stream, and what it takes to ask for it in its place.
pub(super) fn usage(body: &[u8], options: Option<&str>) -> Result<(UsageAsk, Option<Edit>), BodyError> {
    let options = options.filter(|options| is_spelt_exactly(body, options, b"\"stream_options\""));
    let Some(options) = options else {
        // Last, since of two members of a name most servers take the last, and some look neither at case nor at
        // escapes. A stream has at least the member that says so, hence the comma.
        let at = body.iter().rposition(|byte| *byte == b'}');
        let with = r#","stream_options":{"include_usage":true}"#;
        return Ok((UsageAsk::Absent, at.map(|at| Edit { at: at..at, with })));
    };
    let within = within(body, options);
    if options == "null" {
        let edit = within.map(|at| Edit { at, with: r#"{"include_usage":true}"# });
        return Ok((UsageAsk::Absent, edit));
    }
    let found = serde_json::from_str::<StreamOptions<'_>>(options)
        .map_err(|_| BodyError::WrongType { field: "stream_options" })?;
    let last = within.and_then(|at| {
        let at = at.end.checked_sub(1)?;
        let with = if found.members == 0 { r#""include_usage":true"# } else { r#","include_usage":true"# };
        Some(Edit { at: at..at, with })
    });
    match found.include_usage {
        Include::Missing => Ok((UsageAsk::Absent, last)),
        Include::Given("true" | "false" | "null") if !found.is_spelt_exactly(body) => {
            Ok((UsageAsk::Refused, last))
        }
        Include::Given("true") => Ok((UsageAsk::Asked, None)),
        Include::Given(literal @ ("false" | "null")) => {
            let ask = if literal == "null" { UsageAsk::Absent } else { UsageAsk::Refused };
            Ok((ask, self::within(body, literal).map(|at| Edit { at, with: "true" })))
        }
        Include::Given(_) => Err(BodyError::WrongType { field: "stream_options.include_usage" }),
        Include::Twice => Err(BodyError::Duplicate { field: "stream_options.include_usage" }),
    }
}

/// Whether the key before a value is the one that every server knows. One that differs in case is read by some
/// and ignored by most, so nothing asked under it can be relied on.
fn is_spelt_exactly(body: &[u8], value: &str, key: &[u8]) -> bool {
    let before = within(body, value).and_then(|place| body.get(..place.start)).unwrap_or_default();
    before.trim_ascii_end().strip_suffix(b":").unwrap_or_default().trim_ascii_end().ends_with(key)
}

/// Where a slice of the body stands in it.
fn within(body: &[u8], slice: &str) -> Option<Range<usize>> {
    let start = (slice.as_ptr() as usize).checked_sub(body.as_ptr() as usize)?;
    let end = start.checked_add(slice.len())?;
    (end <= body.len()).then_some(start..end)
}

#[derive(Default)]
struct StreamOptions<'a> {
    members: usize,
    include_usage: Include<'a>,
}

impl StreamOptions<'_> {
    fn is_spelt_exactly(&self, body: &[u8]) -> bool {
        match self.include_usage {
            Include::Given(literal) => is_spelt_exactly(body, literal, b"\"include_usage\""),
            Include::Missing | Include::Twice => false,
        }
    }
}

#[derive(Default)]
enum Include<'a> {
    #[default]
    Missing,
    Given(&'a str),
    Twice,
}

impl<'a> de::Deserialize<'a> for StreamOptions<'a> {
    fn deserialize<D: de::Deserializer<'a>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_map(StreamOptionsVisitor)
    }
}

struct StreamOptionsVisitor;

impl<'a> Visitor<'a> for StreamOptionsVisitor {
    type Value = StreamOptions<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let mut found = StreamOptions::default();
        while let Some(key) = next_key(&mut fields)? {
            found.members = found.members.saturating_add(1);
            let literal = raw(&mut fields)?;
            if key == "include_usage" {
                found.include_usage = match found.include_usage {
                    Include::Missing => Include::Given(literal),
                    Include::Given(_) | Include::Twice => Include::Twice,
                };
            }
        }
        Ok(found)
    }
}
