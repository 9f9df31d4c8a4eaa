//! The ledger: who holds and has spent what, and the only arithmetic that changes it.
//!
//! A plain value: it reads no clock and makes no call, so a whole day replays from a list of operations.
//! It is the specification that every keeper of budgets is checked against.
//!
//! What must not go wrong: a hold granted beyond a limit, a settlement that counts twice, a refusal that
//! leaves something taken, a refund of what has already aged and been given out again.

use crate::account::{Account, Adopted, within_range};
use crate::book::{Book, Hold, HoldState, Staked};
use crate::window::{Closed, Phase};
use crate::{
    AccountId, Amount, Charge, Decision, Ended, Found, Full, Grant, HoldId, Limit, Mode, OnLeaseEnd, Outcome,
    Posting, Quota, Reason, Refusal, Reservation, Settled, Settlement, Span, Standing, Timestamp,
};

/// How much a ledger keeps. Both are bounds on memory, not on budgets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Capacity {
    pub accounts: usize,
    /// Open holds, and those remembered.
    pub holds: usize,
}

/// How long holds are remembered that are not open any more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Memory {
    /// Settled ones, so that a repeated settlement or a late reservation changes nothing.
    pub settled: Span,
    /// Those whose lease has ended, so that a late settlement corrects what that end did.
    pub ended: Span,
}

/// All accounts and holds of one store, or of one of its shards.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ledger {
    pub(crate) capacity: Capacity,
    pub(crate) memory: Memory,
    pub(crate) book: Book,
}

impl Ledger {
    pub fn new(capacity: Capacity, memory: Memory) -> Self {
        Self { capacity, memory, book: Book::default() }
    }

    pub fn accounts(&self) -> usize {
        self.book.accounts.len()
    }

    /// The limit that an account goes by, if it is kept.
    pub fn limit(&self, account: AccountId) -> Option<Limit> {
        self.book.account(account).map(|account| account.limit)
    }

    /// Whether a hold of this id is open or remembered.
    pub fn knows(&self, id: HoldId) -> bool {
        self.book.hold(id).is_some()
    }

    /// Holds that nobody has settled and whose lease runs.
    pub fn open_holds(&self) -> usize {
        self.book.open_holds()
    }

    /// Whether forgetting the whole ledger would lose anything.
    pub fn is_idle(&self, now: Timestamp) -> bool {
        self.book.holds.is_empty() && self.book.all_accounts(|account| account.is_idle(within_range(now)))
    }

    /// Open and remembered.
    pub fn holds(&self) -> usize {
        self.book.holds.len()
    }

    /// Takes every charge, or none. The same reservation once more takes nothing more.
    pub fn reserve(&mut self, reservation: &Reservation, now: Timestamp) -> Result<Decision, Full> {
        let now = within_range(now);
        let Reservation { id, ref charges, lease, on_lease_end } = *reservation;
        self.sweep(now);
        match self.book.hold(id).map(|hold| hold.state) {
            Some(HoldState::Settled) => return Ok(Decision::AlreadySettled),
            Some(HoldState::Open { .. } | HoldState::Ended) => {
                return Ok(Decision::Granted(self.grant(charges, Vec::new(), now)));
            }
            None => {}
        }
        let shadow_over = match self.weigh_swept(charges, now) {
            Ok(shadow_over) => shadow_over,
            Err(refusal) => return Ok(Decision::Refused(refusal)),
        };
        if self.book.holds.len() >= self.capacity.holds {
            return Err(Full::Holds);
        }
        self.make_room(charges.iter().map(|charge| charge.account).enumerate(), now)?;
        self.book.put_hold(Hold { id, from: now, state: HoldState::Open { lease, on_lease_end } });
        for charge in charges {
            self.take(id, charge, now);
        }
        Ok(Decision::Granted(self.grant(charges, shadow_over, now)))
    }

    /// What [`reserve`](Self::reserve) would say, taking nothing: the shadow charges that are over, or the
    /// refusal. Notes when the clock has stepped back, so that a wait told now is kept.
    pub fn weigh(&mut self, charges: &[Charge], now: Timestamp) -> Result<Vec<usize>, Refusal> {
        let now = within_range(now);
        self.sweep(now);
        self.weigh_swept(charges, now)
    }

