//! The body of Anthropic's messages, also where others serve its models.
//!
//! <https://docs.claude.com/en/api/messages>
//!
//! `cache_control` marks what is cached and is no part of the prompt itself; a thinking budget lies within
//! `max_tokens`.

use super::reading::{Field, Fields};

pub(super) const FIELDS: Fields = &[
    ("messages", Field::Messages),
    ("system", Field::System),
    ("tools", Field::Tools),
    ("output_format", Field::Format),
    ("output_config", Field::FormatHolder),
    // `…/messages/batches` shares the prefix. Its answers come within a day, not in the reply.
    ("requests", Field::Batch),
];

#[cfg(test)]
mod tests {
    use super::super::{
        BodyError, Chat, Context, Delivery, Dialect, Image, ImageSource, OutputCap, Piece, UsageAsk, parse,
        rewrite,
    };

    fn read(body: &str) -> Result<Chat<'_>, BodyError> {
        parse(Dialect::AnthropicMessages, body.as_bytes())
    }

    fn text(text: &str) -> Piece<'_> {
        Piece::Text(text.into())
    }

    #[test]
    fn a_system_prompt_is_read_as_text_and_as_a_list() {
        for system in [
            r#""be brief""#,
            r#"[{"type":"text","text":"be brief","cache_control":{"type":"ephemeral","ttl":"1h"}}]"#,
            r#"{"text":"be brief"}"#,
        ] {
            let body = format!(r#"{{"system":{system},"max_tokens":7}}"#);
            let chat = read(&body).unwrap();
            assert_eq!(
                (chat.messages, &chat.pieces[..]),
                (1, &[Piece::Role("system".into()), text("be brief")][..])
            );
            assert_eq!((chat.output_cap, chat.context), (OutputCap::AtMost(7), Context::Whole));
        }
        assert_eq!(read(r#"{"system":7}"#).err(), Some(BodyError::WrongType { field: "system" }));
    }

    #[test]
    fn all_that_the_model_reads_becomes_a_piece() {
        let body = r#"{"messages":[
            {"role":"user","content":[
                {"type":"text","text":"look","citations":[{"cited_text":"quoted"}]},
                {"type":"image","source":{"type":"base64","media_type":"image/png","data":"AA"}},
                {"type":"image","source":{"type":"url","url":"https://e/x.png"}},
                {"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"BB"},"title":"of stones"},
                {"source":{"type":"url","url":"https://e/x.pdf"},"type":"document"},
                {"type":"document","source":{"type":"file","file_id":"file_1"}},
                {"type":"document","source":{"type":"text","media_type":"text/plain","data":"read me"},"context":"notes"},
                {"type":"document","source":{"type":"content","content":[{"type":"text","text":"inside"}]}},
                {"type":"search_result","source":"https://e","title":"t","content":[{"type":"text","text":"found"}]}]},
            {"role":"assistant","content":[
                {"type":"thinking","thinking":"hm","signature":"c2lnbmVk"},
                {"type":"tool_use","id":"toolu_1","name":"berth","input":{"boat":"Petrel","length":7}}]},
            {"role":"user","content":[
                {"type":"tool_result","tool_use_id":"toolu_1","is_error":false,"content":"seven"},
                {"type":"tool_result","tool_use_id":"toolu_1","content":[{"type":"text","text":"eight"},
                    {"type":"image","source":{"type":"base64","media_type":"image/png","data":"CC"}}]}]}],
            "tools":[{"name":"berth","input_schema":{}}],
            "output_config":{"effort":"low","format":{"type":"json_schema","schema":{"s":1}}}}"#;
        let image = |source| Piece::Image(Image { source, detail: None });
        let expected = [
            Piece::Role("user".into()),
            text("look"),
            image(ImageSource::Base64("AA".into())),
            image(ImageSource::Url("https://e/x.png".into())),
            Piece::File,
            text("of stones"),
            Piece::File,
            Piece::File,
            text("read me"),
            text("notes"),
            text("inside"),
            text("https://e"),
            text("t"),
            text("found"),
            Piece::Role("assistant".into()),
            text("hm"),
            text("berth"),
            Piece::Call,
            text("boat"),
            text("Petrel"),
            text("length"),
            text("7"),
            Piece::Role("user".into()),
            text("seven"),
            text("eight"),
            image(ImageSource::Base64("CC".into())),
            Piece::Tool(r#"{"name":"berth","input_schema":{}}"#),
            Piece::Schema(r#"{"s":1}"#),
        ];
        let chat = read(body).unwrap();
        assert_eq!(chat.pieces, expected);
        assert_eq!(chat.messages, 3);
    }

    #[test]
    fn what_a_search_has_sealed_costs_by_its_length() {
        let sealed = "A".repeat(398);
        let body = format!(
            r#"{{"messages":[{{"content":[{{"type":"web_search_tool_result","content":[{{"type":"web_search_result","encrypted_content":"{sealed}"}}]}}]}}]}}"#
        );
        let chat = read(&body).unwrap();
        assert_eq!((chat.given_tokens, chat.pieces), (100, vec![]));
    }

    #[test]
    fn a_batch_is_refused_and_nothing_passes_for_one() {
        for requests in ["[]", "{}", "7", r#"[{"params":{"max_tokens":7}}]"#] {
            let body = format!(r#"{{"messages":[],"Requests":{requests}}}"#);
            assert_eq!(read(&body).err(), Some(BodyError::Batch), "{requests}");
        }
        assert!(read(r#"{"requests":null}"#).is_ok());
    }

    #[test]
    fn its_streams_are_never_rewritten() {
        let body = r#"{"messages":[{"role":"user","content":"a"}],"stream":true}"#;
        let chat = read(body).unwrap();
        assert_eq!((chat.delivery, chat.usage), (Delivery::Streamed, UsageAsk::Absent));
        assert_eq!(rewrite::include_usage(body.as_bytes(), &chat), None);
    }
}
