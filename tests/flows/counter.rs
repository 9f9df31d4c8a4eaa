//! Budgets at the counter service: one question a request, a settlement that always arrives, and what becomes of
//! requests while the service is away.

use serde_json::{Value, json};
use tollgate_budget::{Amount, Limit, Quota, Span, Window};

use super::{launch, limit, merged, policy};
use crate::ProxyUnderTest;
use crate::common::counter::{Manner, TARGET};
use crate::common::proxy::{Proxy, Seen, Setup, Stream};
use crate::common::requests::{
    Ask, DONE, PROMPT, answer, answer_json, begin_events, delta, send_events, usage_event,
};

/// One limit on tokens, by the day, kept at the service.
fn at_the_counter(amount: u64, more: Value) -> Value {
    let day = merged(limit("tokens", "tokens", amount), json!({"window": {"fixed": "1d"}}));
    let counter = merged(json!({"target": TARGET, "gateways": 4}), more);
    let mut policy = policy(json!([day]));
    policy["store"] = json!({"counter": counter});
    policy
}

fn on_outage(amount: u64, word: &str) -> Value {
    at_the_counter(amount, json!({"on_outage": word}))
}

/// Held and spent at the service, in whole tokens.
fn account(proxy: &ProxyUnderTest, amount: u64) -> (u64, u64) {
    let window = Window::Fixed(Span::from_secs(24 * 60 * 60));
    let limit = Limit { window, quota: Quota::Of(Amount::saturating(amount * 1000)) };
    let key = "default/tokens/tenant=anonymous";
    let (held, spent) = proxy.counter().account(key, &limit, proxy.now_ms());
    (held.div_ceil(1000), spent.div_ceil(1000))
}

fn holds(proxy: &ProxyUnderTest) -> usize {
    proxy.counter().calls().iter().filter(|path| path.ends_with("/holds")).count()
}

