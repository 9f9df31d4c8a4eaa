//! The filter's library over a double of the host: effects are carried out as the module's worker does, in
//! the same order, with every worker over one shared memory and a clock that only a test moves.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use tollgate::config::FilterConfig;
use tollgate::exchange::{Body, Effect, End, Exchange, Flow, Gate, Input, Origin};
use tollgate::identity::Caller;
use tollgate::local::{LearnedStore, LocalCharge, LocalStore, News};
use tollgate::metrics::{Metric, SettledAs};
use tollgate::remote::{Parcel, Post, Question, Response, Said, Service, Unsent};
use tollgate::reply::Reply;
use tollgate_budget::{HoldId, Timestamp};
use tollgate_hostsim::{Headers, Profile};

use super::wire::{Half, Hold, Wire};
use super::{Proxy, Seen, Setup, Stream};
use crate::common::counter::{Counter, End as CounterEnd, Manner};
use crate::common::shared_memory::SharedMemory;

/// As the module asks its host for.
const TICK_MS: u64 = 500;
const TICK_MS_WITH_COUNTER: u64 = 100;

/// Clones are one proxy.
#[derive(Clone)]
pub struct NativeProxy {
    process: Rc<Process>,
    policy: Rc<FilterConfig>,
    workers: Rc<RefCell<Vec<Rc<Worker>>>>,
    /// Steady time, by which ticks come due.
    steady_ms: Rc<Cell<u64>>,
    lives: Rc<Cell<u64>>,
}

#[derive(Debug)]
struct Process {
    profile: Profile,
    body_limit: usize,
    now_ms: Cell<u64>,
    memory: SharedMemory,
    metrics: RefCell<BTreeMap<String, u64>>,
    counter: Counter,
    calls: RefCell<VecDeque<Call>>,
}

/// A call that is under way to the counter service.
#[derive(Debug)]
enum Call {
    Question(NativeStream, Question),
    Parcel(Rc<Worker>, Parcel),
}

#[derive(Debug)]
struct Worker {
    process: Rc<Process>,
    gate: Rc<Gate>,
    store: LocalStore<SharedMemory>,
    learned: LearnedStore<SharedMemory>,
    /// Number of this VM's life, the upper half of its hold ids.
    life: u64,
    minted: Cell<u64>,
    watched: RefCell<BTreeMap<u64, NativeStream>>,
    alive: Cell<bool>,
}

#[derive(Clone, Debug)]
pub struct NativeStream {
    worker: Rc<Worker>,
    number: u64,
    exchange: Rc<RefCell<Exchange>>,
    metadata: Rc<[Option<Vec<u8>>]>,
    wire: Rc<RefCell<Wire>>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Side {
    Request,
    Response,
}

impl NativeProxy {
    pub fn memory(&self) -> &SharedMemory {
        &self.process.memory
    }

    fn worker(&self) -> Rc<Worker> {
        let life = self.lives.get() + 1;
        self.lives.set(life);
        let (policy, process) = (FilterConfig::clone(&self.policy), Rc::clone(&self.process));
        let store = LocalStore::open(process.memory.clone(), &policy.namespace, policy.store.shards).unwrap();
        let learned = LearnedStore::open(process.memory.clone(), &policy).unwrap();
        let worker = Worker {
            process,
            gate: Rc::new(Gate::new(policy, [7; 16])),
            store,
            learned,
            life,
            minted: Cell::default(),
            watched: RefCell::default(),
            alive: Cell::new(true),
        };
        worker.share_lessons();
        Rc::new(worker)
    }
}

impl Proxy for NativeProxy {
    type Stream = NativeStream;

    fn start(setup: &Setup) -> Result<Self, String> {
        let policy = FilterConfig::from_slice(setup.policy.as_bytes())
            .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
        logged::capture();
        let process = Process {
            profile: setup.profile,
            body_limit: setup.body_limit,
            now_ms: Cell::new(setup.start_ms),
            memory: SharedMemory::default(),
            metrics: RefCell::default(),
            counter: Counter::default(),
            calls: RefCell::default(),
        };
        let proxy = Self {
            process: Rc::new(process),
            policy: Rc::new(policy),
            workers: Rc::default(),
            steady_ms: Rc::default(),
            lives: Rc::default(),
        };
        let workers = (0..setup.workers).map(|_| proxy.worker()).collect();
        proxy.workers.replace(workers);
        Ok(proxy)
    }

