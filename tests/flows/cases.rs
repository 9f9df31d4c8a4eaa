//! The requests, answers and sequences of `tests/fixtures` and `tests/cases`, through the whole filter.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tollgate::usage::Dialect;

use super::{account, launch, limit, merged, policy};
use crate::common::answers::{self, Answer};
use crate::common::cases::{self, Case};
use crate::common::cuts;
use crate::common::proxy::{Proxy, START_MS, Setup, Stream};
use crate::common::requests::{Ask, Standing, answer_bytes, answer_json, standing};
use crate::{CUT_AT_EVERY_BYTE, ProxyUnderTest};

/// The policy that the manifest's `case_config` describes, with room for everything.
fn case_policy() -> Value {
    let models = json!([{"match": "*", "tokenizer": "o200k_base", "default_output_tokens": 1000,
        "max_output_tokens": 1_000_000, "media": {"image": 1000, "audio": 1000, "file": 3000}}]);
    let changes = json!({"models": models, "hold": {"max_output_tokens": 32_000}});
    merged(policy(json!([limit("tokens", "tokens", 4_000_000_000)])), changes)
}

fn in_band(id: &str, what: &str, found: u64, band: &Value) {
    if let (Some(min), Some(max)) = (band["min"].as_u64(), band["max"].as_u64()) {
        assert!((min..=max).contains(&found), "{id}: {what} is {found}, not in {min}..={max}");
    }
}

#[test]
fn every_request_is_held_within_its_bands_or_refused_where_it_may_be() {
    let proxy = launch(&case_policy());
    let all = cases::requests();
    assert!(all.len() >= 75, "{}: the tables are found", all.len());
    for case in &all {
        for pieces in deliveries(case) {
            check_request(&proxy, case, &pieces);
        }
    }
    assert_eq!(account(&proxy, "tokens"), Standing { spent: 0, held: 0 });
}

fn deliveries(case: &Case) -> Vec<Vec<&[u8]>> {
    let body = &case.ask.body[..];
    let mut all = vec![vec![body]];
    if body.len() < 2000 {
        all.push(body.chunks(1).collect());
    }
    if !case.split.is_empty() {
        all.push(cuts::at(body, &case.split));
    }
    all.push(cuts::random(body, body.len() / 3 + 2, 5));
    all
}

fn check_request(proxy: &ProxyUnderTest, case: &Case, pieces: &[&[u8]]) {
    let Case { id, ask, expected, why, .. } = case;
    let decision = expected["decision"].as_str().unwrap();
    let stream = ask.begin(proxy, 0);
    if !ask.body.is_empty() {
        pieces.iter().for_each(|piece| stream.body(piece, false));
        stream.body(b"", true);
    }
    let seen = stream.seen();
    seen.check_framing();
    if !seen.passed() {
        assert!(["reject", "meter_or_reject"].contains(&decision), "{id}: {} ({why})", seen.client.text());
        assert!((400..500).contains(&seen.status()) && seen.untouched_upstream(), "{id}");
        assert_eq!(seen.json()["error"]["type"], json!("invalid_request_error"), "{id}");
        return;
    }
    assert!(["meter", "meter_or_reject"].contains(&decision), "{id}: passed ({why})");
    let hold = account(proxy, "tokens").held;
    stream.proxy_replies(503, "no_healthy_upstream");
    let seen = stream.seen();
    let (input, output) = (seen.recorded("estimated_input"), seen.recorded("held_output"));
    assert_eq!(hold, input + output, "{id}");
    in_band(id, "input", input, &expected["input_tokens"]);
    in_band(id, "output", output, &expected["output_reserve"]);
    check_body(id, ask, &seen.upstream.body(), expected);
}

fn check_body(id: &str, ask: &Ask, upstream: &[u8], expected: &Value) {
    if upstream == ask.body {
        return;
    }
    assert_ne!(expected["body_to_upstream"], json!("identical"), "{id}");
    let mut sent: Value = serde_json::from_slice(&ask.body).unwrap();
    if !sent["stream_options"].is_object() {
        sent["stream_options"] = json!({});
    }
    sent["stream_options"]["include_usage"] = json!(true);
    assert_eq!(serde_json::from_slice::<Value>(upstream).unwrap(), sent, "{id}");
}

