//! The store's word on a reservation.

use serde::{Deserialize, Serialize};

use crate::{Amount, Limit, Span};

/// All or none.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Granted(Grant),
    Refused(Refusal),
    /// The hold's settlement came first: nothing is held, and nothing is owed any more.
    AlreadySettled,
}

/// What was taken.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Grant {
    /// How each account stands after the hold, in the order of the reservation's charges.
    pub standings: Vec<Standing>,
    /// Indexes of the charges in shadow mode that would have refused.
    pub shadow_over: Vec<usize>,
}

/// Which charge was refused, and what would help.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Refusal {
    /// Index into the reservation's charges.
    pub charge: usize,
    pub reason: Reason,
    /// The refusing account before the request.
    pub standing: Standing,
}

impl Refusal {
    /// The one that decides: what waiting does not help comes first, then the longer wait.
    #[must_use]
    pub fn graver(self, other: Self) -> Self {
        match (self.reason, other.reason) {
            (Reason::NotYet { retry_after: mine }, Reason::NotYet { retry_after: theirs }) => {
                if theirs > mine { other } else { self }
            }
            (Reason::NotYet { .. }, Reason::Never { .. } | Reason::Suspended) => other,
            (
                Reason::Never { .. } | Reason::Suspended,
                Reason::NotYet { .. } | Reason::Never { .. } | Reason::Suspended,
            ) => self,
        }
    }
}

/// "Not yet" is not "never", and neither is "not any more".
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// If nothing else happens, the whole reservation is admitted after this wait.
    NotYet {
        #[serde(rename = "retry_after_ms")]
        retry_after: Span,
    },
    /// More than this account ever gives out at once.
    Never { largest: Amount },
    /// The account's amount is zero.
    Suspended,
}

/// How an account stands at one moment.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Standing {
    /// What the account can give out at once when full: the amount, or a bucket's burst.
    pub capacity: Amount,
    /// Set aside and not yet settled, as far as it still counts.
    pub held: Amount,
    /// Spent, as far as it still counts.
    pub spent: Amount,
    /// Until the account would be full again if nothing else happened.
    #[serde(rename = "reset_ms")]
    pub reset: Span,
}

impl Standing {
    /// Of an account that nothing was ever taken from.
    pub const fn empty(limit: &Limit) -> Self {
        Self { capacity: limit.capacity(), held: Amount::ZERO, spent: Amount::ZERO, reset: Span::ZERO }
    }

    pub const fn used(&self) -> Amount {
        self.held.saturating_add(self.spent)
    }

    /// Zero when the account is in debt.
    pub const fn remaining(&self) -> Amount {
        self.capacity.saturating_sub(self.used())
    }

    /// Spent beyond the capacity.
    pub const fn debt(&self) -> Amount {
        self.used().saturating_sub(self.capacity)
    }
}
