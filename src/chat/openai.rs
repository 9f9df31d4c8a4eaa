//! The body of OpenAI's chat completions, and of everyone who speaks like it.
//!
//! <https://platform.openai.com/docs/api-reference/chat/create>

use super::reading::{Field, Fields};

pub(super) const FIELDS: Fields = &[
    // Given twice, all are counted: a server may take the first list, another the last.
    ("messages", Field::Messages),
    ("tools", Field::Tools),
    // What tools were called before there were other kinds of them.
    ("functions", Field::Tools),
    ("response_format", Field::Format),
    // Text for the prompt that some servers take beside the messages.
    ("documents", Field::Any),
    ("prediction", Field::Any),
    ("chat_template", Field::Any),
    ("stream_options", Field::StreamOptions),
];

#[cfg(test)]
mod tests {
    use super::super::{
        BodyError, Chat, Delivery, Detail, Dialect, Image, ImageSource, MAX_PIECES, OutputCap, Piece,
        UsageAsk,
    };

    fn parse(body: &[u8]) -> Result<Chat<'_>, BodyError> {
        super::super::parse(Dialect::OpenAiChat, body)
    }

    fn with(member: &str) -> String {
        format!(r#"{{"model":"m",{member}}}"#)
    }

    fn error_of(body: &[u8]) -> Option<BodyError> {
        parse(body).err()
    }

    fn text(text: &str) -> Piece<'_> {
        Piece::Text(text.into())
    }

    #[test]
    fn of_several_caps_the_largest_counts_and_none_that_says_there_is_no_cap_makes_it_cheaper() {
        use OutputCap::{Absent, AtMost, AtMostOrNone, NotACap};
        for (members, cap) in [
            (r#""x":1"#, Absent),
            (r#""max_tokens":null"#, Absent),
            (r#""max_tokens":0"#, NotACap),
            (r#""max_tokens":-1"#, NotACap),
            (r#""max_tokens":5"#, AtMost(5)),
            (r#""max_tokens":"5""#, AtMost(5)),
            (r#""max_tokens":1e400"#, AtMost(u64::MAX)),
            (r#""max_tokens":5,"max_completion_tokens":9"#, AtMost(9)),
            (r#""max_tokens":9,"max_completion_tokens":null"#, AtMost(9)),
            (r#""max_tokens":9,"max_tokens":5"#, AtMost(9)),
            (r#""max_tokens":5,"MAX_TOKENS":9"#, AtMost(9)),
            (r#""max_tokens":5,"max_to\u006bens":9"#, AtMost(9)),
            (r#""max_tokens":5,"max_to\u212aens":9"#, AtMost(9)),
            (r#""max_tokens":5,"max_completion_tokens":-1"#, AtMostOrNone(5)),
            (r#""max_tokens":-1,"max_completion_tokens":5,"max_new_tokens":7"#, AtMostOrNone(7)),
        ] {
            assert_eq!(parse(with(members).as_bytes()).unwrap().output_cap, cap, "{members}");
        }
    }

    #[test]
    fn choices_are_the_larger_of_n_and_best_of_and_at_least_one() {
        for (members, choices) in [
            (r#""x":1"#, 1),
            (r#""n":null"#, 1),
            (r#""n":0"#, 1),
            (r#""n":-3"#, 1),
            (r#""n":3"#, 3),
            (r#""n":2.5"#, 3),
            (r#""n":2,"best_of":4"#, 4),
            (r#""n":7,"n":1"#, 7),
            (r#""n":1e99"#, u64::MAX),
        ] {
            assert_eq!(parse(with(members).as_bytes()).unwrap().choices, choices, "{members}");
        }
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_named_by_its_field() {
        for (members, field) in [
            (r#""model":1"#, "model"),
            (r#""stream":1"#, "stream"),
            (r#""stream":"true""#, "stream"),
            (r#""stream_options":1"#, "stream_options"),
            (r#""stream_options":[]"#, "stream_options"),
            (r#""stream_options":{"include_usage":1}"#, "stream_options.include_usage"),
            (r#""max_tokens":true"#, "max_tokens"),
            (r#""max_completion_tokens":"all""#, "max_completion_tokens"),
            (r#""n":{}"#, "n"),
            (r#""messages":"hi""#, "messages"),
            (r#""messages":{}"#, "messages"),
            (r#""messages":1"#, "messages"),
            (r#""messages":["hi"]"#, "messages[]"),
            (r#""messages":[{"role":1}]"#, "role"),
            (r#""messages":[{"name":[]}]"#, "name"),
            (r#""messages":[{"content":1}]"#, "content"),
            (r#""messages":[{"content":[{"text":true}]}]"#, "content"),
            (r#""messages":[{"tool_calls":{}}]"#, "tool_calls"),
            (r#""messages":[{"tool_calls":["x"]}]"#, "tool_calls[]"),
            (r#""tools":{}"#, "tools"),
            (r#""functions":"f""#, "functions"),
        ] {
            let body = with(members).replace(r#""model":"m","#, "");
            assert_eq!(error_of(body.as_bytes()), Some(BodyError::WrongType { field }), "{members}");
        }
    }

    #[test]
    fn given_twice_is_refused_where_no_reading_is_the_dearer_one() {
        for (members, field) in [
            (r#""model":"n""#, "model"),
            (r#""Model":"n""#, "model"),
            (r#""stream":false,"stream":true"#, "stream"),
            (r#""stream_options":null,"stream_options":{}"#, "stream_options"),
            (
                r#""stream_options":{"include_usage":true,"include_usage":false}"#,
                "stream_options.include_usage",
            ),
        ] {
            let body = with(members);
            assert_eq!(error_of(body.as_bytes()), Some(BodyError::Duplicate { field }), "{members}");
        }
    }

    #[test]
    fn what_is_no_json_is_refused_with_its_place_and_nothing_of_its_content() {
        for (body, error) in [
            (&b""[..], BodyError::Empty),
            (b" \n\t", BodyError::Empty),
            (b"\xef\xbb\xbf", BodyError::Empty),
            (b"[]", BodyError::NotAnObject),
            (b"\"text\"", BodyError::NotAnObject),
            (b"17", BodyError::NotAnObject),
            (b"null", BodyError::NotAnObject),
            (b"secret", BodyError::NotJson { offset: 0 }),
            (b"{\"a\":NaN}", BodyError::NotJson { offset: 5 }),
            (b"{\"a\":1}\n{\"a\":2}", BodyError::NotJson { offset: 8 }),
            (b"{\"a\":1,}", BodyError::NotJson { offset: 7 }),
            (b"\xef\xbb\xbf{\"a\":-}", BodyError::NotJson { offset: 9 }),
            (b"{\"a\":\"\xff\"}", BodyError::NotUtf8 { offset: 6 }),
            (b"{\0\"\0a\0\"\0:\0", BodyError::NotJson { offset: 1 }),
            (b"\xff\xfe{\0", BodyError::NotUtf8 { offset: 0 }),
        ] {
            assert_eq!(error_of(body), Some(error), "{body:?}");
        }
        for body in [
            r#"{"messages":[{"role":"user","content":"\ud800 secret"}]}"#,
            r#"{"model":"secret","messages":[{"content":"x"#,
        ] {
            let error = error_of(body.as_bytes()).unwrap();
            assert!(matches!(error, BodyError::NotJson { .. }));
            assert!(!error.to_string().contains("secret"));
        }
    }

    #[test]
    fn null_is_missing_everywhere_and_a_byte_order_mark_is_passed_over() {
        let body = "\u{feff}{\"model\":null,\"messages\":[{\"role\":null,\"content\":null,\"name\":null,\
                    \"tool_calls\":null,\"function_call\":null,\"audio\":null}],\"tools\":null,\
                    \"response_format\":null,\"stream\":null,\"stream_options\":null}";
        let chat = parse(body.as_bytes()).unwrap();
        assert_eq!(chat.model, None);
        assert_eq!(chat.messages, 1);
        assert_eq!(chat.pieces, []);
        assert_eq!((chat.delivery, chat.usage), (Delivery::Whole, UsageAsk::Absent));
    }

    #[test]
    fn all_that_the_model_reads_becomes_a_piece() {
        let body = r#"{"messages":[
            {"role":"system","name":"n","content":"plain"},
            {"role":"assistant","content":null,"refusal":"no","reasoning_content":"hm","tool_call_id":"id",
             "tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}},
                           {"id":"d","function":{"name":"g","arguments":{"k":[1,"v"]}}}],
             "function_call":{"name":"old","arguments":"a"}},
            {"role":"user","content":[
                {"type":"text","text":"look"},
                {"detail":"low","image_url":"https://e/x.png","type":"input_image"},
                {"type":"image_url","image_url":{"url":"data:image/png;base64,AA","detail":"high"}},
                {"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}},
                {"type":"file","file":{"file_data":"AAAA","filename":"f"}},
                {"type":"tool_result","content":[{"type":"image","source":{"type":"base64","data":"BB","media_type":"image/png"}}]},
                {"type":"document","source":{"type":"text","media_type":"text/plain","data":"read me"}},
                {"type":"new","payload":{"deep":["words","data:image/png;base64,CC"]}},
                {"type":"image_url","image_url":"not an address but words"}]}],
            "tools":[{"type":"function"}, {"b": 2}],
            "functions":[{"c":3}],
            "response_format":{"type":"json_schema","json_schema":{"d":4}}}"#;
        let image = |source, detail| Piece::Image(Image { source, detail });
        let expected = [
            Piece::Role("system".into()),
            Piece::Name("n".into()),
            text("plain"),
            Piece::Role("assistant".into()),
            text("no"),
            text("hm"),
            Piece::Call,
            text("f"),
            text("{}"),
            Piece::Call,
            text("g"),
            text("k"),
            text("1"),
            text("v"),
            Piece::Call,
            text("old"),
            text("a"),
            Piece::Role("user".into()),
            text("look"),
            image(ImageSource::Url("https://e/x.png".into()), Some(Detail::Low)),
            image(ImageSource::Url("data:image/png;base64,AA".into()), Some(Detail::High)),
            Piece::Audio,
            Piece::File,
            image(ImageSource::Base64("BB".into()), None),
            text("read me"),
            text("words"),
            image(ImageSource::Url("data:image/png;base64,CC".into()), None),
            text("not an address but words"),
            Piece::Tool(r#"{"type":"function"}"#),
            Piece::Tool(r#"{"b": 2}"#),
            Piece::Tool(r#"{"c":3}"#),
            Piece::Schema(r#"{"d":4}"#),
        ];
        assert_eq!(parse(body.as_bytes()).unwrap().pieces, expected);
    }

    #[test]
    fn what_a_provider_adds_to_its_parts_is_passed_over_there_and_nowhere_else() {
        let hidden = r#"{"signature":"s","citations":["c"],"logprobs":{"t":"l"},"encrypted_content":"AAAA"}"#;
        let chat = with(&format!(r#""messages":[{{"content":[{hidden}]}}]"#));
        let chat = parse(chat.as_bytes()).unwrap();
        assert_eq!((chat.pieces, chat.given_tokens), (vec![], 2));
        let documents = with(&format!(r#""documents":[{hidden}]"#));
        assert_eq!(parse(documents.as_bytes()).unwrap().pieces, ["s", "c", "l", "AAAA"].map(text));
    }

    #[test]
    fn a_data_url_is_text_wherever_a_model_reads_text() {
        for content in
            [r#""data:image/png;base64,AAAA""#, r#"[{"type":"text","text":"data:image/png;base64,AAAA"}]"#]
        {
            let body = with(&format!(r#""messages":[{{"content":{content}}}]"#));
            assert_eq!(parse(body.as_bytes()).unwrap().pieces, [text("data:image/png;base64,AAAA")]);
        }
        let body =
            with(r#""messages":[{"content":[{"type":"x","y":"data:image/png;base64,AA and words"}]}]"#);
        assert_eq!(parse(body.as_bytes()).unwrap().pieces, [text("data:image/png;base64,AA and words")]);
    }

    #[test]
    fn of_several_details_the_dearest_counts() {
        for (part, detail) in [
            (r#"{"image_url":"u"}"#, None),
            (r#"{"image_url":{"url":"u","detail":null}}"#, None),
            (r#"{"image_url":{"url":"u","detail":"low"}}"#, Some(Detail::Low)),
            (r#"{"detail":"low","image_url":{"url":"u","detail":"high"}}"#, Some(Detail::High)),
            (r#"{"image_url":{"url":"u","detail":"auto"},"detail":"low"}"#, Some(Detail::Auto)),
            (r#"{"image_url":{"url":"u","detail":"high","detail":"low"}}"#, Some(Detail::High)),
        ] {
            let body = with(&format!(r#""messages":[{{"content":[{part}]}}]"#));
            let image = Image { source: ImageSource::Url("u".into()), detail };
            assert_eq!(parse(body.as_bytes()).unwrap().pieces, [Piece::Image(image)], "{part}");
        }
    }

    #[test]
    fn nesting_is_refused_where_it_is_read_and_passed_over_where_it_is_not() {
        let (open, close) = ("[".repeat(20_000), "]".repeat(20_000));
        let (braces, ends) = ("{\"a\":".repeat(20_000), "}".repeat(20_000));
        for (before, after) in [
            (r#""messages":[{"content":"#, "}]"),
            (r#""messages":[{"content":[{"type":"new","p":"#, "}]}]"),
            (r#""messages":[{"content":[{"image_url":"#, "}]}]"),
            (r#""messages":[{"content":[{"source":"#, "}]}]"),
            (r#""messages":[{"tool_calls":[{"function":{"arguments":"#, "}}]}]"),
            (r#""messages":[{"reasoning":"#, "}]"),
            (r#""documents":"#, ""),
        ] {
            for body in [
                with(&format!("{before}{open}{close}{after}")),
                with(&format!("{before}{braces}1{ends}{after}")),
                with(&format!("{before}{open}")),
            ] {
                assert_eq!(error_of(body.as_bytes()), Some(BodyError::TooDeep), "{before}");
            }
        }
        for (before, after) in
            [("\"x\":", ""), ("\"tools\":[", "]"), ("\"response_format\":{\"schema\":", "}")]
        {
            for body in [
                with(&format!("{before}{open}{close}{after}")),
                with(&format!("{before}{braces}1{ends}{after}")),
            ] {
                assert_eq!(error_of(body.as_bytes()), None, "{before}");
            }
            let unclosed = with(&format!("{before}{open}"));
            assert!(matches!(error_of(unclosed.as_bytes()), Some(BodyError::NotJson { .. })), "{before}");
        }
    }

    #[test]
    fn more_parts_than_any_conversation_has_are_refused() {
        let part = r#"{"role":"u"},"#;
        let list = |parts: usize| with(&format!(r#""messages":[{}{{}}]"#, part.repeat(parts)));
        assert_eq!(parse(list(MAX_PIECES - 1).as_bytes()).unwrap().pieces.len(), MAX_PIECES - 1);
        assert_eq!(error_of(list(MAX_PIECES + 1).as_bytes()), Some(BodyError::TooManyParts));
        let empty = with(&format!(r#""messages":[{}{{}}]"#, "{},".repeat(MAX_PIECES)));
        assert_eq!(error_of(empty.as_bytes()), Some(BodyError::TooManyParts));
    }
}
