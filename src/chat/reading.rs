//! One body → [`Chat`], by the table of its dialect: which keys cost tokens, and in what shape.
//!
//! All dialects are read by the same code, so that what is refused, doubled or folded is the same for all.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};

use super::content::{Messages, Part};
use super::number::{Count, count};
use super::offers::{Format, Level, Tools};
use super::prompts::Prompts;
use super::responses::{Items, Stored};
use super::shape::{Draft, next_key, raw, skip, take, text_of};
use super::stream_options::usage;
use super::system::System;
use super::{Answering, BodyError, Chat, Delivery, Dialect, Framing, OutputCap, UsageAsk};

/// What is behind a key at the root of a body.
#[derive(Clone, Copy)]
pub(super) enum Field {
    Messages,
    /// One prompt or many, as text or as token ids.
    Prompts,
    /// Messages, calls and their outcomes, in OpenAI's newer spelling.
    Items,
    /// A text before the messages.
    System,
    /// Text that every prompt of a batch gets.
    Suffix,
    /// Names something that the provider keeps and puts into the prompt.
    Stored,
    Tools,
    Format,
    /// Holds a format under the key `format`.
    FormatHolder,
    /// Whatever text is in it.
    Any,
    StreamOptions,
    Background,
    /// Many requests in one body.
    Batch,
}

pub(super) type Fields = &'static [(&'static str, Field)];

/// Every name under which some server takes the cap of one answer.
const OUTPUT_CAPS: [&str; 8] = [
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "max_new_tokens",
    "max_tokens_to_sample",
    "max_gen_len",
    "num_predict",
    // llama.cpp's server takes it over `max_tokens`.
    "n_predict",
];

/// The names of the number of answers that are generated, and paid for.
const CHOICES: [&str; 2] = ["n", "best_of"];

pub(super) fn parse(dialect: Dialect, body: &[u8]) -> Result<Chat<'_>, BodyError> {
    let text = text(body)?;
    let mut reading = Reading::of(dialect);
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
struct Reading<'a> {
    dialect: Dialect,
    draft: Draft<'a>,
    model: Option<&'a str>,
    caps: OutputCap,
    choices: u64,
    stream: Option<&'a str>,
    options: Option<&'a str>,
    background: Option<&'a str>,
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
    fn of(dialect: Dialect) -> Self {
        Self {
            dialect,
            draft: Draft::default(),
            model: None,
            caps: OutputCap::Absent,
            choices: 1,
            stream: None,
            options: None,
            background: None,
        }
    }

    fn field<A: MapAccess<'a>>(&mut self, key: &str, fields: &mut A) -> Result<(), A::Error> {
        let draft = &mut self.draft;
        let Some(&(field, kind)) = self.dialect.fields().iter().find(|(name, _)| *name == key) else {
            return match key {
                "model" => once(draft, &mut self.model, "model", fields),
                "stream" => once(draft, &mut self.stream, "stream", fields),
                // Asks for all of the prompt, up to its last part.
                "cache_control" => draft.cache_control(fields),
                _ => self.number(key, fields),
            };
        };
        match kind {
            Field::Messages => take(fields, draft, Messages),
            Field::Prompts => take(fields, draft, Prompts::new(field)),
            Field::Items => take(fields, draft, Items),
            Field::System => take(fields, draft, System { field }),
            Field::Suffix => {
                let literal = raw(fields)?;
                let outcome = draft.suffix(literal);
                draft.check(outcome)
            }
            Field::Stored => take(fields, draft, Stored { field }),
            Field::Tools => take(fields, draft, Tools { field }),
            Field::Format => take(fields, draft, Format { field, level: Level::Itself }),
            Field::FormatHolder => take(fields, draft, Format { field, level: Level::Holder }),
            Field::Any => take(fields, draft, Part::ANY),
            Field::StreamOptions => once(draft, &mut self.options, field, fields),
            Field::Background => once(draft, &mut self.background, field, fields),
            Field::Batch => match raw(fields)? {
                "null" => Ok(()),
                _ => Err(draft.stop(BodyError::Batch)),
            },
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
        let stream = flag(self.stream, "stream")?;
        let background = flag(self.background, "background")?;
        let (usage, edit) = match self.dialect {
            Dialect::OpenAiChat | Dialect::OpenAiCompletions => usage(body, self.options)?,
            // They report usage by themselves; what does not belong to the body must not be added to it.
            Dialect::OpenAiEmbeddings | Dialect::OpenAiResponses | Dialect::AnthropicMessages => {
                (UsageAsk::Absent, None)
            }
        };
        let prompts = self.draft.prompts.max(1);
        let (output_cap, choices) = match self.dialect {
            Dialect::OpenAiEmbeddings => (OutputCap::NoOutput, 1),
            Dialect::OpenAiChat
            | Dialect::OpenAiCompletions
            | Dialect::OpenAiResponses
            | Dialect::AnthropicMessages => (self.caps, self.choices.saturating_mul(prompts)),
        };
        Ok(Chat {
            model: self.model.map(model).transpose()?.flatten(),
            pieces: self.draft.pieces,
            messages: self.draft.messages,
            prompts,
            given_tokens: self.draft.given_tokens,
            framing: match self.dialect {
                Dialect::OpenAiChat | Dialect::OpenAiResponses | Dialect::AnthropicMessages => Framing::Turns,
                Dialect::OpenAiCompletions | Dialect::OpenAiEmbeddings => Framing::Bare,
            },
            context: self.draft.context,
            caching: self.draft.caching,
            output_cap,
            choices,
            delivery: if stream { Delivery::Streamed } else { Delivery::Whole },
            answering: if background { Answering::Later } else { Answering::Now },
            usage,
            usage_edit: edit.filter(|_| stream),
        })
    }
}

/// Servers differ in what else they take for true.
fn flag(literal: Option<&str>, field: &'static str) -> Result<bool, BodyError> {
    match literal {
        Some("true") => Ok(true),
        Some("false" | "null") | None => Ok(false),
        Some(_) => Err(BodyError::WrongType { field }),
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
    use OutputCap::{Absent, AtMost, AtMostOrNone, NoOutput, NotACap};
    match (caps, cap) {
        (caps, Count::Missing) => caps,
        (Absent | NotACap, Count::NotPositive) => NotACap,
        (AtMost(most) | AtMostOrNone(most), Count::NotPositive) => AtMostOrNone(most),
        (Absent, Count::Positive(cap)) => AtMost(cap),
        (NotACap, Count::Positive(cap)) => AtMostOrNone(cap),
        (AtMost(most), Count::Positive(cap)) => AtMost(most.max(cap)),
        (AtMostOrNone(most), Count::Positive(cap)) => AtMostOrNone(most.max(cap)),
        (NoOutput, _) => NoOutput,
    }
}
