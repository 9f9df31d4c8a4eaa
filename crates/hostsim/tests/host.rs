//! The host's own behaviour, driven with small hand-written filters.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests: misuse stops the test where it stands"
)]

mod fixture;

use std::rc::Rc;

use fixture::filter;
use tollgate_hostsim::{
    Answer, Author, Callback, Cluster, Ending, Flow, Framing, Process, Profile, QueueDelivery, StartError,
    Vm, VmOptions,
};

const POST: [(&str, &str); 4] =
    [(":method", "POST"), (":path", "/v1"), (":authority", "api"), ("content-length", "7")];
const OK: [(&str, &str); 1] = [(":status", "200")];

fn start(source: &str, options: VmOptions) -> (Process, Vm) {
    let process = Process::new(&filter(source));
    process.cluster("counter", Cluster::Healthy);
    let vm = process.vm(options);
    vm.start().unwrap();
    (process, vm)
}

/// What the filter recorded, in order.
fn noted(process: &Process) -> Vec<u64> {
    process.metrics()["noted"].samples.clone()
}

/// Pauses headers, and bodies until their end; notes every size it is told.
const COLLECT: &str = r#"
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (i32.eqz (local.get 2)))
    (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
        (call $note (local.get 1))
        (i32.eqz (local.get 2)))"#;

#[test]
fn a_paused_body_is_told_by_its_accumulated_size_and_its_end_lets_the_headers_go() {
    let (process, vm) = start(COLLECT, VmOptions::default());
    let stream = vm.stream(POST, false).unwrap();
    assert_eq!(stream.body("abc", false), Ok(Flow::Held));
    assert_eq!(stream.body("defg", false), Ok(Flow::Held));
    assert_eq!(stream.upstream().headers, None);
    assert_eq!(stream.body("", true), Ok(Flow::Flowing));
    assert_eq!(noted(&process), [3, 7, 7]);
    assert_eq!(stream.upstream().text(), "abcdefg");
    assert_eq!(stream.upstream_framing(), Framing::Exact(7));
}

#[test]
fn trailers_end_a_request_whose_body_never_ended() {
    let (process, vm) = start(COLLECT, VmOptions::default());
    let stream = vm.stream(POST, false).unwrap();
    stream.body("abcdefg", false).unwrap();
    assert_eq!(stream.request_trailers([("x-sum", "1")]), Ok(Flow::Flowing));
    assert_eq!(noted(&process), [7], "the end of the stream was never shown");
    let upstream = stream.upstream();
    assert!(upstream.ended && upstream.trailers.unwrap().contains("x-sum"));
}

#[test]
fn a_body_that_is_let_flow_takes_the_held_headers_with_it() {
    let source = r#"
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 1))"#;
    let (_, vm) = start(source, VmOptions::default());
    let stream = vm.stream(POST, false).unwrap();
    assert_eq!(stream.body("abc", false), Ok(Flow::Flowing));
    assert_eq!(stream.upstream().text(), "abc");
    assert_eq!(stream.upstream_framing(), Framing::Unfinished { declared: 7, sent: 3 });
}

/// Resumes the second context from the root's tick, noting whether it could be spoken for.
const RESUME_ON_TICK: &str = r#"
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 1))
    (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
        (call $note (local.get 1))
        (i32.const 0))
    (func (export "proxy_on_tick") (param i32)
        (local $status i32)
        (local.set $status (call $effective (i32.const 2)))
        (call $note (local.get $status))
        (if (i32.eqz (local.get $status)) (then (drop (call $continue (i32.const 0))))))"#;

#[test]
fn without_header_hold_no_body_is_shown_until_the_stream_is_resumed() {
    let (process, vm) = start(RESUME_ON_TICK, VmOptions::default().profile(Profile::EnvoyNoHold));
    let stream = vm.stream(POST, false).unwrap();
    assert_eq!(stream.body("abc", false), Ok(Flow::Held));
    assert_eq!(stream.body("defg", true), Ok(Flow::Held));
    assert_eq!(stream.callbacks(), [Callback::RequestHeaders]);
    vm.tick().unwrap();
    assert_eq!(noted(&process), [0, 7]);
    assert_eq!(stream.upstream().text(), "abcdefg");
    assert!(stream.upstream().ended);
}

