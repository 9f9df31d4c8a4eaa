//! What cannot be metered gets a clear answer, costs nothing, and the worker serves the next request.

use serde_json::{Value, json};

use super::{account, held, launch, limit, merged, policy, spent, tokens};
use crate::ProxyUnderTest;
use crate::common::proxy::{Proxy, Seen, Setup, Stream};
use crate::common::requests::{Ask, PROMPT, answer};

fn expect(seen: &Seen, status: u16, code: &str) {
    assert_eq!(seen.status(), status, "{code}: {}", seen.client.text());
    assert!(seen.untouched_upstream() && seen.ended, "{code}");
    let error = &seen.json()["error"];
    assert_eq!((&error["type"], &error["code"]), (&json!("invalid_request_error"), &json!(code)));
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()));
    assert_eq!(
        (seen.header("retry-after"), seen.header("content-type")),
        (None, Some("application/json".into()))
    );
    let details =
        if code == "upgrade" { "tollgate_upgrade".to_owned() } else { format!("tollgate_body_{code}") };
    assert_eq!(seen.details, Some(details));
    assert_eq!(seen.record()["decision"], "bad_request");
    seen.check_framing();
}

/// Nothing was charged, and the worker goes on.
fn expect_unharmed(proxy: &ProxyUnderTest) {
    assert_eq!(account(proxy, "tokens"), spent(0));
    let stream = Ask::new(10).send(proxy);
    assert_eq!(account(proxy, "tokens"), held(PROMPT + 10));
    answer(&stream, 0, 0);
}

fn nested(levels: usize) -> String {
    format!("{{\"model\":\"gpt-4o\",\"messages\":{}{}}}", "[".repeat(levels), "]".repeat(levels))
}

#[test]
fn every_kind_of_body_that_is_not_json_is_refused_as_such() {
    let proxy = launch(&tokens(100_000));
    let bodies: [Vec<u8>; 12] = [
        b"hello".to_vec(),
        b"{".to_vec(),
        b"{\"model\":\"gpt-4o\",\"messages\":[".to_vec(),
        b"{\"model\":\"gpt-4o\",\"messages\":[]}}".to_vec(),
        b"{\"model\":\"gpt-4o\",\"messages\":[]} trailing".to_vec(),
        b"{\"model\":\"gpt-4o\",\"messages\":[],\"temperature\":NaN}".to_vec(),
        b"{\"model\":\"gpt-4o\",\"messages\":[],\"max_tokens\":Infinity}".to_vec(),
        b"{\"model\":\"gpt-4o\",\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}".to_vec(),
        b"{\"model\":\"gpt-4o\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]}".to_vec(),
        b"\0\0\0\0".to_vec(),
        b"   \n ".to_vec(),
        b"{'model': 'gpt-4o'}".to_vec(),
    ];
    for body in bodies {
        let what = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        let seen = Ask::raw(body).send(&proxy).seen();
        let code = seen.json()["error"]["code"].as_str().unwrap_or_else(|| panic!("{what}")).to_owned();
        assert!(["not_json", "missing"].contains(&code.as_str()), "{what}: {code}");
        expect(&seen, 400, &code);
    }
    assert_eq!(proxy.metric_sum("tollgate_bodies_refused_total"), 12);
    expect_unharmed(&proxy);
}

#[test]
fn nonsense_where_something_else_belongs_is_refused_as_such() {
    let proxy = launch(&tokens(100_000));
    let base = json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi"}]});
    let changes = [
        json!({"messages": "Hi"}),
        json!({"messages": {"role": "user"}}),
        json!({"messages": [1, 2]}),
        json!({"messages": [{"role": "user", "content": 7}]}),
        json!({"max_tokens": "many"}),
        json!({"max_tokens": [5]}),
        json!({"n": "2x"}),
        json!({"model": 5}),
        json!({"tools": "all"}),
    ];
    for change in changes {
        let seen = Ask::json(&merged(base.clone(), change.clone())).send(&proxy).seen();
        assert_eq!(seen.status(), 400, "{change}");
        expect(&seen, 400, "nonsense");
    }
    let nested = nested(100_000);
    for body in ["[]", "1", "\"text\"", "null", &nested] {
        expect(&Ask::raw(body).send(&proxy).seen(), 400, "nonsense");
    }
    expect_unharmed(&proxy);
}

