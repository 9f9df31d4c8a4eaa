//! A refusal says which limit, how much and when again, and takes nothing.

use serde_json::{Value, json};

use super::{account, held, launch, limit, merged, policy, spent, tokens};
use crate::ProxyUnderTest;
use crate::common::proxy::{Proxy, START_MS, Seen, Setup, Stream};
use crate::common::requests::{Ask, PROMPT, answer, standing};

fn refused(proxy: &ProxyUnderTest, ask: &Ask, status: u16, details: &str) -> Seen {
    let seen = ask.send(proxy).seen();
    assert_eq!((seen.status(), seen.details.as_deref()), (status, Some(details)), "{}", seen.client.text());
    assert!(seen.untouched_upstream() && seen.ended);
    assert_eq!(seen.header("content-type").as_deref(), Some("application/json"));
    seen.check_framing();
    seen
}

fn error(seen: &Seen) -> Value {
    seen.json()["error"].clone()
}

#[test]
fn a_refusal_has_openais_shape_and_names_the_limit() {
    let proxy = launch(&tokens(1000));
    answer(&Ask::new(500).send(&proxy), 300, 400);
    let seen = refused(&proxy, &Ask::new(400), 429, "tollgate_over_limit");
    let error = error(&seen);
    assert_eq!((&error["type"], &error["code"]), (&json!("tokens"), &json!("rate_limit_exceeded")));
    assert_eq!(error["param"], Value::Null);
    assert!(error["message"].as_str().unwrap().contains("`tokens`"), "{error}");
    let facts = seen.json()["tollgate"].clone();
    let expected = json!({"limit": "tokens", "unit": "tokens", "used": 700, "amount": 1000,
        "requested": PROMPT + 400, "retry_after_ms": seen.number("retry-after-ms")});
    assert_eq!(facts, expected);
    assert_eq!(seen.number("retry-after"), seen.number("retry-after-ms").div_ceil(1000));
    assert_eq!(seen.number("x-ratelimit-remaining-tokens"), 300);
    let record = seen.record();
    assert_eq!((&record["decision"], &record["limit"]), (&json!("over_limit"), &json!("tokens")));
    assert_eq!(record["status"], json!("refused"));
    assert_eq!(proxy.metric("tollgate_decisions_total;outcome=over_limit;limit=tokens"), 1);
    assert_eq!(account(&proxy, "tokens"), spent(700));
}

#[test]
fn a_refusal_has_anthropics_shape_for_who_speaks_its_api() {
    let routes = json!([{"path": "/v1/messages/count_tokens", "api": "request_only"}]);
    let limits = |amount| policy(json!([limit("requests", "requests", amount)]));
    let ask = Ask::new(1).path("/v1/messages/count_tokens").header("anthropic-version", "2023-06-01");
    let proxy = launch(&merged(limits(1), json!({"routes": routes})));
    assert!(ask.send(&proxy).seen().passed());
    let seen = refused(&proxy, &ask, 429, "tollgate_over_limit");
    let (body, wait) = (seen.json(), seen.number("retry-after-ms"));
    assert_eq!((&body["type"], &body["error"]["type"]), (&json!("error"), &json!("rate_limit_error")));
    assert_eq!(body["error"].as_object().unwrap().keys().collect::<Vec<_>>(), ["message", "type"]);
    assert!(body["error"]["message"].as_str().unwrap().contains("`requests`"), "{body}");
    assert_eq!(
        body["tollgate"],
        json!({"limit": "requests", "unit": "requests", "used": 1, "amount": 1, "requested": 1, "retry_after_ms": wait})
    );
    assert_eq!(seen.number("retry-after"), wait.div_ceil(1000));

    let closed = launch(&merged(limits(0), json!({"routes": routes})));
    let seen = refused(&closed, &ask, 403, "tollgate_suspended");
    assert_eq!(error(&seen)["type"], json!("permission_error"));
    assert_eq!(seen.header("x-should-retry").as_deref(), Some("false"));
    let upgrade = Ask { body: Vec::new(), announced: false, ..ask }.header("upgrade", "websocket");
    assert_eq!(
        error(&refused(&proxy, &upgrade, 400, "tollgate_upgrade"))["type"],
        json!("invalid_request_error")
    );
}

