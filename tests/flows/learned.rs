//! What answers teach of a model that is counted with another one's tokenizer: later prompts are held by it.
//! What is charged stays what the provider reports.

use serde_json::{Value, json};

use super::{launch, merged, tokens};
use crate::ProxyUnderTest;
use crate::common::proxy::{Proxy, START_MS, Setup, Stream};
use crate::common::requests::{Ask, answer, answer_json, standing};

/// The marks of one message and of the conversation, which are known.
const MARKS: u64 = 6;
/// As many answers as make a model known, with a prompt of [`ask`]'s length.
const ENOUGH: u64 = 20;
const MODELS: [&str; 2] = ["foreign", "characters"];

fn roomy() -> Value {
    let like = |factor: f64| json!({"like": "o200k_base", "factor": factor});
    merged(
        tokens(4_000_000_000),
        json!({"models": [
            {"match": "foreign", "tokenizer": like(1.0)},
            {"match": "characters", "tokenizer": {"characters": 4}},
            {"match": "exact", "tokenizer": "o200k_base"},
        ]}),
    )
}

fn proxy() -> ProxyUnderTest {
    launch(&roomy())
}

/// A prompt of some 1,000 tokens.
fn ask(model: &str) -> Ask {
    let text = "The keeper climbed the stairs. ".repeat(160);
    Ask::new(1).with("model", json!(model)).with("messages", json!([{"role": "user", "content": text}]))
}

/// What is held for a prompt, which teaches nothing.
fn held(proxy: &ProxyUnderTest, worker: usize, ask: &Ask) -> u64 {
    let ask = ask.clone().tenant("probe");
    let stream = ask.send_to(proxy, worker);
    let held = standing(proxy, "tokens", "probe").held;
    stream.client_leaves();
    held - 1
}

/// The text's share of a hold, times so many thousandths.
fn scaled(held: u64, milli: u64) -> u64 {
    MARKS + ((held - MARKS) * milli).div_ceil(1000)
}

/// Answers from a provider that counts the text at so many thousandths of what is held at first.
fn teach(proxy: &ProxyUnderTest, worker: usize, ask: &Ask, times: u64, milli: u64) {
    let counted = held(&self::proxy(), 0, ask);
    for _ in 0..times {
        answer(&ask.send_to(proxy, worker), scaled(counted, milli), 1);
    }
}

fn tick(proxy: &ProxyUnderTest) {
    proxy.advance(500);
}

#[test]
fn a_foreign_model_is_held_by_what_its_provider_reports() {
    for model in MODELS {
        let (proxy, ask) = (proxy(), ask(model));
        let first = held(&proxy, 0, &ask);
        assert!(first > 900, "{model}: {first}");
        teach(&proxy, 0, &ask, ENOUGH - 1, 1300);
        tick(&proxy);
        assert_eq!(held(&proxy, 0, &ask), first, "{model}: too little is known");
        teach(&proxy, 0, &ask, 1, 1300);
        assert_eq!(held(&proxy, 0, &ask), first, "{model}: until the tick");
        tick(&proxy);
        let next = held(&proxy, 0, &ask);
        let expected = scaled(first, 1300);
        assert!((expected..=expected + 2).contains(&next), "{model}: {next}, not {expected}");
        // It is the uncorrected count that reports are compared with.
        teach(&proxy, 0, &ask, 200, 1300);
        tick(&proxy);
        assert!((expected..=expected + 2).contains(&held(&proxy, 0, &ask)), "{model}");
    }
}

#[test]
fn what_is_charged_is_the_report_whatever_was_learned() {
    let (proxy, ask) = (proxy(), ask("foreign"));
    teach(&proxy, 0, &ask, ENOUGH, 1300);
    tick(&proxy);
    answer(&ask.clone().tenant("payer").send(&proxy), 777, 5);
    assert_eq!(standing(&proxy, "tokens", "payer").spent, 782);
}

#[test]
fn a_correction_goes_down_as_well_as_up() {
    let (proxy, ask) = (proxy(), ask("foreign"));
    let first = held(&proxy, 0, &ask);
    teach(&proxy, 0, &ask, ENOUGH, 800);
    tick(&proxy);
    let expected = scaled(first, 800);
    assert!((expected..=expected + 2).contains(&held(&proxy, 0, &ask)));
}

#[test]
fn a_model_with_its_own_tokenizer_is_never_corrected() {
    let (proxy, ask) = (proxy(), ask("exact"));
    let first = held(&proxy, 0, &ask);
    teach(&proxy, 0, &ask, 2 * ENOUGH, 1300);
    tick(&proxy);
    assert_eq!(held(&proxy, 0, &ask), first);
}

#[test]
fn absurd_reports_move_a_hold_no_farther_than_its_bounds() {
    for (report, milli) in [(100_000, 2000), (MARKS + 1, 500)] {
        let (proxy, ask) = (proxy(), ask("foreign"));
        let first = held(&proxy, 0, &ask);
        teach(&proxy, 0, &ask, 5 * ENOUGH, 1000);
        answer(&ask.send(&proxy), report, 1);
        tick(&proxy);
        let moved = held(&proxy, 0, &ask);
        assert!(moved.abs_diff(first) <= first / 50, "one of them: {moved} after {first}");
        for _ in 0..60 {
            (0..ENOUGH).for_each(|_| answer(&ask.send(&proxy), report, 1));
            tick(&proxy);
        }
        let bound = scaled(first, milli);
        let moved = held(&proxy, 0, &ask);
        assert!(moved.abs_diff(bound) <= first / 50, "all of them: {moved} after {first}, not {bound}");
    }
}