/// A request in the answer's dialect whose hold is exactly what the answer's is.
fn ask_for(answer: &Answer) -> Ask {
    let (input, output) = answer.held;
    let stream = answer.wire == "sse";
    let chat = ask_of(input, output, stream);
    match answer.reader() {
        Some(Dialect::Anthropic) => chat.path("/v1/messages"),
        Some(Dialect::Responses) => {
            let mut body: Value = serde_json::from_slice(&chat.body).unwrap();
            let members = body.as_object_mut().unwrap();
            for (chats, ours) in [("messages", "input"), ("max_tokens", "max_output_tokens")] {
                let value = members.remove(chats).unwrap();
                members.insert(ours.to_owned(), value);
            }
            Ask::json(&body).path("/v1/responses")
        }
        Some(Dialect::OpenAi) | None => chat,
    }
}

/// A chat whose hold is exactly this.
fn ask_of(input: u64, output: u64, stream: bool) -> Ask {
    let words = usize::try_from(input.checked_sub(OVERHEAD).unwrap()).unwrap();
    let text = " a".repeat(words).split_off(usize::from(words > 0));
    let ask = Ask::new(output).with("messages", json!([{"role": "user", "content": text}]));
    let ask = ask.with("model", json!("any"));
    if stream {
        ask.with("stream", json!(true)).with("stream_options", json!({"include_usage": true}))
    } else {
        ask
    }
}

/// Tokens of a message without text.
const OVERHEAD: u64 = 7;

#[test]
fn every_answer_is_settled_within_its_band_and_passes_unchanged() {
    let proxy = launch(&case_policy());
    let all = answers::all();
    assert!(all.len() > 70, "the tables are found");
    for answer in &all {
        for pieces in cuttings(answer) {
            check_answer(&proxy, answer, &pieces);
        }
    }
}

fn cuttings(answer: &Answer) -> Vec<Vec<&[u8]>> {
    let bytes = &answer.bytes[..];
    let mut all = vec![vec![bytes], cuts::at(bytes, &answer.split)];
    if bytes.len() < 5000 {
        all.push(bytes.chunks(1).collect());
    }
    let step = match bytes.len() {
        short if short <= CUT_AT_EVERY_BYTE => 1,
        // No factor in common with anything in them.
        long if long < 5000 => 97,
        _ => 500_009,
    };
    all.extend((1..bytes.len()).step_by(step).map(|cut| cuts::at(bytes, &[cut])));
    all
}

fn check_answer(proxy: &ProxyUnderTest, answer: &Answer, pieces: &[&[u8]]) {
    let id = &answer.id;
    let before = account(proxy, "tokens").spent;
    let (input, output) = answer.held;
    let stream = ask_for(answer).send(proxy);
    assert_eq!(account(proxy, "tokens").held, input + output, "{id}");
    let mut head = tollgate_hostsim::Headers::from([(":status", answer.status.to_string())]);
    answer.headers.iter().for_each(|(name, value)| head.set(name, value));
    stream.answer_headers(&head, false);
    pieces.iter().for_each(|piece| stream.answer_chunk(piece, false));
    stream.answer_chunk(b"", true);
    let seen = stream.seen();
    assert_eq!((seen.status(), seen.client.body() == answer.bytes), (answer.status, true), "{id}");
    let charged = account(proxy, "tokens").spent - before;
    let (least, most) = answer.charge;
    let count = pieces.len();
    assert!(
        (least..=most).contains(&charged),
        "{id} in {count} pieces: {charged}, not in {least}..={most}: {}",
        answer.why
    );
    assert_eq!(charged, seen.recorded("input") + seen.recorded("output"), "{id}");
}

/// What is hidden under `inject`, natively and by the module, is the same.
#[test]
fn of_every_stream_only_the_usage_chunk_is_hidden_where_the_client_did_not_ask() {
    let proxy = launch(&case_policy());
    for answer in answers::openai().iter().filter(|answer| answer.wire == "sse" && answer.bytes.len() < 5000)
    {
        let head = [(":status", answer.status.to_string()), ("content-type", "text/event-stream".into())];
        let stream = Ask::stream(400).with("model", json!("any")).send(&proxy);
        stream.answer_headers(&head.into(), false);
        cuts::random(&answer.bytes, 60, 9).iter().for_each(|piece| stream.answer_chunk(piece, false));
        stream.answer_chunk(b"", true);
        let client = stream.seen().client.text();
        let whole = String::from_utf8_lossy(&answer.bytes).into_owned();
        let missing = missing(&whole, &client).unwrap_or_else(|| panic!("{}: {client}", answer.id));
        let hidden = missing.contains("\"usage\"") && !missing.contains("\"delta\"");
        assert!(missing.is_empty() || hidden, "{}: {missing}", answer.id);
    }
}

