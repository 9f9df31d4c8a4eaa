//! Who keeps the accounts: one trait, one specification.
//!
//! A store decides about one slot at a time, atomically, and every step equals the same step of
//! [`tollgate_budget::Ledger`] with [`MEMORY`]. What spans slots is put together by the service.
//!
//! What must not go wrong: a step that happened and was not told must be safe to ask for again. Every step
//! that changes something is idempotent by the hold's id.

pub mod memory;
pub mod redis;
mod terms;

use std::fmt;
use std::future::Future;

use tollgate_budget::wire::Close;
use tollgate_budget::{
    AccountKey, Amount, Decision, Found, Full, HoldId, Limit, LimitHash, Memory, Mode, OnLeaseEnd, Outcome,
    Refusal, Span, Standing, Timestamp,
};

/// Longer than any retry: a gateway repeats a settlement while it has room to keep it, and one hour of outage
/// is more than it has room for.
pub const MEMORY: Memory = Memory { settled: Span::from_secs(3600), ended: Span::from_secs(3600) };

/// While charges under two policies were seen within this time, the smaller amount counts. Longer than a
/// rollout leaves a gateway without a request of a busy account; a raise takes as long to count.
pub const SKEW: Span = Span::from_secs(60);

/// Accounts in one slot. A policy names 32 limits at most; the rest is for limits renamed while their
/// accounts still count.
pub const ACCOUNTS_PER_SLOT: usize = 256;

/// Open holds in one slot, those of an ended lease included: a limit for all callers together has all
/// requests in flight. Beyond it something leaks, and a slot must not grow until Redis is full.
pub const HOLDS_PER_SLOT: usize = 1_000_000;

/// Namespace and subject: what one atomic step decides about.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Slot(String);

impl Slot {
    pub fn of(account: &AccountKey) -> Self {
        Self(account.slot())
    }

    /// `namespace/subject`, encoded as in an account's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// An account of this slot.
    pub fn account(&self, limit: &str) -> Option<AccountKey> {
        let (namespace, subject) = self.0.split_once('/')?;
        format!("{namespace}/{limit}/{subject}").parse().ok()
    }

    /// How many attributes make the subject. Slots with more are asked first: they are the ones that few share,
    /// so what is taken there and given back keeps fewest from anything.
    pub fn attributes(&self) -> usize {
        self.0.matches('=').count()
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A limit's name, encoded as in an account's name: what tells accounts of one slot apart.
pub type LimitName = String;

/// One slot's part of a hold.
#[derive(Clone, Debug)]
pub struct Part {
    pub id: HoldId,
    pub policy: u32,
    pub charges: Vec<Charge>,
    pub lease: Span,
    pub on_lease_end: OnLeaseEnd,
}

#[derive(Clone, Debug)]
pub struct Charge {
    pub name: LimitName,
    pub limit: Limit,
    pub cost: Amount,
    pub largest: Amount,
    pub mode: Mode,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub name: LimitName,
    pub limit: Limit,
    pub spent: Amount,
}

/// An account as it is kept.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Kept {
    pub account: AccountKey,
    /// With the amount that counted last.
    pub limit: Limit,
    pub amount_set: Option<Amount>,
    pub standing: Standing,
}

/// A part of the list of accounts.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Page {
    pub accounts: Vec<Kept>,
    /// Where to go on, if there may be more. Means something to the store that gave it only.
    pub cursor: Option<String>,
}

/// What a step did, and how many leases it found to be over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Step<T> {
    pub result: T,
    pub leases_ended: u64,
}

/// A decision, and whether it opened a hold: a repeated one did not.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reserved {
    pub decision: Decision,
    pub opened: bool,
}

/// What closing a hold did.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Settled {
    pub outcome: Outcome,
    /// In no particular order.
    pub postings: Vec<Posting>,
}

/// As [`tollgate_budget::Posting`], by name.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Posting {
    pub name: LimitName,
    pub before: Amount,
    pub spent: Amount,
    pub refunded: Amount,
    pub debt: Amount,
}

/// What a round of the sweeper met.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Swept {
    pub slots: u64,
    pub leases_ended: u64,
    pub open_holds: u64,
}