#[test]
fn a_stream_that_has_gone_cannot_be_spoken_for() {
    const BAD_ARGUMENT: u64 = 2;
    let (process, vm) = start(RESUME_ON_TICK, VmOptions::default());
    let stream = vm.stream(POST, true).unwrap();
    assert_eq!(stream.request_flow(), Flow::Held);
    stream.client_gone().unwrap();
    assert_eq!(stream.callbacks()[1..], [Callback::Log, Callback::Done, Callback::Delete]);
    assert_eq!(stream.ending(), Some(Ending::ClientGone));
    vm.tick().unwrap();
    assert_eq!(noted(&process), [BAD_ARGUMENT]);
    assert!(vm.misuses().is_empty());
}

/// Refuses at the end of the body, and marks every response that passes.
const REFUSE: &str = r#"
    (data (i32.const 0) "tg refused" "no" "response\00code_details" "x-seen" "yes")
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (i32.eqz (local.get 2)))
    (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
        (if (local.get 2) (then (drop (call $reply (i32.const 429) (i32.const 0) (i32.const 10)
            (i32.const 10) (i32.const 2) (i32.const 0) (i32.const 0) (i32.const -1)))))
        (i32.const 1))
    (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
        (drop (call $property (i32.const 12) (i32.const 21) (i32.const 200) (i32.const 204)))
        (call $note (i32.load (i32.const 204)))
        (drop (call $add (i32.const 2) (i32.const 33) (i32.const 6) (i32.const 39) (i32.const 3)))
        (i32.const 0))"#;

#[test]
fn the_filters_own_reply_passes_its_own_response_callbacks() {
    let (process, vm) = start(REFUSE, VmOptions::default());
    let stream = vm.stream(POST, false).unwrap();
    assert_eq!(stream.body("abcdefg", true), Ok(Flow::Ended));
    use Callback::{Delete, Done, Log, RequestBody, RequestHeaders, ResponseBody, ResponseHeaders};
    let expected = [RequestHeaders, RequestBody, ResponseHeaders, ResponseBody, Log, Done, Delete];
    assert_eq!(stream.callbacks(), expected);
    let client = stream.client();
    assert_eq!((client.status(), client.text().as_str()), (Some(429), "no"));
    assert_eq!(client.header("x-seen").as_deref(), Some("yes"));
    assert_eq!(client.header("content-type").as_deref(), Some("text/plain"));
    assert_eq!(stream.client_framing(), Framing::Exact(2));
    assert_eq!(stream.reply().unwrap().by, Author::Filter);
    assert_eq!(stream.details().as_deref(), Some("tg_refused"));
    assert_eq!(noted(&process), ["tg_refused".len() as u64]);
    assert_eq!(stream.upstream().headers, None);
}

#[test]
fn the_proxys_own_replies_and_the_upstreams_answers_are_told_apart_by_their_details() {
    let (process, vm) = start(REFUSE, VmOptions::default());
    let answered = vm.stream(POST, true).unwrap();
    answered.response_headers(OK, true).unwrap();
    let lost = vm.stream(POST, true).unwrap();
    lost.upstream_reset().unwrap();
    let details = "upstream_reset_before_response_started{connection_termination}";
    assert_eq!(noted(&process), ["via_upstream".len() as u64, details.len() as u64]);
    assert_eq!(lost.client().status(), Some(503));
    let cut = vm.stream(POST, true).unwrap();
    cut.response_headers(OK, false).unwrap();
    cut.upstream_reset().unwrap();
    assert!(cut.client().cut);
    assert_eq!(cut.callbacks()[2..], [Callback::Log, Callback::Done, Callback::Delete]);
}

#[test]
fn a_paused_body_beyond_the_limit_is_answered_413_through_the_filter() {
    let (_, vm) = start(COLLECT, VmOptions::default().body_limit(5));
    let stream = vm.stream(POST, false).unwrap();
    assert_eq!(stream.body("abcde", false), Ok(Flow::Held));
    assert_eq!(stream.body("f", false), Ok(Flow::Ended));
    assert_eq!(stream.client().status(), Some(413));
    assert_eq!(stream.details().as_deref(), Some("request_payload_too_large"));
    assert!(stream.callbacks().contains(&Callback::ResponseBody));
}