#[test]
fn odd_but_readable_bodies_are_metered() {
    let proxy = launch(&tokens(1_000_000));
    let bodies = [
        "\u{feff}{\"model\":\"gpt-4o\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}".to_owned(),
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}".to_owned(),
        "{\"model\":\"gpt-4o\",\"messages\":[{\"role\":\"user\",\"content\":null}]}".to_owned(),
        "{\"model\":\"gpt-4o\",\"messages\":[],\"max_tokens\":1.5e3}".to_owned(),
        "{\"model\":\"gpt-4o\",\"messages\":[],\"max_tokens\":null,\"n\":null}".to_owned(),
        "{\"model\":\"gpt-4o\",\"messages\":[],\"max_tokens\":-5,\"n\":-1}".to_owned(),
        "{\"model\":\"\u{1f600}\",\"messages\":[{\"role\":\"user\",\"content\":\"\\u0000\"}]}".to_owned(),
    ];
    for body in bodies {
        let seen = Ask::raw(body.clone()).send(&proxy).seen();
        assert!(seen.passed(), "{body}: {}", seen.client.text());
        assert_eq!(seen.upstream.text(), body);
    }
}

#[test]
fn a_body_is_too_large_by_its_announced_length_or_by_what_comes() {
    let proxy = launch(&merged(tokens(1000), json!({"body": {"max": 2000}})));
    let large = Ask::raw(vec![b' '; 2001]);
    let seen = large.begin(&proxy, 0).seen();
    expect(&seen, 413, "too_large");
    let growing = large.unannounced().begin(&proxy, 0);
    growing.body(&[b' '; 2000], false);
    assert!(growing.seen().held);
    growing.body(b" ", false);
    expect(&growing.seen(), 413, "too_large");
    let text = Ask::new(1).body;
    let mut just = vec![b' '; 2000 - text.len()];
    just.extend(text);
    assert!(Ask::raw(just).send(&proxy).seen().passed());
    assert_eq!(proxy.metric("tollgate_bodies_refused_total;reason=too_large"), 2);
}

#[test]
fn a_length_that_no_integer_holds_is_too_large() {
    let proxy = launch(&tokens(1000));
    let huge = Ask::new(10).unannounced().header("content-length", "99999999999999999999999999");
    expect(&huge.begin(&proxy, 0).seen(), 413, "too_large");
    expect_unharmed(&proxy);
}

#[test]
fn compressed_bodies_are_refused_before_they_are_read() {
    let proxy = launch(&tokens(1000));
    for coding in ["gzip", "br", "zstd", "identity, gzip", "GZIP", "x-nobody-knows"] {
        let seen = Ask::new(10).header("content-encoding", coding).begin(&proxy, 0).seen();
        expect(&seen, 415, "compressed");
    }
    assert!(Ask::new(10).header("content-encoding", "identity").send(&proxy).seen().passed());
}

#[test]
fn a_request_without_a_body_is_refused() {
    let proxy = launch(&tokens(1000));
    expect(&Ask::raw("").send(&proxy).seen(), 400, "missing");
    let empty = Ask::raw("").unannounced().header("transfer-encoding", "chunked");
    let stream = proxy.open(0, &empty.head(), false);
    stream.body(b"", true);
    expect(&stream.seen(), 400, "missing");
    let trailers = proxy.open(0, &empty.head(), false);
    trailers.request_trailers();
    expect(&trailers.seen(), 400, "missing");
    expect_unharmed(&proxy);
}

#[test]
fn upgrades_on_a_metered_path_are_refused_unless_the_policy_passes_them() {
    let websocket =
        Ask::get("/v1/chat/completions").header("upgrade", "websocket").header("connection", "upgrade");
    let tunnel =
        Ask { method: "CONNECT".into(), ..Ask::get("/v1/chat/completions") }.header(":protocol", "websocket");
    let proxy = launch(&tokens(1000));
    let passing = launch(&merged(tokens(1000), json!({"upgrades": "pass"})));
    for ask in [websocket, tunnel] {
        expect(&proxy.open(0, &ask.head(), false).seen(), 400, "upgrade");
        let seen = passing.open(0, &ask.head(), false).seen();
        assert_eq!(seen.upstream.headers, Some(ask.head()));
    }
    // Some upstream may answer the request that it also is.
    let both = Ask::new(100).header("upgrade", "websocket").header("connection", "upgrade");
    expect(&passing.open(0, &both.head(), false).seen(), 400, "upgrade");
}

