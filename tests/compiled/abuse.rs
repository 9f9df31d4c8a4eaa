//! Whatever a client, a provider or a host does, the module does not trap: one trap fails every request
//! that shares its VM.

use serde_json::json;
use tollgate_hostsim::{Headers, Profile, VmOptions};

use super::{ALLOWED, roomy, roomy_proxy};
use crate::common::answers;
use crate::common::cases;
use crate::common::cuts::Random;
use crate::common::proxy::compiled::module;
use crate::common::proxy::{Proxy, Stream};
use crate::common::requests::{Ask, begin_events};

/// A few bytes changed, cut out or doubled.
fn mutated(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=random.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len());
        match random.below(4) {
            0 => bytes[at] = u8::try_from(random.below(256)).unwrap(),
            1 => bytes[at] = b"{}[]\",:0\\\n-e"[random.below(12)],
            2 => drop(bytes.drain(at..(at + random.below(20)).min(bytes.len()))),
            _ => {
                let part = bytes[at..(at + random.below(20)).min(bytes.len())].to_vec();
                bytes.splice(at..at, part);
            }
        }
    }
    bytes
}

#[test]
fn bodies_with_changed_bytes_are_metered_or_refused_and_never_more() {
    let proxy = roomy_proxy();
    let mut random = Random::seeded(4711);
    for case in cases::requests().iter().filter(|case| case.ask.body.len() < 5000) {
        for _ in 0..10 {
            let ask = Ask::raw(mutated(&case.ask.body, &mut random));
            let stream = ask.send(&proxy);
            let seen = stream.seen();
            seen.check_framing();
            assert!(seen.passed() || [400, 413].contains(&seen.status()), "{}", seen.client.text());
            stream.client_leaves();
        }
    }
    let left = crate::common::requests::standing(&proxy, "tokens", "");
    assert_eq!(left.held, 0);
}

#[test]
fn answers_with_changed_bytes_pass_and_are_settled() {
    let proxy = roomy_proxy();
    let mut random = Random::seeded(4712);
    for answer in answers::openai().iter().filter(|answer| answer.bytes.len() < 5000) {
        for _ in 0..10 {
            let bytes = mutated(&answer.bytes, &mut random);
            let asks =
                [Ask::stream(100).with("stream_options", json!({"include_usage": true})), Ask::new(100)];
            let stream = asks[random.below(2)].send(&proxy);
            begin_events(&stream);
            bytes.chunks(1 + random.below(300)).for_each(|chunk| stream.answer_chunk(chunk, false));
            stream.answer_chunk(b"", true);
            assert_eq!(stream.seen().client.body(), bytes);
        }
    }
    assert_eq!(
        proxy.metric("tollgate_settlements_total;outcome=closed"),
        proxy.metric_sum("tollgate_settlements_total")
    );
}

/// As a capability restriction does, or a host that lacks the call: every call that the module makes fails in
/// turn. It may refuse to start; it may not trap, and a request that it does not let go is answered.
#[test]
fn no_hostcall_that_fails_makes_it_trap() {
    for call in ALLOWED.lines().filter_map(|import| import.strip_prefix("env.")) {
        for profile in [Profile::EnvoyHold, Profile::EnvoyNoHold] {
            let process = tollgate_hostsim::Process::new(&module());
            let vm = process.vm(VmOptions::new(roomy().to_string()).profile(profile).deny(call));
            if vm.start().is_err() {
                assert_eq!(vm.trap(), None, "{call}");
                continue;
            }
            for ask in
                [Ask::stream(10), Ask::raw("no json"), Ask::get("/tollgate/budget"), Ask::get("/other")]
            {
                let stream = vm
                    .stream(ask.head(), ask.body.is_empty())
                    .unwrap_or_else(|trap| panic!("{call}: {trap}"));
                let run = || -> Result<(), tollgate_hostsim::Trap> {
                    if !ask.body.is_empty() {
                        stream.body(&ask.body, true)?;
                    }
                    process.advance(3000)?;
                    if stream.upstream().headers.is_some() {
                        stream.response_headers(Headers::from([(":status", "200")]), false)?;
                        stream.response_body("data: {\"usage\":{\"prompt_tokens\":1}}\n\n", true)?;
                    }
                    stream.finish()
                };
                run().unwrap_or_else(|trap| panic!("{call}: {trap}"));
            }
        }
    }
}

#[test]
fn streams_that_the_filter_sees_only_in_the_log_are_nothing_to_it() {
    let proxy = roomy_proxy();
    for (code, details) in
        [(400, "http1.codec_error"), (403, "rbac_access_denied"), (408, "request_overall_timeout")]
    {
        let request = tollgate_hostsim::Request::new(Ask::new(10).head());
        proxy.vm(0).unseen(request, code, details).unwrap();
    }
    assert_eq!(proxy.metrics().values().sum::<u64>(), 0);
}
