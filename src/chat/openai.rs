//! OpenAI chat completions → [`Chat`].

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::Deserializer as _;
use serde::de::{self, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::content::{Messages, Part};
use super::number::{Count, count};
use super::shape::{Draft, Shape, next_key, raw, skip, take, text_of};
use super::{BodyError, Chat, Delivery, Edit, OutputCap, Piece, UsageAsk};

/// Every name under which some server takes the cap of one answer.
const OUTPUT_CAPS: [&str; 7] = [
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "max_new_tokens",
    "max_tokens_to_sample",
    "max_gen_len",
    "num_predict",
];

/// The names of the number of answers that are generated, and paid for.
const CHOICES: [&str; 2] = ["n", "best_of"];

pub(super) fn parse(body: &[u8]) -> Result<Chat<'_>, BodyError> {
    let text = text(body)?;
    let mut reading = Reading::default();
    let mut json = serde_json::Deserializer::from_str(text);
    match json.deserialize_map(Root(&mut reading)).and_then(|()| json.end()) {
        Ok(()) => reading.finish(body),
        Err(error) => Err(reading.draft.fault.unwrap_or_else(|| fault(body, text, &error))),
    }
}

/// Some clients send a byte order mark and most servers skip it. Anything but UTF-8 is refused, by which a
/// body in UTF-16 (which Python's `json` would read) cannot pass uncounted.
fn text(body: &[u8]) -> Result<&str, BodyError> {
    let bytes = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    if bytes.trim_ascii().is_empty() {
        return Err(BodyError::Empty);
    }
    str::from_utf8(bytes).map_err(|error| BodyError::NotUtf8 {
        offset: (body.len() - bytes.len()).saturating_add(error.valid_up_to()),
    })
}

/// `serde_json` tells the line and the column of the byte, counted from one.
fn fault(body: &[u8], text: &str, error: &serde_json::Error) -> BodyError {
    // All types below the root are checked by shapes, which leave their own reason.
    if error.is_data() {
        return BodyError::NotAnObject;
    }
    let skipped = body.len().saturating_sub(text.len());
    let line: usize = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    let column = error.column().saturating_sub(1);
    BodyError::NotJson { offset: skipped.saturating_add(line).saturating_add(column) }
}

/// The fields of one request as they come.
#[derive(Default)]
struct Reading<'a> {
    draft: Draft<'a>,
    model: Option<&'a str>,
    caps: OutputCap,
    choices: u64,
    stream: Option<&'a str>,
    options: Option<&'a str>,
}

struct Root<'r, 'a>(&'r mut Reading<'a>);

impl<'a> Visitor<'a> for Root<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(key) = next_key(&mut fields)? {
            self.0.field(&key, &mut fields)?;
        }
        Ok(())
    }
}

impl<'a> Reading<'a> {
    fn field<A: MapAccess<'a>>(&mut self, key: &str, fields: &mut A) -> Result<(), A::Error> {
        match key {
            // Given twice, all are counted: a server may take the first list, another the last.
            "messages" => take(fields, &mut self.draft, Messages),
            "tools" => take(fields, &mut self.draft, Tools),
            "functions" => take(fields, &mut self.draft, Functions),
            "response_format" => take(fields, &mut self.draft, ResponseFormat),
            // Text for the prompt that some servers take beside the messages.
            "documents" | "prediction" | "chat_template" => take(fields, &mut self.draft, Part::ANY),
            "model" => once(&mut self.draft, &mut self.model, "model", fields),
            "stream" => once(&mut self.draft, &mut self.stream, "stream", fields),
            "stream_options" => once(&mut self.draft, &mut self.options, "stream_options", fields),
            _ => self.number(key, fields),
        }
    }

    fn number<A: MapAccess<'a>>(&mut self, key: &str, fields: &mut A) -> Result<(), A::Error> {
        let named = |names: &[&'static str]| names.iter().copied().find(|name| *name == key);
        if let Some(field) = named(&OUTPUT_CAPS) {
            match count(raw(fields)?) {
                Some(cap) => self.caps = largest(self.caps, cap),
                None => return Err(self.draft.stop(BodyError::WrongType { field })),
            }
        } else if let Some(field) = named(&CHOICES) {
            match count(raw(fields)?) {
                Some(Count::Positive(choices)) => self.choices = self.choices.max(choices),
                Some(Count::Missing | Count::NotPositive) => {}
                None => return Err(self.draft.stop(BodyError::WrongType { field })),
            }
        } else {
            skip(fields)?;
        }
        Ok(())
    }

    fn finish(self, body: &'a [u8]) -> Result<Chat<'a>, BodyError> {
        let delivery = match self.stream {
            Some("true") => Delivery::Streamed,
            Some("false" | "null") | None => Delivery::Whole,
            Some(_) => return Err(BodyError::WrongType { field: "stream" }),
        };
        let (usage, edit) = usage(body, self.options)?;
        Ok(Chat {
            model: self.model.map(model).transpose()?.flatten(),
            pieces: self.draft.pieces,
            messages: self.draft.messages,
            output_cap: self.caps,
            choices: self.choices.max(1),
            delivery,
            usage,
            usage_edit: match delivery {
                Delivery::Streamed => edit,
                Delivery::Whole => None,
            },
        })
    }
}