#[test]
fn a_replaced_body_with_the_old_length_is_found_out() {
    let source = r#"
        (data (i32.const 0) "longer than it was")
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 1))
        (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
            (call $note (call $set_buffer
                (i32.const 0) (i32.const 0) (i32.const 3) (i32.const 0) (i32.const 18)))
            (call $note (call $set_buffer
                (i32.const 0) (i32.const 0) (local.get 1) (i32.const 0) (i32.const 18)))
            (i32.const 0))"#;
    let (process, vm) = start(source, VmOptions::default());
    let stream = vm.stream(POST, false).unwrap();
    stream.body("abcdefg", true).unwrap();
    assert_eq!(noted(&process), [2, 0], "a part cannot be replaced, the whole can");
    assert_eq!(stream.upstream().text(), "longer than it was");
    assert_eq!(stream.upstream_framing(), Framing::Broken { declared: 7, sent: 18 });
    assert!(!stream.upstream_framing().is_sound());
}

/// Reads a key and swaps it by the number read, once; notes the outcome.
const SWAP: &str = r#"
    (data (i32.const 0) "key" "mine")
    (func (export "proxy_on_tick") (param i32)
        (i32.store (i32.const 208) (i32.const 0))
        (call $note (call $get_shared
            (i32.const 0) (i32.const 3) (i32.const 200) (i32.const 204) (i32.const 208)))
        (call $note (call $set_shared
            (i32.const 0) (i32.const 3) (i32.const 3) (i32.const 4) (i32.load (i32.const 208)))))"#;

#[test]
fn a_write_by_another_worker_between_read_and_swap_is_a_mismatch() {
    const NOT_FOUND: u64 = 1;
    const CAS_MISMATCH: u64 = 8;
    let (process, vm) = start(SWAP, VmOptions::default());
    vm.tick().unwrap();
    let other = process.clone();
    process.interpose(move |write| other.set_shared_data(&write.vm_id, &write.key, "theirs"));
    vm.tick().unwrap();
    process.stop_interposing();
    assert_eq!(process.shared_data("tollgate", "key").unwrap().value, b"theirs");
    vm.tick().unwrap();
    assert_eq!(noted(&process), [NOT_FOUND, 0, 0, CAS_MISMATCH, 0, 0]);
    assert_eq!(process.shared_data("tollgate", "key").unwrap().value, b"mine");
}

#[test]
fn the_race_of_two_workers_over_a_missing_key_loses_one_write() {
    let (process, vm) = start(SWAP, VmOptions::default());
    let other = process.vm(VmOptions::default());
    other.start().unwrap();
    let racer = Rc::new(other);
    process.interpose(move |_| racer.tick().unwrap());
    vm.tick().unwrap();
    assert_eq!(noted(&process), [1, 1, 0, 0], "both found nothing and both wrote");
}

#[test]
fn a_trap_kills_the_vm_and_a_reload_keeps_what_the_process_holds() {
    let source = r#"
        (data (i32.const 0) "key" "kept" "doomed")
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (drop (call $set_shared (i32.const 0) (i32.const 3) (i32.const 3) (i32.const 4) (i32.const 0)))
            (i32.const 0))
        (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
            (drop (call $log (i32.const 5) (i32.const 7) (i32.const 6)))
            (unreachable))"#;
    let (process, vm) = start(source, VmOptions::default());
    let answered = vm.stream(POST, true).unwrap();
    answered.response_headers(OK, false).unwrap();
    let crash = vm.stream(POST, false).unwrap();
    let trap = crash.body("abc", false).unwrap_err();
    assert_eq!((trap.callback, trap.panic.as_deref()), ("proxy_on_request_body", Some("doomed")));
    assert_eq!(crash.client().status(), Some(503));
    assert_eq!(crash.details().as_deref(), Some("wasm_fail_stream"));

    assert_eq!(vm.stream(POST, true).unwrap_err(), trap, "every later request fails alike");
    assert_eq!(answered.response_body("data", false).unwrap_err(), trap);
    assert!(answered.client().cut, "a running stream is cut at its next chunk");
    assert!(!answered.callbacks().contains(&Callback::Log));

    vm.reload().unwrap();
    assert_eq!(process.shared_data("tollgate", "key").unwrap().value, b"kept");
    let fresh = vm.stream(POST, true).unwrap();
    fresh.response_headers(OK, true).unwrap();
    assert_eq!(fresh.ending(), Some(Ending::Complete));
}

