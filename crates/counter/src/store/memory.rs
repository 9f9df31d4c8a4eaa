//! Accounts in this process: a [`Ledger`] a slot, behind one lock. They are gone with the process.
//!
//! Bounded: when all slots are in use, a new subject is told that the store is full, and no live account is
//! given up for it. Idle slots are forgotten by the sweeper, so that a flood of invented subjects costs
//! neither memory nor a search on every request.

mod marks;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_budget::wire::Close;
use tollgate_budget::{
    self as budget, AccountId, Amount, Capacity, Decision, Found, HoldId, Ledger, Limit, Memory, Outcome,
    Quota, Refusal, Reservation, Settlement, Span, Standing, Timestamp, Window,
};

use super::terms::Terms;
use super::{
    ACCOUNTS_PER_SLOT, Entry, Kept, LimitName, MEMORY, Page, Part, Posting, Prefix, Reserved, Settled, Slot,
    Step, Store, StoreError, Swept, account_id,
};
use marks::Marks;

/// Subjects with something to remember. With a few accounts and holds each, some 100 MB.
pub const SLOTS_MOST: usize = 100_000;

/// Open holds in one slot. A ledger looks through all of them in every step; this many cost a millisecond.
const HOLDS_PER_SLOT: usize = 65_536;

/// Slots that the sweeper goes through before it lets others have the lock.
const SLOTS_PER_TURN: usize = 256;

/// Settled holds are remembered beside the ledger, which would look through them in every step.
const LEDGER_MEMORY: Memory = Memory { settled: Span::ZERO, ended: MEMORY.ended };

const CAPACITY: Capacity = Capacity { accounts: ACCOUNTS_PER_SLOT, holds: HOLDS_PER_SLOT };

#[derive(Debug, Default)]
pub struct MemoryStore {
    books: Mutex<BTreeMap<String, Book>>,
}

/// One slot.
#[derive(Debug)]
struct Book {
    ledger: Ledger,
    marks: Marks,
    /// Of every account that is kept or whose amount is set.
    terms: BTreeMap<LimitName, Terms>,
}

impl MemoryStore {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Book>> {
        // A step that panicked would have left one ledger half changed; there is no better one to go on with.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to a slot. A slot in which nothing is kept afterwards leaves no trace.
    fn step<T>(
        &self,
        slot: &Slot,
        now: Timestamp,
        change: impl FnOnce(&mut Book) -> Result<T, StoreError>,
    ) -> Result<Step<T>, StoreError> {
        let mut books = self.lock();
        if let Some(book) = books.get_mut(slot.as_str()) {
            let leases_ended = book.pass(now);
            return Ok(Step { result: change(book)?, leases_ended });
        }
        let mut book = Book::new();
        let result = change(&mut book)?;
        if !book.is_empty() {
            if books.len() >= SLOTS_MOST {
                return Err(StoreError::Slots);
            }
            books.insert(slot.as_str().to_owned(), book);
        }
        Ok(Step { result, leases_ended: 0 })
    }

    /// Sweeps some slots after this one: the last of them, if there were any.
    fn sweep_turn(&self, after: Option<&str>, now: Timestamp, swept: &mut Swept) -> Option<String> {
        let mut books = self.lock();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (mut idle, mut last) = (Vec::new(), None);
        for (name, book) in books.range_mut::<str, _>((from, Bound::Unbounded)).take(SLOTS_PER_TURN) {
            swept.slots += 1;
            swept.leases_ended += book.pass(now);
            swept.open_holds += book.ledger.open_holds() as u64;
            if book.is_idle(now) {
                idle.push(name.clone());
            }
            last = Some(name.clone());
        }
        idle.iter().for_each(|name| drop(books.remove(name)));
        last
    }
}

impl Store for MemoryStore {
    async fn reserve(&self, slot: &Slot, part: &Part, now: Timestamp) -> Result<Step<Reserved>, StoreError> {
        self.step(slot, now, |book| book.reserve(part, now))
    }

    async fn weigh(
        &self,
        slot: &Slot,
        part: &Part,
        now: Timestamp,
    ) -> Result<Step<Result<Vec<usize>, Refusal>>, StoreError> {
        self.step(slot, now, |book| {
            let mut terms = book.terms.clone();
            Ok(book.ledger.weigh(&charges(part, &mut terms, now), now))
        })
    }

