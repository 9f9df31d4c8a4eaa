//! Who pays: attributes from headers and keys, tiers, and names that must not reach into another's account.

use serde_json::json;

use super::{account, held, launch, limit, merged, policy, spent, tokens};
use crate::common::proxy::{Proxy, Stream};
use crate::common::requests::{Ask, PROMPT, answer, standing};

#[test]
fn a_required_attribute_that_is_missing_is_answered_401() {
    let subject =
        json!({"tenant": {"from": [{"header": "x-tenant-id"}, {"bearer": "sha256"}], "required": true}});
    let proxy = launch(&merged(tokens(1000), json!({"subject": subject})));
    for ask in [Ask::new(10), Ask::new(10).tenant(" "), Ask::get("/tollgate/budget")] {
        let seen = ask.send(&proxy).seen();
        assert_eq!((seen.status(), seen.details.as_deref()), (401, Some("tollgate_unidentified")));
        assert!(seen.untouched_upstream());
        let error = &seen.json()["error"];
        assert_eq!(
            (&error["type"], &error["code"]),
            (&json!("authentication_error"), &json!("missing_identity"))
        );
        assert!(error["message"].as_str().unwrap().contains("`tenant`"));
    }
    for ask in [Ask::new(10).tenant("acme"), Ask::new(10).header("authorization", "Bearer k")] {
        assert!(ask.send(&proxy).seen().passed());
    }
}

#[test]
fn who_speaks_anthropics_api_is_refused_in_its_shape() {
    let subject = json!({"tenant": {"from": [{"header": "x-tenant-id"}], "required": true}});
    let routes = json!([{"path": "/v1/messages/count_tokens", "api": "request_only"}]);
    let proxy = launch(&merged(tokens(1000), json!({"subject": subject, "routes": routes})));
    let count = Ask::new(10).path("/v1/messages/count_tokens");
    for ask in [count.clone(), Ask::get("/tollgate/budget")] {
        let seen = ask.clone().header("anthropic-version", "2023-06-01").send(&proxy).seen();
        assert_eq!((seen.status(), &seen.json()["type"]), (401, &json!("error")));
        assert_eq!(seen.json()["error"]["type"], json!("authentication_error"));
        assert_eq!(ask.send(&proxy).seen().json().get("type"), None, "without it in OpenAI's");
    }
}

const CLAIMS: &str = "envoy.filters.http.jwt_authn.jwt_payload";

/// As Envoy puts a map with one entry, a list and nothing into bytes.
const NO_NAMES: [&[u8]; 3] =
    [b"\x01\0\0\0\x01\0\0\0\x01\0\0\0k\0v\0", b"\x02\0\0\0\x01\0\0\0\x01\0\0\0a\0b\0", b""];

#[test]
fn a_claim_that_a_filter_in_front_has_verified_names_the_tenant() {
    let claim = |name: &str| json!({"metadata": ["envoy.filters.http.jwt_authn", "jwt_payload", name]});
    let subject = json!({
        "tenant": {"from": [claim("org_id"), {"header": "x-tenant-id"}], "required": true},
        "tier": {"from": [claim("tier")], "default": "free"},
    });
    let amounts = json!({"free": 500, "paid": 1000});
    let limit = merged(limit("tokens", "tokens", 0), json!({"amount": amounts}));
    let proxy = launch(&merged(policy(json!([limit])), json!({"subject": subject})));
    let org = format!("{CLAIMS}.org_id");
    let claims = |value: &[u8]| Ask::new(400).metadata(&org, value);
    let seen = claims(b"acme").tenant("forged").send(&proxy).seen();
    assert_eq!((seen.passed(), seen.upstream.header("x-tenant-id").as_deref()), (true, Some("forged")));
    assert_eq!(claims(b"acme").tenant("another").send(&proxy).seen().status(), 429, "the claim comes first");
    assert!(claims(b"other").metadata(&format!("{CLAIMS}.tier"), "paid").send(&proxy).seen().passed());
    assert!(claims(b"other").metadata(&format!("{CLAIMS}.tier"), "paid").send(&proxy).seen().passed());
    let number = claims(&42_f64.to_le_bytes()).send(&proxy);
    assert!(number.seen().passed());
    answer(&number, 9, 1);
    assert_eq!(number.seen().record()["tenant"], json!("42"));
    for nothing in NO_NAMES {
        assert_eq!(claims(nothing).send(&proxy).seen().status(), 401, "{nothing:?}");
        assert!(Ask::new(1).metadata(&org, nothing).tenant("by-header").send(&proxy).seen().passed());
    }
    assert_eq!(proxy.metric("tollgate_unknown_tiers_total"), 0);
    let long = vec![b'x'; 4096];
    assert!(claims(&long).send(&proxy).seen().passed());
    let standing = Ask::get("/tollgate/budget").metadata(&org, &long).send(&proxy).seen();
    assert_eq!(standing.json()["accounts"][0]["held"], json!(PROMPT + 400));
}

