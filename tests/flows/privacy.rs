//! No prompt, completion or credential reaches a log, a metric, the access log, the shared memory or an
//! answer of ours. The tenant's own name may stand in the access log; that is what it is for.

use serde_json::json;

use super::{limit, merged, policy};
use crate::ProxyUnderTest;
use crate::common::proxy::{Proxy, Seen, Setup, Stream};
use crate::common::requests::{
    Ask, DONE, answer, answer_bytes, answer_json, begin_events, delta, event, send_events, usage_event,
};

const PROMPT: &str = "marker-prompt-4711";
const SYSTEM: &str = "marker-system-4711";
const TOOL: &str = "marker-tool-4711";
const COMPLETION: &str = "marker-completion-4711";
const KEY: &str = "marker-key-4711";
const COOKIE: &str = "marker-cookie-4711";
const TENANT: &str = "named-tenant";

fn keyed(ask: Ask) -> Ask {
    ask.header("authorization", format!("Bearer {KEY}"))
        .header("x-api-key", KEY)
        .header("cookie", COOKIE)
        .header("x-user-id", COOKIE)
        .tenant(TENANT)
}

fn secret_chat(cap: u64) -> Ask {
    keyed(Ask::new(cap)).with("messages", json!([
        {"role": "system", "content": SYSTEM},
        {"role": "user", "name": PROMPT, "content": [{"type": "text", "text": PROMPT}]},
        {"role": "assistant", "content": null, "tool_calls": [{"id": PROMPT, "function": {"name": TOOL, "arguments": PROMPT}}]},
    ])).with("tools", json!([{"type": "function", "function": {"name": TOOL, "parameters": {"description": PROMPT}}}]))
    .with("user", json!(PROMPT))
}

/// One request of every API beside chat completions, each with its marker in every place that is read.
fn of_other_apis() -> [(Ask, serde_json::Value); 4] {
    let ask = |path: &str, body: serde_json::Value| keyed(Ask::json(&body)).path(path);
    let text = json!([{"type": "text", "text": PROMPT}, {"type": "image", "source": {"type": "base64", "data": PROMPT}}]);
    let said = json!([{"type": "message", "content": [{"type": "output_text", "text": COMPLETION}]}]);
    [
        (
            ask(
                "/v1/completions",
                json!({"model": "gpt-4o", "prompt": [PROMPT], "suffix": SYSTEM, "max_tokens": 10}),
            ),
            json!({"choices": [{"text": COMPLETION}], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}),
        ),
        (
            ask(
                "/v1/embeddings",
                json!({"model": "text-embedding-3-small", "input": [PROMPT], "user": PROMPT}),
            ),
            json!({"data": [{"embedding": COMPLETION}], "usage": {"prompt_tokens": 9}}),
        ),
        (
            ask(
                "/v1/responses",
                json!({"model": "gpt-4o", "instructions": SYSTEM, "max_output_tokens": 10,
                "input": [{"role": "user", "content": PROMPT}, {"type": "function_call_output", "output": TOOL}]}),
            ),
            json!({"output": said, "usage": {"input_tokens": 9, "output_tokens": 3}}),
        ),
        (
            ask(
                "/v1/messages",
                json!({"model": "claude-3", "system": [{"type": "text", "text": SYSTEM}], "max_tokens": 10,
                "messages": [{"role": "user", "content": text}], "tools": [{"name": TOOL, "description": PROMPT}]}),
            ),
            json!({"content": [{"type": "text", "text": COMPLETION}], "usage": {"input_tokens": 9, "output_tokens": 3}}),
        ),
    ]
}

fn run_other_apis(proxy: &ProxyUnderTest) -> Vec<Seen> {
    let mut all = Vec::new();
    for (ask, said) in of_other_apis() {
        let whole = ask.send(proxy);
        answer_json(&whole, &said);
        let unreported = ask.clone().with("stream", json!(true)).send(proxy);
        begin_events(&unreported);
        send_events(&unreported, &[&event(&json!({"type": "error", "error": {"message": COMPLETION}}))]);
        let failing = ask.send(proxy);
        answer_bytes(&failing, 500, &[], said.to_string().as_bytes());
        let seen = [whole.seen(), unreported.seen(), failing.seen()];
        assert!(seen.iter().all(|seen| !seen.untouched_upstream()), "{} was not let through", ask.path);
        all.extend(seen);
        for broken in [PROMPT.to_owned(), format!("{{\"model\": \"{PROMPT}\", \"{PROMPT}\": {PROMPT}}}")] {
            all.push(Ask { body: broken.into_bytes(), ..ask.clone() }.send(proxy).seen());
        }
        let nameless = Ask { headers: vec![("cookie".to_owned(), COOKIE.into())], ..ask.clone() };
        all.push(nameless.send(proxy).seen());
        let costly = [("max_tokens", 90_000), ("max_output_tokens", 90_000)];
        all.push(
            costly
                .into_iter()
                .fold(ask, |ask, (cap, tokens)| ask.with(cap, json!(tokens)))
                .send(proxy)
                .seen(),
        );
    }
    all
}