/// Why a store did not do its step. It may have done it all the same, except where it is full.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum StoreError {
    /// Not reached, or lost on the way.
    Away,
    /// No answer in time.
    Slow,
    /// Reached, and it would not: the word that Redis begins its error with, such as `LOADING`.
    Unwilling(String),
    /// Answered what no script of ours answers.
    Nonsense,
    Full(Full),
    /// More slots than are kept in memory.
    Slots,
    /// A cursor of another store, or of none.
    Cursor,
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Away => f.write_str("the store cannot be reached"),
            Self::Slow => f.write_str("the store did not answer in time"),
            Self::Unwilling(word) => write!(f, "the store said {word}"),
            Self::Nonsense => f.write_str("the store's answer was not understood"),
            Self::Full(Full::Accounts { .. }) => f.write_str("all accounts of the subject are in use"),
            Self::Full(Full::Holds) => f.write_str("too many holds of the subject are open"),
            Self::Slots => f.write_str("too many subjects are in use"),
            Self::Cursor => f.write_str("not a cursor that this store gave"),
        }
    }
}

impl std::error::Error for StoreError {}

/// A keeper of accounts. `now` is the service's clock; a store with a clock of its own goes by that.
pub trait Store: Send + Sync + 'static {
    /// Takes every charge, or none. The same part once more takes nothing more.
    fn reserve(
        &self,
        slot: &Slot,
        part: &Part,
        now: Timestamp,
    ) -> impl Future<Output = Result<Step<Reserved>, StoreError>> + Send;

    /// What [`reserve`](Self::reserve) would say, taking nothing: the shadow charges that are over, or the
    /// refusal.
    fn weigh(
        &self,
        slot: &Slot,
        part: &Part,
        now: Timestamp,
    ) -> impl Future<Output = Result<Step<Result<Vec<usize>, Refusal>>, StoreError>> + Send;

    /// Ends a hold, or marks one that has not come yet.
    fn settle(
        &self,
        slot: &Slot,
        id: HoldId,
        close: Close,
        entries: &[Entry],
        now: Timestamp,
    ) -> impl Future<Output = Result<Step<Settled>, StoreError>> + Send;

    /// Undoes a reservation that another slot did not grant. Leaves no mark: the same hold may be asked for
    /// again.
    fn release(
        &self,
        slot: &Slot,
        id: HoldId,
        now: Timestamp,
    ) -> impl Future<Output = Result<Step<Found>, StoreError>> + Send;

    /// Starts an open hold's lease anew, and raises its stakes to these totals.
    fn renew(
        &self,
        slot: &Slot,
        id: HoldId,
        lease: Span,
        totals: &[(LimitName, Amount)],
        now: Timestamp,
    ) -> impl Future<Output = Result<Step<Found>, StoreError>> + Send;

    /// How accounts stand under these limits, in the order asked.
    fn standings(
        &self,
        slot: &Slot,
        asked: &[(LimitName, Limit)],
        now: Timestamp,
    ) -> impl Future<Output = Result<Step<Vec<Standing>>, StoreError>> + Send;

    /// Sets an account's amount, whatever charges say, or takes that back.
    fn set_amount(
        &self,
        slot: &Slot,
        name: &str,
        amount: Option<Amount>,
        now: Timestamp,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The accounts kept in a slot.
    fn slot(&self, slot: &Slot, now: Timestamp)
    -> impl Future<Output = Result<Vec<Kept>, StoreError>> + Send;

    /// Accounts whose name begins so, about as many as asked for.
    fn accounts(
        &self,
        prefix: &str,
        limit: usize,
        cursor: Option<&str>,
        now: Timestamp,
    ) -> impl Future<Output = Result<Page, StoreError>> + Send;

    /// Goes through slots and ends leases that are over. One round; accounts would come out the same without.
    fn sweep(&self, now: Timestamp) -> impl Future<Output = Result<Swept, StoreError>> + Send;

    /// Whether it answers.
    fn ready(&self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// A prefix of accounts' names as one of slots' names, and what the limit's name must begin with.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Prefix {
    pub(crate) slot: String,
    whole: String,
}

impl Prefix {
    pub(crate) fn new(prefix: &str) -> Self {
        let mut parts = prefix.splitn(3, '/');
        let namespace = parts.next().unwrap_or_default();
        let slot = match (parts.next(), parts.next()) {
            (None, _) => namespace.to_owned(),
            (Some(_), subject) => format!("{namespace}/{}", subject.unwrap_or_default()),
        };
        Self { slot, whole: prefix.to_owned() }
    }

    pub(crate) fn covers(&self, account: &AccountKey) -> bool {
        account.as_str().starts_with(&self.whole)
    }
}

/// What a ledger of one slot knows an account by.
pub(crate) fn account_id(name: &str) -> tollgate_budget::AccountId {
    // Within one slot the limit's name alone tells accounts apart.
    tollgate_budget::SubjectHash::of("", []).account(LimitHash::of(name))
}