#[test]
fn what_is_not_metered_passes_untouched() {
    let proxy = launch(&tokens(0));
    let mut asks = vec![Ask::get("/v1/chat/completions").header("accept-encoding", "gzip")];
    for path in ["/", "/v1/models", "/v1/chat/completions/x", "/v1/chat/completionsx", "/v1/audio/speech"] {
        asks.push(Ask::raw("not json").path(path).header("content-encoding", "gzip"));
    }
    asks.push(Ask { method: "DELETE".into(), ..Ask::get("/v1/chat/completions") });
    for ask in asks {
        let stream = ask.send(&proxy);
        let seen = stream.seen();
        assert!(seen.passed() && !seen.held, "{ask:?}");
        assert_eq!(
            (seen.upstream.headers.clone(), seen.upstream.body()),
            (Some(ask.head()), ask.body.clone())
        );
        stream.answer_headers(&[(":status", "200"), ("x-ratelimit-limit-tokens", "5")].into(), false);
        stream.answer_chunk(b"{\"usage\":{\"prompt_tokens\":9}}", true);
        let seen = stream.seen();
        assert_eq!(seen.header("x-ratelimit-limit-tokens").as_deref(), Some("5"));
        assert_eq!((seen.client.text().as_str(), seen.record), ("{\"usage\":{\"prompt_tokens\":9}}", None));
    }
    assert_eq!(proxy.metrics().values().sum::<u64>(), 0);
}

#[test]
fn a_metered_path_is_metered_with_a_query_behind_it_and_a_prefix_before_it() {
    let proxy = launch(&tokens(0));
    for path in ["/v1/chat/completions?x=/v1/models", "/openai/v1/chat/completions", "/v1/chat/completions?"]
    {
        assert_eq!(Ask::new(1).path(path).send(&proxy).seen().status(), 403, "{path}");
    }
}

#[test]
fn request_trailers_end_a_body() {
    let proxy = launch(&tokens(1000));
    let ask = Ask::stream(100).unannounced();
    let stream = ask.begin(&proxy, 0);
    stream.body(&ask.body, false);
    assert!(stream.seen().held);
    stream.request_trailers();
    let seen = stream.seen();
    assert!(seen.passed() && seen.upstream.trailers.is_some());
    seen.check_framing();
    assert_eq!(account(&proxy, "tokens"), held(PROMPT + 100));
    let poor = Ask::new(950).unannounced();
    let stream = poor.begin(&proxy, 0);
    stream.body(&poor.body, false);
    stream.request_trailers();
    assert_eq!(stream.seen().status(), 429);
    assert!(stream.seen().untouched_upstream());
}

#[test]
fn a_body_in_pieces_is_the_same_body() {
    let proxy = launch(&tokens(1000));
    let ask = Ask::stream(100);
    let whole = ask.send(&proxy).seen().upstream;
    for size in [1, 7] {
        let stream = ask.begin(&proxy, 0);
        for piece in ask.body.chunks(size) {
            assert!(stream.seen().untouched_upstream());
            stream.body(piece, false);
        }
        stream.body(b"", true);
        let upstream = stream.seen().upstream;
        assert_eq!((upstream.body(), upstream.headers), (whole.body(), whole.headers.clone()));
        stream.client_leaves();
    }
}

#[test]
fn a_body_beyond_the_hosts_own_limit_is_the_hosts_to_refuse_and_costs_nothing() {
    let setup = Setup { body_limit: 4096, ..Setup::new(&tokens(100_000)) };
    let proxy = ProxyUnderTest::launch(&setup);
    let text = "word ".repeat(2000);
    let ask = Ask::new(10).with("messages", json!([{"role": "user", "content": text}]));
    let stream = ask.begin(&proxy, 0);
    ask.body.chunks(1000).for_each(|piece| stream.body(piece, false));
    let seen = stream.seen();
    assert_eq!((seen.status(), seen.details.as_deref()), (413, Some("request_payload_too_large")));
    expect_unharmed(&proxy);
}

/// The counting of a big prompt is what must be spared; that it is shows in the fuel, and here in that a
/// caller out of requests is refused by them although its prompt would never fit.
#[test]
fn limits_on_requests_are_looked_at_before_a_big_prompt_is_counted() {
    let proxy = launch(&policy(json!([limit("tokens", "tokens", 1000), limit("requests", "requests", 1)])));
    let text = "word ".repeat(20_000);
    let big = Ask::new(10).with("messages", json!([{"role": "user", "content": text}]));
    let seen = big.send(&proxy).seen();
    assert_eq!(seen.json()["error"]["code"], json!("request_never_fits"));
    assert!(Ask::new(10).send(&proxy).seen().passed());
    let seen = big.send(&proxy).seen();
    assert_eq!((seen.status(), seen.record()["limit"].clone()), (429, json!("requests")));
    assert_eq!(seen.record()["estimated_input"], Value::Null);
}
