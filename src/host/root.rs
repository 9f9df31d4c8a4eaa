//! The root context: takes the policy, makes streams, passes the time on to them.

use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;

use super::calls::{self, Buffer, Level};
use super::http::Stream;
use super::service::CallResponse;
use super::worker::Worker;
use crate::config::{ConfigError, FilterConfig};

/// Often enough to let go of headers 2 s after they came and to renew leases of minutes; seldom enough to
/// cost nothing that can be measured.
const TICK_MILLIS: u32 = 500;

/// Where the counter service is to be told of settlements and to be tried again: a tenth of a second costs as
/// little, and is the least wait of a delivery that failed.
const TICK_MILLIS_WITH_COUNTER: u32 = 100;

/// One per worker.
#[derive(Debug)]
pub(super) struct Root {
    context: u32,
    /// Streams keep the policy under which they began.
    worker: Option<Rc<Worker>>,
    /// The policy has been replaced, and its streams are over.
    leaving: bool,
}

impl Root {
    pub(super) const fn new(context: u32) -> Self {
        Self { context, worker: None, leaving: false }
    }
}

impl Context for Root {
    /// A policy that is replaced has its last counts and lessons told, and its last settlements: until they have arrived, or
    /// cannot, the host keeps this context.
    fn on_done(&mut self) -> bool {
        let Some(worker) = &self.worker else { return true };
        worker.tick();
        self.leaving = worker.owes();
        if !self.leaving {
            worker.take_leave();
        }
        !self.leaving
    }

    fn on_http_call_response(&mut self, token: u32, headers: usize, body: usize, _trailers: usize) {
        let Some(worker) = &self.worker else { return };
        worker.call_ended(token, CallResponse::read(headers, body).as_ref());
        if self.leaving && !worker.owes() {
            worker.take_leave();
            self.leaving = false;
            if calls::done().is_err() {
                calls::log(Level::Warn, "tollgate: the host failed at taking leave");
            }
        }
    }
}

impl RootContext for Root {
    /// A policy that does not check is refused: the proxy keeps the one it has, or does not start.
    fn on_configure(&mut self, size: usize) -> bool {
        match configure(self.context, size) {
            Ok(worker) => {
                self.worker = Some(Rc::new(worker));
                true
            }
            Err(errors) => {
                for error in errors {
                    calls::log(Level::Error, &format!("tollgate: policy refused: {error}"));
                }
                false
            }
        }
    }

    fn on_tick(&mut self) {
        if let Some(worker) = &self.worker {
            worker.tick();
        }
    }

    fn on_queue_ready(&mut self, queue: u32) {
        if let Some(worker) = &self.worker {
            worker.queue_ready(queue);
        }
    }

    fn create_http_context(&self, context: u32) -> Option<Box<dyn HttpContext>> {
        let worker = self.worker.as_ref()?;
        Some(Box::new(Stream::new(Rc::clone(worker), context)))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

fn configure(root: u32, size: usize) -> Result<Worker, Vec<ConfigError>> {
    let whole = |problem: String| vec![ConfigError { path: String::new(), problem }];
    let bytes = calls::buffer(Buffer::PluginConfiguration, 0, size)
        .map_err(|_| whole("the host does not show the configuration".to_owned()))?
        .unwrap_or_default();
    let config = FilterConfig::from_slice(&bytes)?;
    let period = if config.store.counter.is_some() { TICK_MILLIS_WITH_COUNTER } else { TICK_MILLIS };
    let worker = Worker::open(root, config).map_err(whole)?;
    calls::set_tick_period(period).map_err(|_| whole("the host does not offer a timer".to_owned()))?;
    Ok(worker)
}
