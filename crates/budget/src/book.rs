//! The ledger's lists: accounts, holds, and what each hold has in each account. Nothing here decides.
//!
//! All are sorted, so that equal ledgers are equal bytes. Each stake's hold and account are in their lists,
//! and each account counts its stakes; what goes wrong here is a stake without either.

use crate::account::Account;
use crate::ledger::Memory;
use crate::window::Stake;
use crate::{AccountId, HoldId, Limit, OnLeaseEnd, Span, Timestamp};

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Book {
    /// Sorted by id.
    pub(crate) accounts: Vec<Account>,
    /// Sorted by id.
    pub(crate) holds: Vec<Hold>,
    /// Sorted by hold, then account.
    pub(crate) stakes: Vec<Staked>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Hold {
    pub(crate) id: HoldId,
    /// When the lease, or the memory of the hold, began.
    pub(crate) from: Timestamp,
    pub(crate) state: HoldState,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum HoldState {
    Open {
        lease: Span,
        on_lease_end: OnLeaseEnd,
    },
    Ended,
    /// Has no stakes any more.
    Settled,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Staked {
    pub(crate) hold: HoldId,
    pub(crate) account: AccountId,
    pub(crate) stake: Stake,
}

impl Hold {
    /// When it leaves its state by itself.
    pub(crate) fn until(&self, memory: Memory) -> Timestamp {
        self.from.after(match self.state {
            HoldState::Open { lease, on_lease_end: _ } => lease,
            HoldState::Ended => memory.ended,
            HoldState::Settled => memory.settled,
        })
    }
}

impl Book {
    pub(crate) fn account(&self, id: AccountId) -> Option<&Account> {
        self.accounts.get(self.account_place(id).ok()?)
    }

    pub(crate) fn account_mut(&mut self, id: AccountId) -> Option<&mut Account> {
        let place = self.account_place(id).ok()?;
        self.accounts.get_mut(place)
    }

    /// Adds an empty account if there is none of this id.
    pub(crate) fn open_account(&mut self, id: AccountId, limit: &Limit, now: Timestamp) {
        if let Err(place) = self.account_place(id) {
            self.accounts.insert(place, Account::new(id, *limit, now));
        }
    }

    /// The first of `wanted` that is not there and would not fit into `capacity` accounts.
    pub(crate) fn first_without_room(
        &self,
        wanted: impl Iterator<Item = (usize, AccountId)>,
        capacity: usize,
    ) -> Option<usize> {
        let mut room = capacity.saturating_sub(self.accounts.len());
        let mut added: Vec<AccountId> = Vec::new();
        for (index, id) in wanted {
            if self.account_place(id).is_ok() || added.contains(&id) {
                continue;
            }
            if room == 0 {
                return Some(index);
            }
            room -= 1;
            added.push(id);
        }
        None
    }

    pub(crate) fn hold(&self, id: HoldId) -> Option<&Hold> {
        self.holds.get(self.hold_place(id).ok()?)
    }

    pub(crate) fn hold_mut(&mut self, id: HoldId) -> Option<&mut Hold> {
        let place = self.hold_place(id).ok()?;
        self.holds.get_mut(place)
    }

    pub(crate) fn add_hold(&mut self, hold: Hold) {
        if let Err(place) = self.hold_place(hold.id) {
            self.holds.insert(place, hold);
        }
    }

    /// Takes out a hold with its stakes.
    pub(crate) fn remove_hold(&mut self, id: HoldId) -> Vec<Staked> {
        if let Ok(place) = self.hold_place(id) {
            self.holds.remove(place);
        }
        let (from, to) = self.stake_range(id);
        let removed: Vec<Staked> = self.stakes.drain(from..to).collect();
        for staked in &removed {
            if let Some(account) = self.account_mut(staked.account) {
                account.stakes = account.stakes.saturating_sub(1);
            }
        }
        removed
    }

    pub(crate) fn accounts_of(&self, hold: HoldId) -> Vec<AccountId> {
        let (from, to) = self.stake_range(hold);
        self.stakes.get(from..to).unwrap_or_default().iter().map(|staked| staked.account).collect()
    }

    pub(crate) fn add_stake(&mut self, staked: Staked) {
        let Err(place) = self.stake_place(staked.hold, staked.account) else { return };
        if let Some(account) = self.account_mut(staked.account) {
            account.stakes = account.stakes.saturating_add(1);
            self.stakes.insert(place, staked);
        }
    }

    pub(crate) fn account_and_stake(
        &mut self,
        hold: HoldId,
        id: AccountId,
    ) -> Option<(&mut Account, &mut Stake)> {
        let stake = self.stake_place(hold, id).ok()?;
        let account = self.account_place(id).ok()?;
        Some((self.accounts.get_mut(account)?, &mut self.stakes.get_mut(stake)?.stake))
    }

    pub(crate) fn lapse_stakes(&mut self, account: AccountId) {
        for staked in self.stakes.iter_mut().filter(|staked| staked.account == account) {
            staked.stake.lapse();
        }
    }

    fn account_place(&self, id: AccountId) -> Result<usize, usize> {
        self.accounts.binary_search_by_key(&id, |account| account.id)
    }

    fn hold_place(&self, id: HoldId) -> Result<usize, usize> {
        self.holds.binary_search_by_key(&id, |hold| hold.id)
    }

    fn stake_place(&self, hold: HoldId, account: AccountId) -> Result<usize, usize> {
        self.stakes.binary_search_by_key(&(hold, account), |staked| (staked.hold, staked.account))
    }

    fn stake_range(&self, hold: HoldId) -> (usize, usize) {
        let from = self.stakes.partition_point(|staked| staked.hold < hold);
        let rest = self.stakes.get(from..).unwrap_or_default();
        (from, from + rest.iter().take_while(|staked| staked.hold == hold).count())
    }
}