/// Enqueues in the log, dequeues in the root.
const QUEUE: &str = r#"
    (data (i32.const 0) "queue" "item")
    (func (export "proxy_on_configure") (param i32 i32) (result i32)
        (drop (call $register_queue (i32.const 0) (i32.const 5) (i32.const 300)))
        (i32.const 1))
    (func (export "proxy_on_log") (param i32)
        (drop (call $enqueue (i32.load (i32.const 300)) (i32.const 5) (i32.const 4))))
    (func (export "proxy_on_queue_ready") (param i32 i32)
        (call $note (call $dequeue (local.get 1) (i32.const 200) (i32.const 204)))
        (drop (call $log (i32.const 2) (i32.load (i32.const 200)) (i32.load (i32.const 204)))))"#;

#[test]
fn a_queue_wakes_only_the_vm_that_registered_it_last() {
    let (process, first) = start(QUEUE, VmOptions::default());
    let second = process.vm(VmOptions::default());
    second.start().unwrap();
    process.queue_delivery(QueueDelivery::OnDemand);
    let stream = first.stream(POST, true).unwrap();
    stream.response_headers(OK, true).unwrap();
    assert_eq!(process.queue_depth("tollgate", "queue"), Some(1));
    process.deliver().unwrap();
    assert_eq!(process.queue_depth("tollgate", "queue"), Some(0));
    assert!(first.log().is_empty());
    let lines = second.log();
    assert_eq!((lines.len(), lines[0].message.as_str(), lines[0].context), (1, "item", 1));
}

/// Calls out of the headers and waits; resumes by the answer.
const CALL: &str = r#"
    (data (i32.const 0) "counter"
        "\03\00\00\00\05\00\00\00\01\00\00\00\07\00\00\00\04\00\00\00\0a\00\00\00\01\00\00\00"
        ":path\00/\00:method\00POST\00:authority\00c\00")
    (data (i32.const 100) "\00\00\00\00" "body")
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
        (call $note (call $http_call (i32.const 0) (i32.const 7) (i32.const 7) (i32.const 68)
            (i32.const 104) (i32.const 4) (i32.const 100) (i32.const 4) (i32.const 100) (i32.const 300)))
        (i32.const 1))
    (func (export "proxy_on_http_call_response") (param i32 i32 i32 i32 i32)
        (call $note (local.get 2))
        (drop (call $effective (i32.const 2)))
        (drop (call $continue (i32.const 0))))"#;

#[test]
fn a_call_is_answered_by_the_test_or_times_out_with_the_hosts_own_504() {
    let (process, vm) = start(CALL, VmOptions::default());
    let stream = vm.stream(POST, true).unwrap();
    let call = vm.calls().remove(0);
    assert_eq!(
        (call.cluster.as_str(), call.body.as_slice(), call.timeout_ms),
        ("counter", &b"body"[..], 100)
    );
    assert_eq!(call.headers.text("content-length").as_deref(), Some("4"));
    process.advance(99).unwrap();
    assert_eq!(stream.request_flow(), Flow::Held);
    process.advance(1).unwrap();
    assert_eq!(noted(&process), [0, 3]);
    assert!(stream.upstream().ended);
}

#[test]
fn a_call_outlives_its_stream_and_one_to_nowhere_is_refused_at_once() {
    let (process, vm) = start(CALL, VmOptions::default());
    let gone = vm.stream(POST, true).unwrap();
    gone.client_gone().unwrap();
    let token = vm.calls()[0].token;
    vm.answer(token, Answer::response(200, "granted").header("x-marker", "1")).unwrap();
    process.cluster("counter", Cluster::Unavailable);
    vm.stream(POST, true).unwrap();
    assert_eq!(noted(&process), [0, 2, 10]);
    assert!(vm.calls().is_empty());
    let misuse = &vm.misuses()[0];
    assert!(misuse.contains("resumed"), "the resume after the failed switch hit the root: {misuse}");
}

#[test]
fn request_headers_are_readable_while_held_and_again_in_the_log() {
    const OK: u64 = 0;
    const BAD_ARGUMENT: u64 = 2;
    let source = r#"
        (data (i32.const 0) ":path")
        (func $read
            (call $note (call $header
                (i32.const 0) (i32.const 0) (i32.const 5) (i32.const 200) (i32.const 204))))
        (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
            (call $read) (i32.const 0))
        (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32)
            (call $read) (i32.const 0))
        (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
            (call $read) (i32.const 0))
        (func (export "proxy_on_log") (param i32) (call $read))"#;
    let (process, vm) = start(source, VmOptions::default());
    let stream = vm.stream(POST, false).unwrap();
    stream.body("abcdefg", true).unwrap();
    stream.response_headers([(":status", "200")], true).unwrap();
    assert_eq!(noted(&process), [OK, BAD_ARGUMENT, BAD_ARGUMENT, OK]);
}

