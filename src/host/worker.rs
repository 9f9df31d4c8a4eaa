//! What the streams of one worker share, and the loop that carries out effects.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use tollgate_budget::{HoldId, Timestamp};

use super::calls::{self, Buffer, Headers, HostError, Level};
use super::clock::Clock;
use super::service::{CallResponse, Line};
use super::shared::HostSharedData;
use crate::config::FilterConfig;
use crate::exchange::{Body, Effect, Exchange, Gate, Input};
use crate::local::{LearnedStore, LocalCharge, LocalStore, News};
use crate::metrics::{Kind, Metric, SettledAs};
use crate::remote::{Post, Receipt, Unsent};

#[derive(Debug)]
pub(super) struct Worker {
    root: u32,
    gate: Rc<Gate>,
    store: LocalStore<HostSharedData>,
    learned: LearnedStore<HostSharedData>,
    ids: Ids,
    clock: Clock,
    counters: RefCell<BTreeMap<Metric, Counter>>,
    /// To the counter service, where the policy has one.
    line: Option<Line>,
    /// Streams that are told the time, by their context.
    watched: RefCell<BTreeMap<u32, Rc<RefCell<Exchange>>>>,
}

/// One series at the host. Increments are gathered between ticks: a request makes half a dozen of them, and a
/// call to the host costs more than all the arithmetic of a request's accounts.
#[derive(Debug, Default)]
struct Counter {
    id: Option<u32>,
    pending: i64,
}

/// Hold ids: drawn at random for each worker, counted from there.
#[derive(Debug)]
struct Ids {
    worker: u64,
    next: Cell<u64>,
}

impl Worker {
    pub(super) fn open(root: u32, config: FilterConfig) -> Result<Self, String> {
        let mut random = [0; 24];
        getrandom::fill(&mut random).map_err(|_| "the host offers no randomness".to_owned())?;
        let (memo_key, worker) = random.split_first_chunk::<16>().unwrap_or((&[0; 16], &[]));
        let worker = worker.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let store = LocalStore::open(HostSharedData, &config.namespace, config.store.shards)
            .map_err(|error| error.to_string())?;
        let learned = LearnedStore::open(HostSharedData, &config).map_err(|error| error.to_string())?;
        let counter = config.store.counter.as_ref();
        let line = counter.map(|rules| Line::open(rules, &config.namespace, worker));
        let worker = Self {
            root,
            gate: Rc::new(Gate::new(config, *memo_key)),
            store,
            learned,
            ids: Ids { worker, next: Cell::new(0) },
            clock: Clock::start(),
            counters: RefCell::default(),
            line,
            watched: RefCell::default(),
        };
        worker.share_lessons();
        Ok(worker)
    }

    pub(super) fn exchange(&self) -> Rc<RefCell<Exchange>> {
        Rc::new(RefCell::new(Exchange::new(Rc::clone(&self.gate), self.ids.mint())))
    }

    /// What the policy asks of the stream's metadata, in its order; nothing is read where it asks nothing. A
    /// property that the host cannot put into bytes is as good as absent.
    pub(super) fn metadata(&self) -> Vec<Option<Vec<u8>>> {
        self.gate.config.metadata.iter().map(|path| calls::property(path).ok().flatten()).collect()
    }

    /// The exchange is told the time until it is forgotten.
    pub(super) fn watch(&self, context: u32, exchange: &Rc<RefCell<Exchange>>) {
        self.watched.borrow_mut().insert(context, Rc::clone(exchange));
    }

    pub(super) fn forget(&self, context: u32) {
        self.watched.borrow_mut().remove(&context);
    }

    pub(super) fn tick(&self) {
        self.clock.now();
        self.tell();
        self.tend();
        let watched: Vec<_> =
            self.watched.borrow().iter().map(|(context, exchange)| (*context, Rc::clone(exchange))).collect();
        for (context, exchange) in watched {
            // A stream that is gone was forgotten in its last callback; one that the host no longer
            // knows must not have its calls act on the root.
            if calls::set_effective_context(context).is_ok() {
                self.drive(&exchange, Input::Tick);
            }
        }
        // The root's own context is always there.
        let _restored = calls::set_effective_context(self.root);
    }

    /// What is due at the counter service.
    fn tend(&self) {
        if let (Some(line), Some(service)) = (&self.line, &self.gate.service) {
            line.compare(service);
            self.deliver();
            let (letters, avoided) = line.changes(service);
            self.add(Metric::OutboxDepth, letters);
            self.add(Metric::BreakersOpen, avoided);
        }
    }

    pub(super) fn queue_ready(&self, queue: u32) {
        if self.line.as_ref().is_some_and(|line| line.is_woken_by(queue)) {
            self.clock.now();
            self.deliver();
        }
    }

