//! Calls to the counter service: who makes them, and what came back.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use tollgate_budget::{Span, Timestamp};

use super::calls::{self, Buffer, Headers};
use super::shared::HostSharedData;
use crate::config::CounterRules;
use crate::identity::header;
use crate::remote::{Post, Receipt, Response, Said, Service, Unsent};

/// Nobody waits for what is delivered, so a service that is slow may take its time.
const DELIVERY: Span = Span::from_secs(2);

/// The way to the service.
#[derive(Debug)]
pub(super) struct Line {
    rules: CounterRules,
    /// With its scheme, as the header says it.
    authorization: Option<String>,
    /// Wakes the root context when there is mail; without one the timer does.
    queue: Option<u32>,
    /// The workers' common knowledge of the service.
    breaker_key: String,
    under_way: RefCell<BTreeMap<u32, Post>>,
    /// Told the gauges so far.
    told: Cell<(i64, i64)>,
}

impl Line {
    /// `unique`: this VM's alone, since a queue has one reader.
    pub(super) fn open(rules: &CounterRules, namespace: &str, unique: u64) -> Self {
        let token = std::env::var(&rules.token_env).ok().filter(|token| !token.is_empty());
        Self {
            rules: rules.clone(),
            authorization: token.map(|token| format!("Bearer {token}")),
            queue: calls::register_queue(&format!("tollgate/{namespace}/mail/{unique:016x}")).ok(),
            breaker_key: format!("tollgate/{namespace}/breaker"),
            under_way: RefCell::default(),
            told: Cell::default(),
        }
    }

    /// Asks within the policy's time.
    pub(super) fn ask(&self, path: &str, body: &[u8]) -> Result<u32, Unsent> {
        self.call(path, body, self.rules.timeout)
    }

    fn call(&self, path: &str, body: &[u8], timeout: Span) -> Result<u32, Unsent> {
        let mut headers = vec![
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", self.rules.authority.as_str()),
            (":path", path),
            ("content-type", "application/json"),
        ];
        headers.extend(self.authorization.as_deref().map(|token| ("authorization", token)));
        calls::http_call(&self.rules.target, headers, body, Duration::from_millis(timeout.as_millis()))
            .map_err(|_| Unsent)
    }

    /// There is mail. What the queue does not take the timer finds.
    pub(super) fn wake(&self) {
        if self.under_way.borrow().is_empty()
            && let Some(queue) = self.queue
        {
            let _timer = calls::enqueue(queue, b"");
        }
    }

    pub(super) fn is_woken_by(&self, queue: u32) -> bool {
        let ours = self.queue == Some(queue);
        while ours && calls::dequeue(queue) {}
        ours
    }

    /// Sends what is due.
    pub(super) fn deliver(&self, service: &Service, now: Timestamp) -> Vec<(Post, Receipt)> {
        let mut failed = Vec::new();
        while let Some(parcel) = service.next_parcel(now) {
            match self.call(parcel.path, &parcel.body, DELIVERY) {
                Ok(token) => {
                    self.under_way.borrow_mut().insert(token, parcel.post);
                }
                Err(Unsent) => failed.push((parcel.post, service.delivered(parcel.post, Err(Unsent), now))),
            }
        }
        failed
    }

    pub(super) fn delivered(
        &self,
        token: u32,
        said: Said<'_>,
        service: &Service,
        now: Timestamp,
    ) -> Option<(Post, Receipt)> {
        let post = self.under_way.borrow_mut().remove(&token)?;
        Some((post, service.delivered(post, said, now)))
    }

    pub(super) fn compare(&self, service: &Service) {
        service.compare(&HostSharedData, &self.breaker_key);
    }

    /// By how much the gauges have changed: letters not acknowledged, and whether the service is avoided.
    pub(super) fn changes(&self, service: &Service) -> (i64, i64) {
        let now = (i64::try_from(service.undelivered()).unwrap_or(i64::MAX), i64::from(service.is_avoided()));
        let told = self.told.replace(now);
        (now.0.saturating_sub(told.0), now.1.saturating_sub(told.1))
    }
}

/// What a call came back with.
#[derive(Debug)]
pub(super) struct CallResponse {
    status: u16,
    body: Vec<u8>,
}

impl CallResponse {
    /// A call that was cut off has no headers, and the host is not to be asked for any.
    pub(super) fn read(headers: usize, body: usize) -> Option<Self> {
        if headers == 0 {
            return None;
        }
        let block = calls::headers(Headers::CallResponse).ok()?;
        let status = std::str::from_utf8(header(&block.pairs(), ":status")?).ok()?.parse().ok()?;
        let body = match body {
            0 => Vec::new(),
            size => calls::buffer(Buffer::CallResponseBody, 0, size).ok().flatten().unwrap_or_default(),
        };
        Some(Self { status, body })
    }

    pub(super) fn view(&self) -> Response<'_> {
        Response { status: self.status, body: &self.body }
    }
}
