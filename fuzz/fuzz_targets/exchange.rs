//! Any list of what a host may report, over several streams of one worker: nothing panics, no hold outlives its
//! stream, and no effect comes that a host cannot carry out. With budgets in the proxy's memory, or at a counter
//! service that answers anything or nothing: then no id is settled twice, and whatever was asked is settled unless
//! the service refused it.

#![no_main]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tollgate::config::FilterConfig;
use tollgate::exchange::{Body, Effect, End, Exchange, Gate, Input, Origin};
use tollgate::identity::Caller;
use tollgate::local::{Cas, LocalCharge, LocalStore, SharedData, SharedDataError, Stored};
use tollgate::metrics::{Kind, Metric, SettledAs};
use tollgate::remote::{Post, Response, Unsent};
use tollgate_budget::{HoldId, Span, Timestamp};

const POLICY: &[u8] = br#"{"version": 1,
    "subject": {"tenant": {"from": [{"header": "x-tenant-id"}], "default": "nobody"}},
    "response": {"budget_path": "/budget"},
    "store": {"local": {"shards": 2}},
    "limits": [
        {"name": "all", "per": [], "unit": "raw_tokens", "window": {"sliding": "60s"}, "amount": 100000},
        {"name": "tenant", "per": ["tenant"], "unit": "tokens", "window": {"fixed": "60s"}, "amount": 20000},
        {"name": "requests", "per": ["tenant"], "unit": "requests", "window": {"bucket": "60s"}, "amount": 50}]}"#;

const COUNTER: &[u8] = br#"{"version": 1,
    "subject": {"tenant": {"from": [{"header": "x-tenant-id"}], "default": "nobody"}},
    "response": {"budget_path": "/budget"},
    "store": {"counter": {"target": "counter", "on_outage": "OUTAGE"}},
    "limits": [
        {"name": "all", "per": [], "unit": "raw_tokens", "window": {"sliding": "60s"}, "amount": 100000},
        {"name": "tenant", "per": ["tenant"], "unit": "tokens", "window": {"fixed": "60s"}, "amount": 20000}]}"#;

const STREAMS: usize = 4;
const START_MS: u64 = 1_700_000_000_000;

#[derive(Arbitrary, Debug)]
struct Op<'a> {
    stream: u8,
    what: What<'a>,
}

