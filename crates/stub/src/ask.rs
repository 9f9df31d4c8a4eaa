//! What a request asks for, as far as the stub's answer depends on it.

use serde_json::Value;

/// Most answers to one request; OpenAI's own bound.
const MAX_CHOICES: u64 = 128;

/// Where the APIs keep what the model reads.
const PROMPTS: [&str; 5] = ["messages", "system", "prompt", "input", "instructions"];

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ask {
    pub model: String,
    pub form: Form,
    pub choices: u64,
    /// The first function on offer, unless the request forbids calling it.
    pub tool: Option<String>,
    /// Words in all strings of the prompt: the default for its tokens.
    pub words: u64,
    /// Texts to embed.
    pub inputs: u64,
    /// The answer is to be fetched later.
    pub background: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    Json,
    Stream(StreamUsage),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StreamUsage {
    Asked,
    NotAsked,
}

impl Ask {
    /// `None`: not a JSON object.
    pub fn read(body: &[u8]) -> Option<Self> {
        let body: Value = serde_json::from_slice(body).ok().filter(Value::is_object)?;
        let stream_usage = if body["stream_options"]["include_usage"] == true {
            StreamUsage::Asked
        } else {
            StreamUsage::NotAsked
        };
        Some(Self {
            model: body["model"].as_str().unwrap_or("gpt-4o-mini").to_owned(),
            form: if body["stream"] == true { Form::Stream(stream_usage) } else { Form::Json },
            choices: body["n"].as_u64().unwrap_or(1).clamp(1, MAX_CHOICES),
            tool: match body["tool_choice"].as_str() {
                Some("none") => None,
                // In a `function`, or beside the type, as the API has it.
                _ => body["tools"][0]["function"]["name"]
                    .as_str()
                    .or_else(|| body["tools"][0]["name"].as_str())
                    .map(str::to_owned),
            },
            words: PROMPTS.iter().map(|member| words(&body[member])).sum(),
            inputs: body["input"].as_array().map_or(1, |inputs| inputs.len() as u64),
            background: body["background"] == true,
        })
    }
}

/// An explicit stack: the body may nest as deep as the parser lets it.
fn words(messages: &Value) -> u64 {
    let mut count = 0;
    let mut open = vec![messages];
    while let Some(value) = open.pop() {
        match value {
            Value::String(text) => count += text.split_whitespace().count() as u64,
            Value::Array(items) => open.extend(items),
            Value::Object(members) => open.extend(members.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_that_shape_an_answer_are_read() {
        let ask = Ask::read(
            br#"{"model":"m","stream":true,"stream_options":{"include_usage":true},"n":2,
                "tools":[{"type":"function","function":{"name":"find"}}],
                "messages":[{"role":"user","content":[{"type":"text","text":"two words"}]}]}"#,
        );
        assert_eq!(
            ask,
            Some(Ask {
                model: "m".into(),
                form: Form::Stream(StreamUsage::Asked),
                choices: 2,
                tool: Some("find".into()),
                words: 4,
                inputs: 1,
                background: false,
            })
        );
    }

    #[test]
    fn what_is_no_json_object_is_no_request() {
        for body in [&b""[..], b"[]", b"{", b"\xff"] {
            assert_eq!(Ask::read(body), None);
        }
    }
}
