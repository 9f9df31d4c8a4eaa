//! A hold: what one request has set aside, under which id, until when.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{AccountId, Amount, Charge, Limit, Span};

/// Names one request's hold in every account it takes from. Minted at random by the filter, so that a
/// settlement can close a hold whose grant was never heard of.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct HoldId(u128);

impl HoldId {
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    pub const fn to_bits(self) -> u128 {
        self.0
    }
}

impl fmt::Display for HoldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Not a hold's id.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NotAnId;

impl FromStr for HoldId {
    type Err = NotAnId;

    /// The one spelling of `Display`: 32 lower-case hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, NotAnId> {
        let digits = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 32 || !text.bytes().all(digits) {
            return Err(NotAnId);
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| NotAnId)
    }
}

/// What to do with a hold that nobody settled before its lease ended.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnLeaseEnd {
    /// Take it as spent.
    Charge,
    /// Give it back.
    Release,
}

/// All that one request asks for, in one step: every charge is granted, or none is taken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reservation {
    pub id: HoldId,
    pub charges: Vec<Charge>,
    pub lease: Span,
    pub on_lease_end: OnLeaseEnd,
}

/// What one account is to be charged in the end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Entry {
    pub account: AccountId,
    /// For a hold that the store does not know: where to charge plainly.
    pub limit: Limit,
    pub spent: Amount,
}

/// The true cost of a hold, in every account it took from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Settlement {
    pub id: HoldId,
    pub entries: Vec<Entry>,
}
