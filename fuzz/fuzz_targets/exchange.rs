//! Any list of what a host may report, over several streams of one worker: nothing panics, no hold outlives its
//! stream, and no effect comes that a host cannot carry out.

#![no_main]

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use tollgate::config::FilterConfig;
use tollgate::exchange::{Body, Effect, End, Exchange, Gate, Input, Origin};
use tollgate::local::{Cas, LocalCharge, LocalStore, SharedData, SharedDataError, Stored};
use tollgate::metrics::SettledAs;
use tollgate_budget::{HoldId, Timestamp};

const POLICY: &[u8] = br#"{"version": 1,
    "subject": {"tenant": {"from": [{"header": "x-tenant-id"}], "default": "nobody"}},
    "response": {"budget_path": "/budget"},
    "store": {"local": {"shards": 2}},
    "limits": [
        {"name": "all", "per": [], "unit": "raw_tokens", "window": {"sliding": "60s"}, "amount": 100000},
        {"name": "tenant", "per": ["tenant"], "unit": "tokens", "window": {"fixed": "60s"}, "amount": 20000},
        {"name": "requests", "per": ["tenant"], "unit": "requests", "window": {"bucket": "60s"}, "amount": 50}]}"#;

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
}

struct Stream {
    exchange: Exchange,
    /// What waits at the host.
    request: Vec<u8>,
    headers_gone: bool,
    ended: bool,
}

impl Worker {
    fn open(&mut self) -> Stream {
        self.ids += 1;
        let exchange = Exchange::new(Rc::clone(&self.gate), HoldId::from_bits(self.ids));
        Stream { exchange, request: Vec::new(), headers_gone: false, ended: false }
    }

    fn drive(&self, stream: &mut Stream, input: Input<'_>) {
        let now = self.now;
        let mut effects = VecDeque::from(stream.exchange.on(input, now));
        while let Some(effect) = effects.pop_front() {
            if let Some(answer) = self.perform(stream, effect) {
                effects.extend(stream.exchange.on(answer, now));
            }
        }
    }

    fn perform(&self, stream: &mut Stream, effect: Effect) -> Option<Input<'static>> {
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
            Effect::Count(_, by) => assert!(by > 0, "a host takes an increment of nothing for a mistake"),
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
                self.drive(stream, Input::RequestHeaders { headers: &headers, body: end(*ends) });
            }
            What::Body { bytes, ends } => {
                stream.request.extend_from_slice(bytes);
                let waiting = stream.request.len();
                self.drive(stream, Input::RequestBody { waiting, body: end(*ends) });
            }
            What::Chat { cap, stream: streams, model } => {
                let model = MODELS[usize::from(*model) % MODELS.len()];
                let body = format!(
                    r#"{{"model":"{model}","max_tokens":{cap},"stream":{streams},"input":"a b","prompt":"a b",
                    "messages":[{{"role":"user","content":"a b"}}]}}"#
                );
                stream.request = body.into_bytes();
                let waiting = stream.request.len();
                self.drive(stream, Input::RequestBody { waiting, body: Body::Ends });
            }
            What::Trailers => self.drive(stream, Input::RequestTrailers),
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
            What::Pass { millis } => {
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

fuzz_target!(|ops: Vec<Op<'_>>| {
    let config = FilterConfig::from_slice(POLICY).expect("a policy that checks");
    let store = LocalStore::open(Memory::default(), &config.namespace, config.store.shards).expect("an empty memory");
    let gate = Rc::new(Gate::new(config, [0; 16]));
    let mut worker = Worker { gate, store, now: Timestamp::from_millis(START_MS), ids: 0 };
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
    let mut asker = worker.open();
    worker.act(&mut asker, &What::Headers { path: 6, method: 2, header: None, ends: true });
    assert_nothing_held(&worker);
});

/// Asks as a tenant does.
fn assert_nothing_held(worker: &Worker) {
    let mut exchange = Exchange::new(Rc::clone(&worker.gate), HoldId::from_bits(0));
    let headers: [(&[u8], &[u8]); 2] = [(b":method", b"GET"), (b":path", b"/budget")];
    for effect in exchange.on(Input::RequestHeaders { headers: &headers, body: Body::Ends }, worker.now) {
        let Effect::Look(charges) = effect else { continue };
        for charge in charges {
            let standing = worker.store.standing(&worker.store.place(&charge), worker.now).expect("the memory is there");
            assert_eq!(standing.held.units(), 0, "a hold outlived its stream");
        }
    }
}