/// Every kind of refusal, error and answer there is.
fn run(proxy: &ProxyUnderTest) -> Vec<Seen> {
    let mut all: Vec<Seen> = Vec::new();
    let whole = secret_chat(10).send(proxy);
    answer(&whole, 9, 3);
    let stream = secret_chat(10).with("stream", json!(true)).send(proxy);
    begin_events(&stream);
    send_events(&stream, &[&delta(COMPLETION), &usage_event(9, 3), DONE]);
    let unreported = secret_chat(10).with("stream", json!(true)).send(proxy);
    begin_events(&unreported);
    unreported.answer_chunk(delta(&COMPLETION.repeat(50)).as_bytes(), false);
    unreported.upstream_resets();
    let failing = secret_chat(10).with("stream", json!(true)).send(proxy);
    begin_events(&failing);
    send_events(
        &failing,
        &["data: {marker-completion-4711\n\n", &event(&json!({"error": {"message": COMPLETION}}))],
    );
    all.extend([whole.seen(), stream.seen(), unreported.seen(), failing.seen()]);

    let refused = [
        secret_chat(90_000),
        secret_chat(10).with("messages", json!([{"role": "user", "content": PROMPT.repeat(9000)}])),
        keyed(Ask::raw(format!("{{\"model\": {PROMPT}"))),
        keyed(Ask::raw(format!(
            "{{\"model\": \"gpt-4o\", \"messages\": [], \"{PROMPT}\": \"\\ud800{PROMPT}\"}}"
        ))),
        keyed(Ask::raw(format!("\"{PROMPT}\""))),
        secret_chat(10).with("messages", json!(PROMPT)),
        secret_chat(10).with("max_tokens", json!(PROMPT)),
        secret_chat(10).with("n", json!(PROMPT)),
        secret_chat(10).header("content-encoding", KEY),
        keyed(Ask::get("/v1/chat/completions")).header("upgrade", KEY),
    ];
    all.extend(refused.iter().map(|ask| ask.send(proxy).seen()));
    let nameless = Ask { headers: Vec::new(), ..secret_chat(10) }.header("cookie", COOKIE);
    all.push(nameless.send(proxy).seen());
    while all.last().is_none_or(|seen| seen.client.status() != Some(429)) {
        let seen = secret_chat(300).send(proxy).seen();
        all.push(seen);
    }
    all.push(keyed(Ask::get("/tollgate/budget")).send(proxy).seen());
    proxy.conflict(10_000);
    all.push(secret_chat(10).send(proxy).seen());
    proxy.conflict(0);
    let key = "tollgate/default/0";
    let shard = proxy.shared()[key].clone();
    proxy.put_shared(key, b"broken");
    all.push(secret_chat(10).send(proxy).seen());
    proxy.put_shared(key, &shard);
    all
}

#[test]
fn no_marker_is_found_anywhere_but_where_it_belongs() {
    let subject = json!({
        "tenant": {"from": [{"header": "x-tenant-id"}], "default": "anonymous"},
        "key": {"from": [{"bearer": "sha256"}], "required": true},
        "other": {"from": [{"header": "x-api-key", "as": "sha256"}], "default": "-"},
        "user": {"from": [{"header": "x-user-id"}], "default": "-"},
    });
    let per = json!({"per": ["tenant", "key", "other", "user"]});
    let limits = json!([merged(limit("tokens", "tokens", 3000), per), limit("requests", "requests", 1000)]);
    let policy = merged(policy(limits), json!({"subject": subject, "store": {"local": {"shards": 1}}}));
    let proxy = ProxyUnderTest::launch(&Setup::new(&policy));
    let mut all = run_other_apis(&proxy);
    all.extend(run(&proxy));
    let statuses: Vec<u16> = all.iter().filter_map(|seen| seen.client.status()).collect();
    for status in [200, 400, 401, 413, 415, 429, 503] {
        assert!(statuses.contains(&status), "no {status}: {statuses:?}");
    }
    for seen in &all {
        search("access log", seen.record.as_deref().unwrap_or_default().as_bytes());
        search("details", seen.details.as_deref().unwrap_or_default().as_bytes());
        if seen.untouched_upstream() {
            search("an answer of ours", &seen.client.body());
            search("its headers", format!("{:?}", seen.client.headers).as_bytes());
        }
    }
    proxy.log().iter().for_each(|line| search("log", line.as_bytes()));
    proxy.metrics().keys().for_each(|name| search("metrics", name.as_bytes()));
    for (key, value) in proxy.shared() {
        search("shared key", key.as_bytes());
        search("shared value", &value);
        assert!(!contains(&value, TENANT.as_bytes()) && !contains(key.as_bytes(), TENANT.as_bytes()));
    }
    assert!(all.iter().any(|seen| seen.record.as_ref().is_some_and(|record| record.contains(TENANT))));
}

fn search(place: &str, bytes: &[u8]) {
    for marker in ["marker-", "4711", KEY, COOKIE] {
        assert!(
            !contains(bytes, marker.as_bytes()),
            "{marker} in {place}: {}",
            String::from_utf8_lossy(bytes)
        );
    }
}

fn contains(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|window| window == needle)
}