    async fn settle(
        &self,
        slot: &Slot,
        id: HoldId,
        close: Close,
        entries: &[Entry],
        now: Timestamp,
    ) -> Result<Step<Settled>, StoreError> {
        self.step(slot, now, |book| book.settle(id, close, entries, now))
    }

    async fn release(&self, slot: &Slot, id: HoldId, now: Timestamp) -> Result<Step<Found>, StoreError> {
        self.step(slot, now, |book| Ok(book.ledger.release(id, now)))
    }

    async fn renew(
        &self,
        slot: &Slot,
        id: HoldId,
        lease: Span,
        totals: &[(LimitName, Amount)],
        now: Timestamp,
    ) -> Result<Step<Found>, StoreError> {
        let totals: Vec<_> = totals.iter().map(|(name, total)| (account_id(name), *total)).collect();
        self.step(slot, now, |book| {
            book.ledger.raise(id, &totals, now);
            Ok(book.ledger.renew(id, lease, now))
        })
    }

    async fn standings(
        &self,
        slot: &Slot,
        asked: &[(LimitName, Limit)],
        now: Timestamp,
    ) -> Result<Step<Vec<Standing>>, StoreError> {
        self.step(slot, now, |book| {
            let standing = |(name, limit): &(LimitName, Limit)| {
                let set = book.terms.get(name).and_then(|terms| terms.set);
                let limit = set.map_or(*limit, |set| Limit { quota: Quota::of(set), ..*limit });
                book.ledger.standing(account_id(name), &limit, now)
            };
            Ok(asked.iter().map(standing).collect())
        })
    }

    async fn set_amount(
        &self,
        slot: &Slot,
        name: &str,
        amount: Option<Amount>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let set = |book: &mut Book| {
            book.terms.entry(name.to_owned()).or_default().set = amount;
            book.forget_terms();
            Ok(())
        };
        self.step(slot, now, set).map(|step| step.result)
    }

    async fn slot(&self, slot: &Slot, now: Timestamp) -> Result<Vec<Kept>, StoreError> {
        self.step(slot, now, |book| Ok(book.kept(slot, now))).map(|step| step.result)
    }

    async fn accounts(
        &self,
        prefix: &str,
        limit: usize,
        cursor: Option<&str>,
        now: Timestamp,
    ) -> Result<Page, StoreError> {
        let prefix = Prefix::new(prefix);
        let from = cursor.map_or(Bound::Included(&*prefix.slot), Bound::Excluded);
        let mut page = Page::default();
        let mut books = self.lock();
        for (name, book) in books.range_mut::<str, _>((from, Bound::Unbounded)) {
            if !name.starts_with(&prefix.slot) {
                break;
            }
            if page.accounts.len() >= limit {
                return Ok(page);
            }
            book.pass(now);
            let kept = book.kept(&Slot(name.clone()), now);
            page.accounts.extend(kept.into_iter().filter(|kept| prefix.covers(&kept.account)));
            page.cursor = Some(name.clone());
        }
        page.cursor = None;
        Ok(page)
    }

    async fn sweep(&self, now: Timestamp) -> Result<Swept, StoreError> {
        let mut swept = Swept::default();
        let mut last = None;
        while let Some(next) = self.sweep_turn(last.as_deref(), now, &mut swept) {
            last = Some(next);
            tokio::task::yield_now().await;
        }
        Ok(swept)
    }

