//! The counter service: it answers gateways over HTTP, and keeps their accounts in memory or in Redis.
//!
//! Modules in the order a request meets them: [`http`] turns bytes into messages and results into statuses,
//! [`service`] puts together what spans slots, [`store`] decides about one slot at a time. [`settings`] come
//! from flags and the environment, [`metrics`] tell what happened, [`shutdown`] ends it without losing what
//! is under way.

pub mod clock;
pub mod http;
pub mod metrics;
pub mod problem;
pub mod service;
pub mod settings;
pub mod shutdown;
pub mod store;
mod tokens;

pub use clock::Clock;
pub use service::Service;
pub use settings::Settings;
pub use tokens::{Caller, Tokens};
