//! What the filter promises for one exchange, through the compiled module in the host simulator; and what
//! only the module can show: its imports, its memory, the work it does.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod common;
mod flows;

use common::proxy::compiled::CompiledProxy as ProxyUnderTest;

/// Answers up to this long are cut at every byte: the interpreter takes its time.
const CUT_AT_EVERY_BYTE: usize = 300;