    fn weigh_swept(&mut self, charges: &[Charge], now: Timestamp) -> Result<Vec<usize>, Refusal> {
        let mut shadow_over = Vec::new();
        let mut refusal: Option<Refusal> = None;
        for (index, charge) in charges.iter().enumerate() {
            self.book.with_account(charge.account, |account| account.notice(now));
            let account = self.as_of(charge.account, &charge.limit, now);
            let Some(reason) = weigh_one(&account, charge, summed_cost(charges, index), now) else {
                continue;
            };
            match charge.mode {
                Mode::Shadow => shadow_over.push(index),
                Mode::Enforce => {
                    let this = Refusal { charge: index, reason, standing: account.standing(now) };
                    refusal = Some(refusal.map_or(this, |other| other.graver(this)));
                }
            }
        }
        refusal.map_or(Ok(shadow_over), Err)
    }

    /// Replaces a hold by its true cost, once. An account of the hold without an entry is charged all that
    /// was set aside in it.
    pub fn settle(&mut self, settlement: &Settlement, now: Timestamp) -> Result<Settled, Full> {
        let now = within_range(now);
        let Settlement { id, ref entries } = *settlement;
        self.sweep(now);
        let (outcome, phase) = match self.book.hold(id).map(|hold| hold.state) {
            Some(HoldState::Settled) => {
                return Ok(Settled { outcome: Outcome::Duplicate, postings: Vec::new() });
            }
            Some(HoldState::Open { .. }) => (Outcome::Closed, Phase::Open),
            Some(HoldState::Ended) => (Outcome::CorrectedAfterLease, Phase::Ended),
            None => (Outcome::Unknown, Phase::Open),
        };
        let costly = entries.iter().enumerate().filter(|(_, entry)| entry.spent > Amount::ZERO);
        self.make_room(costly.map(|(index, entry)| (index, entry.account)), now)?;
        let mut postings = self.close(id, phase, now, |staked| {
            settlement.spent_in(staked.account).unwrap_or_else(|| staked.stake.total())
        });
        for entry in entries {
            if !postings.iter().any(|posting| posting.account == entry.account) {
                let spent = settlement.spent_in(entry.account).unwrap_or_default();
                postings.push(self.charge_plainly(entry.account, &entry.limit, spent, now));
            }
        }
        self.remember(id, now);
        Ok(Settled { outcome, postings })
    }

    /// Undoes a reservation, or the one still to come: as [`release`](Self::release), and remembered as a
    /// settlement is.
    pub fn withdraw(&mut self, id: HoldId, now: Timestamp) -> Settled {
        let now = within_range(now);
        self.sweep(now);
        let (outcome, phase) = match self.book.hold(id).map(|hold| hold.state) {
            Some(HoldState::Settled) => {
                return Settled { outcome: Outcome::Duplicate, postings: Vec::new() };
            }
            Some(HoldState::Open { .. }) => (Outcome::Closed, Phase::Open),
            Some(HoldState::Ended) => (Outcome::CorrectedAfterLease, Phase::Ended),
            None => (Outcome::Unknown, Phase::Open),
        };
        let postings = self.close(id, phase, now, |_| Amount::ZERO);
        self.remember(id, now);
        Settled { outcome, postings }
    }

    /// Undoes a reservation, requests included, as if it had never been made.
    pub fn release(&mut self, id: HoldId, now: Timestamp) -> Found {
        let now = within_range(now);
        self.sweep(now);
        match self.book.hold(id).map(|hold| hold.state) {
            Some(HoldState::Open { .. }) => {
                self.close(id, Phase::Open, now, |_| Amount::ZERO);
                Found::Open
            }
            Some(HoldState::Ended) => {
                self.close(id, Phase::Ended, now, |_| Amount::ZERO);
                Found::NotOpen
            }
            Some(HoldState::Settled) | None => Found::NotOpen,
        }
    }

    /// Adds to an open hold, whatever the limits say: the tokens have been spent. Accounts in which the hold
    /// has no stake are passed over.
    pub fn grow(&mut self, id: HoldId, by: &[(AccountId, Amount)], now: Timestamp) -> Found {
        let now = within_range(now);
        self.sweep(now);
        let found = self.find_open(id);
        if found == Found::Open {
            for (account, amount) in by {
                self.add_to_stake(id, *account, *amount, now);
            }
        }
        found
    }