    fn open_with(
        &self,
        worker: usize,
        headers: &Headers,
        metadata: &[(String, Vec<u8>)],
        ends: bool,
    ) -> NativeStream {
        let worker = Rc::clone(&self.workers.borrow()[worker]);
        let number = worker.minted.get();
        worker.minted.set(number + 1);
        let id = HoldId::from_bits(u128::from(worker.life) << 64 | u128::from(number));
        let exchange = Rc::new(RefCell::new(Exchange::new(Rc::clone(&worker.gate), id)));
        let asked = worker.gate.config.metadata.iter().map(|path| path.replace('\0', "."));
        let found = |path: String| {
            metadata.iter().find(|(known, _)| path == format!("metadata.filter_metadata.{known}"))
        };
        let metadata = asked.map(|path| found(path).map(|(_, value)| value.clone())).collect();
        let stream = NativeStream { worker, number, exchange, metadata, wire: Rc::default() };
        stream.show_headers(Side::Request, headers.clone(), ends);
        stream.worker.process.serve();
        stream
    }

    fn now_ms(&self) -> u64 {
        self.process.now_ms.get()
    }

    fn advance(&self, ms: u64) {
        let target = self.steady_ms.get() + ms;
        let period = if self.policy.store.counter.is_some() { TICK_MS_WITH_COUNTER } else { TICK_MS };
        while self.steady_ms.get() < target {
            let next = (self.steady_ms.get() / period + 1) * period;
            let passed = next.min(target) - self.steady_ms.get();
            self.steady_ms.set(self.steady_ms.get() + passed);
            self.process.now_ms.set(self.now_ms() + passed);
            if self.steady_ms.get() == next {
                self.workers.borrow().iter().for_each(Worker::tick);
            }
            self.process.serve();
        }
    }

    fn set_time(&self, now_ms: u64) {
        self.process.now_ms.set(now_ms);
    }

    fn reload(&self, worker: usize) {
        let fresh = self.worker();
        let old = std::mem::replace(&mut self.workers.borrow_mut()[worker], fresh);
        old.alive.set(false);
    }

    fn metrics(&self) -> BTreeMap<String, u64> {
        let mut metrics = self.process.metrics.borrow().clone();
        let gates = self.workers.borrow().iter().map(|worker| Rc::clone(&worker.gate)).collect::<Vec<_>>();
        let services = || gates.iter().filter_map(|gate| gate.service.as_ref());
        let letters: usize = services().map(Service::undelivered).sum();
        metrics.insert("tollgate_outbox_depth".to_owned(), letters as u64);
        let avoided = services().filter(|service| service.is_avoided()).count();
        metrics.insert("tollgate_breakers_open".to_owned(), avoided as u64);
        metrics
    }

    fn shared(&self) -> BTreeMap<String, Vec<u8>> {
        self.process.memory.all()
    }

    fn put_shared(&self, key: &str, value: &[u8]) {
        self.process.memory.put(key, value);
    }

    fn conflict(&self, times: u64) {
        self.process.memory.conflict(times);
    }

    fn counter(&self) -> &Counter {
        &self.process.counter
    }

    fn log(&self) -> Vec<String> {
        logged::lines()
    }
}

/// What is done once the present callback is over.
struct Afterwards<'a>(&'a Process);

impl Drop for Afterwards<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.0.serve();
        }
    }
}

