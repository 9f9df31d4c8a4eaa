//! A streamed answer passes as it comes, but for the usage chunk that the client did not ask for.

use serde_json::{Value, json};

use super::{account, held, launch, merged, spent, tokens};
use crate::ProxyUnderTest;
use crate::common::proxy::{Proxy, Stream};
use crate::common::requests::{
    Ask, DONE, PROMPT, answer, begin_events, delta, event, send_events, usage_event,
};

fn asked_for_usage(body: &[u8]) -> bool {
    let body: Value = serde_json::from_slice(body).unwrap();
    body["stream_options"]["include_usage"] == json!(true)
}

#[test]
fn usage_is_asked_for_and_its_chunk_hidden_where_the_client_did_not_ask() {
    let proxy = launch(&tokens(1000));
    let ask = Ask::stream(100);
    let stream = ask.send(&proxy);
    let upstream = stream.seen().upstream;
    assert!(asked_for_usage(&upstream.body()));
    assert_eq!(upstream.header("content-length"), Some(upstream.body().len().to_string()));
    begin_events(&stream);
    send_events(&stream, &[&delta("Hi"), &usage_event(9, 1), DONE]);
    let seen = stream.seen();
    assert_eq!(seen.client.text(), [delta("Hi").as_str(), DONE].concat());
    assert_eq!(account(&proxy, "tokens"), spent(10));
    assert_eq!(seen.record()["status"], "ok");
}

#[test]
fn the_rest_of_a_rewritten_body_stays_byte_for_byte() {
    let proxy = launch(&tokens(1000));
    let text = "{ \"model\":\"gpt-4o\",\"n\" : 1.0e0,\n \"messages\":[{\"role\":\"user\",\"content\":\"H\\u0069\"}] ,\"stream\":true, \"max_tokens\":9 }";
    let upstream = Ask::raw(text).send(&proxy).seen().upstream.text();
    assert!(asked_for_usage(upstream.as_bytes()));
    let without = upstream.replacen(",\"stream_options\":{\"include_usage\":true}", "", 1);
    assert_eq!(without, text);
}

#[test]
fn a_refusal_of_usage_is_overruled_and_still_hidden() {
    let proxy = launch(&tokens(1000));
    let ask = Ask::stream(100).with("stream_options", json!({"include_usage": false, "other": 1}));
    let stream = ask.send(&proxy);
    let body: Value = serde_json::from_slice(&stream.seen().upstream.body()).unwrap();
    assert_eq!(body["stream_options"], json!({"include_usage": true, "other": 1}));
    stream.seen().check_framing();
    begin_events(&stream);
    send_events(&stream, &[&usage_event(9, 1), DONE]);
    assert_eq!(stream.seen().client.text(), DONE);
}

