//! The sequence cases on the ledger itself.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod support;

use std::path::Path;

use tollgate_budget::{
    BudgetKey, Capacity, Decision, Ledger, Limit, Memory, Reservation, Settled, Settlement, Span, Standing,
    Timestamp,
};

impl support::Keeper for Ledger {
    fn reserve(&mut self, _keys: &[BudgetKey], reservation: Reservation, now: Timestamp) -> Decision {
        Ledger::reserve(self, &reservation, now).unwrap()
    }

    fn settle(&mut self, _keys: &[BudgetKey], settlement: Settlement, now: Timestamp) -> Settled {
        Ledger::settle(self, &settlement, now).unwrap()
    }

    fn standing(&mut self, key: &BudgetKey, limit: &Limit, now: Timestamp) -> Standing {
        Ledger::standing(self, key.account(), limit, now)
    }

    fn host_conflicts(&mut self, _times: u64) {}
}

#[test]
fn every_sequence_goes_as_its_case_says_on_every_algorithm() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases");
    let memory = Memory { settled: Span::from_secs(600), ended: Span::from_secs(600) };
    support::play_all(&cases, || Ledger::new(Capacity { accounts: 100, holds: 100 }, memory));
}