/// Every way in which the service can be away.
const AWAY: [Manner; 9] = [
    Manner::Unreachable,
    Manner::Cut,
    Manner::Says(503, "upstream connect error or disconnect/reset before headers"),
    Manner::Says(504, "upstream request timeout"),
    Manner::Says(500, "{}"),
    Manner::Says(401, r#"{"type":"unauthenticated"}"#),
    Manner::Says(200, ""),
    Manner::Says(200, r#"{"decision":{"granted":{"standings":[],"shadow_over":[]}}}"#),
    Manner::Says(204, ""),
];

#[test]
fn a_request_waits_for_the_services_word_and_is_settled_there() {
    let proxy = launch(&at_the_counter(1000, json!({})));
    proxy.counter().behave(Manner::Hangs);
    let stream = Ask::new(100).send(&proxy);
    assert!(stream.seen().held && stream.seen().untouched_upstream());
    proxy.counter().behave(Manner::Answers);
    proxy.advance(10);
    assert!(stream.seen().passed());
    assert_eq!(account(&proxy, 1000), (PROMPT + 100, 0));
    answer(&stream, 10, 20);
    assert_eq!(stream.seen().number("x-tokenlimit-remaining"), 1000 - PROMPT - 100);
    assert_eq!(stream.seen().header("x-tollgate-outage"), None);
    proxy.advance(1000);
    assert_eq!(account(&proxy, 1000), (0, 30));
    assert_eq!(proxy.counter().calls(), ["/v1/holds", "/v1/settlements"]);
    assert_eq!(proxy.metric("tollgate_counter_calls_total;kind=holds;outcome=answered"), 1);
    assert_eq!(proxy.metric("tollgate_settlements_total;outcome=closed"), 1);
    assert_eq!(proxy.metric("tollgate_outbox_depth"), 0);
}

#[test]
fn a_stream_asks_for_usage_after_it_has_waited_for_the_service() {
    let proxy = launch(&at_the_counter(1000, json!({})));
    proxy.counter().behave(Manner::Hangs);
    let stream = Ask::stream(100).send(&proxy);
    proxy.counter().behave(Manner::Answers);
    proxy.advance(10);
    let upstream = stream.seen().upstream;
    assert!(upstream.text().contains("include_usage"), "{}", upstream.text());
    begin_events(&stream);
    send_events(&stream, &[&delta("Hi"), &usage_event(10, 20), DONE]);
    stream.seen().check_framing();
    proxy.advance(1000);
    assert_eq!(account(&proxy, 1000), (0, 30));
}

#[test]
fn the_services_refusal_reaches_the_client() {
    let proxy = launch(&at_the_counter(1000, json!({})));
    let first = Ask::new(900).send(&proxy);
    let seen = Ask::new(900).send(&proxy).seen();
    assert_eq!((seen.status(), seen.untouched_upstream()), (429, true));
    assert!(seen.header("retry-after").is_some());
    assert_eq!(seen.json()["tollgate"]["limit"], "tokens");
    answer(&first, 10, 20);
    proxy.advance(1000);
    assert_eq!(account(&proxy, 1000), (0, 30));
    assert_eq!(proxy.metric("tollgate_decisions_total;outcome=over_limit;limit=tokens"), 1);
}

#[test]
fn what_no_limit_counts_is_not_asked_for() {
    let routes = json!([{"path": "/v1/count", "api": "request_only"}]);
    let proxy = launch(&merged(at_the_counter(1000, json!({})), json!({"routes": routes})));
    let stream = Ask::raw("any").path("/v1/count").send(&proxy);
    answer(&stream, 0, 0);
    proxy.advance(1000);
    assert_eq!((stream.seen().status(), stream.seen().header("x-tollgate-outage")), (200, None));
    assert_eq!(proxy.counter().calls(), Vec::<String>::new());
}

#[test]
fn a_prompt_beyond_the_budget_is_refused_with_or_without_the_service() {
    for manner in [Manner::Answers, Manner::Unreachable, Manner::Cut] {
        let proxy = launch(&at_the_counter(100, json!({})));
        proxy.counter().behave(manner);
        let long = json!([{"role": "user", "content": "word ".repeat(500)}]);
        let seen = Ask::new(10).with("messages", long).send(&proxy).seen();
        assert_eq!(seen.status(), 413, "{manner:?}");
        assert_eq!(account(&proxy, 100), (0, 0));
    }
}

#[test]
fn a_tenant_reads_its_accounts_at_the_service_or_learns_that_it_is_away() {
    let proxy = launch(&at_the_counter(1000, json!({})));
    let stream = Ask::new(100).send(&proxy);
    let seen = Ask::get("/tollgate/budget").send(&proxy).seen();
    assert_eq!(seen.json()["accounts"][0]["held"], PROMPT + 100);
    for manner in AWAY {
        proxy.counter().behave(manner);
        assert_eq!(Ask::get("/tollgate/budget").send(&proxy).seen().status(), 503, "{manner:?}");
    }
    drop(stream);
}

#[test]
fn a_client_that_leaves_while_the_service_thinks_has_its_hold_taken_back() {
    let proxy = launch(&at_the_counter(1000, json!({})));
    proxy.counter().behave(Manner::Hangs);
    let stream = Ask::new(100).send(&proxy);
    stream.client_leaves();
    proxy.counter().behave(Manner::Answers);
    proxy.advance(1000);
    assert_eq!(account(&proxy, 1000), (0, 0));
    assert_eq!(proxy.counter().calls().last().map(String::as_str), Some("/v1/settlements"));
}

#[test]
fn a_stream_that_outgrows_its_hold_and_outlives_its_lease_tells_the_service() {
    let lease = json!({"hold": {"lease": "10s", "on_lease_end": "release"}});
    let proxy = launch(&merged(at_the_counter(10_000, json!({})), lease));
    let stream = Ask::stream(50).send(&proxy);
    begin_events(&stream);
    for _ in 0..30 {
        proxy.advance(1000);
        stream.answer_chunk(delta(&" word".repeat(20)).as_bytes(), false);
    }
    proxy.advance(1000);
    let (held, spent) = account(&proxy, 10_000);
    assert_eq!((held, spent), (PROMPT + 50 + 3 * 256, 0));
    stream.client_leaves();
    proxy.advance(1000);
    assert_eq!(account(&proxy, 10_000), (0, PROMPT + 600));
}

#[test]
fn while_the_service_is_away_each_gateway_gives_out_its_share() {
    for manner in AWAY {
        let proxy = launch(&on_outage(1000, "local"));
        proxy.counter().behave(manner);
        let ask = || Ask::new(100 - PROMPT).send(&proxy);
        let streams = [ask(), ask()];
        for stream in &streams {
            assert!(stream.seen().passed(), "{manner:?}");
        }
        let refused = ask().seen();
        assert_eq!(refused.status(), 429, "{manner:?}: a share of 250 was given out twice");
        let large = Ask::new(500).send(&proxy).seen();
        assert_eq!(large.status(), 503, "{manner:?}: more than a share is not more than the whole");
        answer(&streams[0], 10, 20);
        streams[1].client_leaves();
        assert_eq!(streams[0].seen().header("x-tollgate-outage").as_deref(), Some("local"));
        assert_eq!(proxy.metric("tollgate_outage_requests_total;outcome=local"), 4, "{manner:?}");
        back(&proxy);
        assert_eq!(
            account(&proxy, 1000),
            (0, 30 + PROMPT),
            "{manner:?}: what was spent meanwhile is charged"
        );
    }
}

#[test]
fn while_the_service_is_away_requests_pass_if_the_policy_says_so() {
    for manner in AWAY {
        let proxy = launch(&on_outage(1000, "allow"));
        proxy.counter().behave(manner);
        let streams: Vec<_> = (0..20).map(|_| Ask::new(900).send(&proxy)).collect();
        for stream in &streams {
            assert!(stream.seen().passed(), "{manner:?}");
            answer(stream, 10, 90);
            assert_eq!(stream.seen().header("x-tollgate-outage").as_deref(), Some("allow"));
        }
        back(&proxy);
        assert_eq!(account(&proxy, 1000), (0, 2000), "{manner:?}: debt is not forgiven");
        assert_eq!(Ask::new(1).send(&proxy).seen().status(), 429);
    }
}

#[test]
fn while_the_service_is_away_nothing_passes_if_the_policy_says_so() {
    for manner in AWAY {
        let proxy = launch(&on_outage(1000, "deny"));
        proxy.counter().behave(manner);
        let seen = Ask::new(10).send(&proxy).seen();
        assert_eq!((seen.status(), seen.untouched_upstream()), (503, true), "{manner:?}");
        assert_eq!(proxy.metric("tollgate_store_errors_total;kind=away"), 1);
        back(&proxy);
        assert_eq!(account(&proxy, 1000), (0, 0));
    }
}

/// The service answers again, and all that waits for it has arrived.
fn back(proxy: &ProxyUnderTest) {
    proxy.counter().behave(Manner::Answers);
    proxy.advance(20_000);
    assert_eq!(proxy.metric("tollgate_outbox_depth"), 0);
}

#[test]
fn a_grant_whose_answer_is_lost_is_settled_all_the_same_and_once() {
    for word in ["local", "allow", "deny"] {
        let proxy = launch(&on_outage(1000, word));
        proxy.counter().behave(Manner::Deaf);
        let stream = Ask::new(100).send(&proxy);
        if word == "deny" {
            assert_eq!(stream.seen().status(), 503);
        } else {
            assert_eq!(account(&proxy, 1000), (PROMPT + 100, 0));
            answer(&stream, 10, 20);
        }
        proxy.advance(2000);
        back(&proxy);
        let spent = if word == "deny" { 0 } else { 30 };
        assert_eq!(account(&proxy, 1000), (0, spent), "{word}");
    }
}

#[test]
fn a_service_that_hangs_keeps_a_request_no_longer_than_the_policy_says() {
    let proxy = launch(&at_the_counter(1000, json!({"timeout": "200ms"})));
    proxy.counter().behave(Manner::Hangs);
    let stream = Ask::new(100).send(&proxy);
    proxy.advance(100);
    assert!(stream.seen().held);
    proxy.advance(2000);
    assert!(stream.seen().passed());
    answer(&stream, 10, 20);
    assert_eq!(stream.seen().header("x-tollgate-outage").as_deref(), Some("local"));
    back(&proxy);
    assert_eq!(account(&proxy, 1000), (0, 30));
}

#[test]
fn settlements_survive_an_outage_and_are_charged_once() {
    let proxy = launch(&at_the_counter(1000, json!({})));
    let streams: Vec<_> = (0..3).map(|_| Ask::new(100).send(&proxy)).collect();
    for (manner, stream) in [Manner::Cut, Manner::Deaf, Manner::Unreachable].into_iter().zip(&streams) {
        proxy.counter().behave(manner);
        answer(stream, 10, 20);
        proxy.advance(300);
    }
    assert_eq!(proxy.metric("tollgate_outbox_depth"), 3);
    back(&proxy);
    assert_eq!(account(&proxy, 1000), (0, 90));
    assert_eq!(proxy.metric("tollgate_settlements_total;outcome=lost"), 0);
}

#[test]
fn what_the_service_does_not_understand_is_given_up_and_counted() {
    let proxy = launch(&at_the_counter(1000, json!({})));
    let stream = Ask::new(100).send(&proxy);
    proxy.counter().behave(Manner::Says(400, r#"{"type":"malformed"}"#));
    answer(&stream, 10, 20);
    proxy.advance(1000);
    assert_eq!(proxy.metric("tollgate_settlements_total;outcome=lost"), 1);
    assert_eq!(proxy.metric("tollgate_outbox_depth"), 0);
}

#[test]
fn a_service_without_room_for_one_subject_is_well_for_all_others() {
    let full = r#"{"type":"urn:tollgate:problem:store-full","title":"The store is full","status":503}"#;
    let proxy = launch(&on_outage(1000, "allow"));
    proxy.counter().behave(Manner::Says(503, full));
    for _ in 0..10 {
        let seen = Ask::new(10).tenant("stranger").send(&proxy).seen();
        assert_eq!((seen.status(), seen.untouched_upstream()), (503, true));
    }
    assert_eq!(proxy.metric("tollgate_store_errors_total;kind=full"), 10);
    proxy.counter().behave(Manner::Answers);
    let stream = Ask::new(10).send(&proxy);
    answer(&stream, 10, 20);
    assert_eq!(stream.seen().header("x-tollgate-outage"), None, "nobody was kept from asking");
}

#[test]
fn an_answer_that_comes_later_is_charged_after_an_outage_as_its_hold_would_be() {
    let body = json!({"model": "gpt-4o", "input": "Hello", "background": true, "max_output_tokens": 100});
    for (word, on_lease_end, spent) in
        [("local", "charge", 1), ("allow", "charge", 1), ("allow", "release", 0)]
    {
        let hold = json!({"hold": {"lease": "10s", "on_lease_end": on_lease_end}});
        let proxy = launch(&merged(on_outage(10_000, word), hold));
        proxy.counter().behave(Manner::Unreachable);
        let stream = Ask::json(&body).path("/v1/responses").send(&proxy);
        answer_json(&stream, &json!({"id": "r", "object": "response", "status": "queued", "usage": null}));
        back(&proxy);
        let (held, found) = account(&proxy, 10_000);
        assert_eq!((held, found >= 100), (0, spent == 1), "{word}, {on_lease_end}: {found}");
    }
}

#[test]
fn an_answer_that_comes_later_keeps_its_hold_at_the_service() {
    let body = json!({"model": "gpt-4o", "input": "Hello", "background": true, "max_output_tokens": 100});
    let proxy = launch(&at_the_counter(10_000, json!({})));
    let stream = Ask::json(&body).path("/v1/responses").send(&proxy);
    answer_json(&stream, &json!({"id": "r", "object": "response", "status": "queued", "usage": null}));
    proxy.advance(2000);
    let (held, spent) = account(&proxy, 10_000);
    assert!(held >= 100 && spent == 0, "{held} {spent}");
}

#[test]
fn a_sick_service_is_asked_less_and_a_healthy_one_again() {
    let proxy = ProxyUnderTest::launch(&Setup::new(&on_outage(1_000_000, "allow")).workers(2));
    let seen = |worker: usize| -> Seen {
        let stream = Ask::new(1).send_to(&proxy, worker);
        stream.client_leaves();
        stream.seen()
    };
    proxy.counter().behave(Manner::Says(503, ""));
    for _ in 0..20 {
        assert!(seen(0).passed());
    }
    assert!(holds(&proxy) <= 5, "{} calls to a service that fails", holds(&proxy));
    let asked = holds(&proxy);
    proxy.advance(200);
    for _ in 0..20 {
        assert!(seen(1).passed());
    }
    assert_eq!(holds(&proxy), asked, "the other worker has not heard of it");
    assert_eq!(proxy.metric("tollgate_breakers_open"), 2);
    proxy.counter().behave(Manner::Answers);
    proxy.advance(20_000);
    assert_eq!(proxy.metric("tollgate_breakers_open"), 0);
    let asked = holds(&proxy);
    assert!(seen(0).passed() && seen(1).passed());
    assert_eq!(holds(&proxy), asked + 2);
    assert_eq!(proxy.metric("tollgate_outbox_depth"), 0);
}

#[test]
fn an_account_is_named_at_the_service_whatever_bytes_the_tenant_has() {
    let proxy = launch(&at_the_counter(1000, json!({})));
    for tenant in [&b"a/b,c=d"[..], b"{acme}\r", b"\xff\xfe", &[b'x'; 4096]] {
        let stream = Ask::new(10).tenant(tenant).send(&proxy);
        answer(&stream, 10, 20);
        assert!(stream.seen().passed());
    }
    proxy.advance(1000);
    assert_eq!(account(&proxy, 1000), (0, 0));
    let heard = proxy.counter().heard();
    let text = |body: &Vec<u8>| String::from_utf8(body.clone()).unwrap();
    assert!(heard.iter().any(|body| text(body).contains("default/tokens/tenant=a%2Fb%2Cc%3Dd")));
    assert!(heard.iter().all(|body| body.len() < 4096), "a name without end");
}

#[test]
fn nothing_of_a_request_but_its_accounts_reaches_the_service() {
    let proxy = launch(&at_the_counter(10_000, json!({})));
    let secret = json!([{"role": "user", "content": "marker-4711", "name": "marker-4711"}]);
    let ask = Ask::stream(100).with("messages", secret).header("authorization", "Bearer marker-4711");
    let stream = ask.send(&proxy);
    begin_events(&stream);
    send_events(&stream, &[&delta("marker-4711"), DONE]);
    proxy.advance(1000);
    let heard = proxy.counter().heard();
    assert_eq!(heard.len(), 2);
    for body in heard {
        assert!(!String::from_utf8(body).unwrap().contains("4711"));
    }
}
