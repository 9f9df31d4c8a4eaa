//! An answer that ends, however it ends, is settled once and to the right amount.

use serde_json::json;

use super::{account, held, launch, limit, policy, spent, tokens};
use crate::common::proxy::{Proxy, Stream};
use crate::common::requests::{
    Ask, DONE, PROMPT, answer, answer_bytes, answer_json, begin_events, delta, send_events,
};

#[test]
fn a_plain_answer_is_settled_to_what_the_provider_reports() {
    let proxy = launch(&tokens(1000));
    let stream = Ask::new(500).send(&proxy);
    assert_eq!(account(&proxy, "tokens"), held(PROMPT + 500));
    answer(&stream, 9, 41);
    assert_eq!(account(&proxy, "tokens"), spent(50));
    let seen = stream.seen();
    seen.check_framing();
    assert_eq!((seen.status(), seen.details.as_deref()), (200, Some("via_upstream")));
    let record = seen.record();
    assert_eq!((&record["decision"], &record["status"]), (&json!("granted"), &json!("ok")));
    assert_eq!((seen.recorded("estimated_input"), seen.recorded("held_output")), (PROMPT, 500));
    assert_eq!((seen.recorded("input"), seen.recorded("output")), (9, 41));
    assert_eq!(proxy.metric("tollgate_decisions_total;outcome=granted"), 1);
    assert_eq!(proxy.metric("tollgate_settlements_total;outcome=closed"), 1);
    assert_eq!(proxy.metric("tollgate_tokens_total;kind=output;model=gpt-4o*"), 41);
    assert_eq!(proxy.metric("tollgate_estimated_input_tokens_total;model=gpt-4o*"), PROMPT);
    assert_eq!(proxy.metric("tollgate_reported_input_tokens_total;model=gpt-4o*"), 9);
}

#[test]
fn the_upstream_gets_the_clients_bytes_and_the_client_the_upstreams() {
    let proxy = launch(&tokens(10_000));
    let ask = Ask::raw("  {\"messages\": [{\"content\":\"Hi\",\"role\":\"user\"}],\n \"model\":\"gpt-4o\", \"x\": [1.50e1]}\n")
        .header("x-request-id", "7")
        .header("cookie", "a=b");
    let stream = ask.send(&proxy);
    answer_bytes(&stream, 200, &[("x-provider", "p")], b"{ \"choices\":[] , \"usage\" : null}");
    let seen = stream.seen();
    assert_eq!(seen.upstream.body(), ask.body);
    assert_eq!(seen.upstream.header("x-request-id").as_deref(), Some("7"));
    assert_eq!(seen.upstream.header("cookie").as_deref(), Some("a=b"));
    assert_eq!(seen.client.text(), "{ \"choices\":[] , \"usage\" : null}");
    assert_eq!(seen.header("x-provider").as_deref(), Some("p"));
}

#[test]
fn usage_can_only_be_read_as_text_so_no_other_coding_is_asked_for() {
    let proxy = launch(&tokens(1000));
    let seen = Ask::new(10).header("accept-encoding", "gzip, br").send(&proxy).seen();
    assert_eq!(seen.upstream.header("accept-encoding").as_deref(), Some("identity"));
}

#[test]
fn more_than_was_held_is_charged_as_debt() {
    let proxy = launch(&tokens(1000));
    answer(&Ask::new(100).send(&proxy), 400, 900);
    assert_eq!(account(&proxy, "tokens"), spent(1300));
    assert_eq!(Ask::new(1).send(&proxy).seen().status(), 429);
}

#[test]
fn an_answer_without_usage_costs_the_prompt_and_what_was_seen() {
    let proxy = launch(&tokens(1000));
    let stream = Ask::new(500).send(&proxy);
    let message = json!({"role": "assistant", "content": "one two three four"});
    answer_json(&stream, &json!({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}));
    assert_eq!(account(&proxy, "tokens"), spent(PROMPT + 4));
    assert_eq!(proxy.metric("tollgate_usage_missing_total;model=gpt-4o*"), 1);
}

#[test]
fn a_client_that_leaves_while_it_uploads_pays_nothing() {
    let proxy = launch(&tokens(1000));
    let before = Ask::new(100).begin(&proxy, 0);
    before.client_leaves();
    let midway = Ask::new(100).begin(&proxy, 0);
    midway.body(b"{\"model\": \"gpt", false);
    midway.client_leaves();
    for stream in [before, midway] {
        let seen = stream.seen();
        assert!(seen.untouched_upstream() && seen.ended && seen.record.is_none(), "{seen:?}");
    }
    assert_eq!(account(&proxy, "tokens"), spent(0));
}

#[test]
fn a_client_that_leaves_before_the_answer_pays_its_prompt() {
    let proxy = launch(&tokens(1000));
    let stream = Ask::new(100).send(&proxy);
    stream.client_leaves();
    assert_eq!(account(&proxy, "tokens"), spent(PROMPT));
    assert_eq!(stream.seen().record()["status"], "client_disconnect");
}

#[test]
fn a_client_that_leaves_midway_pays_its_prompt_and_what_it_saw() {
    let proxy = launch(&tokens(1000));
    let stream = Ask::stream(100).send(&proxy);
    begin_events(&stream);
    stream.answer_chunk(delta("one two three").as_bytes(), false);
    stream.answer_chunk(&delta(" four five").as_bytes()[..30], false);
    stream.client_leaves();
    assert_eq!(account(&proxy, "tokens"), spent(PROMPT + 3));
    assert_eq!(stream.seen().record()["status"], "client_disconnect");
}