/// The one run that `client` lacks of `whole`.
fn missing(whole: &str, client: &str) -> Option<String> {
    let (whole, client) = (whole.as_bytes(), client.as_bytes());
    let same = whole.iter().zip(client).take_while(|(a, b)| a == b).count();
    let gone = whole.len().checked_sub(client.len())?;
    (whole[same + gone..] == client[same..])
        .then(|| String::from_utf8_lossy(&whole[same..same + gone]).into_owned())
}

const ALGORITHMS: [(&str, &str); 3] =
    [("fixed_window", "fixed"), ("sliding_window", "sliding"), ("token_bucket", "bucket")];

#[test]
fn every_sequence_goes_as_its_case_says() {
    let mut played = 0;
    for (name, case) in cases::sequences() {
        for (algorithm, window) in ALGORITHMS {
            let meant =
                case["algorithms"].as_array().is_none_or(|all| all.iter().any(|one| one == algorithm));
            if meant {
                Player::new(&case, window, format!("{name} on {algorithm}")).play(&case);
                played += 1;
            }
        }
    }
    assert!(played >= 60, "only {played}: are the cases there?");
}

struct Player {
    what: String,
    proxy: ProxyUnderTest,
    sliding: bool,
    /// By name: the amount, and whether all tenants share it.
    limits: BTreeMap<String, (u64, bool)>,
    default_output: u64,
    open: BTreeMap<String, Opened>,
}

struct Opened {
    stream: <ProxyUnderTest as Proxy>::Stream,
    tenant: Value,
}

impl Player {
    fn new(case: &Value, window: &str, what: String) -> Self {
        let limits = case["limits"].as_object().unwrap();
        let default_output = case["default_output"].as_u64().unwrap_or(1000);
        let span = |millis: &Value| format!("{millis}ms");
        let rules = limits.iter().map(|(name, limit)| {
            let per = if limit["per"] == "all" { json!([]) } else { json!(["tenant", "org", "user"]) };
            json!({"name": name, "per": per, "unit": "tokens", "window": {window: span(&limit["window_ms"])}, "amount": limit["tokens"]})
        });
        let attribute = |name: &str| json!({"from": [{"header": format!("x-{name}")}], "default": "none"});
        let lease = if case["hold_ttl_ms"].is_u64() { span(&case["hold_ttl_ms"]) } else { "10m".to_owned() };
        let policy = json!({
            "version": 1,
            "subject": {"tenant": attribute("tenant"), "org": attribute("org"), "user": attribute("user")},
            "store": {"local": {"shards": 8}},
            "models": [{"match": "*", "tokenizer": "o200k_base", "default_output_tokens": default_output, "max_output_tokens": 1_000_000}],
            "hold": {"max_output_tokens": case["max_output"].as_u64().unwrap_or(32_000), "lease": lease},
            "limits": rules.collect::<Vec<_>>(),
        });
        let amount = |(name, limit): (&String, &Value)| {
            (name.clone(), (limit["tokens"].as_u64().unwrap(), limit["per"] == "all"))
        };
        Self {
            proxy: ProxyUnderTest::launch(&Setup::new(&policy)),
            sliding: window == "sliding",
            limits: limits.iter().map(amount).collect(),
            default_output,
            open: BTreeMap::new(),
            what,
        }
    }

    fn play(mut self, case: &Value) {
        for (index, step) in case["steps"].as_array().unwrap().iter().enumerate() {
            let what = format!("{}, step {index}", self.what);
            // Windows begin at time 0 of the case.
            self.proxy.set_time(START_MS + step["t"].as_u64().unwrap());
            match step["op"].as_str().unwrap() {
                "request" => self.request(step, &what),
                "response" => self.response(step),
                "disconnect" => self.disconnect(step),
                "upstream_failed" => self.with_stream(step, Stream::upstream_resets),
                "expect" => self.expect(step, &what),
                "host_conflict" => self.proxy.conflict(step["times"].as_u64().unwrap()),
                // A reply of ours runs through the callbacks whenever there is one.
                "own_reply" | "note" => {}
                other => panic!("{what}: no such step: {other}"),
            }
        }
    }

