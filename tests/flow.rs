//! What the filter promises for one exchange, natively: its library over a double of the host.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod common;
mod flows;

use std::rc::Rc;

use common::proxy::START_MS;
use common::proxy::native::NativeProxy as ProxyUnderTest;
use common::requests::Ask;
use tollgate::config::FilterConfig;
use tollgate::exchange::{Body, Effect, End, Exchange, Gate, Input};
use tollgate::identity::Caller;
use tollgate_budget::{HoldId, Timestamp};

/// Answers up to this long are cut at every byte.
const CUT_AT_EVERY_BYTE: usize = 2000;

/// A store that answers later is asked in the same way; the local one never leaves a stream waiting.
#[test]
fn a_stream_that_ends_before_the_store_answers_gives_back_what_may_have_been_taken() {
    let policy = flows::tokens(1000).to_string();
    let gate = Rc::new(Gate::new(FilterConfig::from_slice(policy.as_bytes()).unwrap(), [0; 16]));
    let mut exchange = Exchange::new(gate, HoldId::from_bits(7));
    let now = Timestamp::from_millis(START_MS);
    let ask = Ask::new(100);
    let head = ask.head();
    let head: Vec<_> = head.iter().map(|(name, value)| (name.as_bytes(), value)).collect();
    let _asked = exchange.on(
        Input::RequestHeaders { caller: Caller { headers: &head, metadata: &[] }, body: Body::Goes },
        now,
    );
    let _asked = exchange.on(Input::RequestBody { waiting: ask.body.len(), body: Body::Ends }, now);
    let asked = exchange.on(Input::Body(Some(ask.body)), now);
    assert!(asked.iter().any(|effect| matches!(effect, Effect::Reserve(_))));
    let effects = exchange.on(Input::Ended(End::Client), now);
    let withdrawn =
        |effect: &Effect| matches!(effect, Effect::Withdraw(asked) if asked.id == HoldId::from_bits(7));
    assert!(effects.iter().any(withdrawn), "{effects:?}");
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Settle { .. })));
}
