//! A proxy for tests: runs the compiled proxy-wasm module natively, with the whole host as plain state.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "test-only: misuse stops the test where it stands, and guest words are 32 bits wide"
)]

mod calls;
mod error;
mod framing;
mod headers;
mod imports;
mod metrics;
mod module;
mod outcome;
mod process;
mod profile;
mod random;
mod shared;
mod state;
mod status;
mod stream;
mod vm;

pub use calls::{Answer, Call, CallResponse, Cluster};
pub use error::{LoadError, StartError, Trap};
pub use framing::Framing;
pub use headers::Headers;
pub use metrics::{Kind, Metric};
pub use module::{Module, imports};
pub use outcome::{Author, Callback, Ending, Flow, LocalReply, Received};
pub use process::{Process, QueueDelivery, START_MS};
pub use profile::{DEFAULT_BODY_LIMIT, DEFAULT_MEMORY_LIMIT, Profile, VmOptions};
pub use shared::{SharedValue, SharedWrite};
pub use status::{LogLevel, LogLine, Status};
pub use stream::{Request, Stream};
pub use vm::Vm;
