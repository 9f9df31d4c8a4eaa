//! Headers that tell a caller how its accounts stand, and where it reads them.

use serde_json::{Value, json};

use super::{account, launch, limit, merged, policy, spent, tokens};
use crate::common::proxy::{Seen, Stream};
use crate::common::requests::{Ask, PROMPT, answer, answer_bytes};

const OURS: [&str; 9] = [
    "x-tokenlimit-limit",
    "x-tokenlimit-remaining",
    "x-tokenlimit-reset",
    "x-ratelimit-limit-tokens",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
    "x-ratelimit-limit-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
];

fn present(seen: &Seen) -> Vec<&'static str> {
    OURS.into_iter().filter(|name| seen.header(name).is_some()).collect()
}

fn both_units() -> Value {
    policy(json!([limit("tokens", "tokens", 1000), limit("requests", "requests", 5)]))
}

fn answered(policy: &Value, theirs: &[(&str, &str)]) -> Seen {
    let stream = Ask::new(92).send(&launch(policy));
    answer_bytes(&stream, 200, theirs, b"{}");
    stream.seen()
}

#[test]
fn every_metered_answer_tells_the_state_after_the_hold() {
    let seen = answered(&both_units(), &[]);
    assert_eq!(present(&seen), OURS);
    let values = ["1000", "900", "60", "1000", "900", "1m0s", "5", "4", "1m0s"];
    for (name, value) in OURS.into_iter().zip(values) {
        assert_eq!(seen.header(name).as_deref(), Some(value), "{name}");
    }
}

#[test]
fn the_policy_chooses_the_families() {
    let with =
        |headers: Value| answered(&merged(both_units(), json!({"response": {"headers": headers}})), &[]);
    assert_eq!(present(&with(json!(["token_limit"]))), OURS[..3]);
    assert_eq!(present(&with(json!(["openai"]))), OURS[3..]);
    assert_eq!(present(&with(json!([]))), [""; 0]);
}

#[test]
fn the_providers_own_headers_of_these_names_are_replaced_and_never_duplicated() {
    let theirs = OURS.map(|name| (name, "777777"));
    let seen = answered(&both_units(), &theirs);
    for name in OURS {
        let values = seen.client.headers.as_ref().unwrap().values(name);
        assert!(values.len() == 1 && values[0] != "777777", "{name}: {values:?}");
    }
    // Of requests we know nothing, so nothing is told: the provider's are about another account.
    let seen = answered(&tokens(1000), &theirs);
    assert_eq!(present(&seen), OURS[..6]);
    let none = merged(both_units(), json!({"response": {"headers": []}}));
    assert!(OURS.iter().all(|name| answered(&none, &theirs).number(name) == 777_777));
}

const ANTHROPICS: [&str; 12] = [
    "anthropic-ratelimit-requests-limit",
    "anthropic-ratelimit-requests-remaining",
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-tokens-limit",
    "anthropic-ratelimit-tokens-remaining",
    "anthropic-ratelimit-tokens-reset",
    "anthropic-ratelimit-input-tokens-limit",
    "anthropic-ratelimit-input-tokens-remaining",
    "anthropic-ratelimit-input-tokens-reset",
    "anthropic-ratelimit-output-tokens-limit",
    "anthropic-ratelimit-output-tokens-remaining",
    "anthropic-ratelimit-output-tokens-reset",
];

#[test]
fn anthropics_family_resets_by_date_and_replaces_what_the_provider_says() {
    let anthropic = json!({"response": {"headers": ["anthropic"]}});
    let theirs = ANTHROPICS.map(|name| (name, "777777"));
    let seen = answered(&merged(both_units(), anthropic.clone()), &theirs);
    let reset = "2026-01-01T00:01:00Z";
    let values = ["5", "4", reset, "1000", "900", reset].map(Some).into_iter().chain([None; 6]);
    for (name, value) in ANTHROPICS.into_iter().zip(values) {
        let all = seen.client.headers.as_ref().unwrap().values(name);
        assert_eq!((seen.header(name).as_deref(), all.len()), (value, value.iter().len()), "{name}");
    }
    assert!(present(&seen).is_empty());

    let limits = json!([limit("in", "input_tokens", 1000), limit("out", "output_tokens", 100)]);
    let seen = answered(&merged(policy(limits), anthropic), &theirs);
    let left = |name: &str| seen.header(&format!("anthropic-ratelimit-{name}-remaining"));
    assert_eq!(left("input-tokens"), Some((1000 - PROMPT).to_string()));
    assert_eq!(left("output-tokens").as_deref(), Some("8"));
    assert_eq!(left("tokens").as_deref(), Some("8"), "the tighter of both");
    assert_eq!(left("requests"), None);
}

