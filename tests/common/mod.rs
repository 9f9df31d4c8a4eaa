//! What several tests share. Each test binary uses a part of it.
#![allow(dead_code, unreachable_pub, reason = "every test binary uses another part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code outside test functions: a fault in a table must stop the test"
)]

pub mod answers;
pub mod cases;
pub mod counter;
pub mod cuts;
pub mod proxy;
pub mod requests;
#[path = "../support/shared_memory.rs"]
pub mod shared_memory;