    /// Raises what an open hold has set aside to these totals, whatever the limits say. Said twice, or late,
    /// it changes nothing. Accounts in which the hold has no stake are passed over.
    pub fn raise(&mut self, id: HoldId, to: &[(AccountId, Amount)], now: Timestamp) -> Found {
        let now = within_range(now);
        self.sweep(now);
        let found = self.find_open(id);
        if found == Found::Open {
            for (account, total) in to {
                let Some(staked) = self.book.stake(id, *account) else { continue };
                let missing = total.saturating_sub(staked.stake.total());
                if missing > Amount::ZERO {
                    self.add_to_stake(id, *account, missing, now);
                }
            }
        }
        found
    }

    /// Starts an open hold's lease anew.
    pub fn renew(&mut self, id: HoldId, lease: Span, now: Timestamp) -> Found {
        let now = within_range(now);
        self.sweep(now);
        let found = self.find_open(id);
        if let Some(hold) = self.book.hold(id)
            && let HoldState::Open { lease: _, on_lease_end } = hold.state
        {
            self.book.put_hold(Hold { from: now, state: HoldState::Open { lease, on_lease_end }, ..hold });
        }
        found
    }

    /// How an account stands under a limit. One that is not kept is empty.
    pub fn standing(&mut self, account: AccountId, limit: &Limit, now: Timestamp) -> Standing {
        let now = within_range(now);
        self.sweep(now);
        self.as_of(account, limit, now).standing(now)
    }

    /// Whether the account is kept, or could be: idle ones are forgotten for it.
    pub fn has_room_for(&mut self, account: AccountId, now: Timestamp) -> bool {
        let now = within_range(now);
        self.sweep(now);
        self.make_room(std::iter::once((0, account)), now).is_ok()
    }

    /// Ends the holds whose lease is over and forgets those remembered long enough. Every other operation
    /// does this first, and it makes no difference when it is done: each lease ends as of its own time.
    pub fn sweep(&mut self, now: Timestamp) -> Vec<Ended> {
        let now = within_range(now);
        let due = self.book.due(now, self.memory);
        due.into_iter().filter_map(|(until, id)| self.pass(id, until, now)).collect()
    }

    /// A hold leaves its state: from open to ended, from ended or settled to nothing.
    fn pass(&mut self, id: HoldId, at: Timestamp, now: Timestamp) -> Option<Ended> {
        let state = self.book.hold(id)?.state;
        let ended = match state {
            HoldState::Open { lease: _, on_lease_end } => Some(self.end(id, at, on_lease_end)),
            HoldState::Ended | HoldState::Settled => None,
        };
        let over = self.book.hold(id)?.until(self.memory) <= now;
        if over {
            for staked in self.book.remove_hold(id) {
                self.book.with_account(staked.account, |account| {
                    account.change(|algorithm, _| algorithm.forget(staked.stake));
                });
            }
        }
        ended
    }

    fn end(&mut self, id: HoldId, at: Timestamp, how: OnLeaseEnd) -> Ended {
        self.book.put_hold(Hold { id, from: at, state: HoldState::Ended });
        let mut postings = Vec::new();
        for mut staked in self.book.stakes_of(id) {
            let before = staked.stake.total();
            let closed = self.book.with_account(staked.account, |account| {
                account.advance(at);
                account.change(|algorithm, _| algorithm.end(&mut staked.stake, how))
            });
            let Closed { refunded, debt } = closed.unwrap_or_default();
            self.book.put_stake(staked);
            let spent = staked.stake.total();
            postings.push(Posting { account: staked.account, before, spent, refunded, debt });
        }
        Ended { id, postings }
    }

    fn remember(&mut self, id: HoldId, now: Timestamp) {
        if self.memory.settled > Span::ZERO && self.book.holds.len() < self.capacity.holds {
            self.book.put_hold(Hold { id, from: now, state: HoldState::Settled });
        }
    }

    fn take(&mut self, id: HoldId, charge: &Charge, now: Timestamp) {
        let Charge { account: to, ref limit, cost, .. } = *charge;
        let adopted = self.book.with_account_or_new(to, limit, now, |account| {
            account.advance(now);
            account.adopt(limit)
        });
        match adopted {
            Adopted::Continued => {}
            Adopted::Converted => self.book.lapse_stakes(to),
        }
        if self.add_to_stake(id, to, cost, now) == Found::NotOpen {
            let stake = self.book.with_account(to, |account| {
                account.stakes = account.stakes.saturating_add(1);
                account.change(|algorithm, moment| algorithm.take(moment, cost))
            });
            self.book.put_stake(Staked { hold: id, account: to, stake: stake.unwrap_or_default() });
        }
    }

