//! A proxy for tests: runs the compiled proxy-wasm module natively, with the whole host as plain state.
//!
//! Time, shared data, buffers, headers, queues, ticks and calls are values that a test sets and reads;
//! nothing runs by itself and nothing is random, so every test replays. What it imitates is Envoy's
//! wasm host *with its gaps* (no create-if-absent, no length fix-up, calls that outlive their stream,
//! one trap for a whole VM), because a filter breaks on those and not on the textbook. `F…` in comments
//! names the observed fact behind a rule.
//!
//! | to play | use |
//! |---|---|
//! | the proxy process: clocks, shared data, queues, metrics, clusters | [`Process`] |
//! | a worker: start, tick, reload after a trap, shut down, answer a call | [`Vm`], [`VmOptions`] |
//! | another worker in the gap between a read and its compare-and-swap | [`Process::interpose`] |
//! | client, upstream and proxy of one stream | [`Stream`], [`Request`] |
//! | Envoy with and without header hold | [`Profile`] |
//!
//! # A whole example
//!
//! A filter (written by hand here, so that the example runs) that holds a request until its body is
//! complete, and refuses it when the body is longer than three bytes.
//!
//! ```
//! use tollgate_hostsim::{Callback, Flow, Framing, Module, Process, Profile, VmOptions};
//!
//! let module = Module::load(r#"(module
//!     (import "env" "proxy_send_local_response"
//!         (func $reply (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
//!     (memory (export "memory") 1)
//!     (data (i32.const 0) "too long" "refused\n")
//!     (func (export "proxy_abi_version_0_2_1"))
//!     (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
//!         (i32.eqz (local.get 2)))
//!     (func (export "proxy_on_request_body") (param $context i32) (param $size i32) (param $end i32) (result i32)
//!         (if (i32.gt_u (local.get $size) (i32.const 3)) (then (drop (call $reply (i32.const 413)
//!             (i32.const 0) (i32.const 8) (i32.const 8) (i32.const 8) (i32.const 0) (i32.const 0) (i32.const -1)))))
//!         (i32.eqz (local.get $end))))"#)?;
//!
//! let process = Process::new(&module).seeded(7);
//! let vm = process.vm(VmOptions::new(r#"{"version":1}"#).profile(Profile::EnvoyHold));
//! vm.start()?;
//!
//! // Held until its end, then let through as one message.
//! let request = [(":method", "POST"), (":path", "/v1/chat/completions"), ("content-length", "3")];
//! let stream = vm.stream(request, false)?;
//! assert_eq!(stream.body("a", false)?, Flow::Held);
//! process.advance(20)?;
//! assert_eq!(stream.body("bc", true)?, Flow::Flowing);
//! assert_eq!(stream.upstream().text(), "abc");
//! assert_eq!(stream.upstream_framing(), Framing::Exact(3));
//!
//! // The upstream answers; the end of its answer is the end of the stream.
//! stream.response_headers([(":status", "200"), ("content-type", "text/event-stream")], false)?;
//! stream.response_body("data: [DONE]\n\n", true)?;
//! assert_eq!(stream.client().status(), Some(200));
//! assert_eq!(stream.callbacks().last(), Some(&Callback::Delete));
//!
//! // A refusal passes through the response callbacks, and no byte reaches the upstream.
//! let refused = vm.stream(request, false)?;
//! assert_eq!(refused.body("abcd", true)?, Flow::Ended);
//! assert_eq!(refused.client().status(), Some(413));
//! assert_eq!(refused.details().as_deref(), Some("too_long"));
//! assert_eq!(refused.upstream().headers, None);
//! assert!(vm.misuses().is_empty() && vm.trap().is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it does not do
//!
//! No gRPC, no TCP contexts, no foreign functions, no other filters in the chain, no `date` and `server`
//! headers, no route or idle time-outs of its own accord ([`Stream::local_reply`] plays them). Headers
//! that Envoy happens to leave readable after a body callback let them go are not readable here.

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
mod machine;
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
pub use metrics::{Kind as MetricKind, Metric};
pub use module::{Module, imports};
pub use outcome::{Author, Callback, Ending, Flow, LocalReply, Received};
pub use process::{Process, QueueDelivery, START_MS};
pub use profile::{DEFAULT_BODY_LIMIT, DEFAULT_MEMORY_LIMIT, Profile, VmOptions};
pub use shared::{SharedValue, SharedWrite};
pub use status::{LogLevel, LogLine, Status};
pub use stream::{Request, Stream};
pub use vm::Vm;
