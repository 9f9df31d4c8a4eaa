//! The body of OpenAI's embeddings: prompts, and no answer of tokens.
//!
//! <https://platform.openai.com/docs/api-reference/embeddings/create>

use super::reading::{Field, Fields};

pub(super) const FIELDS: Fields = &[
    ("input", Field::Prompts),
    // Servers that embed whole conversations take them here.
    ("messages", Field::Messages),
];

#[cfg(test)]
mod tests {
    use super::super::{BodyError, Chat, Dialect, Image, ImageSource, OutputCap, Piece, parse, rewrite};

    fn read(body: &str) -> Result<Chat<'_>, BodyError> {
        parse(Dialect::OpenAiEmbeddings, body.as_bytes())
    }

    #[test]
    fn nothing_is_generated_whatever_the_body_says() {
        for members in [
            r#""input":"a""#,
            r#""input":["a","b"],"n":7,"max_tokens":100"#,
            r#""input":[[1],[2]]"#,
            r#""x":1"#,
        ] {
            let body = format!(r#"{{{members},"stream":true}}"#);
            let chat = read(&body).unwrap();
            assert_eq!((chat.output_cap, chat.choices), (OutputCap::NoOutput, 1), "{members}");
            assert_eq!(rewrite::include_usage(body.as_bytes(), &chat), None);
        }
    }

    #[test]
    fn pictures_and_conversations_are_read_where_a_server_embeds_them() {
        let chat =
            read(r#"{"input":[{"image":"https://e"},{"text":"t"}],"messages":[{"content":"m"}]}"#).unwrap();
        let image = Image { source: ImageSource::Url("https://e".into()), detail: None };
        assert_eq!(chat.pieces, [Piece::Image(image), Piece::Text("t".into()), Piece::Text("m".into())]);
        assert_eq!(chat.messages, 1);
    }

    #[test]
    fn what_no_input_can_be_is_refused_by_its_name() {
        assert_eq!(read(r#"{"input":7}"#).err(), Some(BodyError::WrongType { field: "input" }));
    }
}