#[test]
fn the_ietfs_family_lists_policies_and_states() {
    let ietf = json!({"response": {"headers": ["ietf"]}});
    let theirs = [("ratelimit-policy", "\"theirs\";q=7"), ("ratelimit", "\"theirs\";r=7;t=7")];
    let proxy = launch(&merged(both_units(), ietf.clone()));
    let stream = Ask::new(92).send(&proxy);
    let refused = Ask::new(950).send(&proxy).seen();
    answer_bytes(&stream, 200, &theirs, b"{}");
    let told = |seen: &Seen| ["ratelimit-policy", "ratelimit"].map(|name| seen.header(name).unwrap());
    assert_eq!(
        told(&stream.seen()),
        [
            r#""tokens";q=1000;qu="tokens";w=60, "requests";q=5;qu="requests";w=60"#,
            r#""tokens";r=900;t=60, "requests";r=4;t=60"#,
        ]
    );
    assert_eq!(refused.status(), 429);
    assert_eq!(told(&refused)[0], r#""tokens";q=1000;qu="tokens";w=60"#);
    let none = merged(policy(json!([])), ietf);
    let seen = answered(&none, &theirs);
    assert_eq!((seen.header("ratelimit-policy"), seen.header("ratelimit")), (None, None));
}

#[test]
fn of_several_accounts_the_one_with_the_least_share_left_speaks() {
    let limits = json!([limit("wide", "tokens", 100_000), limit("tight", "output_tokens", 200)]);
    let seen = answered(&policy(limits), &[]);
    assert_eq!((seen.number("x-tokenlimit-limit"), seen.number("x-tokenlimit-remaining")), (200, 108));
}

#[test]
fn an_account_in_debt_has_nothing_left() {
    let proxy = launch(&policy(json!([merged(limit("tokens", "tokens", 100), json!({"mode": "shadow"}))])));
    answer(&Ask::new(10).send(&proxy), 400, 400);
    let stream = Ask::new(10).send(&proxy);
    answer(&stream, 9, 1);
    assert_eq!(stream.seen().number("x-tokenlimit-remaining"), 0);
}

#[test]
fn a_tenant_reads_its_own_accounts_uncharged() {
    let global = merged(limit("global", "raw_tokens", 9000), json!({"per": []}));
    let proxy =
        launch(&policy(json!([limit("tokens", "tokens", 1000), limit("requests", "requests", 5), global])));
    answer(&Ask::new(100).tenant("acme").send(&proxy), 30, 20);
    let _open = Ask::new(100).tenant("acme").send(&proxy);
    let ask = Ask::get("/tollgate/budget?pretty");
    let seen = ask.clone().tenant("acme").send(&proxy).seen();
    assert_eq!((seen.status(), seen.details.as_deref()), (200, Some("tollgate_budget")));
    assert!(seen.untouched_upstream());
    let hold = PROMPT + 100;
    let expected = json!({"accounts": [
        {"limit": "tokens", "unit": "tokens", "amount": 1000, "spent": 50, "held": hold, "remaining": 950 - hold, "reset_ms": 60_000},
        {"limit": "requests", "unit": "requests", "amount": 5, "spent": 1, "held": 1, "remaining": 3, "reset_ms": 60_000},
        {"limit": "global", "unit": "raw_tokens", "amount": 9000, "spent": 50, "held": hold, "remaining": 8950 - hold, "reset_ms": 60_000},
    ]});
    assert_eq!(seen.json(), expected);
    let other = ask.tenant("other").send(&proxy).seen().json();
    assert_eq!((&other["accounts"][0]["spent"], &other["accounts"][2]["spent"]), (&json!(0), &json!(50)));
}

#[test]
fn the_budget_path_is_the_policys_own_and_only_for_reading() {
    let proxy = launch(&merged(tokens(1000), json!({"response": {"budget_path": "/my/budget"}})));
    assert_eq!(Ask::get("/my/budget").send(&proxy).seen().status(), 200);
    for ask in [Ask::get("/tollgate/budget"), Ask::get("/x/my/budget"), Ask::new(1).path("/my/budget")] {
        assert!(ask.send(&proxy).seen().passed(), "{ask:?}");
    }
}

#[test]
fn routes_charged_by_the_request_do_not_read_the_body() {
    let routes = json!([
        {"path": "/v1/count", "api": "request_only"},
        {"path": "/v1/free/*", "api": "free"},
        {"path": "/v1/chat/completions", "api": "openai_chat"},
    ]);
    let limits = json!([limit("tokens", "tokens", 1000), limit("requests", "requests", 2)]);
    let proxy = launch(&merged(policy(limits), json!({"routes": routes})));
    let count = Ask::raw("not json at all").path("/v1/count").header("content-encoding", "gzip");
    for _ in 0..2 {
        let stream = count.send(&proxy);
        assert_eq!(stream.seen().upstream.text(), "not json at all");
        answer(&stream, 50, 50);
        assert_eq!(stream.seen().client.text().matches("prompt_tokens").count(), 1);
    }
    assert_eq!((account(&proxy, "tokens"), account(&proxy, "requests")), (spent(0), spent(2)));
    let refused = count.send(&proxy).seen();
    assert_eq!((refused.status(), refused.json()["error"]["type"].clone()), (429, json!("requests")));
    for _ in 0..3 {
        assert!(Ask::raw("anything").path("/v1/free/beer").send(&proxy).seen().passed());
    }
    assert_eq!(account(&proxy, "requests"), spent(2));
}

#[test]
fn a_request_without_a_body_on_a_route_charged_by_the_request_is_charged() {
    let routes = json!([{"path": "/v1/count", "api": "request_only"}]);
    let policy = merged(policy(json!([limit("requests", "requests", 1)])), json!({"routes": routes}));
    let proxy = launch(&policy);
    let ask = Ask::raw("").path("/v1/count");
    assert!(ask.send(&proxy).seen().passed());
    assert_eq!(ask.send(&proxy).seen().status(), 429);
}
