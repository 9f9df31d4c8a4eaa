//! What an operation on the ledger did.

use crate::{AccountId, Amount, HoldId};

/// There is no room to keep what was asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Full {
    /// Every account is in use; `index` is the first charge or entry whose account is not among them.
    Accounts {
        index: usize,
    },
    Holds,
}

/// What a settlement did, account by account.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Settled {
    pub outcome: Outcome,
    pub postings: Vec<Posting>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The hold was open.
    Closed,
    /// The hold's lease had ended; what that charged or gave back is now the true cost.
    CorrectedAfterLease,
    /// No such hold: all of the cost was charged.
    Unknown,
    /// Settled before: nothing was changed.
    Duplicate,
}

/// What closing a hold did to one account. `before` and `spent` say what is booked; `refunded` and `debt`
/// what that changed in windows that still count.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Posting {
    pub account: AccountId,
    /// What the hold had set aside, or its lease end had charged.
    pub before: Amount,
    pub spent: Amount,
    pub refunded: Amount,
    pub debt: Amount,
}

/// A hold whose lease has ended unsettled.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ended {
    pub id: HoldId,
    pub postings: Vec<Posting>,
}

/// Whether the hold was there to be changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Found {
    Open,
    /// Never granted, settled, or past its lease. The settlement will charge what is missing.
    NotOpen,
}
