//! Request bodies of many providers and of public bug reports, read and estimated as a whole.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tollgate::chat::{BodyError, Chat, Delivery, Dialect, OutputCap, UsageAsk, parse, rewrite};
use tollgate::config::{HoldRules, Media, ModelRule, Tokenizer, Vocabulary};
use tollgate::estimate::memo::TextMemo;
use tollgate::estimate::{Estimate, estimate};
use tollgate_budget::{OnLeaseEnd, Span, Tokens};

/// Requests in the dialect of OpenAI chat, with what is expected of them.
struct Request {
    id: String,
    body: Vec<u8>,
    expected: Value,
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn manifest(name: &str) -> Value {
    serde_json::from_slice(&fs::read(folder(name).join("manifest.json")).unwrap()).unwrap()
}

/// Cases whose headers let the body be read at all.
fn cases() -> Vec<Request> {
    let manifest = manifest("cases");
    let chat = |case: &&Value| {
        case["kind"] == "request"
            && case["path"].as_str().unwrap().ends_with("/chat/completions")
            && case["headers"]["content-encoding"].is_null()
    };
    manifest["cases"].as_array().unwrap().iter().filter(chat).map(case).collect()
}

fn case(case: &Value) -> Request {
    let body = fs::read(folder("cases").join(case["file"].as_str().unwrap())).unwrap();
    let body = match case.get("inflate") {
        Some(inflate) => {
            let unit = inflate["unit"].as_str().unwrap();
            let run = unit.repeat(usize::try_from(inflate["count"].as_u64().unwrap()).unwrap());
            String::from_utf8(body).unwrap().replace(inflate["marker"].as_str().unwrap(), &run).into_bytes()
        }
        None => body,
    };
    Request { id: case["id"].as_str().unwrap().into(), body, expected: case["expected"].clone() }
}

fn fixtures() -> Vec<Request> {
    let manifest = manifest("fixtures");
    let mut requests = Vec::new();
    for fixture in manifest["fixtures"].as_array().unwrap() {
        for request in [&fixture["request"], &fixture["request_stream"]] {
            let path = request["path"].as_str().unwrap_or_default();
            if path.split('?').next().unwrap().ends_with("/chat/completions") {
                let file = request["file"].as_str().unwrap();
                let body = fs::read(folder("fixtures").join(file)).unwrap();
                requests.push(Request { id: file.into(), body, expected: request["expected"].clone() });
            }
        }
    }
    requests
}

/// The policy that the manifest's `case_config` describes.
fn case_rules(tokenizer: Tokenizer) -> (ModelRule, HoldRules) {
    let model = ModelRule {
        pattern: "*".into(),
        alias: None,
        tokenizer,
        default_output: Tokens::new(1000),
        max_output: Tokens::new(1_000_000),
        media: Media { image: Tokens::new(1000), audio: Tokens::new(1000), file: Tokens::new(3000) },
    };
    let hold = HoldRules {
        max_output: Tokens::new(32_000),
        max_share_milli: 1000,
        lease: Span::from_secs(600),
        on_lease_end: OnLeaseEnd::Charge,
    };
    (model, hold)
}

fn read(body: &[u8]) -> Result<Chat<'_>, BodyError> {
    parse(Dialect::OpenAiChat, body)
}

fn estimated(chat: &Chat<'_>, tokenizer: Tokenizer, ceiling: Option<u64>) -> Option<Estimate> {
    let (model, hold) = case_rules(tokenizer);
    let mut memo = TextMemo::new([1; 16]);
    estimate(chat, &model, &hold, ceiling.map(Tokens::new), memo.within(0)).ok()
}

const EXACT: Tokenizer = Tokenizer::Exact(Vocabulary::O200kBase);
const LIKE: Tokenizer = Tokenizer::Like { vocabulary: Vocabulary::O200kBase, factor_milli: 1100 };

fn assert_band(id: &str, what: &str, found: u64, band: &Value) {
    if let (Some(min), Some(max)) = (band["min"].as_u64(), band["max"].as_u64()) {
        assert!((min..=max).contains(&found), "{id}: {what} is {found}, not in {min}..={max}");
    }
}