#[test]
fn tenants_have_accounts_of_their_own_whatever_bytes_name_them() {
    let proxy = launch(&tokens(500));
    let long = |end: &str| "x".repeat(4096) + end;
    let names: Vec<Vec<u8>> = vec![
        b"acme".to_vec(),
        b"acme:x".to_vec(),
        b"acme{x}".to_vec(),
        b"acme\nx".to_vec(),
        b"acme\0".to_vec(),
        b"\xff\xfe".to_vec(),
        "caf\u{e9}".into(),
        "cafe\u{301}".into(),
        long("a").into(),
        long("b").into(),
        b"anonymous:".to_vec(),
        b"tollgate/default/0".to_vec(),
    ];
    for name in &names {
        assert!(Ask::new(400).tenant(name).send(&proxy).seen().passed(), "{name:?}");
        assert_eq!(Ask::new(400).tenant(name).send(&proxy).seen().status(), 429, "{name:?}");
    }
    assert_eq!(account(&proxy, "tokens"), spent(0), "the nameless one is another");
}

#[test]
fn attributes_that_look_alike_when_joined_make_different_accounts() {
    let subject = json!({
        "org": {"from": [{"header": "x-org"}], "default": "-"},
        "user": {"from": [{"header": "x-user"}], "default": "-"},
    });
    let limit = merged(limit("tokens", "tokens", 500), json!({"per": ["org", "user"]}));
    let proxy = launch(&merged(policy(json!([limit])), json!({"subject": subject})));
    for (org, user) in [("a:b", "c"), ("a", "b:c"), ("a:b:c", ""), ("", "a:b:c"), ("a\0b", "c")] {
        let ask = Ask::new(400).header("x-org", org).header("x-user", user);
        assert!(ask.send(&proxy).seen().passed(), "{org} {user}");
        assert_eq!(ask.send(&proxy).seen().status(), 429, "{org} {user}");
    }
}

#[test]
fn a_header_to_be_stripped_does_not_go_upstream() {
    let subject =
        json!({"tenant": {"from": [{"header": "x-tenant-id", "strip": true}], "default": "anonymous"}});
    let routes = json!([{"path": "/v1/chat/completions", "api": "openai_chat"}, {"path": "/v1/count", "api": "request_only"}]);
    let proxy = launch(&merged(tokens(1000), json!({"subject": subject, "routes": routes})));
    for path in ["/v1/chat/completions", "/v1/count"] {
        let seen = Ask::new(10).path(path).tenant("acme").header("x-other", "stays").send(&proxy).seen();
        assert!(seen.passed());
        assert_eq!(seen.upstream.header("x-tenant-id"), None, "{path}");
        assert_eq!(seen.upstream.header("x-other").as_deref(), Some("stays"));
    }
}

#[test]
fn each_tier_has_its_amount_and_an_unknown_one_the_defaults() {
    let amounts = json!({"free": 100, "paid": 1000});
    let proxy = launch(&policy(json!([merged(limit("tokens", "tokens", 0), json!({"amount": amounts}))])));
    let limit_of = |tier: &str| {
        let stream = Ask::new(10).tenant(tier).header("x-tenant-tier", tier).send(&proxy);
        answer(&stream, 9, 1);
        stream.seen().number("x-tokenlimit-limit")
    };
    assert_eq!((limit_of("free"), limit_of("paid")), (100, 1000));
    assert_eq!(proxy.metric("tollgate_unknown_tiers_total"), 0);
    assert_eq!(limit_of("gold;plated"), 100);
    assert_eq!(proxy.metric("tollgate_unknown_tiers_total"), 1);
}

