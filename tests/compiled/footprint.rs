//! Linear memory never shrinks, so what one input makes it grow to is what the worker keeps.

use super::{prose, roomy_proxy, user};
use crate::common::proxy::Stream;
use crate::common::requests::{Ask, answer, begin_events, delta};

const KIB: usize = 1024;

#[test]
fn ordinary_traffic_takes_little_more_than_the_tables() {
    let proxy = roomy_proxy();
    let fresh = proxy.vm(0).memory_bytes();
    for n in 0..500 {
        answer(&user(&format!("Question {n}: {}", prose(2 * KIB))).send(&proxy), 9, 1);
    }
    let grown = proxy.vm(0).memory_bytes() - fresh;
    assert!(grown <= 256 * KIB, "{grown} bytes beside {fresh}");
}

#[test]
fn a_second_large_body_takes_no_more_than_the_first() {
    let proxy = roomy_proxy();
    let fresh = proxy.vm(0).memory_bytes();
    let size = KIB * KIB / 2;
    let bodies = [prose(size), " ".repeat(size), "a".repeat(size), "\n".repeat(size / 2)];
    let mut sizes = Vec::new();
    for _ in 0..3 {
        for text in &bodies {
            let stream = user(text).send(&proxy);
            answer(&stream, 9, 1);
        }
        sizes.push(proxy.vm(0).memory_bytes());
    }
    assert_eq!(sizes[1], sizes[2], "{sizes:?}");
    let grown = sizes[2] - fresh;
    // The host's copy of the body, and what is read out of it.
    assert!(grown <= 6 * size, "{grown} bytes beside {fresh}");
}

#[test]
fn a_stream_takes_no_memory_that_grows_with_it() {
    let proxy = roomy_proxy();
    let stream = Ask::stream(100_000).send(&proxy);
    begin_events(&stream);
    let chunk = delta(" word");
    (0..100).for_each(|_| stream.answer_chunk(chunk.as_bytes(), false));
    let early = proxy.vm(0).memory_bytes();
    (0..5000).for_each(|_| stream.answer_chunk(chunk.as_bytes(), false));
    assert_eq!(proxy.vm(0).memory_bytes(), early);
}

#[test]
fn an_event_without_end_is_kept_within_a_bound() {
    let proxy = roomy_proxy();
    let fresh = proxy.vm(0).memory_bytes();
    for begin in ["data: ", "data: {\"usage\":{", "data: {\"choices\":[{\"delta\":{\"content\":\""] {
        let stream = Ask::stream(100_000).send(&proxy);
        begin_events(&stream);
        stream.answer_chunk(begin.as_bytes(), false);
        let chunk = vec![b'x'; 64 * KIB];
        (0..40).for_each(|_| stream.answer_chunk(&chunk, false));
        stream.client_leaves();
        assert!(stream.seen().client.body().len() > 2 * KIB * KIB, "passed on unread");
    }
    let grown = proxy.vm(0).memory_bytes() - fresh;
    assert!(grown <= 4 * KIB * KIB, "{grown} bytes beside {fresh}");
}
