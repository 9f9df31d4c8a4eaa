//! What tokens count for and cost: weights and prices, from the hold to the settlement.

use serde_json::{Value, json};

use super::{account, held, launch, limit, merged, policy, spent};
use crate::ProxyUnderTest;
use crate::common::counter::TARGET;
use crate::common::proxy::{Proxy, Stream};
use crate::common::requests::{
    Ask, DONE, PROMPT, answer, answer_json, begin_events, delta, send_events, usage_event,
};

/// These limits over these models; what no other rule says is as for any model.
fn with_models(limits: Value, models: &[Value]) -> Value {
    let any = json!({"match": "*", "tokenizer": "o200k_base"});
    let models: Vec<_> = models.iter().cloned().chain([any]).collect();
    merged(policy(limits), json!({"models": models}))
}

fn weighted(model: &Value) -> Value {
    let limits = json!([limit("tokens", "tokens", 10_000), limit("raw", "raw_tokens", 10_000)]);
    with_models(limits, std::slice::from_ref(model))
}

/// Dollars a minute, at 2.50 in and 10.00 out per million, a tenth for what a cache had.
fn dollars(amount: &str, above: Value) -> Value {
    let mut price = json!({"input": "2.50", "cached_input": "0.25", "output": "10.00"});
    if !above.is_null() {
        price["above"] = above;
    }
    let limits = json!([merged(limit("spend", "usd", 0), json!({"amount": amount}))]);
    let any = json!({"match": "*", "tokenizer": "o200k_base", "price": price});
    merged(policy(limits), json!({"models": [any]}))
}

/// What the nameless tenant is told of its dollars: spent, and held.
fn money(proxy: &ProxyUnderTest) -> (Value, Value) {
    let told = Ask::get("/tollgate/budget").send(proxy).seen().json();
    let account = &told["accounts"][0];
    (account["spent"].clone(), account["held"].clone())
}

#[test]
fn a_models_weight_counts_from_the_hold_to_the_settlement_and_only_in_tokens() {
    let proxy = launch(&weighted(&json!({"match": "gpt-4o", "weight": 2.5})));
    let stream = Ask::new(100).send(&proxy);
    assert_eq!(account(&proxy, "tokens"), held((PROMPT + 100) * 5 / 2));
    assert_eq!(account(&proxy, "raw"), held(PROMPT + 100));
    answer(&stream, 11, 20);
    // 31 tokens at 2.5 are 77.5, told as whole ones.
    assert_eq!(account(&proxy, "tokens"), spent(78));
    assert_eq!(account(&proxy, "raw"), spent(31));
    let light = Ask::new(100).with("model", json!("other")).send(&proxy);
    answer(&light, 11, 20);
    assert_eq!(account(&proxy, "tokens"), spent(109));
}