impl Process {
    const fn afterwards(&self) -> Afterwards<'_> {
        Afterwards(self)
    }

    /// The counter service takes the calls that are under way, and those that come of its answers.
    fn serve(&self) {
        while self.counter.manner() != Manner::Hangs {
            let Some(call) = self.calls.borrow_mut().pop_front() else { return };
            let take = |path: &str, body: &[u8]| match self.counter.manner() {
                Manner::Unreachable => CounterEnd::Cut,
                Manner::Answers | Manner::Says(..) | Manner::Cut | Manner::Deaf | Manner::Hangs => {
                    self.counter.take(path, body, self.now_ms.get())
                }
            };
            match call {
                Call::Question(stream, question) => {
                    let end = take(question.path, &question.body);
                    if stream.worker.alive.get() && !stream.wire.borrow().ended {
                        stream.on(Input::Answered(Ok(response(&end))));
                        stream.run_deferred();
                    }
                }
                Call::Parcel(worker, parcel) => {
                    let end = take(parcel.path, &parcel.body);
                    worker.delivered(parcel.post, Ok(response(&end)));
                }
            }
        }
    }
}

fn response(end: &CounterEnd) -> Option<Response<'_>> {
    match end {
        CounterEnd::Response(status, body) => Some(Response { status: *status, body }),
        CounterEnd::Cut => None,
    }
}

// As src/host/worker.rs.
impl Worker {
    fn deliver(self: &Rc<Self>) {
        let Some(service) = &self.gate.service else { return };
        while let Some(parcel) = service.next_parcel(self.now()) {
            if self.process.counter.manner() == Manner::Unreachable {
                self.delivered(parcel.post, Err(Unsent));
            } else {
                self.process.calls.borrow_mut().push_back(Call::Parcel(Rc::clone(self), parcel));
            }
        }
    }

    fn delivered(self: &Rc<Self>, post: Post, said: Said<'_>) {
        let Some(service) = &self.gate.service else { return };
        let receipt = service.delivered(post, said, self.now());
        receipt.metrics(post).for_each(|(metric, by)| self.count(metric, by));
        self.deliver();
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.process.now_ms.get())
    }

    fn tick(self: &Rc<Self>) {
        if let Some(service) = &self.gate.service {
            service.compare(&self.process.memory, "tollgate/breaker");
            self.deliver();
        }
        self.share_lessons();
        let watched: Vec<NativeStream> = self.watched.borrow().values().cloned().collect();
        for stream in watched {
            stream.on(Input::Tick);
            stream.run_deferred();
        }
    }

    fn drive(self: &Rc<Self>, stream: &NativeStream, input: Input<'_>) {
        let now = Timestamp::from_millis(self.process.now_ms.get());
        let mut effects = VecDeque::from(stream.exchange.borrow_mut().on(input, now));
        while let Some(effect) = effects.pop_front() {
            if let Some(answer) = self.perform(stream, effect, now) {
                effects.extend(stream.exchange.borrow_mut().on(answer, now));
            }
        }
    }

    fn perform(
        self: &Rc<Self>,
        stream: &NativeStream,
        effect: Effect,
        now: Timestamp,
    ) -> Option<Input<'static>> {
        let mut wire = stream.wire.borrow_mut();
        match effect {
            Effect::ReadBody { size } => {
                let body = &wire.request.body;
                return Some(Input::Body(Some(body[..size.min(body.len())].to_vec())));
            }
            Effect::Check(reservation) => return Some(Input::Checked(self.store.check(&reservation, now))),
            Effect::Reserve(reservation) => {
                return Some(Input::Decided(self.store.reserve(&reservation, now)));
            }
            Effect::Ask(question) => {
                if self.process.counter.manner() == Manner::Unreachable {
                    return Some(Input::Answered(Err(Unsent)));
                }
                self.process.calls.borrow_mut().push_back(Call::Question(stream.clone(), question));
                return Some(Input::Asked);
            }
            Effect::Wake => self.deliver(),
            Effect::Look(charges) => {
                let standing =
                    |charge: &LocalCharge| self.store.standing(&self.store.place(charge), now).ok();
                return Some(Input::Standings(charges.iter().map(standing).collect()));
            }
            Effect::Withdraw(reservation) => {
                let places: Vec<_> =
                    reservation.charges.iter().map(|charge| self.store.place(charge)).collect();
                self.store.release(reservation.id, &places, now).unwrap();
            }
            Effect::Settle { id, spent } => {
                let settled = self.store.settle(id, &spent, now);
                let outcome = settled.map_or(SettledAs::Lost, |settled| settled.outcome.into());
                return Some(Input::Settled(outcome));
            }
            // A store that cannot be reached is the host's to log; the exchange is not told.
            Effect::Grow { id, by } => drop(self.store.grow(id, &by, now)),
            Effect::Renew { id, places, lease } => drop(self.store.renew(id, &places, lease, now)),
            Effect::Reply(reply) => {
                assert!(wire.reply.is_none(), "a second reply");
                wire.reply = Some(reply);
            }
            Effect::ResumeRequest => wire.resume = true,
            Effect::SetRequestHeader(name, value) => wire.request.headers_mut().set(name, value),
            Effect::RemoveRequestHeader(name) => wire.request.headers_mut().remove(&name),
            Effect::ReplaceRequestBody { replaced, with } => {
                wire.request.headers_mut().set("content-length", with.len().to_string());
                assert_eq!(replaced, wire.request.body.len());
                wire.request.body = with;
            }
            Effect::SetResponseHeader(name, value) => wire.response.headers_mut().set(name, value),
            Effect::RemoveResponseHeader(name) => wire.response.headers_mut().remove(name),
            Effect::ReplaceResponseBody { replaced, with } => {
                assert_eq!(replaced, wire.response.body.len());
                wire.response.body = with;
            }
            Effect::Count(metric, by) => self.count(metric, by),
            Effect::Learn { model, estimated, reported } => self.learned.learn(model, estimated, reported),
            Effect::Record(line) => wire.record = Some(line),
        }
        None
    }

    fn share_lessons(&self) {
        for news in self.learned.share() {
            match news {
                News::Correct { model, by } => self.gate.correct(model, by),
                News::BegunAnew { model } => self.count(Metric::CorrectionsBegunAnew { model }, 1),
                News::Failed => {}
            }
        }
    }

    fn count(&self, metric: Metric, by: u64) {
        if by > 0 {
            let name = metric.name(&self.gate.config);
            *self.process.metrics.borrow_mut().entry(name).or_default() += by;
        }
    }
}