#[test]
fn a_client_that_waits_as_told_is_admitted_and_not_a_millisecond_earlier() {
    let windows = [
        json!({"fixed": "60s"}),
        json!({"sliding": "60s"}),
        json!({"bucket": "60s"}),
        json!({"bucket": "60s", "burst": 1500}),
        json!({"sliding": "7s"}),
    ];
    for window in windows {
        for offset in [0, 1, 999, 3_333, 59_999] {
            let limit = merged(limit("tokens", "tokens", 1000), json!({"window": window}));
            let setup = Setup::new(&policy(json!([limit]))).start_ms(START_MS + offset);
            let proxy = ProxyUnderTest::launch(&setup);
            answer(&Ask::new(300).send(&proxy), 100, 200);
            proxy.set_time(START_MS + offset + 700);
            // Held, and never settled.
            let _open = Ask::new(580).send(&proxy);
            proxy.set_time(START_MS + offset + 777);
            let ask = Ask::new(980);
            let seen = ask.send(&proxy).seen();
            let wait = match seen.status() {
                429 => seen.number("retry-after-ms"),
                // The fuller bucket has room.
                _ => continue,
            };
            let from = proxy.now_ms();
            proxy.set_time(from + wait - 1);
            assert_eq!(ask.send(&proxy).seen().status(), 429, "{window} at {offset}: {wait} ms less one");
            proxy.set_time(from + wait);
            assert!(ask.send(&proxy).seen().passed(), "{window} at {offset}: {wait} ms");
        }
    }
}

#[test]
fn the_wait_is_long_enough_for_every_limit() {
    let fast = merged(limit("fast", "requests", 1), json!({"window": {"fixed": "1s"}}));
    let proxy = launch(&policy(json!([fast, limit("slow", "tokens", 600)])));
    answer(&Ask::new(300).send(&proxy), 250, 250);
    let seen = refused(&proxy, &Ask::new(300), 429, "tollgate_over_limit");
    assert_eq!(seen.number("retry-after-ms"), 60_000);
    proxy.advance(59_999);
    assert_eq!(Ask::new(300).send(&proxy).seen().status(), 429);
    proxy.advance(1);
    assert!(Ask::new(300).send(&proxy).seen().passed());
}

#[test]
fn a_request_that_never_fits_is_told_so_without_an_invitation() {
    let proxy = launch(&tokens(1000));
    let seen = refused(&proxy, &Ask::new(1000), 413, "tollgate_never_fits");
    assert_eq!(seen.header("x-should-retry").as_deref(), Some("false"));
    assert_eq!((seen.header("retry-after"), seen.header("retry-after-ms")), (None, None));
    assert_eq!(error(&seen)["code"], "request_never_fits");
    assert_eq!(account(&proxy, "tokens"), spent(0));
    assert!(Ask::new(1000 - PROMPT).send(&proxy).seen().passed(), "one that just fits does");
}

#[test]
fn what_never_fits_is_told_how_the_account_really_stands() {
    let proxy = launch(&tokens(1000));
    answer(&Ask::new(500).send(&proxy), 300, 400);
    let seen = refused(&proxy, &Ask::new(5000), 413, "tollgate_never_fits");
    let facts = seen.json()["tollgate"].clone();
    assert_eq!(
        (&facts["used"], &facts["amount"], &facts["requested"]),
        (&json!(700), &json!(1000), &json!(5000))
    );
    assert_eq!(seen.number("x-ratelimit-remaining-tokens"), 300);
    assert_eq!(account(&proxy, "tokens"), spent(700));
}

#[test]
fn a_prompt_beyond_the_budget_is_not_counted_to_its_end() {
    let proxy = launch(&tokens(1000));
    let text = "word ".repeat(20_000);
    let ask = Ask::new(10).with("messages", json!([{"role": "user", "content": text}]));
    let seen = refused(&proxy, &ask, 413, "tollgate_never_fits");
    let message = error(&seen)["message"].as_str().unwrap().to_owned();
    assert!(message.contains("more than 1000 tokens"), "{message}");
}

#[test]
fn the_largest_share_of_one_request_is_a_never_too() {
    let policy = merged(tokens(1000), json!({"hold": {"max_share": "0.5"}}));
    let proxy = launch(&policy);
    refused(&proxy, &Ask::new(600), 413, "tollgate_never_fits");
    assert!(Ask::new(400).send(&proxy).seen().passed());
}

