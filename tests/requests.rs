//! Request bodies of many providers and of public bug reports, read and estimated as a whole.
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops at what it did not expect; the manifests are ours"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::Value;
use tollgate::chat::{
    BodyError, Chat, Delivery, Dialect, Framing, OutputCap, Piece, UsageAsk, parse, rewrite,
};
use tollgate::config::{
    FilterConfig, HoldRules, Media, ModelRule, RequestPath, Tokenizer, Vocabulary, Weights,
};
use tollgate::estimate::learned::Correction;
use tollgate::estimate::memo::TextMemo;
use tollgate::estimate::{Basis, Estimate, bytes, estimate};
use tollgate_budget::{OnLeaseEnd, Span, Tokens};

/// Requests in the dialects that are read, with what is expected of them.
struct Request {
    id: String,
    dialect: Dialect,
    body: Vec<u8>,
    expected: Value,
}

impl Request {
    fn read(&self) -> Result<Chat<'_>, BodyError> {
        parse(self.dialect, &self.body)
    }
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn manifest(name: &str) -> Value {
    serde_json::from_slice(&fs::read(folder(name).join("manifest.json")).unwrap()).unwrap()
}

/// What a path is read as without a policy's routes.
fn dialect(path: &str) -> Option<Dialect> {
    static DEFAULT: LazyLock<FilterConfig> =
        LazyLock::new(|| FilterConfig::from_slice(b"{\"version\":1}").unwrap());
    DEFAULT.route(&RequestPath::new(path)).and_then(Dialect::of)
}

/// Cases whose headers let the body be read at all.
fn cases() -> Vec<Request> {
    let manifest = manifest("cases");
    let readable = |case: &&Value| case["kind"] == "request" && case["headers"]["content-encoding"].is_null();
    manifest["cases"].as_array().unwrap().iter().filter(readable).filter_map(case).collect()
}

fn case(case: &Value) -> Option<Request> {
    let dialect = dialect(case["path"].as_str().unwrap())?;
    let body = fs::read(folder("cases").join(case["file"].as_str().unwrap())).unwrap();
    let body = match case.get("inflate") {
        Some(inflate) => {
            let unit = inflate["unit"].as_str().unwrap();
            let run = unit.repeat(usize::try_from(inflate["count"].as_u64().unwrap()).unwrap());
            String::from_utf8(body).unwrap().replace(inflate["marker"].as_str().unwrap(), &run).into_bytes()
        }
        None => body,
    };
    Some(Request {
        id: case["id"].as_str().unwrap().into(),
        dialect,
        body,
        expected: case["expected"].clone(),
    })
}