impl Half {
    /// What the filter may still edit.
    fn headers_mut(&mut self) -> &mut Headers {
        assert!(self.peer.headers.is_none(), "the headers are gone");
        &mut self.headers
    }
}

// The callbacks, as src/host/http.rs answers them.
impl NativeStream {
    fn on(&self, input: Input<'_>) {
        self.worker.drive(self, input);
    }

    fn on_headers(&self, side: Side, ends: bool) -> Flow {
        let headers = self.half(side, |half| half.headers.clone());
        let headers = pairs(&headers);
        match side {
            Side::Request => {
                let caller = Caller { headers: &headers, metadata: &self.metadata };
                self.on(Input::RequestHeaders { caller, body: body(ends) });
                if self.exchange.borrow().needs_ticks() {
                    self.worker.watched.borrow_mut().insert(self.number, self.clone());
                }
                self.exchange.borrow().headers_flow()
            }
            Side::Response => {
                if self.exchange.borrow().awaits_answer() {
                    let upstream = self.wire.borrow().details.as_deref() == Some("via_upstream");
                    let origin = if upstream { Origin::Upstream } else { Origin::Proxy };
                    self.on(Input::ResponseHeaders { headers: &headers, origin });
                }
                Flow::Continue
            }
        }
    }

    fn on_body(&self, side: Side, ends: bool) -> Flow {
        let chunk = self.half(side, |half| half.body.clone());
        match side {
            Side::Request => {
                self.on(Input::RequestBody { waiting: chunk.len(), body: body(ends) });
                self.exchange.borrow().body_flow()
            }
            Side::Response => {
                if self.exchange.borrow().follows_answer() {
                    self.on(Input::ResponseBody { chunk: &chunk, body: body(ends) });
                }
                Flow::Continue
            }
        }
    }

    fn on_trailers(&self, side: Side) -> Flow {
        match side {
            Side::Request => {
                self.on(Input::RequestTrailers);
                self.exchange.borrow().body_flow()
            }
            Side::Response => Flow::Continue,
        }
    }

