//! The body of OpenAI's completions: prompts without turns, and their batches.
//!
//! <https://platform.openai.com/docs/api-reference/completions/create>
//!
//! `echo` costs nothing: the prompt that comes back is not generated.

use super::reading::{Field, Fields};

pub(super) const FIELDS: Fields = &[
    ("prompt", Field::Prompts),
    ("suffix", Field::Suffix),
    ("response_format", Field::Format),
    ("stream_options", Field::StreamOptions),
];

#[cfg(test)]
mod tests {
    use super::super::{
        BodyError, Chat, Delivery, Dialect, Framing, OutputCap, Piece, UsageAsk, parse, rewrite,
    };

    fn read(body: &str) -> Result<Chat<'_>, BodyError> {
        parse(Dialect::OpenAiCompletions, body.as_bytes())
    }

    #[test]
    fn every_prompt_of_a_batch_is_paid_for_with_all_its_answers() {
        for (members, prompts, choices, given_tokens, texts) in [
            (r#""x":1"#, 1, 1, 0, &[][..]),
            (r#""prompt":null"#, 1, 1, 0, &[]),
            (r#""prompt":"""#, 1, 1, 0, &[]),
            (r#""prompt":"a""#, 1, 1, 0, &["a"]),
            (r#""prompt":[]"#, 1, 1, 0, &[]),
            (r#""prompt":["a","b",""]"#, 3, 3, 0, &["a", "b"]),
            (r#""prompt":[1,2,3]"#, 1, 1, 3, &[]),
            (r#""prompt":[-1,1.5,18446744073709551615]"#, 1, 1, 3, &[]),
            (r#""prompt":[[1,2],[3],[]]"#, 3, 3, 3, &[]),
            (r#""prompt":[[1,2],"a",7]"#, 2, 2, 3, &["a"]),
            (r#""prompt":[["a","b"],[1]]"#, 2, 2, 1, &["a", "b"]),
            (r#""prompt":["a","b"],"n":3"#, 2, 6, 0, &["a", "b"]),
            (r#""prompt":["a","b"],"n":2,"best_of":5"#, 2, 10, 0, &["a", "b"]),
            (r#""prompt":["a","b"],"PROMPT":["c"]"#, 3, 3, 0, &["a", "b", "c"]),
            (r#""prompt":["a","b"],"n":1e30"#, 2, u64::MAX, 0, &["a", "b"]),
            (r#""prompt":"a","echo":true"#, 1, 1, 0, &["a"]),
        ] {
            let body = format!("{{{members}}}");
            let chat = read(&body).unwrap();
            let expected: Vec<_> = texts.iter().map(|&text| Piece::Text(text.into())).collect();
            assert_eq!(
                (chat.prompts, chat.choices, chat.given_tokens),
                (prompts, choices, given_tokens),
                "{members}"
            );
            assert_eq!((chat.pieces, chat.messages, chat.framing), (expected, 0, Framing::Bare), "{members}");
        }
    }

    #[test]
    fn what_no_prompt_can_be_is_refused() {
        for value in ["7", "true", "[[[1]]]"] {
            let body = format!(r#"{{"prompt":{value}}}"#);
            assert_eq!(read(&body).err(), Some(BodyError::WrongType { field: "prompt" }), "{value}");
        }
        let body = r#"{"suffix":["a"]}"#;
        assert_eq!(read(body).err(), Some(BodyError::WrongType { field: "suffix" }));
        let deep = format!(r#"{{"prompt":[{}1{}]}}"#, "{\"a\":".repeat(20_000), "}".repeat(20_000));
        assert_eq!(read(&deep).err(), Some(BodyError::TooDeep));
    }

    #[test]
    fn a_suffix_stands_beside_every_prompt() {
        let chat = read(r#"{"prompt":["a","b"],"suffix":"s","max_tokens":5}"#).unwrap();
        assert_eq!(
            chat.pieces,
            ["a", "b"]
                .map(|text| Piece::Text(text.into()))
                .into_iter()
                .chain([Piece::Suffix("s".into())])
                .collect::<Vec<_>>()
        );
        assert_eq!((chat.prompts, chat.output_cap), (2, OutputCap::AtMost(5)));
    }

    #[test]
    fn a_stream_is_made_to_report_its_usage() {
        let body = r#"{"prompt":"a","stream":true}"#;
        let chat = read(body).unwrap();
        assert_eq!((chat.delivery, chat.usage), (Delivery::Streamed, UsageAsk::Absent));
        let asking = rewrite::include_usage(body.as_bytes(), &chat).unwrap();
        assert_eq!(parse(Dialect::OpenAiCompletions, &asking).unwrap().usage, UsageAsk::Asked);
    }
}
