//! Whether request headers are held while the body is read, and what a slow client or an unable host makes
//! of it. No good client is ever refused for it.

use serde_json::json;
use tollgate_hostsim::Profile;

use super::{account, held, launch, merged, spent, tokens};
use crate::ProxyUnderTest;
use crate::common::proxy::{Proxy, Setup, Stream};
use crate::common::requests::{Ask, PROMPT, answer, begin_events, delta, send_events};

fn proxy(header_hold: &str, profile: Profile) -> ProxyUnderTest {
    let policy = merged(tokens(1000), json!({"host": {"header_hold": header_hold}}));
    ProxyUnderTest::launch(&Setup::new(&policy).profile(profile))
}

fn released(proxy: &ProxyUnderTest) -> u64 {
    proxy.metric("tollgate_headers_released_total")
}

#[test]
fn held_headers_go_with_the_whole_body() {
    for header_hold in ["auto", "hold"] {
        let proxy = proxy(header_hold, Profile::EnvoyHold);
        let ask = Ask::new(100);
        let stream = ask.begin(&proxy, 0);
        let (head, tail) = ask.body.split_at(20);
        stream.body(head, false);
        assert!(stream.seen().untouched_upstream());
        stream.body(tail, true);
        assert!(stream.seen().passed());
    }
}

#[test]
fn without_holding_headers_go_at_once_and_the_body_stays_as_it_is() {
    let proxy = proxy("none", Profile::EnvoyHold);
    let ask = Ask::stream(100);
    let stream = ask.begin(&proxy, 0);
    assert!(!stream.seen().untouched_upstream());
    stream.body(&ask.body, true);
    let seen = stream.seen();
    assert_eq!(seen.upstream.body(), ask.body);
    seen.check_framing();
    begin_events(&stream);
    send_events(&stream, &[&delta("one two")]);
    assert_eq!(account(&proxy, "tokens"), spent(PROMPT + 2));
}

#[test]
fn without_holding_a_refused_body_still_does_not_go_upstream() {
    let proxy = proxy("none", Profile::EnvoyNoHold);
    let seen = Ask::new(2000).send(&proxy).seen();
    assert_eq!((seen.status(), seen.upstream.body().len(), seen.upstream.ended), (413, 0, false));
}

#[test]
fn a_host_that_shows_no_body_is_found_out_and_its_client_served() {
    let proxy = proxy("auto", Profile::EnvoyNoHold);
    let ask = Ask::stream(100);
    let first = ask.send(&proxy);
    assert!(first.seen().held && first.seen().untouched_upstream());
    proxy.advance(1500);
    assert!(first.seen().untouched_upstream());
    proxy.advance(1000);
    let seen = first.seen();
    assert!(seen.passed(), "{seen:?}");
    assert_eq!((seen.upstream.body(), released(&proxy)), (ask.body.clone(), 1));
    seen.check_framing();
    assert_eq!(account(&proxy, "tokens"), held(PROMPT + 100));
    // Once may be a slow client's doing; three times in a row is the host's.
    let more = [ask.send(&proxy), ask.send(&proxy)];
    assert!(more.iter().all(|stream| stream.seen().held));
    proxy.advance(2500);
    assert!(more.iter().all(|stream| stream.seen().passed()));
    // It has learned: the next is not kept waiting.
    let last = ask.send(&proxy);
    assert!(last.seen().passed());
    assert_eq!((account(&proxy, "tokens"), released(&proxy)), (held(4 * (PROMPT + 100)), 3));
    for stream in [first].iter().chain(&more).chain([&last]) {
        answer(stream, 9, 1);
    }
    assert_eq!(account(&proxy, "tokens"), spent(40));
}

#[test]
fn a_refusal_reaches_the_client_of_a_host_that_shows_no_body() {
    let proxy = proxy("auto", Profile::EnvoyNoHold);
    let stream = Ask::new(2000).send(&proxy);
    proxy.advance(2500);
    let seen = stream.seen();
    assert_eq!((seen.status(), seen.upstream.body().len()), (413, 0));
}

#[test]
fn a_slow_uploader_is_served_and_teaches_nothing() {
    let proxy = proxy("auto", Profile::EnvoyHold);
    let ask = Ask::stream(100);
    let slow = ask.begin(&proxy, 0);
    proxy.advance(10_000);
    assert!(!slow.seen().untouched_upstream(), "its headers were let go");
    let (head, tail) = ask.body.split_at(9);
    slow.body(head, false);
    proxy.advance(10_000);
    slow.body(tail, true);
    let seen = slow.seen();
    assert_eq!((seen.passed(), seen.upstream.body()), (true, ask.body.clone()));
    assert_eq!(account(&proxy, "tokens"), held(PROMPT + 100));
    // The next one is held as before.
    let next = ask.begin(&proxy, 0);
    assert!(next.seen().untouched_upstream());
    next.body(&ask.body, true);
    assert!(next.seen().passed() && next.seen().upstream.body() != ask.body, "and rewritten");
}

#[test]
fn once_a_body_came_while_headers_were_held_they_are_held_however_long_it_takes() {
    let proxy = proxy("auto", Profile::EnvoyHold);
    assert!(Ask::new(10).send(&proxy).seen().passed());
    let ask = Ask::new(10);
    let slow = ask.begin(&proxy, 0);
    proxy.advance(60_000);
    assert!(slow.seen().untouched_upstream());
    slow.body(&ask.body, true);
    assert!(slow.seen().passed());
    assert_eq!(released(&proxy), 0);
}

#[test]
fn a_first_byte_that_comes_in_time_keeps_the_headers() {
    let proxy = proxy("auto", Profile::EnvoyHold);
    let ask = Ask::new(10);
    let slow = ask.begin(&proxy, 0);
    proxy.advance(1900);
    slow.body(&ask.body[..1], false);
    proxy.advance(60_000);
    assert!(slow.seen().untouched_upstream());
    slow.body(&ask.body[1..], true);
    assert!(slow.seen().passed());
}

#[test]
fn a_stream_that_left_is_told_no_time() {
    let proxy = proxy("auto", Profile::EnvoyHold);
    let gone = Ask::new(10).begin(&proxy, 0);
    gone.client_leaves();
    proxy.advance(10_000);
    assert_eq!(released(&proxy), 0);
    let _alive = launch(&tokens(1));
}