    fn request(&mut self, step: &Value, what: &str) {
        let input = step["input"].as_u64().unwrap();
        let cap = step["output_cap"].as_u64().unwrap_or(self.default_output);
        let ask = ask_of(input.max(OVERHEAD), cap, false);
        let stream = from_tenant(ask, &step["tenant"]).send(&self.proxy);
        let seen = stream.seen();
        let decision = if seen.passed() {
            "admit"
        } else {
            match seen.status() {
                429 => "reject",
                403 | 413 => "never",
                other => panic!("{what}: {other}"),
            }
        };
        assert_eq!(decision, step["expect"]["decision"].as_str().unwrap(), "{what}: {}", seen.client.text());
        assert_eq!(seen.header("retry-after").is_some(), decision == "reject", "{what}");
        if let Some(most) = step["expect"]["retry_after_max_ms"].as_u64() {
            // An honest wait under a sliding window may reach two windows.
            let most = if self.sliding { 2 * most } else { most };
            assert!(seen.number("retry-after-ms") <= most, "{what}");
        }
        if seen.passed() {
            let opened = Opened { stream, tenant: step["tenant"].clone() };
            self.open.insert(step["id"].as_str().unwrap().to_owned(), opened);
        }
    }

    fn with_stream(&self, step: &Value, act: impl FnOnce(&<ProxyUnderTest as Proxy>::Stream)) {
        if let Some(opened) = self.open.get(step["id"].as_str().unwrap()) {
            act(&opened.stream);
        }
    }

    fn response(&self, step: &Value) {
        let status = step["status"].as_u64().unwrap_or(200);
        let given = &step["usage"];
        let usage = given
            .is_object()
            .then(|| json!({"prompt_tokens": given["input"], "completion_tokens": given["output"]}));
        let text = visible(step["observed_output"].as_u64().unwrap_or(3));
        let body = json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}], "usage": usage});
        self.with_stream(step, |stream| match status {
            200 => answer_json(stream, &body),
            _ => answer_bytes(stream, u16::try_from(status).unwrap(), &[], b"{\"error\":{}}"),
        });
    }

    /// A client that saw nothing left before the answer.
    fn disconnect(&self, step: &Value) {
        let observed = step["observed_output"].as_u64().unwrap_or(0);
        self.with_stream(step, |stream| {
            if observed > 0 && !stream.seen().ended {
                let head = [(":status", "200"), ("content-type", "text/event-stream")];
                stream.answer_headers(&head.into(), false);
                stream.answer_chunk(crate::common::requests::delta(&visible(observed)).as_bytes(), false);
            }
            stream.client_leaves();
        });
    }

    fn expect(&self, step: &Value, what: &str) {
        let named =
            step["limit"].as_str().map_or_else(|| self.limits.keys().next().unwrap().clone(), str::to_owned);
        let (amount, shared) = self.limits[&named];
        let seen = from_tenant(Ask::get("/tollgate/budget"), &step["tenant"]).send(&self.proxy).seen();
        let accounts = seen.json();
        let own = accounts["accounts"]
            .as_array()
            .unwrap()
            .iter()
            .find(|own| own["limit"] == named.as_str())
            .unwrap()
            .clone();
        let part = |name: &str| own[name].as_i64().unwrap();
        let pays = |opened: &&Opened| shared || opened.tenant == step["tenant"];
        let charged: u64 = self.open.values().filter(pays).map(|opened| charged(&opened.stream)).sum();
        let available = i64::try_from(amount).unwrap() - part("spent") - part("held");
        for (name, found) in
            [("held", part("held")), ("charged", i64::try_from(charged).unwrap()), ("available", available)]
        {
            let expected = &step[name];
            if expected.is_null() {
                continue;
            }
            let [min, max] = ["min", "max"].map(|end| {
                let end = if expected.is_object() { &expected[end] } else { expected };
                end.as_i64().unwrap()
            });
            assert!((min..=max).contains(&found), "{what}: {name} is {found}, expected {expected}");
        }
    }
}

/// What the access log says that a request cost.
fn charged(stream: &impl Stream) -> u64 {
    let seen = stream.seen();
    if seen.ended { seen.recorded("input") + seen.recorded("output") } else { 0 }
}

/// Text of so many tokens.
fn visible(tokens: u64) -> String {
    " a".repeat(usize::try_from(tokens).unwrap())
}

fn from_tenant(ask: Ask, tenant: &Value) -> Ask {
    match tenant {
        Value::Null => ask,
        Value::String(name) => ask.header("x-tenant", name),
        Value::Object(parts) => parts
            .iter()
            .fold(ask, |ask, (name, value)| ask.header(&format!("x-{name}"), value.as_str().unwrap())),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => panic!("no tenant: {tenant}"),
    }
}

#[test]
fn a_chat_of_the_tables_holds_what_it_says() {
    let proxy = launch(&case_policy());
    for (input, output) in [(7, 1), (8, 2), (40, 400)] {
        let stream = ask_of(input, output, true).send(&proxy);
        assert_eq!(standing(&proxy, "tokens", "").held, input + output);
        stream.upstream_resets();
    }
}