#[test]
fn every_case_and_fixture_is_metered_within_its_bands_or_refused_where_it_may_be() {
    let requests: Vec<Request> = cases().into_iter().chain(fixtures()).collect();
    assert!(requests.len() >= 50, "{} requests found", requests.len());
    for Request { id, body, expected } in &requests {
        let decision = expected["decision"].as_str().unwrap();
        let chat = match (read(body), decision) {
            (Ok(chat), "meter" | "meter_or_reject") => chat,
            (Err(_), "reject" | "meter_or_reject") => continue,
            (outcome, _) => panic!("{id}: {decision} expected, got {:?}", outcome.map(|_| "a chat")),
        };
        for tokenizer in [EXACT, LIKE] {
            let found = estimated(&chat, tokenizer, None).unwrap();
            assert_band(id, "input", found.prompt.count(), &expected["input_tokens"]);
            assert_band(id, "output", found.output.count(), &expected["output_reserve"]);
        }
        assert_flags(id, &chat, expected);
    }
}

fn assert_flags(id: &str, chat: &Chat<'_>, expected: &Value) {
    if let Some(choices) = expected["choices"].as_u64() {
        assert_eq!(chat.choices, choices, "{id}");
    }
    if let Some(stream) = expected["stream"].as_bool() {
        assert_eq!(chat.delivery == Delivery::Streamed, stream, "{id}");
    }
    match expected.get("output_cap") {
        Some(Value::Null) => assert_eq!(chat.output_cap, OutputCap::Absent, "{id}"),
        Some(cap) => assert_eq!(chat.output_cap, OutputCap::AtMost(cap.as_u64().unwrap()), "{id}"),
        None => {}
    }
    match expected["usage_option"].as_str() {
        Some("absent") => assert_eq!(chat.usage, UsageAsk::Absent, "{id}"),
        Some("asked") => assert_eq!(chat.usage, UsageAsk::Asked, "{id}"),
        Some("refused") => assert_eq!(chat.usage, UsageAsk::Refused, "{id}"),
        Some(other) => panic!("{id}: {other}"),
        None => {}
    }
}

#[test]
fn refusals_among_the_cases_say_what_is_wrong() {
    let refused: Vec<(String, BodyError)> =
        cases().iter().filter_map(|request| Some((request.id.clone(), read(&request.body).err()?))).collect();
    let found: Vec<(&str, BodyError)> = refused.iter().map(|(id, error)| (id.as_str(), *error)).collect();
    assert_eq!(
        found,
        [
            ("req-nan-infinity", BodyError::NotJson { offset: 26 }),
            ("req-deep-messages", BodyError::TooDeep),
            ("req-trailing-object", BodyError::NotJson { offset: 70 }),
            ("req-empty-body", BodyError::Empty),
        ]
    );
}

#[test]
fn text_counts_are_exact() {
    for Request { id, body, expected } in fixtures() {
        let chat = read(&body).unwrap();
        // With tools the text is a schema, whose rendering is the provider's secret.
        if id.starts_with("openai-chat-tools") {
            continue;
        }
        let framing = 3 + 3 * chat.messages;
        // The role is one token, which the fixtures do not count as text.
        let text = estimated(&chat, EXACT, None).unwrap().prompt.count() - framing - chat.messages;
        assert_eq!(text, expected["o200k_text_tokens"].as_u64().unwrap(), "{id}");
    }
}

#[test]
fn usage_is_asked_for_where_a_stream_lacks_it_and_all_other_bytes_stay() {
    for Request { id, body, .. } in cases().iter().chain(&fixtures()) {
        let Ok(chat) = read(body) else { continue };
        let rewritten = rewrite::include_usage(body, &chat);
        let wanted = chat.delivery == Delivery::Streamed && chat.usage != UsageAsk::Asked;
        assert_eq!(rewritten.is_some(), wanted, "{id}");
        let Some(rewritten) = rewritten else { continue };
        let mut before: Value = serde_json::from_slice(body).unwrap();
        if before["stream_options"].is_null() {
            before["stream_options"] = serde_json::json!({});
        }
        before["stream_options"]["include_usage"] = true.into();
        assert_eq!(serde_json::from_slice::<Value>(&rewritten).unwrap(), before, "{id}");
        assert_eq!(read(&rewritten).unwrap().usage, UsageAsk::Asked, "{id}");
    }
}