#[test]
fn answers_that_say_nothing_of_the_text_do_not_teach() {
    let (proxy, plain) = (proxy(), ask("foreign"));
    let first = held(&proxy, 0, &plain);
    let text = "The keeper climbed the stairs. ".repeat(160);
    let picture =
        json!([{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": "https://e"}}]);
    let continued = Ask::json(&json!({"model": "foreign", "input": text, "previous_response_id": "r"}));
    for _ in 0..2 * ENOUGH {
        let with_picture = plain.clone().with("messages", json!([{"role": "user", "content": picture}]));
        answer(&with_picture.send(&proxy), 10_000, 1);
        let usage = json!({"input_tokens": 10_000, "output_tokens": 1, "total_tokens": 10_001});
        answer_json(
            &continued.clone().path("/v1/responses").send(&proxy),
            &json!({"object": "response", "status": "completed", "output": [], "usage": usage}),
        );
        for usage in [
            json!(null),
            json!({"total_tokens": 10_000}),
            json!({"prompt_tokens": 0, "completion_tokens": 7}),
            // Not even its marks.
            json!({"prompt_tokens": MARKS, "completion_tokens": 7}),
        ] {
            let choice = json!({"index": 0, "message": {"content": "Hi."}, "finish_reason": "stop"});
            answer_json(&plain.send(&proxy), &json!({"choices": [choice], "usage": usage}));
        }
    }
    tick(&proxy);
    assert_eq!(held(&proxy, 0, &plain), first);
}

#[test]
fn workers_share_what_they_learn() {
    let proxy = ProxyUnderTest::launch(&Setup::new(&roomy()).workers(2));
    let ask = ask("foreign");
    let first = held(&proxy, 0, &ask);
    for worker in [0, 1] {
        teach(&proxy, worker, &ask, ENOUGH / 2, 1300);
    }
    // Each tells at a tick, and has heard by the next one.
    tick(&proxy);
    tick(&proxy);
    for worker in [0, 1] {
        assert!(held(&proxy, worker, &ask) >= scaled(first, 1300), "worker {worker}");
    }
}

#[test]
fn what_was_learned_outlives_its_vm() {
    let (proxy, ask) = (proxy(), ask("foreign"));
    let first = held(&proxy, 0, &ask);
    teach(&proxy, 0, &ask, ENOUGH, 1300);
    tick(&proxy);
    proxy.reload(0);
    assert!(held(&proxy, 0, &ask) >= scaled(first, 1300));
}

#[test]
fn a_lesson_that_another_worker_overtakes_is_told_at_the_next_tick() {
    let (proxy, ask) = (proxy(), ask("foreign"));
    let first = held(&proxy, 0, &ask);
    teach(&proxy, 0, &ask, ENOUGH, 1300);
    proxy.conflict(1);
    tick(&proxy);
    assert_eq!(held(&proxy, 0, &ask), first);
    tick(&proxy);
    assert!(held(&proxy, 0, &ask) >= scaled(first, 1300));
}

#[test]
fn a_record_that_cannot_be_read_is_begun_anew() {
    let (proxy, ask) = (proxy(), ask("foreign"));
    let first = held(&proxy, 0, &ask);
    teach(&proxy, 0, &ask, ENOUGH, 1300);
    tick(&proxy);
    let records: Vec<String> =
        proxy.shared().into_keys().filter(|key| key.starts_with("tollgate/default/learned/")).collect();
    // Two foreign rules, and the built-in one for models that no rule names.
    assert_eq!(records.len(), 3);
    records.iter().for_each(|key| proxy.put_shared(key, b"garbage"));
    tick(&proxy);
    tick(&proxy);
    assert_eq!(held(&proxy, 0, &ask), first);
    for model in MODELS {
        assert_eq!(proxy.metric(&format!("tollgate_corrections_begun_anew_total;model={model}")), 1);
    }
    teach(&proxy, 0, &ask, ENOUGH, 1300);
    tick(&proxy);
    assert!(held(&proxy, 0, &ask) >= scaled(first, 1300), "and it learns again");
}

#[test]
fn a_tokenizer_that_drifts_is_seen_in_the_metrics_and_said_once() {
    let (proxy, ask) = (ProxyUnderTest::launch(&Setup::new(&roomy()).start_ms(START_MS)), ask("foreign"));
    let counted = held(&proxy, 0, &ask);
    teach(&proxy, 0, &ask, ENOUGH, 1300);
    tick(&proxy);
    let lines = || {
        proxy
            .log()
            .into_iter()
            .filter(|line| line.contains("`foreign` is off: providers report 1.30"))
            .count()
    };
    for round in 0..30 {
        teach(&proxy, 0, &ask, ENOUGH, 1300);
        tick(&proxy);
        assert_eq!(lines(), usize::from(round >= 11), "round {round}");
    }
    let metric = |name: &str| proxy.metric(&format!("tollgate_{name}"));
    assert_eq!(metric("input_estimates_total;model=foreign;outcome=under"), ENOUGH);
    assert_eq!(metric("input_estimates_total;model=foreign;outcome=close"), 30 * ENOUGH);
    assert_eq!(metric("estimated_input_tokens_total;model=foreign"), 31 * ENOUGH * counted);
    assert_eq!(metric("reported_input_tokens_total;model=foreign"), 31 * ENOUGH * scaled(counted, 1300));
}
