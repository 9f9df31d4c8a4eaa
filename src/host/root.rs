//! The root context: takes the policy, makes streams, passes the time on to them.

use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;

use super::calls::{self, Buffer, Level};
use super::http::Stream;
use super::worker::Worker;
use crate::config::{ConfigError, FilterConfig};

/// Often enough to let go of headers 2 s after they came and to renew leases of minutes; seldom enough to
/// cost nothing that can be measured.
const TICK_MILLIS: u32 = 500;

/// One per worker.
#[derive(Debug)]
pub(super) struct Root {
    context: u32,
    /// Streams keep the policy under which they began.
    worker: Option<Rc<Worker>>,
}

impl Root {
    pub(super) const fn new(context: u32) -> Self {
        Self { context, worker: None }
    }
}

impl Context for Root {
    /// A policy that is replaced has its last counts and lessons told; nothing else keeps it.
    fn on_done(&mut self) -> bool {
        if let Some(worker) = &self.worker {
            worker.tell();
        }
        true
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
    let worker = Worker::open(root, config).map_err(whole)?;
    calls::set_tick_period(TICK_MILLIS).map_err(|_| whole("the host does not offer a timer".to_owned()))?;
    Ok(worker)
}
