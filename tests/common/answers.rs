//! The answers of `tests/fixtures` and `tests/cases`, as one table.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tollgate::usage::Dialect;

/// One answer, as on the wire after transfer coding, and what is right about it.
#[derive(Clone, Debug)]
pub struct Answer {
    pub id: String,
    pub dialect: String,
    /// As the manifests write it: `json`, `sse`, …
    pub wire: String,
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub bytes: Vec<u8>,
    /// Offsets of special interest.
    pub split: Vec<usize>,
    /// What the filter holds for the request: prompt and output tokens.
    pub held: (u64, u64),
    pub usage: Option<Counts>,
    pub finish: Option<String>,
    /// `None` where the source does not say.
    pub outcome: Option<String>,
    /// Tokens charged in the end: at least and at most.
    pub charge: (u64, u64),
    pub most_kept: Option<usize>,
    pub why: String,
}

/// Usage in the normal form of the fixtures' README.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Counts {
    pub input: Option<u64>,
    pub output: Option<u64>,
    pub cached_input: u64,
    pub cache_write: u64,
    pub reasoning: u64,
    pub provider_total: Option<u64>,
}

impl Answer {
    /// `None` where no reader speaks its dialect yet.
    pub fn reader(&self) -> Option<Dialect> {
        match self.dialect.as_str() {
            "openai" => Some(Dialect::OpenAi),
            "responses" => Some(Dialect::Responses),
            "anthropic" => Some(Dialect::Anthropic),
            _ => None,
        }
    }
}

/// All answers of the dialects that are read, except the one whose counts stand in Bedrock's headers.
pub fn all() -> Vec<Answer> {
    let mut answers = fixtures();
    answers.extend(cases());
    answers.retain(|answer| answer.reader().is_some() && answer.id != "json-bedrock-header-usage");
    answers
}

/// Those of OpenAI's chat and of whatever copies it.
pub fn openai() -> Vec<Answer> {
    let mut answers = all();
    answers.retain(|answer| answer.reader() == Some(Dialect::OpenAi));
    answers
}

fn fixtures() -> Vec<Answer> {
    let mut answers = Vec::new();
    for fixture in list("fixtures", "fixtures") {
        let streams = fixture["streams"].as_array().into_iter().flatten();
        for (place, answer) in std::iter::once(&fixture["response"]).chain(streams).enumerate() {
            let id = format!("{}#{place}", text(&fixture["id"]));
            let total = answer["expected"]["usage"]["total"].as_u64().unwrap_or_default();
            answers.push(Answer {
                dialect: text(&fixture["dialect"]),
                wire: answer["wire"].as_str().unwrap_or("json").to_owned(),
                held: (40, 400),
                charge: (total, total),
                outcome: None,
                why: String::new(),
                ..read("fixtures", id, answer)
            });
        }
    }
    answers
}

fn cases() -> Vec<Answer> {
    let all = list("cases", "cases");
    let answers = all.iter().filter(|case| text(&case["kind"]).starts_with("response-"));
    answers
        .map(|case| {
            let given = |key: &str| case["given"][key].as_u64().unwrap_or_default();
            let band = |key: &str| case["expected"]["charge"][key].as_u64().unwrap_or_default();
            Answer {
                dialect: text(&case["dialect"]),
                wire: text(&case["wire"]),
                held: (given("estimate_input"), given("reserved_output")),
                charge: (band("min"), band("max")),
                outcome: case["expected"]["outcome"].as_str().map(str::to_owned),
                why: text(&case["why"]),
                ..read("cases", text(&case["id"]), case)
            }
        })
        .collect()
}

/// What fixtures and cases write alike.
fn read(folder: &str, id: String, answer: &Value) -> Answer {
    let expected = &answer["expected"];
    Answer {
        id,
        dialect: String::new(),
        wire: String::new(),
        status: u16::try_from(answer["status"].as_u64().unwrap_or(200)).unwrap(),
        headers: headers(&answer["headers"]),
        bytes: bytes(folder, answer),
        split: answer["split"].as_array().into_iter().flatten().map(size).collect(),
        held: (0, 0),
        usage: usage(&expected["usage"]),
        finish: expected["finish"].as_str().map(str::to_owned),
        outcome: None,
        charge: (0, 0),
        most_kept: answer["limits"]["max_kept_bytes"]
            .is_u64()
            .then(|| size(&answer["limits"]["max_kept_bytes"])),
        why: String::new(),
    }
}

fn usage(value: &Value) -> Option<Counts> {
    let part = |key: &str| value[key].as_u64().unwrap_or_default();
    value.is_object().then(|| Counts {
        input: value["input"].as_u64(),
        output: value["output"].as_u64(),
        cached_input: part("cached_input"),
        cache_write: part("cache_write"),
        reasoning: part("reasoning"),
        provider_total: value["provider_total"].as_u64(),
    })
}

fn headers(value: &Value) -> Vec<(String, String)> {
    value.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), text(value))).collect()
}

/// The file, with its marker replaced by many copies where the case says so.
fn bytes(folder: &str, answer: &Value) -> Vec<u8> {
    let raw = fs::read(root().join(folder).join(text(&answer["file"]))).unwrap();
    let inflate = &answer["inflate"];
    if !inflate.is_object() {
        return raw;
    }
    let marker = text(&inflate["marker"]).into_bytes();
    let at = raw.windows(marker.len()).position(|window| window == marker).expect("the marker occurs once");
    let many = text(&inflate["unit"]).repeat(size(&inflate["count"]));
    [&raw[..at], many.as_bytes(), &raw[at + marker.len()..]].concat()
}

fn list(folder: &str, key: &str) -> Vec<Value> {
    let manifest = fs::read(root().join(folder).join("manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    manifest[key].as_array().unwrap().clone()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn size(value: &Value) -> usize {
    usize::try_from(value.as_u64().unwrap()).unwrap()
}