    fn add_to_stake(&mut self, id: HoldId, account: AccountId, amount: Amount, now: Timestamp) -> Found {
        let Some(mut staked) = self.book.stake(id, account) else { return Found::NotOpen };
        self.book.with_account(account, |account| {
            account.advance(now);
            account.change(|algorithm, moment| algorithm.grow(moment, &mut staked.stake, amount));
        });
        self.book.put_stake(staked);
        Found::Open
    }

    fn close(
        &mut self,
        id: HoldId,
        phase: Phase,
        now: Timestamp,
        spent_of: impl Fn(&Staked) -> Amount,
    ) -> Vec<Posting> {
        let mut postings = Vec::new();
        for staked in self.book.remove_hold(id) {
            let (before, spent) = (staked.stake.total(), spent_of(&staked));
            let closed = self.book.with_account(staked.account, |account| {
                account.advance(now);
                account.change(|algorithm, moment| algorithm.close(moment, staked.stake, phase, spent))
            });
            let Closed { refunded, debt } = closed.unwrap_or_default();
            postings.push(Posting { account: staked.account, before, spent, refunded, debt });
        }
        postings
    }

    fn charge_plainly(&mut self, id: AccountId, limit: &Limit, spent: Amount, now: Timestamp) -> Posting {
        if spent > Amount::ZERO {
            self.book.with_account_or_new(id, limit, now, |account| {
                account.advance(now);
                account.owe(spent);
            });
        }
        Posting { account: id, before: Amount::ZERO, spent, refunded: Amount::ZERO, debt: spent }
    }

    /// Forgets idle accounts if those wanted would not fit otherwise.
    fn make_room(
        &mut self,
        wanted: impl Iterator<Item = (usize, AccountId)> + Clone,
        now: Timestamp,
    ) -> Result<(), Full> {
        let capacity = self.capacity.accounts;
        if self.book.first_without_room(wanted.clone(), capacity).is_none() {
            return Ok(());
        }
        self.book.retain_accounts(|account| {
            account.notice(now);
            !account.is_idle(now)
        });
        match self.book.first_without_room(wanted, capacity) {
            None => Ok(()),
            Some(index) => Err(Full::Accounts { index }),
        }
    }

    fn grant(&self, charges: &[Charge], shadow_over: Vec<usize>, now: Timestamp) -> Grant {
        let standing = |charge: &Charge| self.as_of(charge.account, &charge.limit, now).standing(now);
        Grant { standings: charges.iter().map(standing).collect(), shadow_over }
    }

    /// The account as it would be if it were used now, under this limit.
    fn as_of(&self, id: AccountId, limit: &Limit, now: Timestamp) -> Account {
        let mut account = self.book.account(id).unwrap_or_else(|| Account::new(id, *limit, now));
        account.advance(now);
        account.adopt(limit);
        account
    }

    fn find_open(&self, id: HoldId) -> Found {
        match self.book.hold(id).map(|hold| hold.state) {
            Some(HoldState::Open { .. }) => Found::Open,
            Some(HoldState::Ended | HoldState::Settled) | None => Found::NotOpen,
        }
    }
}

impl Settlement {
    fn spent_in(&self, account: AccountId) -> Option<Amount> {
        let entries = self.entries.iter().filter(|entry| entry.account == account);
        entries.map(|entry| entry.spent).reduce(Amount::saturating_add)
    }
}

/// This charge's cost and that of those before it on the same account.
fn summed_cost(charges: &[Charge], index: usize) -> Amount {
    let upto = charges.iter().take(index.saturating_add(1));
    let account = charges.get(index).map(|charge| charge.account);
    upto.filter(|charge| Some(charge.account) == account)
        .fold(Amount::ZERO, |sum, charge| sum.saturating_add(charge.cost))
}

/// Why `cost` does not fit. What costs nothing is not held up by a debt, only by a suspension.
fn weigh_one(account: &Account, charge: &Charge, cost: Amount, now: Timestamp) -> Option<Reason> {
    let capacity = charge.limit.capacity();
    let largest = capacity.min(charge.largest);
    if charge.limit.quota == Quota::Suspended {
        return Some(Reason::Suspended);
    }
    if charge.cost > largest || cost > capacity {
        return Some(Reason::Never { largest });
    }
    if cost == Amount::ZERO {
        return None;
    }
    match account.wait(now, capacity.saturating_sub(cost)) {
        Span::ZERO => None,
        retry_after => Some(Reason::NotYet { retry_after }),
    }
}
