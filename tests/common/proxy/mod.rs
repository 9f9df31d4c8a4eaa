//! A proxy as tests drive it, with two implementations: the filter's library over a double of the host, and
//! the compiled module in the host simulator. What one shows, the other must show.
//!
//! A stream is driven by what happens at the proxy's edges, and what came of it is a [`Seen`].

pub mod compiled;
pub mod native;
mod wire;

use std::collections::BTreeMap;

use serde_json::Value;
use tollgate_hostsim::{Headers, Profile, Received};

use crate::common::counter::Counter;

/// Where a proxy begins: its clock, and how many workers share its memory.
#[derive(Clone, Debug)]
pub struct Setup {
    pub policy: String,
    pub workers: usize,
    pub profile: Profile,
    pub start_ms: u64,
    /// What a paused body may grow to.
    pub body_limit: usize,
}

/// The beginning of a minute, of an hour and of a day.
pub const START_MS: u64 = 1_767_225_600_000;

impl Setup {
    pub fn new(policy: &Value) -> Self {
        let profile = Profile::EnvoyHold;
        Self { policy: policy.to_string(), workers: 1, profile, start_ms: START_MS, body_limit: 32 << 20 }
    }

    pub fn workers(self, workers: usize) -> Self {
        Self { workers, ..self }
    }

    pub fn profile(self, profile: Profile) -> Self {
        Self { profile, ..self }
    }

    pub fn start_ms(self, start_ms: u64) -> Self {
        Self { start_ms, ..self }
    }
}

pub trait Proxy: Sized {
    type Stream: Stream;

    /// Starts every worker. The error is what the filter said of the policy.
    fn start(setup: &Setup) -> Result<Self, String>;

    fn launch(setup: &Setup) -> Self {
        Self::start(setup).unwrap_or_else(|why| panic!("the proxy does not start: {why}"))
    }

    /// A request's headers come in.
    fn open(&self, worker: usize, headers: &Headers, ends: bool) -> Self::Stream {
        self.open_with(worker, headers, &[], ends)
    }

    /// Filters in front have put this into the stream's metadata: dotted paths, and values as the host puts
    /// them into bytes.
    fn open_with(
        &self,
        worker: usize,
        headers: &Headers,
        metadata: &[(String, Vec<u8>)],
        ends: bool,
    ) -> Self::Stream;

    fn now_ms(&self) -> u64;

    /// Lets time pass, ticks included.
    fn advance(&self, ms: u64);

    /// Sets the clock. Nothing comes due by it.
    fn set_time(&self, now_ms: u64);

    /// A fresh VM in the place of a worker's: its streams are lost without a last callback.
    fn reload(&self, worker: usize);

    fn metrics(&self) -> BTreeMap<String, u64>;

    fn metric(&self, name: &str) -> u64 {
        self.metrics().get(name).copied().unwrap_or_default()
    }

    /// The sum of all series of a metric.
    fn metric_sum(&self, name: &str) -> u64 {
        let series =
            |found: &str| found == name || found.strip_prefix(name).is_some_and(|rest| rest.starts_with(';'));
        self.metrics().iter().filter(|(found, _)| series(found)).map(|(_, value)| value).sum()
    }

    fn shared(&self) -> BTreeMap<String, Vec<u8>>;

    fn put_shared(&self, key: &str, value: &[u8]);

    /// The next `times` compare-and-swaps find that somebody else was faster.
    fn conflict(&self, times: u64);

    /// The service at the cluster that policies of tests name. Whoever changes how it behaves lets the calls that
    /// hang go on by [`Proxy::advance`].
    fn counter(&self) -> &Counter;

    /// All that was logged.
    fn log(&self) -> Vec<String>;
}

pub trait Stream: Clone {
    fn body(&self, chunk: &[u8], ends: bool);
    fn request_trailers(&self);
    fn answer_headers(&self, headers: &Headers, ends: bool);
    fn answer_chunk(&self, chunk: &[u8], ends: bool);
    fn answer_trailers(&self);
    /// The proxy itself answers: a time-out, a dead upstream.
    fn proxy_replies(&self, status: u16, details: &str);
    fn client_leaves(&self);
    fn upstream_resets(&self);
    fn seen(&self) -> Seen;
}

/// What the world saw of one exchange.
#[derive(Clone, Debug)]
pub struct Seen {
    pub upstream: Received,
    pub client: Received,
    pub details: Option<String>,
    /// The packed field of the access log.
    pub record: Option<String>,
    /// Something of the request waits for the filter's decision.
    pub held: bool,
    pub ended: bool,
}

impl Seen {
    pub fn status(&self) -> u16 {
        self.client.status().unwrap_or_else(|| panic!("no answer: {self:?}"))
    }

    /// A header of what the client received.
    pub fn header(&self, name: &str) -> Option<String> {
        self.client.header(name)
    }

    pub fn number(&self, name: &str) -> u64 {
        let value = self.header(name).unwrap_or_else(|| panic!("no header {name}: {self:?}"));
        value.parse().unwrap_or_else(|_| panic!("{name}: {value}"))
    }

    pub fn passed(&self) -> bool {
        self.upstream.ended
    }

    /// Not a byte of the request went upstream.
    pub fn untouched_upstream(&self) -> bool {
        self.upstream.headers.is_none()
    }

    /// A body of ours, as the client's SDK would read it.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.client.body())
            .unwrap_or_else(|why| panic!("{why}: {}", self.client.text()))
    }

    pub fn record(&self) -> Value {
        let line = self.record.as_ref().unwrap_or_else(|| panic!("no record: {self:?}"));
        serde_json::from_str(line).unwrap()
    }

    pub fn recorded(&self, field: &str) -> u64 {
        self.record()[field].as_u64().unwrap_or_else(|| panic!("no {field}: {:?}", self.record))
    }

    /// The smuggling check: the length announced to each side fits the bytes sent.
    pub fn check_framing(&self) {
        for (peer, message) in [("upstream", &self.upstream), ("client", &self.client)] {
            let Some(length) = message.header("content-length") else { continue };
            let (length, sent) = (length.parse::<usize>().unwrap(), message.body().len());
            assert!(
                sent == length || sent < length && !message.ended,
                "{peer}: {length} announced, {sent} sent"
            );
        }
    }
}
