//! What the filter promises for one exchange, natively: its library over a double of the host.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod common;
mod flows;

use common::proxy::native::NativeProxy as ProxyUnderTest;

/// Answers up to this long are cut at every byte.
const CUT_AT_EVERY_BYTE: usize = 1200;