#[test]
fn a_model_that_the_path_names_is_the_one_that_counts() {
    let only = merged(limit("tokens", "tokens", 50), json!({"when": {"models": ["gpt-4o*", "claude-*"]}}));
    let proxy = launch(&policy(json!([only])));
    let azure = "/openai/deployments/gpt-4o/chat/completions";
    let vertex = "/v1/projects/p/locations/l/publishers/anthropic/models/claude-opus-4:rawPredict";
    for ask in [
        Ask::new(100).with("model", json!(null)).path(azure),
        Ask::new(100).with("model", json!("cheap")).path(azure),
        Ask::new(100).with("model", json!("cheap")).path(vertex),
        Ask::new(100).with("model", json!("GPT-4o")),
    ] {
        assert_eq!(ask.send(&proxy).seen().status(), 413, "{}", ask.path);
    }
    assert!(Ask::new(100).with("model", json!("cheap")).send(&proxy).seen().passed());
}

#[test]
fn orders_that_a_client_gives_the_proxy_do_not_multiply_its_request() {
    let proxy = launch(&tokens(1000));
    let orders = [
        "x-envoy-retry-on",
        "x-envoy-retriable-status-codes",
        "x-envoy-max-retries",
        "x-envoy-hedge-on-per-try-timeout",
        "x-envoy-upstream-rq-timeout-ms",
        "x-envoy-upstream-rq-per-try-timeout-ms",
    ];
    let ask = orders.iter().fold(Ask::new(10), |ask, order| ask.header(order, "1"));
    let upstream = ask.header("x-envoy-external-address", "203.0.113.1").send(&proxy).seen().upstream;
    assert!(upstream.ended && orders.iter().all(|order| upstream.header(order).is_none()), "{upstream:?}");
    assert!(upstream.header("x-envoy-external-address").is_some(), "that is no order");
}

#[test]
fn a_model_by_another_name_is_counted_as_what_it_stands_for() {
    let models = json!([
        {"match": "gpt-4o*", "tokenizer": "o200k_base"},
        {"match": "mine", "alias": "gpt-4o"},
        {"match": "chars-*", "tokenizer": {"characters": 1}, "default_output_tokens": 7, "max_output_tokens": 50},
    ]);
    let per_model = merged(limit("tokens", "tokens", 100_000), json!({"per": ["tenant", "model"]}));
    let policy =
        merged(policy(json!([per_model, limit("all", "tokens", 100_000)])), json!({"models": models}));
    let proxy = launch(&policy);
    let record = |model: &str, cap: Option<u64>| {
        let ask = Ask::new(0).with("model", json!(model)).with("max_tokens", json!(cap));
        let stream = ask.send(&proxy);
        let seen = stream.seen();
        answer(&stream, 0, 0);
        let record = stream.seen();
        assert!(seen.passed());
        (record.recorded("estimated_input"), record.recorded("held_output"))
    };
    assert_eq!(record("mine", Some(20)), (PROMPT, 20));
    assert_eq!(record("chars-1", None).1, 7);
    assert_eq!(record("chars-1", Some(5000)).1, 50);
    assert!(record("chars-1", None).0 > PROMPT, "by characters");
}

#[test]
fn two_namespaces_in_one_memory_stay_apart() {
    let one = launch(&merged(tokens(1000), json!({"namespace": "one"})));
    assert!(Ask::new(900).tenant("acme").send(&one).seen().passed());
    let keys: Vec<String> = one.shared().into_keys().collect();
    assert!(keys.iter().all(|key| key.starts_with("tollgate/one/")), "{keys:?}");
    assert_eq!(standing(&one, "tokens", "acme"), held(PROMPT + 900));
}