    fn on_log(&self) {
        self.worker.watched.borrow_mut().remove(&self.number);
        let end = match self.wire.borrow().details.as_deref() {
            Some("via_upstream") => End::Complete,
            Some(details) if details.starts_with("upstream_") || details == "response_timeout" => {
                End::Upstream
            }
            Some(_) | None => End::Client,
        };
        self.on(Input::Ended(end));
    }
}

// What the host does around the callbacks.
impl NativeStream {
    fn half<T>(&self, side: Side, look: impl FnOnce(&mut Half) -> T) -> T {
        let mut wire = self.wire.borrow_mut();
        look(match side {
            Side::Request => &mut wire.request,
            Side::Response => &mut wire.response,
        })
    }

    fn is_over(&self, side: Side) -> bool {
        self.half(side, |half| half.closed) || self.wire.borrow().ended || !self.worker.alive.get()
    }

    fn show_headers(&self, side: Side, headers: Headers, ends: bool) {
        self.half(side, |half| (half.headers, half.complete) = (headers, ends));
        let flow = self.on_headers(side, ends);
        let hold = match self.worker.process.profile {
            Profile::EnvoyHold => Hold::Headers,
            Profile::EnvoyNoHold => Hold::Everything,
        };
        self.act(side, flow, hold);
    }

    fn show_body(&self, side: Side, chunk: &[u8], ends: bool) {
        let hold = self.half(side, |half| {
            half.body.extend(chunk);
            half.complete = ends;
            half.hold
        });
        if hold == Hold::Everything {
            return;
        }
        if hold == Hold::Body && self.outgrown(side) {
            return;
        }
        let flow = self.on_body(side, ends);
        self.act(side, flow, Hold::Body);
    }

    /// What waits has outgrown the host's own limit: it answers by itself.
    fn outgrown(&self, side: Side) -> bool {
        let limit = self.worker.process.body_limit;
        let outgrown = side == Side::Request && self.half(side, |half| half.body.len() > limit);
        if outgrown {
            self.reply(413, "request_payload_too_large", Headers::new(), b"Payload Too Large");
        }
        outgrown
    }

    fn show_trailers(&self, side: Side) {
        let hold = self.half(side, |half| {
            (half.trailers, half.complete) = (true, true);
            half.hold
        });
        if hold != Hold::Everything {
            let flow = self.on_trailers(side);
            self.act(side, flow, Hold::Body);
        }
    }

    /// After a callback: what it put off, then its answer.
    fn act(&self, side: Side, flow: Flow, hold: Hold) {
        self.run_deferred();
        if self.is_over(side) {
            return;
        }
        match flow {
            Flow::Continue => self.release(side),
            Flow::Pause => {
                self.half(side, |half| half.hold = hold);
                let _answered = hold == Hold::Body && self.outgrown(side);
            }
        }
    }

    fn release(&self, side: Side) {
        self.half(side, Half::release);
        if side == Side::Response && self.half(side, |half| half.peer.ended) {
            self.end("");
        }
    }

    fn run_deferred(&self) {
        let (reply, resume) = {
            let mut wire = self.wire.borrow_mut();
            (wire.reply.take(), std::mem::take(&mut wire.resume))
        };
        if let Some(Reply { status, headers, body, details }) = reply {
            let headers = headers.into_iter().collect();
            self.reply(u16::try_from(status).unwrap(), details, headers, body.as_bytes());
        }
        if resume && !self.is_over(Side::Request) {
            self.resume();
        }
    }

    fn resume(&self) {
        match self.half(Side::Request, |half| half.hold) {
            Hold::Nothing => {}
            Hold::Headers | Hold::Body => self.release(Side::Request),
            Hold::Everything => {
                let (unseen, complete) = self.half(Side::Request, |half| {
                    (std::mem::take(&mut half.body), std::mem::take(&mut half.complete))
                });
                self.release(Side::Request);
                if !unseen.is_empty() || complete {
                    self.show_body(Side::Request, &unseen, complete);
                }
            }
        }
    }