fn fixtures() -> Vec<Request> {
    let manifest = manifest("fixtures");
    let mut requests = Vec::new();
    for fixture in manifest["fixtures"].as_array().unwrap() {
        for request in [&fixture["request"], &fixture["request_stream"]] {
            if let Some(dialect) = dialect(request["path"].as_str().unwrap_or_default()) {
                let file = request["file"].as_str().unwrap();
                let body = fs::read(folder("fixtures").join(file)).unwrap();
                requests.push(Request {
                    id: file.into(),
                    dialect,
                    body,
                    expected: request["expected"].clone(),
                });
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
        weights: Weights::NONE,
        price: None,
    };
    let hold = HoldRules {
        max_output: Tokens::new(32_000),
        previous_response: Tokens::new(2000),
        max_share_milli: 1000,
        lease: Span::from_secs(600),
        on_lease_end: OnLeaseEnd::Charge,
    };
    (model, hold)
}

fn read(body: &[u8]) -> Result<Chat<'_>, BodyError> {
    parse(Dialect::OpenAiChat, body)
}

const DIALECTS: [Dialect; 5] = [
    Dialect::OpenAiChat,
    Dialect::OpenAiCompletions,
    Dialect::OpenAiEmbeddings,
    Dialect::OpenAiResponses,
    Dialect::AnthropicMessages,
];

fn estimated(chat: &Chat<'_>, tokenizer: Tokenizer, ceiling: Option<u64>) -> Option<Estimate> {
    let (model, hold) = case_rules(tokenizer);
    let mut memo = TextMemo::new([1; 16]);
    estimate(chat, &model, &hold, Correction::NONE, ceiling.map(Tokens::new), memo.within(0)).ok()
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
    assert!(requests.len() >= 70, "{} requests found", requests.len());
    for dialect in DIALECTS {
        assert!(requests.iter().any(|request| request.dialect == dialect), "{dialect:?}");
    }
    for request in &requests {
        let Request { id, expected, .. } = request;
        let decision = expected["decision"].as_str().unwrap();
        let chat = match (request.read(), decision) {
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
        Some(cap) if *cap == 0 => assert_eq!(chat.output_cap, OutputCap::NoOutput, "{id}"),
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
        cases().iter().filter_map(|request| Some((request.id.clone(), request.read().err()?))).collect();
    let found: Vec<(&str, BodyError)> = refused.iter().map(|(id, error)| (id.as_str(), *error)).collect();
    assert_eq!(
        found,
        [
            ("req-nan-infinity", BodyError::NotJson { offset: 27 }),
            ("req-deep-messages", BodyError::TooDeep),
            ("req-trailing-object", BodyError::NotJson { offset: 74 }),
            ("req-empty-body", BodyError::Empty),
            ("req-anthropic-batch", BodyError::Batch),
        ]
    );
}

#[test]
fn text_counts_are_exact() {
    for request in fixtures() {
        let Request { id, expected, .. } = &request;
        let chat = request.read().unwrap();
        // With tools the text is a schema, whose rendering is the provider's secret.
        if chat.pieces.iter().any(|piece| matches!(piece, Piece::Tool(_))) {
            continue;
        }
        let framing = match chat.framing {
            // The role is one token, which the fixtures do not count as text.
            Framing::Turns => 3 + (3 + 1) * chat.messages,
            Framing::Bare => 0,
        };
        let text = estimated(&chat, EXACT, None).unwrap().prompt.count() - framing;
        assert_eq!(text, expected["o200k_text_tokens"].as_u64().unwrap(), "{id}");
    }
}

#[test]
fn usage_is_asked_for_where_a_stream_lacks_it_and_all_other_bytes_stay() {
    for request in cases().iter().chain(&fixtures()) {
        let Request { id, dialect, body, .. } = request;
        let Ok(chat) = request.read() else { continue };
        let rewritten = rewrite::include_usage(body, &chat);
        let asks = matches!(dialect, Dialect::OpenAiChat | Dialect::OpenAiCompletions);
        let wanted = asks && chat.delivery == Delivery::Streamed && chat.usage != UsageAsk::Asked;
        assert_eq!(rewritten.is_some(), wanted, "{id}");
        let Some(rewritten) = rewritten else { continue };
        let mut before: Value = serde_json::from_slice(body).unwrap();
        if before["stream_options"].is_null() {
            before["stream_options"] = serde_json::json!({});
        }
        before["stream_options"]["include_usage"] = true.into();
        assert_eq!(serde_json::from_slice::<Value>(&rewritten).unwrap(), before, "{id}");
        assert_eq!(parse(*dialect, &rewritten).unwrap().usage, UsageAsk::Asked, "{id}");
    }
}

#[test]
fn no_part_of_a_body_passes_for_the_whole() {
    for Request { id, dialect, body, .. } in fixtures() {
        for length in 0..body.len() {
            let error = parse(dialect, &body[..length]).unwrap_err();
            assert!(
                matches!(error, BodyError::Empty | BodyError::NotJson { .. }),
                "{id} at {length}: {error}"
            );
        }
    }
}

#[test]
fn a_client_that_escapes_every_letter_pays_the_same() {
    for Request { id, dialect, body, .. } in fixtures() {
        let plain: Value = serde_json::from_slice(&body).unwrap();
        let escaped = escaped(&plain).to_string().replace("\\\\u", "\\u");
        let cost = |body: &[u8]| estimated(&parse(dialect, body).unwrap(), EXACT, None).unwrap();
        if plain["tools"].is_null() {
            assert_eq!(cost(escaped.as_bytes()), cost(&body), "{id}");
        }
    }
}

/// Every key and string spelled in `\u` escapes.
fn escaped(value: &Value) -> Value {
    let spell = |text: &str| text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
    match value {
        Value::String(text) => spell(text).into(),
        Value::Array(items) => items.iter().map(escaped).collect(),
        Value::Object(members) => members.iter().map(|(key, item)| (spell(key), escaped(item))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

#[test]
fn a_text_seen_before_costs_what_it_cost_the_first_time() {
    let (model, hold) = case_rules(EXACT);
    let mut memo = TextMemo::new([1; 16]);
    for round in 0..3 {
        for request in cases().iter().chain(&fixtures()) {
            let Request { id, .. } = request;
            let Ok(chat) = request.read() else { continue };
            let fresh = estimated(&chat, EXACT, None);
            let warm = estimate(&chat, &model, &hold, Correction::NONE, None, memo.within(round / 2)).ok();
            assert_eq!(warm, fresh, "{id}");
        }
    }
}

#[test]
fn the_size_of_a_body_bounds_its_text() {
    let is_medium = |piece: &Piece<'_>| matches!(piece, Piece::Image(_) | Piece::Audio | Piece::File);
    for tokenizer in [EXACT, LIKE, Tokenizer::Characters { per_token_milli: 4000 }] {
        let (model, hold) = case_rules(tokenizer);
        for request in cases().iter().chain(&fixtures()) {
            let Request { id, body, .. } = request;
            let Ok(chat) = request.read() else { continue };
            if chat.pieces.iter().any(is_medium) {
                continue;
            }
            let bound = bytes::from_size(body.len() as u64, &model, &hold);
            assert!(bound.prompt >= estimated(&chat, tokenizer, None).unwrap().prompt, "{id}");
            assert_eq!((bound.output, bound.basis), (Tokens::new(1000), Basis::Size));
        }
    }
}

fn seeded(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(2026),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Any JSON, and rather what a request is made of.
fn json() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec![
        "role",
        "user",
        "content",
        "text",
        "type",
        "name",
        "image_url",
        "url",
        "detail",
        "data",
        "source",
        "tool_calls",
        "function",
        "arguments",
        "data:image/png;base64,AA",
        "a b",
        "\u{1F600}",
        "",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..4).prop_map(|members| members
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect()),
        ]
    })
}

/// What an input may be somewhere, and what it may be nowhere.
fn inputs() -> impl Strategy<Value = Value> {
    prop_oneof![
        "\\PC{0,40}".prop_map(Value::from),
        prop::collection::vec(any::<u32>(), 0..9).prop_map(Value::from),
        prop::collection::vec(message(), 0..3).prop_map(Value::from),
        json(),
    ]
}

fn dialects() -> impl Strategy<Value = Dialect> {
    prop::sample::select(DIALECTS.to_vec())
}

fn message() -> impl Strategy<Value = Value> {
    let content = prop_oneof![
        "\\PC{0,80}".prop_map(Value::from),
        prop::collection::vec(json(), 0..3).prop_map(Value::from)
    ];
    (content, json())
        .prop_map(|(content, extra)| serde_json::json!({"role": "user", "content": content, "extra": extra}))
}

proptest! {
    #![proptest_config(seeded(512))]

    #[test]
    fn no_bytes_make_the_reader_panic(dialect in dialects(), bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(dialect, &bytes);
    }

    #[test]
    fn no_json_makes_the_reader_panic_in_any_field(dialect in dialects(), field in prop::sample::select(vec![
        "model", "messages", "tools", "functions", "response_format", "stream", "stream_options", "max_tokens",
        "n", "documents", "prediction", "prompt", "suffix", "input", "instructions", "text", "previous_response_id",
        "conversation", "background", "system", "output_config", "requests", "other",
    ]), value in json(), content in json()) {
        let body = serde_json::json!({field: value, "Messages": [{"content": content}]}).to_string();
        if let Ok(chat) = parse(dialect, body.as_bytes()) {
            prop_assert!(estimated(&chat, LIKE, None).is_some());
            let _ = estimated(&chat, LIKE, Some(10));
        }
    }

    #[test]
    fn one_message_more_never_costs_less(messages in prop::collection::vec(message(), 1..5)) {
        let body = |messages: &[Value]| serde_json::json!({"messages": messages}).to_string();
        let mut least = 0;
        for count in 0..=messages.len() {
            let body = body(&messages[..count]);
            // A generated content can be of a kind that is refused.
            let Ok(chat) = read(body.as_bytes()) else { return Ok(()) };
            let prompt = estimated(&chat, EXACT, None).unwrap().prompt.count();
            prop_assert!(count == 0 || prompt >= least + 3);
            least = prompt;
        }
    }

    #[test]
    fn no_other_reading_of_an_input_is_the_cheaper_one(
        dialect in dialects(),
        key in prop::sample::select(vec!["messages", "prompt", "suffix", "input", "system", "instructions"]),
        first in inputs(),
        second in inputs(),
    ) {
        let cost = |body: String| estimated(&parse(dialect, body.as_bytes()).ok()?, EXACT, None);
        let both = cost(format!(r#"{{"{key}":{first},"{}":{second}}}"#, key.to_uppercase()));
        let each = [&first, &second].map(|input| cost(format!(r#"{{"{key}":{input}}}"#)));
        if let [Some(first), Some(second)] = each {
            let both = both.unwrap();
            prop_assert!(both.prompt >= first.prompt.max(second.prompt));
            prop_assert!(both.output >= first.output.max(second.output));
        }
    }

    #[test]
    fn a_batch_costs_what_its_prompts_cost_one_by_one(
        prompts in prop::collection::vec(prop_oneof![
            "\\PC{0,40}".prop_map(Value::from),
            prop::collection::vec(any::<u32>(), 0..9).prop_map(Value::from),
        ], 1..6),
        n in 1_u64..4,
        suffix in "[a-z ]{0,20}",
    ) {
        let cost = |prompt: &Value| {
            let body = serde_json::json!({"prompt": prompt, "suffix": suffix, "n": n, "max_tokens": 7}).to_string();
            let chat = parse(Dialect::OpenAiCompletions, body.as_bytes()).unwrap();
            let found = estimated(&chat, EXACT, None).unwrap();
            (found.prompt.count(), found.output.count())
        };
        let each = prompts.iter().map(cost).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        prop_assert_eq!(cost(&prompts.into()), each);
    }

    #[test]
    fn a_second_reading_of_a_key_is_never_the_cheaper_one(first in message(), second in message(), caps in prop::array::uniform2(0_u32..5000)) {
        let cost = |body: String| {
            let chat = read(body.as_bytes()).ok()?;
            estimated(&chat, EXACT, None)
        };
        let both = cost(format!(
            r#"{{"messages":[{first}],"max_tokens":{},"messages":[{second}],"max_tokens":{}}}"#, caps[0], caps[1]
        ));
        let each = [(&first, caps[0]), (&second, caps[1])]
            .map(|(message, cap)| cost(format!(r#"{{"messages":[{message}],"max_tokens":{cap}}}"#)));
        if let [Some(first), Some(second)] = each {
            let both = both.unwrap();
            prop_assert!(both.prompt >= first.prompt.max(second.prompt));
            prop_assert!(both.output >= first.output.max(second.output));
        }
    }

    #[test]
    fn a_ceiling_admits_exactly_what_fits(messages in prop::collection::vec(message(), 1..4), ceiling in 0_u64..300) {
        let body = serde_json::json!({"messages": messages}).to_string();
        let Ok(chat) = read(body.as_bytes()) else { return Ok(()) };
        for tokenizer in [EXACT, LIKE, Tokenizer::Characters { per_token_milli: 4000 }] {
            let whole = estimated(&chat, tokenizer, None).unwrap();
            let within = estimated(&chat, tokenizer, Some(ceiling));
            prop_assert_eq!(within, (whole.prompt.count() <= ceiling).then_some(whole));
        }
    }

    #[test]
    fn a_rewritten_body_differs_by_the_option_only(
        options in prop_oneof![
            Just(None),
            Just(Some(Value::Null)),
            prop::collection::btree_map("[a-z_]{1,4}|include_usage", prop_oneof![Just(Value::Null), Just(false.into())], 0..3)
                .prop_map(|members| Some(members.into_iter().collect())),
        ],
        message in message(),
        first in any::<bool>(),
        blanks in "[ \n]{0,3}",
    ) {
        let option = options.as_ref().map(|options| format!("\"stream_options\"{blanks}:{blanks}{options:#}{blanks}"));
        let members = [Some(format!("\"messages\":[{message}],{blanks}\"stream\": true")), option];
        let mut members: Vec<String> = members.into_iter().flatten().collect();
        if first {
            members.reverse();
        }
        let body = format!("{blanks}{{{blanks}{}{blanks}}}{blanks}", members.join(","));
        let Ok(chat) = read(body.as_bytes()) else { return Ok(()) };
        // A generated member may be the option itself, refused as a number.
        let rewritten = rewrite::include_usage(body.as_bytes(), &chat).unwrap();

        let mut expected: Value = serde_json::from_str(&body).unwrap();
        if expected["stream_options"].is_null() {
            expected["stream_options"] = serde_json::json!({});
        }
        expected["stream_options"]["include_usage"] = true.into();
        prop_assert_eq!(serde_json::from_slice::<Value>(&rewritten).unwrap(), expected);

        let same_before = rewritten.iter().zip(body.as_bytes()).take_while(|(a, b)| a == b).count();
        let same_after = rewritten.iter().rev().zip(body.as_bytes().iter().rev()).take_while(|(a, b)| a == b).count();
        let replaced = body.len().saturating_sub(same_before + same_after);
        prop_assert!(replaced <= "false".len(), "{} bytes of the client's were replaced", replaced);
        let again = read(&rewritten).unwrap();
        prop_assert_eq!(again.usage, UsageAsk::Asked);
        prop_assert_eq!(again.pieces, chat.pieces);
        prop_assert_eq!(rewrite::include_usage(&rewritten, &read(&rewritten).unwrap()), None);
    }
}

/// Bodies that are worth damaging.
static SMALL: LazyLock<Vec<Request>> = LazyLock::new(|| {
    let small = |request: &Request| (1..10_000).contains(&request.body.len());
    cases().into_iter().chain(fixtures()).filter(small).collect()
});

proptest! {
    #![proptest_config(seeded(2048))]

    #[test]
    fn no_damage_to_a_real_body_makes_the_reader_panic(
        which in any::<prop::sample::Index>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..4), 1..6),
    ) {
        let Request { dialect, body, .. } = which.get(&SMALL);
        let mut body = body.clone();
        for (place, byte, edit) in edits {
            let at = place.index(body.len());
            match edit {
                0 => body[at] = byte,
                1 => body.insert(at, byte),
                2 if body.len() > 1 => drop(body.remove(at)),
                2 | 3 => {
                    let tail = body[at..].to_vec();
                    body.extend(tail);
                }
                _ => body[at] = b'"',
            }
        }
        if let Ok(chat) = parse(*dialect, &body) {
            prop_assert!(estimated(&chat, EXACT, None).is_some());
            if let Some(rewritten) = rewrite::include_usage(&body, &chat) {
                prop_assert_eq!(parse(*dialect, &rewritten).unwrap().pieces, chat.pieces);
            }
        }
    }
}