#[test]
fn response_chunks_pass_one_by_one_and_an_emptied_one_is_not_sent() {
    let source = r#"
        (func (export "proxy_on_response_body") (param i32 i32 i32) (result i32)
            (if (i32.eq (local.get 1) (i32.const 3)) (then (drop (call $set_buffer
                (i32.const 1) (i32.const 0) (i32.const 3) (i32.const 0) (i32.const 0)))))
            (i32.const 0))"#;
    let (_, vm) = start(source, VmOptions::default());
    let stream = vm.stream(POST, true).unwrap();
    stream.response_headers(OK, false).unwrap();
    for chunk in ["one event", "two", "the last"] {
        stream.response_body(chunk, false).unwrap();
    }
    assert_eq!(stream.client().chunks, [b"one event".to_vec(), b"the last".to_vec()]);
    assert_eq!(stream.response_trailers([("x-t", "1")]), Ok(Flow::Ended));
    assert_eq!(stream.ending(), Some(Ending::Complete));
    stream.finish().unwrap();
    assert_eq!(stream.callbacks().iter().filter(|it| **it == Callback::Log).count(), 1);
}

#[test]
fn ticks_follow_the_steady_clock_whatever_the_wall_clock_does() {
    let source = r#"
        (func (export "proxy_on_configure") (param i32 i32) (result i32)
            (drop (call $set_tick (i32.const 100)))
            (i32.const 1))
        (func (export "proxy_on_tick") (param i32)
            (drop (call $now (i32.const 400)))
            (call $note (i32.wrap_i64 (i64.div_u (i64.load (i32.const 400)) (i64.const 1000000)))))"#;
    let (process, vm) = start(source, VmOptions::default());
    process.set_time(5_000);
    process.advance(250).unwrap();
    process.set_time(1_000);
    process.advance(50).unwrap();
    assert_eq!(noted(&process), [5_100, 5_200, 1_050]);
    assert_eq!(vm.tick_period_ms(), Some(100));
}

#[test]
fn the_same_work_burns_the_same_fuel_and_endless_work_is_stopped() {
    let burnt = || {
        let (_, vm) = start(COLLECT, VmOptions::default());
        vm.reset_fuel();
        vm.stream(POST, false).unwrap().body("abcdefg", true).unwrap();
        assert_eq!(vm.memory_bytes(), 2 * 65_536);
        vm.fuel_used()
    };
    assert!(burnt() > 0);
    assert_eq!(burnt(), burnt());

    let source = r#"(func (export "proxy_on_tick") (param i32) (loop $for_ever (br $for_ever)))"#;
    let (_, vm) = start(source, VmOptions::default().fuel_limit(100_000));
    assert_eq!(vm.tick().unwrap_err().callback, "proxy_on_tick");
    assert!(vm.trap().is_some());
}

#[test]
fn a_configuration_is_readable_while_configuring_only_and_may_be_refused() {
    let source = r#"
        (func $read (result i32)
            (i32.store (i32.const 204) (i32.const 0))
            (call $note (call $buffer
                (i32.const 7) (i32.const 0) (i32.const 4096) (i32.const 200) (i32.const 204)))
            (i32.load (i32.const 204)))
        (func (export "proxy_on_configure") (param i32 i32) (result i32)
            (i32.eq (call $read) (i32.const 4)))
        (func (export "proxy_on_tick") (param i32) (drop (call $read)))"#;
    let (process, vm) = start(source, VmOptions::new("good"));
    vm.tick().unwrap();
    assert_eq!(noted(&process), [0, 1]);
    assert_eq!(process.vm(VmOptions::new("not good")).start(), Err(StartError::ConfigureRefused));
}

#[test]
fn a_context_behind_the_one_that_replied_sees_only_the_log() {
    let (_, vm) = start(COLLECT, VmOptions::default());
    let request = tollgate_hostsim::Request::new(POST);
    let stream = vm.unseen(request, 400, "http1.codec_error").unwrap();
    assert_eq!(stream.callbacks(), [Callback::Log, Callback::Done, Callback::Delete]);
    assert_eq!(vm.open_streams(), 0);
}
