//! Token budgets for LLM gateways, as a proxy-wasm filter.
//!
//! Modules in the order bytes travel.

pub mod config;
pub mod identity;

pub mod chat;
pub mod usage;

pub mod metrics;

pub mod estimate;
pub mod local;
pub mod plan;
pub mod remote;
pub mod reply;

pub mod exchange;

#[cfg(target_arch = "wasm32")]
mod host;