#[test]
fn each_kind_of_token_counts_by_its_own_weight_and_once() {
    let weights = json!({"cached_input": 0.1, "output": 4});
    let proxy = launch(&weighted(&json!({"match": "gpt-4o", "weights": weights})));
    let stream = Ask::new(100).send(&proxy);
    assert_eq!(account(&proxy, "tokens"), held(PROMPT + 400));
    let usage = json!({
        "prompt_tokens": 1000, "prompt_tokens_details": {"cached_tokens": 900},
        "completion_tokens": 50, "completion_tokens_details": {"reasoning_tokens": 40},
        "total_tokens": 1050,
    });
    let choices =
        json!([{"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}]);
    answer_json(
        &stream,
        &json!({"id": "c", "object": "chat.completion", "choices": choices, "usage": usage}),
    );
    assert_eq!(account(&proxy, "tokens"), spent(100 + 90 + 200));
    assert_eq!(account(&proxy, "raw"), spent(1050));
}

#[test]
fn a_prompt_marked_for_a_cache_is_held_as_if_all_of_it_were_written() {
    let model = json!({"match": "claude-*", "tokenizer": "o200k_base", "weights": {"cached_input": 0, "cache_write": 2}});
    let asked = |marked: bool| {
        let mut part = json!({"type": "text", "text": "Hello"});
        if marked {
            part["cache_control"] = json!({"type": "ephemeral"});
        }
        let message = json!({"role": "user", "content": [part]});
        let body = json!({"model": "claude-x", "max_tokens": 100, "messages": [message]});
        Ask::json(&body).path("/v1/messages")
    };
    let proxy = launch(&weighted(&model));
    let plain = asked(false).send(&proxy);
    let prompt = account(&proxy, "tokens").held - 100;
    plain.client_leaves();
    let proxy = launch(&weighted(&model));
    let marked = asked(true).send(&proxy);
    assert_eq!(account(&proxy, "tokens"), held(2 * prompt + 100));
    assert_eq!(account(&proxy, "raw"), held(prompt + 100));
    let usage = json!({"input_tokens": 3, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 500, "output_tokens": 7});
    answer_json(
        &marked,
        &json!({"id": "m", "type": "message", "role": "assistant", "content": [{"type": "text", "text": "Hi."}],
            "stop_reason": "end_turn", "usage": usage}),
    );
    assert_eq!(account(&proxy, "tokens"), spent(3 + 40 + 7));
    assert_eq!(account(&proxy, "raw"), spent(530));
}

#[test]
fn a_stream_that_outgrows_its_hold_is_charged_by_weight_while_it_runs() {
    let proxy = launch(&weighted(&json!({"match": "gpt-4o", "weights": {"output": 3}})));
    let stream = Ask::stream(1).send(&proxy);
    begin_events(&stream);
    for _ in 0..70 {
        stream.answer_chunk(delta(" word").as_bytes(), false);
    }
    let (weighted, raw) = (account(&proxy, "tokens").held - PROMPT, account(&proxy, "raw").held - PROMPT);
    assert!(raw >= 64, "{raw}");
    assert_eq!(weighted, 3 * raw);
    send_events(&stream, &[&usage_event(PROMPT, 70), DONE]);
    assert_eq!(account(&proxy, "tokens"), spent(PROMPT + 210));
}

#[test]
fn dollars_are_held_and_settled_to_the_nano_dollar() {
    let proxy = launch(&dollars("1.00", Value::Null));
    let stream = Ask::new(100).send(&proxy);
    // 8 × 2.50 and 100 × 10.00 millionths.
    assert_eq!(money(&proxy), (json!(0.0), json!(0.00102)));
    let usage = json!({"prompt_tokens": 1001, "prompt_tokens_details": {"cached_tokens": 999}, "completion_tokens": 3});
    answer_json(&stream, &json!({"choices": [{"index": 0, "message": {"content": "Hi."}}], "usage": usage}));
    // 2 × 2.50, 999 × 0.25 and 3 × 10.00 millionths.
    assert_eq!(money(&proxy), (json!(0.000_284_75), json!(0.0)));
}

#[test]
fn a_prompt_above_the_step_pays_its_prices_for_the_whole_request() {
    let above = json!({"input_tokens": 1000, "input": "5.00", "cached_input": "0.50", "output": "15.00"});
    for (input, expected) in [(1000, 0.0026), (1001, 0.005_155)] {
        let proxy = launch(&dollars("1.00", above.clone()));
        answer(&Ask::new(100).send(&proxy), input, 10);
        assert_eq!(money(&proxy), (json!(expected), json!(0.0)), "{input}");
    }
}

#[test]
fn a_refusal_in_dollars_tells_what_was_asked_and_what_there_is() {
    let proxy = launch(&merged(
        dollars("0.002", Value::Null),
        json!({"response": {"headers": ["ietf", "openai", "token_limit"], "budget_path": "/tollgate/budget"}}),
    ));
    let first = Ask::new(100).send(&proxy);
    assert!(first.seen().passed());
    let seen = Ask::new(100).send(&proxy).seen();
    assert_eq!(seen.status(), 429);
    assert!(seen.header("retry-after").is_some());
    let told = &seen.json()["tollgate"];
    assert_eq!(
        (&told["unit"], &told["used"], &told["amount"], &told["requested"]),
        (&json!("usd"), &json!(0.00102), &json!(0.002), &json!(0.00102))
    );
    let message = seen.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("0.00102 of 0.002 dollars in use, 0.00102 requested"), "{message}");
    assert_eq!(seen.header("ratelimit-policy").as_deref(), Some(r#""spend";q=2000;qu="micro-usd";w=60"#));
    assert_eq!(seen.header("x-ratelimit-limit-tokens"), None, "dollars are no tokens");
    answer(&first, 8, 10);
    assert!(Ask::new(100).send(&proxy).seen().passed());
}

#[test]
fn a_prompt_that_costs_more_dollars_than_there_ever_are_is_told_so_before_it_is_counted_to_its_end() {
    let proxy = launch(&dollars("0.001", Value::Null));
    let long = "The keeper climbed the stairs. ".repeat(400);
    let message = json!({"role": "user", "content": long});
    let seen = Ask::json(&json!({"model": "m", "messages": [message], "max_tokens": 1})).send(&proxy).seen();
    assert_eq!((seen.status(), seen.header("x-should-retry").as_deref()), (413, Some("false")));
    let requested = seen.json()["tollgate"]["requested"].as_f64().unwrap();
    assert!((0.00099..0.002).contains(&requested), "{requested}");
}

#[test]
fn an_error_before_any_token_gives_the_dollars_back() {
    let proxy = launch(&dollars("1.00", Value::Null));
    let stream = Ask::new(100).send(&proxy);
    crate::common::requests::answer_bytes(&stream, 503, &[], b"{}");
    assert_eq!(money(&proxy), (json!(0.0), json!(0.0)));
}

#[test]
fn the_counter_service_is_asked_for_what_the_tokens_count_for() {
    let day = merged(limit("tokens", "tokens", 1000), json!({"window": {"fixed": "1d"}}));
    let mut policy =
        with_models(json!([day]), &[json!({"match": "gpt-4o", "weight": 2, "weights": {"output": 3}})]);
    policy["store"] = json!({"counter": {"target": TARGET, "gateways": 1}});
    let proxy = launch(&policy);
    let account = |proxy: &ProxyUnderTest| {
        use tollgate_budget::{Amount, Limit, Quota, Span, Window};
        let window = Window::Fixed(Span::from_secs(24 * 60 * 60));
        let limit = Limit { window, quota: Quota::Of(Amount::saturating(1_000_000)) };
        proxy.counter().account("default/tokens/tenant=anonymous", &limit, proxy.now_ms())
    };
    let stream = Ask::new(100).send(&proxy);
    assert_eq!(account(&proxy), (2000 * (PROMPT + 300), 0));
    answer(&stream, 10, 20);
    proxy.advance(1000);
    assert_eq!(account(&proxy), (0, 2000 * (10 + 60)));
}