#[derive(Arbitrary, Debug)]
enum What<'a> {
    Headers { path: u8, method: u8, header: Option<(&'a [u8], &'a [u8])>, ends: bool },
    Body { bytes: &'a [u8], ends: bool },
    Chat { cap: u16, stream: bool, model: u8 },
    Trailers,
    AnswerHeaders { status: u16, upstream: bool, header: Option<(&'a [u8], &'a [u8])> },
    AnswerBody { bytes: &'a [u8], ends: bool },
    Event { kind: u8, count: u16 },
    /// The counter service, or what stands in its place, answers the question that the stream has put.
    Word { kind: u8, bytes: &'a [u8] },
    Pass { millis: u16 },
    End { how: u8 },
}

#[derive(Clone, Debug, Default)]
struct Memory(Rc<RefCell<BTreeMap<String, (Vec<u8>, u32)>>>);

impl SharedData for Memory {
    fn load(&self, key: &str) -> Result<Option<(Vec<u8>, Cas)>, SharedDataError> {
        Ok(self.0.borrow().get(key).map(|(value, cas)| (value.clone(), Cas(*cas))))
    }

    fn store(&self, key: &str, value: &[u8], _: Option<Cas>) -> Result<Stored, SharedDataError> {
        let mut values = self.0.borrow_mut();
        let version = values.get(key).map_or(1, |(_, version)| version + 1);
        values.insert(key.to_owned(), (value.to_vec(), version));
        Ok(Stored::Written)
    }
}

struct Worker {
    gate: Rc<Gate>,
    store: LocalStore<Memory>,
    now: Timestamp,
    ids: u128,
    /// Whether the host takes calls.
    takes_calls: bool,
    /// Holds that were asked of the counter service, and not refused.
    asked: BTreeSet<String>,
    /// An answer is to come later, and its hold stays.
    stays: bool,
}

struct Stream {
    exchange: Exchange,
    /// What waits at the host.
    request: Vec<u8>,
    /// A host shows nothing after the end of a body, or its trailers.
    whole: bool,
    headers_gone: bool,
    ended: bool,
    /// The id under which the counter service was asked for a hold, until it has answered.
    question: Option<Option<String>>,
}

impl Worker {
    fn open(&mut self) -> Stream {
        self.ids += 1;
        let exchange = Exchange::new(Rc::clone(&self.gate), HoldId::from_bits(self.ids));
        Stream { exchange, request: Vec::new(), whole: false, headers_gone: false, ended: false, question: None }
    }

    fn drive(&mut self, stream: &mut Stream, input: Input<'_>) {
        let now = self.now;
        let mut effects = VecDeque::from(stream.exchange.on(input, now));
        while let Some(effect) = effects.pop_front() {
            if let Some(answer) = self.perform(stream, effect) {
                effects.extend(stream.exchange.on(answer, now));
            }
        }
    }

    fn perform(&mut self, stream: &mut Stream, effect: Effect) -> Option<Input<'static>> {
        let (store, now) = (&self.store, self.now);
        match effect {
            Effect::ReadBody { size } => {
                let body = &stream.request;
                return Some(Input::Body(body.get(..size.min(body.len())).map(<[u8]>::to_vec)));
            }
            Effect::Check(asked) => return Some(Input::Checked(store.check(&asked, now))),
            Effect::Reserve(asked) => return Some(Input::Decided(store.reserve(&asked, now))),
            Effect::Look(charges) => {
                let standing = |charge: &LocalCharge| store.standing(&store.place(charge), now).ok();
                return Some(Input::Standings(charges.iter().map(standing).collect()));
            }
            Effect::Ask(_) if !self.takes_calls => return Some(Input::Answered(Err(Unsent))),
            Effect::Ask(question) => {
                let asked: Value = serde_json::from_slice(&question.body).expect("a message of the protocol");
                let takes = question.path.ends_with("/holds") && asked["purpose"] != "check";
                let id = takes.then(|| asked["id"].as_str().expect("a hold has an id").to_owned());
                self.asked.extend(id.clone());
                stream.question = Some(id);
                return Some(Input::Asked);
            }
            Effect::Wake => {}
            Effect::Withdraw(asked) => {
                let places: Vec<_> = asked.charges.iter().map(|charge| store.place(charge)).collect();
                store.release(asked.id, &places, now).expect("the memory is there");
            }
            Effect::Settle { id, spent } => {
                let settled = store.settle(id, &spent, now).expect("the memory is there");
                return Some(Input::Settled(SettledAs::from(settled.outcome)));
            }
            Effect::Grow { id, by } => drop(store.grow(id, &by, now)),
            Effect::Renew { id, places, lease } => drop(store.renew(id, &places, lease, now)),
            Effect::ReplaceRequestBody { replaced, with } => {
                assert_eq!(replaced, stream.request.len(), "the whole body is replaced");
                assert!(!stream.headers_gone, "its length has been announced");
                stream.request = with;
            }
            Effect::ResumeRequest => stream.headers_gone = true,
            Effect::SetRequestHeader(..) | Effect::RemoveRequestHeader(_) => {
                assert!(!stream.headers_gone, "headers that are gone cannot be changed");
            }
            Effect::Count(metric, by) => {
                let may_be_nothing = metric.kind() == Kind::Histogram;
                assert!(by > 0 || may_be_nothing, "a host takes an increment of nothing for a mistake");
                self.stays |= metric == Metric::Settlements { outcome: SettledAs::Later };
            }
            Effect::Reply(_)
            | Effect::SetResponseHeader(..)
            | Effect::RemoveResponseHeader(_)
            | Effect::ReplaceResponseBody { .. }
            | Effect::Learn { .. }
            | Effect::Record(_) => {}
        }
        None
    }

    fn act(&mut self, stream: &mut Stream, what: &What<'_>) {
        const PATHS: [&str; 8] = [
            "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/messages",
            "/v1/messages/count_tokens", "/budget", "/other",
        ];
        const METHODS: [&str; 4] = ["POST", "POST", "GET", "DELETE"];
        const MODELS: [&str; 4] = ["gpt-4o", "claude-sonnet-4-5", "unknown", ""];
        let end = |ends: bool| if ends { Body::Ends } else { Body::Goes };
        match what {
            What::Headers { path, method, header, ends } => {
                let mut headers: Vec<(&[u8], &[u8])> = vec![
                    (b":method", METHODS[usize::from(*method) % METHODS.len()].as_bytes()),
                    (b":path", PATHS[usize::from(*path) % PATHS.len()].as_bytes()),
                ];
                headers.extend(header);
                let caller = Caller { headers: &headers, metadata: &[] };
                self.drive(stream, Input::RequestHeaders { caller, body: end(*ends) });
            }
            What::Body { .. } | What::Chat { .. } | What::Trailers if stream.whole => {}
            What::Body { bytes, ends } => {
                stream.whole = *ends;
                stream.request.extend_from_slice(bytes);
                let waiting = stream.request.len();
                self.drive(stream, Input::RequestBody { waiting, body: end(*ends) });
            }
            What::Chat { cap, stream: streams, model } => {
                stream.whole = true;
                let model = MODELS[usize::from(*model) % MODELS.len()];
                let body = format!(
                    r#"{{"model":"{model}","max_tokens":{cap},"stream":{streams},"input":"a b","prompt":"a b",
                    "messages":[{{"role":"user","content":"a b"}}]}}"#
                );
                stream.request = body.into_bytes();
                let waiting = stream.request.len();
                self.drive(stream, Input::RequestBody { waiting, body: Body::Ends });
            }
            What::Trailers => {
                stream.whole = true;
                self.drive(stream, Input::RequestTrailers);
            }
            What::AnswerHeaders { status, upstream, header } => {
                let status = status.to_string();
                let mut headers: Vec<(&[u8], &[u8])> = vec![(b":status", status.as_bytes())];
                headers.extend(header);
                let origin = if *upstream { Origin::Upstream } else { Origin::Proxy };
                self.drive(stream, Input::ResponseHeaders { headers: &headers, origin });
            }
            What::AnswerBody { bytes, ends } => {
                self.drive(stream, Input::ResponseBody { chunk: bytes, body: end(*ends) });
            }
            What::Event { kind, count } => {
                let event = match kind % 4 {
                    0 => format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", "a ".repeat((*count).into())),
                    1 => format!("data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{count},\"completion_tokens\":{count}}}}}\n\n"),
                    2 => format!("event: message_delta\ndata: {{\"type\":\"message_delta\",\"usage\":{{\"output_tokens\":{count}}}}}\n\n"),
                    _ => format!("data: {{\"type\":\"response.completed\",\"response\":{{\"usage\":{{\"input_tokens\":{count},\"output_tokens\":1}}}}}}\n\n"),
                };
                self.drive(stream, Input::ResponseBody { chunk: event.as_bytes(), body: Body::Goes });
            }
            What::Word { kind, bytes } => {
                let Some(id) = stream.question.take() else { return };
                let standing = r#"{"capacity":1,"held":0,"spent":0,"reset_ms":1}"#;
                let text = match kind % 6 {
                    0 => format!(r#"{{"decision":{{"granted":{{"standings":[{standing},{standing}],"shadow_over":[]}}}}}}"#),
                    1 => {
                        id.iter().for_each(|id| drop(self.asked.remove(id)));
                        format!(r#"{{"decision":{{"refused":{{"charge":1,"reason":{{"not_yet":{{"retry_after_ms":1}}}},"standing":{standing}}}}}}}"#)
                    }
                    2 => format!(r#"{{"standings":[{standing},{standing}]}}"#),
                    3 => String::from_utf8_lossy(bytes).into_owned(),
                    _ => String::new(),
                };
                let response = Response { status: if kind % 6 == 4 { 503 } else { 200 }, body: text.as_bytes() };
                self.drive(stream, Input::Answered(Ok((kind % 6 != 5).then_some(response))));
            }
            What::Pass { millis } => {
                self.takes_calls = millis % 7 != 0;
                self.now = Timestamp::from_millis(self.now.as_millis() + u64::from(*millis));
                self.drive(stream, Input::Tick);
            }
            What::End { how } => {
                let how = [End::Complete, End::Client, End::Upstream][usize::from(*how) % 3];
                self.drive(stream, Input::Ended(how));
                stream.ended = true;
            }
        }
    }
}

fuzz_target!(|input: (u8, Vec<Op<'_>>)| {
    let (kind, ops) = input;
    let text = String::from_utf8_lossy(COUNTER);
    let policy = match kind % 4 {
        0 => text.replace("OUTAGE", "local"),
        1 => text.replace("OUTAGE", "allow"),
        2 => text.replace("OUTAGE", "deny"),
        _ => String::from_utf8_lossy(POLICY).into_owned(),
    };
    let config = FilterConfig::from_slice(policy.as_bytes()).expect("a policy that checks");
    let store = LocalStore::open(Memory::default(), &config.namespace, config.store.shards).expect("an empty memory");
    let gate = Rc::new(Gate::new(config, [0; 16]));
    let mut worker = Worker {
        gate,
        store,
        now: Timestamp::from_millis(START_MS),
        ids: 0,
        takes_calls: true,
        asked: BTreeSet::new(),
        stays: false,
    };
    let mut streams: Vec<Stream> = (0..STREAMS).map(|_| worker.open()).collect();
    for Op { stream, what } in &ops {
        let stream = &mut streams[usize::from(*stream) % STREAMS];
        if stream.ended {
            *stream = worker.open();
        }
        worker.act(stream, what);
    }
    for stream in streams.iter_mut().filter(|stream| !stream.ended) {
        worker.act(stream, &What::End { how: 0 });
    }
    if !worker.stays {
        assert_nothing_held(&worker);
        assert_all_settled(&mut worker);
    }
});

/// Takes the mail as the counter service does.
fn assert_all_settled(worker: &mut Worker) {
    let gate = Rc::clone(&worker.gate);
    let Some(service) = &gate.service else { return };
    let mut settled = BTreeSet::new();
    // Longer than any wait.
    let later = worker.now.after(Span::from_secs(3600));
    while let Some(parcel) = service.next_parcel(later) {
        let batch: Value = serde_json::from_slice(&parcel.body).expect("a message of the protocol");
        let word = match parcel.post {
            Post::Renewals => "open",
            Post::Settlements => "closed",
        };
        let items = batch.as_object().and_then(|batch| batch.values().next()?.as_array()).expect("a batch");
        for item in items.iter().filter(|_| parcel.post == Post::Settlements) {
            let id = item["id"].as_str().expect("a settlement has an id").to_owned();
            assert!(settled.insert(id), "settled twice");
        }
        let outcomes = vec![word; items.len()];
        let body = serde_json::json!({"outcomes": outcomes}).to_string();
        let receipt = service.delivered(parcel.post, Ok(Some(Response { status: 200, body: body.as_bytes() })), later);
        assert!(receipt.outcomes.is_ok(), "{receipt:?}");
    }
    assert_eq!(service.undelivered(), 0);
    let missing: Vec<_> = worker.asked.difference(&settled).collect();
    assert!(missing.is_empty(), "asked of the service and never settled: {missing:?}");
}

/// Asks as a tenant does.
fn assert_nothing_held(worker: &Worker) {
    let mut exchange = Exchange::new(Rc::clone(&worker.gate), HoldId::from_bits(0));
    let headers: [(&[u8], &[u8]); 2] = [(b":method", b"GET"), (b":path", b"/budget")];
    for effect in exchange.on(Input::RequestHeaders { caller: Caller { headers: &headers, metadata: &[] }, body: Body::Ends }, worker.now) {
        let Effect::Look(charges) = effect else { continue };
        for charge in charges {
            let standing = worker.store.standing(&worker.store.place(&charge), worker.now).expect("the memory is there");
            assert_eq!(standing.held.units(), 0, "a hold outlived its stream");
        }
    }
}