#[test]
fn a_providers_own_429_passes_untouched_and_costs_only_the_request() {
    let proxy = launch(&policy(json!([limit("tokens", "tokens", 1000), limit("requests", "requests", 5)])));
    let stream = Ask::new(100).send(&proxy);
    let theirs =
        [("retry-after", "7"), ("x-ratelimit-remaining-tokens", "0"), ("x-ratelimit-limit-tokens", "30000")];
    answer_bytes(&stream, 429, &theirs, b"{\"error\":{\"message\":\"slow down\"}}");
    let seen = stream.seen();
    assert_eq!(
        (seen.status(), seen.client.text().as_str()),
        (429, "{\"error\":{\"message\":\"slow down\"}}")
    );
    for (name, value) in theirs {
        assert_eq!(seen.client.headers.as_ref().unwrap().values(name), [value]);
    }
    assert_eq!(seen.header("x-tokenlimit-remaining"), None);
    assert_eq!(seen.record()["status"], "upstream_error");
    assert_eq!(account(&proxy, "tokens"), spent(0));
    assert_eq!(account(&proxy, "requests"), spent(1));
}

#[test]
fn an_answer_of_500_costs_no_tokens() {
    let proxy = launch(&tokens(1000));
    let stream = Ask::new(100).send(&proxy);
    answer_bytes(&stream, 500, &[], b"{\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":5}}");
    assert_eq!(account(&proxy, "tokens"), spent(0));
    assert!(stream.seen().header("x-tokenlimit-remaining").is_some());
}

#[test]
fn an_upstream_that_resets_before_its_answer_costs_no_tokens() {
    let proxy = launch(&tokens(1000));
    let stream = Ask::new(100).send(&proxy);
    stream.upstream_resets();
    assert_eq!(stream.seen().status(), 503);
    assert_eq!(account(&proxy, "tokens"), spent(0));
}

#[test]
fn an_upstream_that_resets_midway_is_paid_for_what_came() {
    let proxy = launch(&tokens(1000));
    let stream = Ask::stream(100).send(&proxy);
    begin_events(&stream);
    stream.answer_chunk(delta("one two").as_bytes(), false);
    stream.upstream_resets();
    assert_eq!(account(&proxy, "tokens"), spent(PROMPT + 2));
}

#[test]
fn a_stream_that_breaks_off_before_any_token_is_paid_by_who_broke_it() {
    let proxy = launch(&tokens(1000));
    let broken = Ask::stream(100).send(&proxy);
    begin_events(&broken);
    broken.upstream_resets();
    assert_eq!(account(&proxy, "tokens"), spent(0));
    assert_eq!(broken.seen().record()["status"], "upstream_error");
    let left = Ask::stream(100).send(&proxy);
    begin_events(&left);
    left.client_leaves();
    assert_eq!(account(&proxy, "tokens"), spent(PROMPT));
    assert_eq!(left.seen().record()["status"], "client_disconnect");
}

#[test]
fn an_answer_that_comes_compressed_all_the_same_costs_the_whole_hold() {
    let proxy = launch(&tokens(1000));
    let stream = Ask::new(100).send(&proxy);
    answer_bytes(&stream, 200, &[("content-encoding", "gzip")], b"\x1f\x8b\x08\0rest");
    assert_eq!(stream.seen().client.body(), b"\x1f\x8b\x08\0rest");
    assert_eq!(account(&proxy, "tokens"), spent(PROMPT + 100));
}

#[test]
fn an_answer_that_the_proxy_gave_itself_costs_no_tokens() {
    let proxy = launch(&tokens(1000));
    for (status, details) in [(503, "no_healthy_upstream"), (504, "upstream_response_timeout")] {
        let stream = Ask::new(100).send(&proxy);
        stream.proxy_replies(status, details);
        assert_eq!(stream.seen().status(), status);
        assert_eq!(stream.seen().record()["status"], "upstream_error");
        assert_eq!(account(&proxy, "tokens"), spent(0));
    }
}

#[test]
fn our_own_refusal_passes_the_answers_callbacks_and_settles_nothing() {
    let proxy = launch(&tokens(1000));
    let open = Ask::new(900).send(&proxy);
    let refused = Ask::new(900).send(&proxy).seen();
    assert_eq!((refused.status(), refused.ended), (429, true));
    assert_eq!(account(&proxy, "tokens"), held(PROMPT + 900));
    assert_eq!(proxy.metric_sum("tollgate_settlements_total"), 0);
    answer(&open, 10, 10);
    assert_eq!(proxy.metric_sum("tollgate_settlements_total"), 1);
    assert_eq!(account(&proxy, "tokens"), spent(20));
}

#[test]
fn whatever_comes_after_the_end_settles_nothing_more() {
    let proxy = launch(&tokens(1000));
    let stream = Ask::new(500).send(&proxy);
    answer(&stream, 10, 10);
    stream.answer_chunk(b"more", true);
    stream.client_leaves();
    stream.upstream_resets();
    assert_eq!(account(&proxy, "tokens"), spent(20));
    assert_eq!(proxy.metric_sum("tollgate_settlements_total"), 1);
}

#[test]
fn an_answer_that_ends_with_trailers_is_settled_like_any_other() {
    let proxy = launch(&tokens(1000));
    let stream = Ask::stream(100).send(&proxy);
    begin_events(&stream);
    stream.answer_chunk(delta("one two").as_bytes(), false);
    stream.answer_chunk(DONE.as_bytes(), false);
    stream.answer_trailers();
    assert!(stream.seen().client.ended);
    assert_eq!(account(&proxy, "tokens"), spent(PROMPT + 2));
}

#[test]
fn an_empty_good_answer_is_an_answer_of_nothing() {
    let proxy = launch(&tokens(1000));
    let stream = Ask::stream(100).send(&proxy);
    begin_events(&stream);
    send_events(&stream, &[]);
    assert_eq!(account(&proxy, "tokens"), spent(PROMPT));
}
