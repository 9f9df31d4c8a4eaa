//! Budget arithmetic: what an account holds and has spent, who may take from it, and when again.
//!
//! Nothing here does IO or reads a clock: every operation is told the time. The [`Ledger`] is the
//! specification that every keeper of budgets (shared memory, the counter service, Redis) is checked
//! against.
//!
//! Modules in the order a request meets them: the [`toll`] that it takes, an account's [`key`] and [`name`], its
//! [`limit`], the [`lease`] of a hold, the [`ledger`] that decides, and the [`decision`] that comes back. [`figure`] is
//! how amounts are written for people, [`wire`] how a gateway says all this to another process.

mod account;
mod book;
pub mod decision;
pub mod figure;
pub mod image;
pub mod key;
pub mod lease;
pub mod ledger;
pub mod limit;
pub mod name;
pub mod outcome;
mod record;
pub mod time;
pub mod tokens;
pub mod toll;
pub mod usage;
mod window;
pub mod wire;

pub use decision::{Decision, Grant, Reason, Refusal, Standing};
pub use figure::Figure;
pub use image::ImageError;
pub use key::{AccountId, BudgetKey, LimitHash, SubjectHash};
pub use lease::{Entry, HoldId, OnLeaseEnd, Reservation, Settlement};
pub use ledger::{Capacity, Ledger, Memory};
pub use limit::{Amount, Charge, Limit, Mode, Quota, Unit, Window};
pub use name::{AccountKey, KeyError};
pub use outcome::{Ended, Found, Full, Outcome, Posting, Settled};
pub use time::{Span, Timestamp};
pub use tokens::Tokens;
pub use toll::{Caching, Rate, Step, Tariff, Toll};
pub use usage::Usage;
