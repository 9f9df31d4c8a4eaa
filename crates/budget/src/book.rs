//! The ledger's lists: accounts, holds, and what each hold has in each account. Nothing here decides.
//!
//! All are kept as sorted records, so that a ledger is read and written by copying, and only what an
//! operation touches is taken apart. Each stake's hold and account are in their lists, and each account
//! counts its stakes.

use std::collections::BinaryHeap;

use crate::account::Account;
use crate::ledger::Memory;
use crate::record::{AccountBytes, HoldBytes, StakeBytes, stake_key};
use crate::window::Stake;
use crate::{AccountId, HoldId, Limit, OnLeaseEnd, Span, Timestamp};

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Book {
    /// Sorted by id.
    pub(crate) accounts: Vec<AccountBytes>,
    /// Sorted by id.
    pub(crate) holds: Vec<HoldBytes>,
    /// Sorted by hold, then account.
    pub(crate) stakes: Vec<StakeBytes>,
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
    pub(crate) fn account(&self, id: AccountId) -> Option<Account> {
        let place = place_of(&self.accounts, &id.to_bits().to_be_bytes()).ok()?;
        self.accounts.get(place).and_then(Account::from_record)
    }

    /// Changes an account that is there.
    pub(crate) fn with_account<T>(
        &mut self,
        id: AccountId,
        change: impl FnOnce(&mut Account) -> T,
    ) -> Option<T> {
        let place = place_of(&self.accounts, &id.to_bits().to_be_bytes()).ok()?;
        let record = self.accounts.get_mut(place)?;
        let mut account = Account::from_record(record)?;
        let result = change(&mut account);
        *record = account.to_record();
        Some(result)
    }

    /// Changes an account, an empty one if it is not there.
    pub(crate) fn with_account_or_new<T>(
        &mut self,
        id: AccountId,
        limit: &Limit,
        now: Timestamp,
        change: impl FnOnce(&mut Account) -> T,
    ) -> T {
        let mut account = self.account(id).unwrap_or_else(|| Account::new(id, *limit, now));
        let result = change(&mut account);
        put(&mut self.accounts, &id.to_bits().to_be_bytes(), account.to_record());
        result
    }

    /// Forgets the accounts of which `keep` says so, having noted what it changed in the others.
    pub(crate) fn retain_accounts(&mut self, keep: impl Fn(&mut Account) -> bool) {
        self.accounts.retain_mut(|record| {
            let Some(mut account) = Account::from_record(record) else { return false };
            let kept = keep(&mut account);
            *record = account.to_record();
            kept
        });
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
            if added.contains(&id) || place_of(&self.accounts, &id.to_bits().to_be_bytes()).is_ok() {
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

    pub(crate) fn hold(&self, id: HoldId) -> Option<Hold> {
        let place = place_of(&self.holds, &id.to_bits().to_be_bytes()).ok()?;
        self.holds.get(place).and_then(Hold::from_record)
    }

    pub(crate) fn open_holds(&self) -> usize {
        let holds = self.holds.iter().filter_map(Hold::from_record);
        holds.filter(|hold| matches!(hold.state, HoldState::Open { .. })).count()
    }

    pub(crate) fn all_accounts(&self, are: impl Fn(&Account) -> bool) -> bool {
        self.accounts.iter().filter_map(Account::from_record).all(|account| are(&account))
    }

    pub(crate) fn put_hold(&mut self, hold: Hold) {
        put(&mut self.holds, &hold.id.to_bits().to_be_bytes(), hold.to_record());
    }

    /// What is due now, by time, after moving back the holds that are dated later than now.
    pub(crate) fn due(&mut self, now: Timestamp, memory: Memory) -> Vec<(Timestamp, HoldId)> {
        // A heap, not a sort: a tenth of the code.
        let mut due = BinaryHeap::new();
        for record in &mut self.holds {
            let Some(mut hold) = Hold::from_record(record) else { continue };
            // After a step back of the clock a lease runs from now, or it would last until the clock is back.
            if hold.from > now {
                hold.from = now;
                *record = hold.to_record();
            }
            let until = hold.until(memory);
            if until <= now {
                due.push((until, hold.id));
            }
        }
        due.into_sorted_vec()
    }

    /// Takes out a hold with its stakes.
    pub(crate) fn remove_hold(&mut self, id: HoldId) -> Vec<Staked> {
        if let Ok(place) = place_of(&self.holds, &id.to_bits().to_be_bytes()) {
            self.holds.remove(place);
        }
        let (from, to) = self.stake_range(id);
        let removed: Vec<Staked> =
            self.stakes.drain(from..to).filter_map(|record| Staked::from_record(&record)).collect();
        for staked in &removed {
            self.with_account(staked.account, |account| account.stakes = account.stakes.saturating_sub(1));
        }
        removed
    }

    pub(crate) fn stakes_of(&self, hold: HoldId) -> Vec<Staked> {
        let (from, to) = self.stake_range(hold);
        let records = self.stakes.get(from..to).unwrap_or_default();
        records.iter().filter_map(Staked::from_record).collect()
    }

    /// Adds or replaces. Whoever adds one counts it in its account.
    pub(crate) fn put_stake(&mut self, staked: Staked) {
        put(&mut self.stakes, &stake_key(staked.hold, staked.account), staked.to_record());
    }

    pub(crate) fn stake(&self, hold: HoldId, account: AccountId) -> Option<Staked> {
        let place = place_of(&self.stakes, &stake_key(hold, account)).ok()?;
        self.stakes.get(place).and_then(Staked::from_record)
    }

    pub(crate) fn lapse_stakes(&mut self, account: AccountId) {
        for record in &mut self.stakes {
            let Some(mut staked) = Staked::from_record(record) else { continue };
            if staked.account == account {
                staked.stake.lapse();
                *record = staked.to_record();
            }
        }
    }

    fn stake_range(&self, hold: HoldId) -> (usize, usize) {
        let key = hold.to_bits().to_be_bytes();
        let from = self.stakes.partition_point(|record| record.as_slice() < key.as_slice());
        let rest = self.stakes.get(from..).unwrap_or_default();
        (from, from + rest.iter().take_while(|record| record.starts_with(&key)).count())
    }
}

fn place_of<const N: usize>(records: &[[u8; N]], key: &[u8]) -> Result<usize, usize> {
    records.binary_search_by(|record| record.get(..key.len()).unwrap_or_default().cmp(key))
}

fn put<const N: usize>(records: &mut Vec<[u8; N]>, key: &[u8], record: [u8; N]) {
    match place_of(records, key) {
        Ok(place) => records.get_mut(place).into_iter().for_each(|old| *old = record),
        Err(place) => records.insert(place, record),
    }
}