/// Some servers look neither at case nor, of two members of one name, at any but the last.
#[test]
fn no_spelling_of_a_refusal_has_the_last_word() {
    let proxy = launch(&tokens(100_000));
    for options in [
        r#""stream\u005foptions":{"include_usage":false}"#,
        r#""Stream_Options":{"include_usage":false}"#,
        r#""stream_options":{"Include_Usage":false}"#,
        r#""stream_options":{"Include_Usage":false,"x":1}"#,
    ] {
        let body = format!(r#"{{"model":"gpt-4o","stream":true,"max_tokens":9,{options}}}"#);
        let seen = Ask::raw(body).send(&proxy).seen();
        let text = seen.upstream.text();
        let last = text.to_ascii_lowercase().rfind("include_usage").and_then(|at| text.get(at..));
        assert!(last.is_some_and(|last| last.starts_with("include_usage\":true")), "{options}: {text}");
        assert!(text.contains(r#""include_usage":true"#), "{text}");
        seen.check_framing();
    }
    let twice =
        r#"{"model":"gpt-4o","stream":true,"stream_options":{"include_usage":true,"Include_Usage":false}}"#;
    assert_eq!(Ask::raw(twice).send(&proxy).seen().status(), 400);
}

#[test]
fn a_client_that_asked_for_usage_itself_gets_its_chunk_and_its_body_stays() {
    let proxy = launch(&tokens(1000));
    let ask = Ask::stream(100).with("stream_options", json!({"include_usage": true}));
    let stream = ask.send(&proxy);
    assert_eq!(stream.seen().upstream.body(), ask.body);
    begin_events(&stream);
    let events = [delta("Hi"), usage_event(9, 1), DONE.to_owned()];
    send_events(&stream, &events.each_ref().map(String::as_str));
    assert_eq!(stream.seen().client.text(), events.concat());
    assert_eq!(account(&proxy, "tokens"), spent(10));
}

#[test]
fn where_the_policy_leaves_usage_alone_the_body_stays_and_text_is_counted() {
    let proxy = launch(&merged(tokens(1000), json!({"response": {"usage": "leave"}})));
    let ask = Ask::stream(100);
    let stream = ask.send(&proxy);
    assert_eq!(stream.seen().upstream.body(), ask.body);
    begin_events(&stream);
    send_events(&stream, &[&delta("one two three"), DONE]);
    assert_eq!(stream.seen().client.text(), [delta("one two three").as_str(), DONE].concat());
    assert_eq!(account(&proxy, "tokens"), spent(PROMPT + 3));
}

#[test]
fn a_body_that_does_not_stream_is_never_rewritten() {
    let proxy = launch(&tokens(1000));
    for ask in [Ask::new(10), Ask::new(10).with("stream", json!(false))] {
        assert_eq!(ask.send(&proxy).seen().upstream.body(), ask.body);
    }
}

#[test]
fn a_body_without_an_announced_length_gets_one_when_it_is_rewritten() {
    let proxy = launch(&tokens(1000));
    let seen = Ask::stream(10).unannounced().send(&proxy).seen();
    assert!(asked_for_usage(&seen.upstream.body()));
    seen.check_framing();
}

#[test]
fn an_answer_made_shorter_than_announced_does_not_announce_its_length() {
    let proxy = launch(&tokens(1000));
    let stream = Ask::stream(10).send(&proxy);
    let body = [delta("Hi"), usage_event(9, 1), DONE.to_owned()].concat();
    let head = [
        (":status", "200"),
        ("content-type", "text/event-stream"),
        ("content-length", &body.len().to_string()),
    ];
    stream.answer_headers(&head.into(), false);
    stream.answer_chunk(body.as_bytes(), true);
    stream.seen().check_framing();
    assert_eq!(stream.seen().client.text(), [delta("Hi").as_str(), DONE].concat());
}

#[test]
fn an_event_more_between_usage_and_the_end_changes_nothing() {
    let proxy = launch(&tokens(1000));
    let stream = Ask::stream(100).send(&proxy);
    begin_events(&stream);
    let late = event(&json!({"object": "chat.completion.chunk", "choices": [], "note": "late"}));
    send_events(&stream, &[&delta("Hi"), &usage_event(9, 1), &late, ": bye\n\n", DONE]);
    assert_eq!(stream.seen().client.text(), [&delta("Hi"), &late, ": bye\n\n", DONE].concat());
    assert_eq!(account(&proxy, "tokens"), spent(10));
}

#[test]
fn no_byte_of_an_answer_waits_for_another() {
    let proxy = launch(&tokens(1000));
    let stream = Ask::stream(100).send(&proxy);
    begin_events(&stream);
    for part in [delta("one"), delta(" tw\u{f6}"), ": ping\n\n".to_owned()] {
        let before = stream.seen().client.body().len();
        let (head, tail) = part.as_bytes().split_at(part.len() - 8);
        stream.answer_chunk(head, false);
        stream.answer_chunk(tail, false);
        assert_eq!(stream.seen().client.body().len(), before + part.len());
    }
}

/// 1,000 events of one token each, against a hold of 100.
fn outgrown(proxy: &ProxyUnderTest) -> impl Stream {
    let stream = Ask::stream(100).send(proxy);
    begin_events(&stream);
    let text = delta(" word");
    for _ in 0..100 {
        stream.answer_chunk(text.as_bytes(), false);
    }
    assert_eq!(account(proxy, "tokens"), held(PROMPT + 100));
    stream.answer_chunk(text.as_bytes(), false);
    assert_eq!(account(proxy, "tokens"), held(PROMPT + 100 + 256));
    for _ in 101..1000 {
        stream.answer_chunk(text.as_bytes(), false);
    }
    stream
}

#[test]
fn a_stream_that_outgrows_its_hold_is_charged_in_steps_and_may_finish() {
    let proxy = launch(&tokens(1000));
    let stream = outgrown(&proxy);
    assert_eq!(account(&proxy, "tokens"), held(PROMPT + 100 + 4 * 256));
    assert_eq!(Ask::new(1).send(&proxy).seen().status(), 429, "the next request meets the fuller account");
    send_events(&stream, &[&usage_event(9, 1001), DONE]);
    assert_eq!(account(&proxy, "tokens"), spent(1010));
    let seen = stream.seen();
    assert_eq!(seen.client.text().matches(" word").count(), 1000);
    assert_eq!(seen.record()["over_hold"], json!(true));
    assert_eq!(proxy.metric("tollgate_streams_over_hold_total"), 1);
}

#[test]
fn what_a_step_took_too_much_is_given_back_in_the_end() {
    let proxy = launch(&tokens(1000));
    let stream = outgrown(&proxy);
    stream.client_leaves();
    assert_eq!(account(&proxy, "tokens"), spent(PROMPT + 1000));
}

#[test]
fn one_chunk_far_beyond_the_hold_takes_all_its_steps_at_once() {
    let proxy = launch(&tokens(1000));
    let stream = Ask::stream(100).send(&proxy);
    begin_events(&stream);
    stream.answer_chunk(delta(&" word".repeat(700)).as_bytes(), false);
    assert_eq!(account(&proxy, "tokens"), held(PROMPT + 100 + 3 * 256));
}

#[test]
fn a_stream_within_its_hold_says_so() {
    let proxy = launch(&tokens(1000));
    let stream = Ask::new(100).send(&proxy);
    answer(&stream, 9, 99);
    assert_eq!(stream.seen().record()["over_hold"], json!(false));
    assert_eq!(proxy.metric("tollgate_streams_over_hold_total"), 0);
}