/// Refuses a second value where neither reading is the dearer one: two models, two answers to "is this a
/// stream".
fn once<'a, A: MapAccess<'a>>(
    draft: &mut Draft<'a>,
    slot: &mut Option<&'a str>,
    field: &'static str,
    fields: &mut A,
) -> Result<(), A::Error> {
    match slot.replace(raw(fields)?) {
        None => Ok(()),
        Some(_) => Err(draft.stop(BodyError::Duplicate { field })),
    }
}

fn model(literal: &str) -> Result<Option<Cow<'_, str>>, BodyError> {
    match (literal, text_of(literal)) {
        ("null", _) => Ok(None),
        (_, Some(name)) => Ok(Some(name)),
        (_, None) => Err(BodyError::WrongType { field: "model" }),
    }
}

/// Takes a cap given under a second name, or a second time, into account.
fn largest(caps: OutputCap, cap: Count) -> OutputCap {
    use OutputCap::{Absent, AtMost, AtMostOrNone, NotACap};
    match (caps, cap) {
        (caps, Count::Missing) => caps,
        (Absent | NotACap, Count::NotPositive) => NotACap,
        (AtMost(most) | AtMostOrNone(most), Count::NotPositive) => AtMostOrNone(most),
        (Absent, Count::Positive(cap)) => AtMost(cap),
        (NotACap, Count::Positive(cap)) => AtMostOrNone(cap),
        (AtMost(most), Count::Positive(cap)) => AtMost(most.max(cap)),
        (AtMostOrNone(most), Count::Positive(cap)) => AtMostOrNone(most.max(cap)),
    }
}

/// What the client says of usage in a stream, and what it takes to ask for it in its place.
fn usage(body: &[u8], options: Option<&str>) -> Result<(UsageAsk, Option<Edit>), BodyError> {
    let Some(options) = options else {
        let brace = body.iter().position(|byte| *byte == b'{');
        let at = brace.map(|brace| brace.saturating_add(1));
        // A stream has at least the member that says so.
        let with = r#""stream_options":{"include_usage":true},"#;
        return Ok((UsageAsk::Absent, at.map(|at| Edit { at: at..at, with })));
    };
    let within = within(body, options);
    if options == "null" {
        let edit = within.map(|at| Edit { at, with: r#"{"include_usage":true}"# });
        return Ok((UsageAsk::Absent, edit));
    }
    let found = serde_json::from_str::<StreamOptions<'_>>(options)
        .map_err(|_| BodyError::WrongType { field: "stream_options" })?;
    match found.include_usage {
        Include::Missing => {
            let at = within.map(|at| at.start.saturating_add(1));
            let with = match found.members {
                0 => r#""include_usage":true"#,
                _ => r#""include_usage":true,"#,
            };
            Ok((UsageAsk::Absent, at.map(|at| Edit { at: at..at, with })))
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

/// A list of tools; what is in one is the provider's to check.
#[derive(Clone, Copy)]
struct Tools;

impl<'a> Shape<'a> for Tools {
    const FIELD: &'static str = "tools";

    fn seq<A: SeqAccess<'a>>(self, draft: &mut Draft<'a>, items: A) -> Result<(), A::Error> {
        offers(draft, items)
    }
}

/// What tools were called before there were other kinds of them.
#[derive(Clone, Copy)]
struct Functions;

impl<'a> Shape<'a> for Functions {
    const FIELD: &'static str = "functions";

    fn seq<A: SeqAccess<'a>>(self, draft: &mut Draft<'a>, items: A) -> Result<(), A::Error> {
        offers(draft, items)
    }
}

fn offers<'a, A: SeqAccess<'a>>(draft: &mut Draft<'a>, mut items: A) -> Result<(), A::Error> {
    while let Some(tool) = items.next_element::<&'a RawValue>()? {
        let outcome = draft.push(Piece::Tool(tool.get()));
        draft.check(outcome)?;
    }
    Ok(())
}

/// `{type: json_schema, json_schema: …}`; the other formats cost nothing.
#[derive(Clone, Copy)]
struct ResponseFormat;

impl<'a> Shape<'a> for ResponseFormat {
    const FIELD: &'static str = "response_format";

    fn map<A: MapAccess<'a>>(self, draft: &mut Draft<'a>, mut fields: A) -> Result<(), A::Error> {
        while let Some(key) = next_key(&mut fields)? {
            match &*key {
                "json_schema" | "schema" => {
                    let outcome = draft.push(Piece::Schema(raw(&mut fields)?));
                    draft.check(outcome)?;
                }
                _ => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}
