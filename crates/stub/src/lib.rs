//! A provider that does as it is told: answers of OpenAI's and Anthropic's APIs, scripted by request headers.
//!
//! Tests and benchmarks put it behind the proxy, so it must be boring: the same request gets the
//! same bytes, a script that cannot be read is a 400 and never a guess, and everything that reached
//! it can be read back from `/stub/log`.
//!
//! In the order a request travels: [`server`] takes it, [`log`] keeps it, [`ask`] and [`script`]
//! read it, [`gate`] may hold it, [`answer`] says what goes back (from [`chat`] and the other APIs, or from
//! [`replay`]), [`body`] plays that.

#![allow(
    clippy::indexing_slicing,
    reason = "test-only: a member that is missing from a JSON value reads as null"
)]

pub mod server;

pub mod answer;
pub mod ask;
pub mod body;
pub mod chat;
pub mod clock;
pub mod completions;
pub mod embeddings;
pub mod gate;
pub mod load;
pub mod log;
pub mod messages;
pub mod replay;
pub mod responses;
pub mod script;