    /// Passes through the filter's response callbacks like any answer.
    fn reply(&self, status: u16, details: &str, mut headers: Headers, body: &[u8]) {
        let begun = {
            let mut wire = self.wire.borrow_mut();
            wire.request.close();
            wire.details = Some(details.to_owned());
            wire.response.peer.headers.is_some()
        };
        if begun {
            return self.end("");
        }
        headers.set(":status", status.to_string());
        if !body.is_empty() {
            headers.set("content-length", body.len().to_string());
        }
        self.show_headers(Side::Response, headers, body.is_empty());
        if !self.is_over(Side::Response) {
            self.show_body(Side::Response, body, true);
        }
    }

    fn end(&self, details: &str) {
        {
            let mut wire = self.wire.borrow_mut();
            if wire.ended || !self.worker.alive.get() {
                return;
            }
            wire.ended = true;
            if !details.is_empty() {
                wire.details = Some(details.to_owned());
            }
            wire.request.close();
            wire.response.close();
        }
        self.on_log();
    }
}

impl Stream for NativeStream {
    fn body(&self, chunk: &[u8], ends: bool) {
        let _served = self.worker.process.afterwards();
        if !self.is_over(Side::Request) {
            self.show_body(Side::Request, chunk, ends);
        }
    }

    fn request_trailers(&self) {
        let _served = self.worker.process.afterwards();
        if !self.is_over(Side::Request) {
            self.show_trailers(Side::Request);
        }
    }

    fn answer_headers(&self, headers: &Headers, ends: bool) {
        let _served = self.worker.process.afterwards();
        if !self.is_over(Side::Response) {
            assert!(self.seen().upstream.headers.is_some(), "the upstream has not been asked");
            self.wire.borrow_mut().details = Some("via_upstream".to_owned());
            self.show_headers(Side::Response, headers.clone(), ends);
        }
    }

    fn answer_chunk(&self, chunk: &[u8], ends: bool) {
        let _served = self.worker.process.afterwards();
        if !self.is_over(Side::Response) {
            self.show_body(Side::Response, chunk, ends);
        }
    }

    fn answer_trailers(&self) {
        let _served = self.worker.process.afterwards();
        if !self.is_over(Side::Response) {
            self.show_trailers(Side::Response);
        }
    }

    fn proxy_replies(&self, status: u16, details: &str) {
        let _served = self.worker.process.afterwards();
        if !self.is_over(Side::Response) {
            self.reply(status, details, Headers::new(), b"upstream request timeout");
        }
    }

    fn client_leaves(&self) {
        let _served = self.worker.process.afterwards();
        self.end("downstream_remote_disconnect");
    }

    fn upstream_resets(&self) {
        let _served = self.worker.process.afterwards();
        if self.is_over(Side::Response) {
            return;
        }
        if self.seen().client.headers.is_some() {
            self.end("upstream_reset_after_response_started{protocol_error}");
        } else {
            self.reply(503, "upstream_reset_before_response_started", Headers::new(), b"upstream reset");
        }
    }

    fn seen(&self) -> Seen {
        let wire = self.wire.borrow();
        Seen {
            upstream: wire.request.peer.clone(),
            client: wire.response.peer.clone(),
            details: wire.details.clone(),
            record: wire.record.clone(),
            held: !wire.request.closed && !wire.ended && wire.request.hold != Hold::Nothing,
            ended: wire.ended,
        }
    }
}

fn body(ends: bool) -> Body {
    if ends { Body::Ends } else { Body::Goes }
}

fn pairs(headers: &Headers) -> Vec<(&[u8], &[u8])> {
    headers.iter().map(|(name, value)| (name.as_bytes(), value)).collect()
}

/// What the library logs in this thread, which is one test's.
mod logged {
    use std::cell::RefCell;

    use log::{LevelFilter, Log, Metadata, Record};

    thread_local! {
        static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    struct Capture;

    impl Log for Capture {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn log(&self, record: &Record<'_>) {
            LINES.with_borrow_mut(|lines| lines.push(record.args().to_string()));
        }

        fn flush(&self) {}
    }

    /// Does nothing the second time.
    pub(super) fn capture() {
        if log::set_logger(&Capture).is_ok() {
            log::set_max_level(LevelFilter::Trace);
        }
    }

    pub(super) fn lines() -> Vec<String> {
        LINES.with_borrow(Clone::clone)
    }
}