    /// Of a call that the root has made.
    pub(super) fn call_ended(&self, token: u32, response: Option<&CallResponse>) {
        if let (Some(line), Some(service)) = (&self.line, &self.gate.service) {
            let said = Ok(response.map(CallResponse::view));
            let receipt = line.delivered(token, said, service, self.clock.now());
            receipt.into_iter().for_each(|(post, receipt)| self.file(post, &receipt));
            self.deliver();
        }
    }

    /// Sends what is due, without regard to how old the last reading of the clock is: it only spaces retries.
    fn deliver(&self) {
        if let (Some(line), Some(service)) = (&self.line, &self.gate.service) {
            let failed = line.deliver(service, self.clock.recently());
            failed.into_iter().for_each(|(post, receipt)| self.file(post, &receipt));
        }
    }

    /// Whether the counter service still has to be told something, and can be.
    pub(super) fn owes(&self) -> bool {
        self.gate.service.as_ref().is_some_and(|service| service.undelivered() > 0 && !service.is_avoided())
    }

    /// What could not be told to the counter service is lost, and counted as such.
    pub(super) fn take_leave(&self) {
        if let (Some(line), Some(service)) = (&self.line, &self.gate.service) {
            self.count(Metric::Settlements { outcome: SettledAs::Lost }, service.give_up());
            let (letters, avoided) = line.changes(service);
            self.add(Metric::OutboxDepth, letters);
            self.add(Metric::BreakersOpen, avoided.saturating_sub(i64::from(service.is_avoided())));
        }
        self.tell();
    }

    fn file(&self, post: Post, receipt: &Receipt) {
        receipt.metrics(post).for_each(|(metric, by)| self.count(metric, by));
    }

    pub(super) fn drive(&self, exchange: &RefCell<Exchange>, input: Input<'_>) {
        let mut exact = is_timed(&input);
        let mut now = if exact { self.clock.now() } else { self.clock.recently() };
        let mut effects = VecDeque::from(exchange.borrow_mut().on(input, now));
        while let Some(effect) = effects.pop_front() {
            if !exact && effect.asks_the_store() {
                (exact, now) = (true, self.clock.now());
            }
            if let Some(answer) = self.perform(effect, now) {
                effects.extend(exchange.borrow_mut().on(answer, now));
            }
        }
    }

