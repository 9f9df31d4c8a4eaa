//! The body of OpenAI's Responses: a text or items, and what the provider keeps of earlier ones.
//!
//! <https://platform.openai.com/docs/api-reference/responses/create>

use std::borrow::Cow;

use serde::de::{MapAccess, SeqAccess};

use super::content::{Argument, Content, DEPTH, Part, Role};
use super::media::{Media, MediaKind};
use super::reading::{Field, Fields};
use super::shape::{Draft, Shape, each, next_key, raw, skip, take, text_of};
use super::{BodyError, Context, Piece};

pub(super) const FIELDS: Fields = &[
    ("input", Field::Items),
    ("instructions", Field::System),
    ("tools", Field::Tools),
    ("text", Field::FormatHolder),
    ("previous_response_id", Field::Stored),
    ("conversation", Field::Stored),
    // Here a template by its id, with values for its gaps.
    ("prompt", Field::Stored),
    ("background", Field::Background),
];

/// One message as text, or a list of items.
#[derive(Clone, Copy)]
pub(super) struct Items;

impl<'a> Shape<'a> for Items {
    const FIELD: &'static str = "input";

    fn text(self, draft: &mut Draft<'a>, text: Cow<'a, str>) -> Result<(), BodyError> {
        draft.turn("user")?;
        draft.text(text)
    }

    fn seq<A: SeqAccess<'a>>(self, draft: &mut Draft<'a>, items: A) -> Result<(), A::Error> {
        each(draft, items, Item)
    }
}

/// A message, a call, the outcome of one, a piece of reasoning, or a reference to one of these.
#[derive(Clone, Copy)]
pub(super) struct Item;

impl<'a> Shape<'a> for Item {
    const FIELD: &'static str = "input[]";

    fn map<A: MapAccess<'a>>(self, draft: &mut Draft<'a>, mut fields: A) -> Result<(), A::Error> {
        let outcome = draft.message();
        draft.check(outcome)?;
        let before = (draft.pieces.len(), draft.given_tokens);
        let mut class = None;
        while let Some(key) = next_key(&mut fields)? {
            match &*key {
                "type" => class = text_of(raw(&mut fields)?),
                "role" => take(&mut fields, draft, Role)?,
                "content" | "output" => take(&mut fields, draft, Content::NEW)?,
                "arguments" | "input" => {
                    let outcome = draft.push(Piece::Call);
                    draft.check(outcome)?;
                    take(&mut fields, draft, Argument::NEW)?;
                }
                // A picture that the model has made.
                "result" => take(&mut fields, draft, Media { kind: MediaKind::Image, left: DEPTH })?,
                "encrypted_content" => draft.sealed(raw(&mut fields)?),
                "id" | "call_id" | "status" | "approval_request_id" => skip(&mut fields)?,
                "cache_control" => draft.cache_control(&mut fields)?,
                _ => take(&mut fields, draft, Part::ANY)?,
            }
        }
        match class.as_deref() {
            Some("item_reference") => draft.context = Context::Continued,
            // Named by its id alone: the provider has the rest.
            Some("reasoning") | None if before == (draft.pieces.len(), draft.given_tokens) => {
                draft.context = Context::Continued;
            }
            Some(_) | None => {}
        }
        Ok(())
    }
}

/// An earlier response, a conversation or a template: by its id, or in an object with it.
#[derive(Clone, Copy)]
pub(super) struct Stored {
    pub(super) field: &'static str,
}

impl<'a> Shape<'a> for Stored {
    const FIELD: &'static str = "previous_response_id";

    /// An id costs little, and what is none costs what it is.
    fn text(self, draft: &mut Draft<'a>, id: Cow<'a, str>) -> Result<(), BodyError> {
        draft.context = Context::Continued;
        draft.text(id)
    }