    async fn ready(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl Book {
    fn new() -> Self {
        Self { ledger: Ledger::new(CAPACITY, LEDGER_MEMORY), marks: Marks::default(), terms: BTreeMap::new() }
    }

    /// Lets time pass: how many leases ended.
    fn pass(&mut self, now: Timestamp) -> u64 {
        self.marks.pass(now);
        self.ledger.sweep(now).len() as u64
    }

    fn is_empty(&self) -> bool {
        self.ledger.accounts() == 0
            && self.ledger.holds() == 0
            && self.marks.is_empty()
            && self.terms.values().all(|terms| terms.set.is_none())
    }

    fn is_idle(&self, now: Timestamp) -> bool {
        self.ledger.is_idle(now)
            && self.marks.is_empty()
            && self.terms.values().all(|terms| terms.set.is_none())
    }

    fn reserve(&mut self, part: &Part, now: Timestamp) -> Result<Reserved, StoreError> {
        if self.marks.contain(part.id) {
            return Ok(Reserved { decision: Decision::AlreadySettled, opened: false });
        }
        let repeated = self.ledger.knows(part.id);
        // A repeated hold asks for nothing, so its policy says nothing new.
        let mut noted = self.terms.clone();
        let charges = charges(part, &mut noted, now);
        if !repeated {
            self.terms = noted;
        }
        let Part { id, lease, on_lease_end, .. } = *part;
        let reservation = Reservation { id, charges, lease, on_lease_end };
        let decision = self.ledger.reserve(&reservation, now).map_err(StoreError::Full)?;
        let opened = matches!(decision, Decision::Granted(_)) && !repeated;
        if opened {
            for (charge, taken) in part.charges.iter().zip(&reservation.charges) {
                self.terms.entry(charge.name.clone()).or_default().took(taken.limit, part.policy);
            }
            self.forget_terms();
        }
        Ok(Reserved { decision, opened })
    }

    fn settle(
        &mut self,
        id: HoldId,
        close: Close,
        entries: &[Entry],
        now: Timestamp,
    ) -> Result<Settled, StoreError> {
        if self.marks.contain(id) {
            return Ok(Settled { outcome: Outcome::Duplicate, postings: Vec::new() });
        }
        let settled = match close {
            Close::Settle => {
                let entry = |entry: &Entry| budget::Entry {
                    account: account_id(&entry.name),
                    limit: entry.limit,
                    spent: entry.spent,
                };
                let settlement = Settlement { id, entries: entries.iter().map(entry).collect() };
                self.ledger.settle(&settlement, now).map_err(StoreError::Full)?
            }
            Close::Withdraw => self.ledger.withdraw(id, now),
        };
        self.marks.put(id, now);
        for entry in entries {
            if self.ledger.limit(account_id(&entry.name)).is_some() {
                self.terms.entry(entry.name.clone()).or_default();
            }
        }
        let posting = |posting: &budget::Posting| {
            let budget::Posting { account, before, spent, refunded, debt } = *posting;
            Some(Posting { name: self.name(account)?, before, spent, refunded, debt })
        };
        // What cost nothing in an account that is not kept has no name here, and is nothing.
        let postings = settled.postings.iter().filter_map(posting).collect();
        Ok(Settled { outcome: settled.outcome, postings })
    }

    fn name(&self, account: AccountId) -> Option<LimitName> {
        self.terms.keys().find(|name| account_id(name) == account).cloned()
    }

    /// Accounts come and go with the ledger; what is remembered of their amounts goes with them.
    fn forget_terms(&mut self) {
        let ledger = &self.ledger;
        self.terms.retain(|name, terms| terms.set.is_some() || ledger.limit(account_id(name)).is_some());
    }

    fn kept(&mut self, slot: &Slot, now: Timestamp) -> Vec<Kept> {
        let mut all = Vec::new();
        for (name, terms) in &self.terms {
            let (id, set) = (account_id(name), terms.set);
            let limit = self.ledger.limit(id);
            let Some(account) = slot.account(name).filter(|_| limit.is_some() || set.is_some()) else {
                continue;
            };
            // An account of which only the amount is known: no charge has said how it counts.
            let limit = limit.unwrap_or(UNSEEN);
            let limit = set.map_or(limit, |set| Limit { quota: Quota::of(set), ..limit });
            let standing = self.ledger.standing(id, &limit, now);
            all.push(Kept { account, limit, amount_set: set, standing });
        }
        all
    }
}

/// Stands for the limit of an account that no charge has come to.
pub(crate) const UNSEEN: Limit =
    Limit { window: Window::Fixed(Span::from_millis(1)), quota: Quota::Suspended };

/// As the ledger wants them, under the limits that count.
fn charges(part: &Part, terms: &mut BTreeMap<LimitName, Terms>, now: Timestamp) -> Vec<budget::Charge> {
    let charge = |charge: &super::Charge| {
        let mut unseen = Terms::default();
        let terms = terms.get_mut(&charge.name).unwrap_or(&mut unseen);
        budget::Charge {
            account: account_id(&charge.name),
            limit: terms.note(charge.limit, part.policy, now),
            cost: charge.cost,
            largest: terms.largest(charge.limit, charge.largest),
            mode: charge.mode,
        }
    };
    part.charges.iter().map(charge).collect()
}