#[test]
fn an_amount_of_zero_suspends() {
    let proxy = launch(&tokens(0));
    let seen = refused(&proxy, &Ask::new(1), 403, "tollgate_suspended");
    assert_eq!(seen.header("x-should-retry").as_deref(), Some("false"));
    assert_eq!(seen.header("retry-after"), None);
    assert_eq!(error(&seen)["type"], "permission_error");
    assert_eq!(seen.number("x-ratelimit-remaining-tokens"), 0);
}

#[test]
fn a_limit_on_requests_refuses_in_its_own_type() {
    let proxy = launch(&policy(json!([limit("requests", "requests", 2)])));
    for _ in 0..2 {
        assert!(Ask::new(1).send(&proxy).seen().passed());
    }
    let seen = refused(&proxy, &Ask::new(1), 429, "tollgate_over_limit");
    assert_eq!(error(&seen)["type"], "requests");
    assert_eq!(seen.number("x-ratelimit-limit-requests"), 2);
    assert_eq!(seen.header("x-ratelimit-limit-tokens"), None);
}

#[test]
fn a_refusal_by_the_last_limit_leaves_the_others_as_they_were() {
    let global = merged(limit("global", "tokens", 900), json!({"per": []}));
    let limits = json!([limit("tokens", "tokens", 1000), limit("requests", "requests", 5), global]);
    let proxy = launch(&policy(limits));
    for tenant in 0..12 {
        let tenant = format!("tenant-{tenant}");
        let ask = Ask::new(500).tenant(&tenant);
        let status = ask.send(&proxy).seen();
        let taken = u64::from(status.passed());
        assert_eq!(standing(&proxy, "tokens", &tenant), held(taken * (PROMPT + 500)));
        assert_eq!(standing(&proxy, "requests", &tenant), held(taken));
        assert_eq!(standing(&proxy, "global", &tenant), held(PROMPT + 500));
    }
}

#[test]
fn in_shadow_mode_nothing_is_refused_and_all_is_counted() {
    let shadow = |amount| merged(limit("tokens", "tokens", amount), json!({"mode": "shadow"}));
    for amount in [0, 100] {
        let proxy = launch(&policy(json!([shadow(amount)])));
        let text = "word ".repeat(500);
        let ask = Ask::new(200).with("messages", json!([{"role": "user", "content": text}]));
        let stream = ask.send(&proxy);
        answer(&stream, 500, 100);
        let seen = stream.seen();
        assert!(seen.recorded("estimated_input") > 500, "counted to its end");
        assert_eq!((seen.status(), &seen.record()["decision"]), (200, &json!("shadowed")));
        assert_eq!(proxy.metric("tollgate_decisions_total;outcome=shadowed;limit=tokens"), 1);
        assert_eq!(account(&proxy, "tokens"), spent(600));
    }
}

#[test]
fn a_limit_applies_where_its_conditions_hold() {
    let only = |name: &str, when: Value| merged(limit(name, "requests", 9), json!({"when": when}));
    let limits = json!([
        only("mini", json!({"models": ["gpt-4o-mini*"]})),
        only("tools", json!({"paths": ["/tools/v1/chat/completions"]})),
        merged(only("paid", json!({"tiers": ["paid"]})), json!({"amount": {"free": 9, "paid": 9}})),
    ]);
    let proxy = launch(&policy(limits));
    let limits_met = |ask: Ask| {
        let seen = ask.send(&proxy).seen();
        assert!(seen.passed());
    };
    limits_met(Ask::new(1));
    limits_met(Ask::new(1).with("model", json!("gpt-4o-mini-2024")));
    limits_met(Ask::new(1).path("/tools/v1/chat/completions"));
    limits_met(Ask::new(1).header("x-tenant-tier", "paid"));
    assert_eq!(account(&proxy, "tools"), held(1));
    let paid = Ask::get("/tollgate/budget").header("x-tenant-tier", "paid").send(&proxy).seen().json();
    let names: Vec<_> =
        paid["accounts"].as_array().unwrap().iter().map(|account| account["limit"].clone()).collect();
    assert!(names.contains(&json!("paid")), "{paid}");
}