    /// Carries out one effect; an answer to it is the next input.
    fn perform(&self, effect: Effect, now: Timestamp) -> Option<Input<'static>> {
        match effect {
            Effect::ReadBody { size } => {
                return Some(Input::Body(calls::buffer(Buffer::RequestBody, 0, size).ok().flatten()));
            }
            Effect::Check(reservation) => return Some(Input::Checked(self.store.check(&reservation, now))),
            Effect::Reserve(reservation) => {
                return Some(Input::Decided(self.store.reserve(&reservation, now)));
            }
            Effect::Ask(question) => {
                let asked = self.line.as_ref().map(|line| line.ask(question.path, &question.body));
                return Some(match asked {
                    Some(Ok(_)) => Input::Asked,
                    Some(Err(Unsent)) | None => Input::Answered(Err(Unsent)),
                });
            }
            Effect::Wake => self.line.iter().for_each(Line::wake),
            Effect::Look(charges) => {
                let standing =
                    |charge: &LocalCharge| self.store.standing(&self.store.place(charge), now).ok();
                return Some(Input::Standings(charges.iter().map(standing).collect()));
            }
            Effect::Withdraw(reservation) => {
                let places: Vec<_> =
                    reservation.charges.iter().map(|charge| self.store.place(charge)).collect();
                warn_if(self.store.release(reservation.id, &places, now).is_err(), "giving back a hold");
            }
            Effect::Settle { id, spent } => {
                let settled = self.store.settle(id, &spent, now);
                let outcome = settled.map_or(SettledAs::Lost, |settled| settled.outcome.into());
                return Some(Input::Settled(outcome));
            }
            Effect::Grow { id, by } => {
                warn_if(self.store.grow(id, &by, now).is_err(), "growing a hold");
            }
            Effect::Renew { id, places, lease } => {
                warn_if(self.store.renew(id, &places, lease, now).is_err(), "renewing a lease");
            }
            Effect::Reply(reply) => warn_if(
                calls::send_local_response(reply.status, reply.details, &reply.headers, &reply.body).is_err(),
                "answering a request",
            ),
            Effect::ResumeRequest => warn_if(calls::resume_request().is_err(), "resuming a request"),
            Effect::SetRequestHeader(name, value) => {
                warn_if(calls::set_header(Headers::Request, name, &value).is_err(), "setting a header");
            }
            Effect::RemoveRequestHeader(name) => {
                warn_if(calls::remove_header(Headers::Request, &name).is_err(), "removing a header");
            }
            Effect::ReplaceRequestBody { replaced, with } => {
                warn_if(rewrite_request(replaced, &with).is_err(), "rewriting a request");
            }
            Effect::SetResponseHeader(name, value) => {
                warn_if(calls::set_header(Headers::Response, name, &value).is_err(), "setting a header");
            }
            Effect::RemoveResponseHeader(name) => {
                warn_if(calls::remove_header(Headers::Response, name).is_err(), "removing a header");
            }
            Effect::ReplaceResponseBody { replaced, with } => warn_if(
                calls::set_buffer(Buffer::ResponseBody, 0, replaced, &with).is_err(),
                "rewriting an answer",
            ),
            Effect::Count(metric, by) => self.count(metric, by),
            Effect::Learn { model, estimated, reported } => self.learned.learn(model, estimated, reported),
            Effect::Record(line) => {
                // Access logs that do not ask for the field lack nothing.
                let _status = calls::set_property("tollgate", line.as_bytes());
            }
        }
        None
    }

    fn count(&self, metric: Metric, by: u64) {
        match metric.kind() {
            Kind::Counter | Kind::Gauge => self.add(metric, i64::try_from(by).unwrap_or(i64::MAX)),
            Kind::Histogram => self.record(metric, by),
        }
    }

    fn add(&self, metric: Metric, by: i64) {
        if by != 0 {
            let mut counters = self.counters.borrow_mut();
            let counter = counters.entry(metric).or_default();
            counter.pending = counter.pending.saturating_add(by);
        }
    }

    fn record(&self, metric: Metric, value: u64) {
        if let Some(id) = self.series(metric, self.counters.borrow_mut().entry(metric).or_default()) {
            warn_if(calls::record_metric(id, value).is_err(), "counting");
        }
    }

    /// Hands over what was learned and counted since the last tick.
    pub(super) fn tell(&self) {
        self.share_lessons();
        self.tell_counters();
    }

    fn share_lessons(&self) {
        for news in self.learned.share() {
            match news {
                News::Correct { model, by } => self.gate.correct(model, by),
                News::BegunAnew { model } => self.count(Metric::CorrectionsBegunAnew { model }, 1),
                News::Failed => warn_if(true, "sharing what was learned"),
            }
        }
    }

    fn tell_counters(&self) {
        for (metric, counter) in self.counters.borrow_mut().iter_mut() {
            if counter.pending == 0 {
                continue;
            }
            if let Some(id) = self.series(*metric, counter) {
                let by = std::mem::take(&mut counter.pending);
                warn_if(calls::increment_metric(id, by).is_err(), "counting");
            }
        }
    }

    /// Defined once: a host hands out a new id at every definition and never takes one back.
    fn series(&self, metric: Metric, counter: &mut Counter) -> Option<u32> {
        let define = || calls::define_metric(metric.kind(), &metric.name(&self.gate.config)).ok();
        counter.id = counter.id.or_else(define);
        counter.id
    }
}

impl Ids {
    fn mint(&self) -> HoldId {
        let next = self.next.get();
        self.next.set(next.wrapping_add(1));
        HoldId::from_bits(u128::from(self.worker) << 64 | u128::from(next))
    }
}

/// The proxy does not announce a new body's length by itself: bytes beyond an old length would stand in
/// front of the next request on the upstream's connection. So the length changes first, and the body only
/// once it has.
fn rewrite_request(replaced: usize, with: &[u8]) -> Result<(), HostError> {
    calls::set_header(Headers::Request, "content-length", &with.len().to_string())?;
    calls::set_buffer(Buffer::RequestBody, 0, replaced, with).inspect_err(|_| {
        // Nothing better is left to do if this fails too: the proxy then refuses the mismatch itself.
        let _restored = calls::set_header(Headers::Request, "content-length", &replaced.to_string());
    })
}

/// Whether the moment decides anything by itself. A store that is asked is told the exact time in any case; for
/// the rest the last reading will do, which is as old as the last tick at most.
const fn is_timed(input: &Input<'_>) -> bool {
    match input {
        // A chunk keeps the lease of its stream, also where the timer is late.
        Input::ResponseBody { chunk: _, body: Body::Goes } => true,
        // How long it took.
        Input::Answered(_) => true,
        // Ticks begin with a reading.
        Input::Tick
        | Input::RequestHeaders { .. }
        | Input::RequestBody { .. }
        | Input::RequestTrailers
        | Input::ResponseHeaders { .. }
        | Input::ResponseBody { chunk: _, body: Body::Ends }
        | Input::Ended(_)
        | Input::Body(_)
        | Input::Checked(_)
        | Input::Decided(_)
        | Input::Asked
        | Input::Standings(_)
        | Input::Settled(_) => false,
    }
}

fn warn_if(failed: bool, doing: &str) {
    if failed {
        calls::log(Level::Warn, &format!("tollgate: the host failed at {doing}"));
    }
}
