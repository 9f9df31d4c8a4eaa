//! Token budgets for LLM gateways, as a proxy-wasm filter.
//!
//! Modules in the order bytes travel.

pub mod config;
pub mod local;