    fn map<A: MapAccess<'a>>(self, draft: &mut Draft<'a>, fields: A) -> Result<(), A::Error> {
        draft.context = Context::Continued;
        Part::ANY.map(draft, fields)
    }

    fn wrong(self) -> BodyError {
        BodyError::WrongType { field: self.field }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        Answering, Chat, Delivery, Detail, Dialect, Image, ImageSource, UsageAsk, parse, rewrite,
    };
    use super::*;

    fn read(body: &str) -> Result<Chat<'_>, BodyError> {
        parse(Dialect::OpenAiResponses, body.as_bytes())
    }

    fn text(text: &str) -> Piece<'_> {
        Piece::Text(text.into())
    }

    #[test]
    fn an_input_of_text_is_a_message_of_the_user_and_instructions_are_one_more() {
        let chat =
            read(r#"{"model":"m","input":"hi","instructions":"be brief","max_output_tokens":9}"#).unwrap();
        let expected =
            [Piece::Role("user".into()), text("hi"), Piece::Role("system".into()), text("be brief")];
        assert_eq!((chat.messages, &chat.pieces[..]), (2, &expected[..]));
        assert_eq!(chat.context, Context::Whole);
        let chat = read(r#"{"input":null,"instructions":null}"#).unwrap();
        assert_eq!((chat.messages, chat.pieces), (0, vec![]));
    }

    #[test]
    fn all_that_the_model_reads_becomes_a_piece() {
        let body = r#"{"input":[
            {"role":"user","content":"plain"},
            {"type":"message","role":"user","content":[
                {"type":"input_text","text":"look"},
                {"type":"input_image","image_url":"https://e/x.png","detail":"low"},
                {"file_id":"file-1","detail":"high","type":"input_image"},
                {"type":"input_file","file_data":"data:application/pdf;base64,AAAA"},
                {"type":"input_file","file_id":"file-2"},
                {"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}]},
            {"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[
                {"type":"output_text","text":"said","annotations":[{"url":"https://e","title":"t"}],"logprobs":[{"token":"x"}]},
                {"type":"refusal","refusal":"no"}]},
            {"type":"function_call","id":"fc_1","call_id":"call_1","name":"f","arguments":"{\"a\":1}","status":"completed"},
            {"type":"function_call_output","call_id":"call_1","output":"seven"},
            {"type":"function_call_output","call_id":"call_1","output":[{"type":"input_text","text":"eight"}]},
            {"type":"custom_tool_call","call_id":"call_2","name":"g","input":"go"},
            {"type":"computer_call_output","call_id":"call_3","output":{"type":"computer_screenshot","image_url":"data:image/png;base64,AA"}},
            {"type":"image_generation_call","id":"ig_1","status":"completed","result":"iVBORw0KGgo="},
            {"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"thought"}]}],
            "tools":[{"type":"web_search"}],
            "text":{"verbosity":"low","format":{"type":"json_schema","name":"n","description":"d","schema":{"s":1}}}}"#;
        let image = |source, detail| Piece::Image(Image { source, detail });
        let url = |url: &'static str| ImageSource::Url(url.into());
        let expected = [
            Piece::Role("user".into()),
            text("plain"),
            Piece::Role("user".into()),
            text("look"),
            image(url("https://e/x.png"), Some(Detail::Low)),
            image(ImageSource::Elsewhere, Some(Detail::High)),
            Piece::File,
            Piece::File,
            Piece::Audio,
            Piece::Role("assistant".into()),
            text("said"),
            text("no"),
            text("f"),
            Piece::Call,
            text("{\"a\":1}"),
            text("seven"),
            text("eight"),
            text("g"),
            Piece::Call,
            text("go"),
            image(url("data:image/png;base64,AA"), None),
            image(url("iVBORw0KGgo="), None),
            text("thought"),
            Piece::Tool(r#"{"type":"web_search"}"#),
            text("d"),
            Piece::Schema(r#"{"s":1}"#),
        ];
        let chat = read(body).unwrap();
        assert_eq!(chat.pieces, expected);
        assert_eq!((chat.messages, chat.given_tokens, chat.context), (10, 0, Context::Whole));
    }

    #[test]
    fn sealed_thoughts_cost_by_their_length_and_not_as_text() {
        let sealed = "A".repeat(4000);
        let body = format!(
            r#"{{"input":[{{"type":"reasoning","id":"rs","summary":[],"encrypted_content":"{sealed}"}}]}}"#
        );
        let chat = read(&body).unwrap();
        assert_eq!((chat.given_tokens, chat.pieces, chat.context), (1001, vec![], Context::Whole));
    }

    #[test]
    fn what_the_provider_keeps_is_noticed() {
        use Context::{Continued, Whole};
        for (members, context) in [
            (r#""previous_response_id":"resp_1""#, Continued),
            (r#""Previous_Response_Id":"resp_1""#, Continued),
            (r#""previous_response_id":null"#, Whole),
            (r#""previous_response_id":"resp_1","previous_response_id":null"#, Continued),
            (r#""conversation":"conv_1""#, Continued),
            (r#""conversation":{"id":"conv_1"}"#, Continued),
            (r#""conversation":null"#, Whole),
            (r#""prompt":{"id":"pmpt_1","variables":{"city":"Kiel"}}"#, Continued),
            (r#""input":[{"type":"item_reference","id":"msg_1"}]"#, Continued),
            (r#""input":[{"id":"msg_1"}]"#, Continued),
            (r#""input":[{"type":"reasoning","id":"rs_1","summary":[]}]"#, Continued),
            (r#""input":[{"type":"function_call_output","call_id":"c","output":""}]"#, Whole),
            (r#""input":[{"role":"user","content":""}]"#, Whole),
        ] {
            assert_eq!(read(&format!("{{{members}}}")).unwrap().context, context, "{members}");
        }
        let chat = read(r#"{"prompt":{"id":"pmpt_1","variables":{"city":"Kiel"}}}"#).unwrap();
        assert_eq!(chat.pieces, [text("Kiel")]);
    }

    #[test]
    fn an_answer_in_the_background_comes_later() {
        for (members, answering) in [
            (r#""x":1"#, Answering::Now),
            (r#""background":null"#, Answering::Now),
            (r#""background":false"#, Answering::Now),
            (r#""background":true"#, Answering::Later),
            (r#""BACKGROUND":true,"stream":true"#, Answering::Later),
        ] {
            assert_eq!(read(&format!("{{{members}}}")).unwrap().answering, answering, "{members}");
        }
    }

    #[test]
    fn its_streams_are_never_rewritten() {
        for options in [
            "",
            r#","stream_options":{"include_usage":false}"#,
            r#","stream_options":{"include_obfuscation":false}"#,
        ] {
            let body = format!(r#"{{"input":"a","stream":true{options}}}"#);
            let chat = read(&body).unwrap();
            assert_eq!((chat.delivery, chat.usage), (Delivery::Streamed, UsageAsk::Absent));
            assert_eq!(rewrite::include_usage(body.as_bytes(), &chat), None);
        }
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_named_by_its_field() {
        for (members, field) in [
            (r#""input":7"#, "input"),
            (r#""input":{}"#, "input"),
            (r#""input":["hi"]"#, "input[]"),
            (r#""input":[{"role":1}]"#, "role"),
            (r#""input":[{"content":1}]"#, "content"),
            (r#""instructions":7"#, "instructions"),
            (r#""previous_response_id":7"#, "previous_response_id"),
            (r#""conversation":["c"]"#, "conversation"),
            (r#""prompt":7"#, "prompt"),
            (r#""background":"true""#, "background"),
            (r#""tools":{}"#, "tools"),
            (r#""text":"json""#, "text"),
            (r#""text":{"format":7}"#, "format"),
        ] {
            let body = format!("{{{members}}}");
            assert_eq!(read(&body).err(), Some(BodyError::WrongType { field }), "{members}");
        }
        let twice = read(r#"{"background":false,"background":true}"#).err();
        assert_eq!(twice, Some(BodyError::Duplicate { field: "background" }));
    }

    #[test]
    fn nesting_is_refused_where_it_is_read() {
        let (open, close) = ("[".repeat(20_000), "]".repeat(20_000));
        for (before, after) in [
            (r#""input":[{"content":"#, "}]"),
            (r#""input":[{"output":"#, "}]"),
            (r#""input":[{"arguments":"#, "}]"),
            (r#""input":[{"result":"#, "}]"),
            (r#""input":[{"summary":"#, "}]"),
            (r#""prompt":{"variables":"#, "}"),
        ] {
            let body = format!("{{{before}{open}{close}{after}}}");
            assert_eq!(read(&body).err(), Some(BodyError::TooDeep), "{before}");
        }
        let sealed = format!(r#"{{"input":[{{"encrypted_content":{open}{close}}}]}}"#);
        assert_eq!(read(&sealed).unwrap().given_tokens, 10_000);
    }
}
