//! Budgets in shared memory. (Types only, until the store is merged.)
use tollgate_budget::*;
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Place { pub account: AccountId, pub tag: u64 }
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Overflow { pub account: AccountId, pub limit: Limit }
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LocalCharge { pub charge: Charge, pub tag: u64, pub overflow: Overflow }
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LocalReservation { pub id: HoldId, pub charges: Vec<LocalCharge>, pub lease: Span, pub on_lease_end: OnLeaseEnd }
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LocalSettlement { pub id: HoldId, pub entries: Vec<(Place, Entry)> }
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Granted { pub decision: Decision, pub overflowed: Vec<usize> }
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StoreError { HoldsFull, Contended, Unreadable }
