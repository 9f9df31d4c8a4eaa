//! An account, a hold and a stake as bytes of fixed width, and back.
//!
//! The key comes first and its highest byte first, so that sorted records are sorted keys; all else is
//! little-endian. What cannot be read back is `None`, never a value that the arithmetic was not made for.

use crate::account::Account;
use crate::book::{Hold, HoldState, Staked};
use crate::window::{Bucket, Fixed, LATEST, Sliding, Slot, Stake, State};
use crate::{AccountId, Amount, HoldId, Limit, OnLeaseEnd, Quota, Span, Timestamp, Window};

pub(crate) const ACCOUNT_LEN: usize = 16 + 4 + 1 + 5 * 8 + 6 * 8;
pub(crate) const HOLD_LEN: usize = 16 + 1 + 2 * 8;
pub(crate) const STAKE_LEN: usize = 2 * 16 + 3 * 8;

/// Stands for "none" where a number may be missing; above every amount and time.
const NONE: u64 = u64::MAX;

pub(crate) type AccountBytes = [u8; ACCOUNT_LEN];
pub(crate) type HoldBytes = [u8; HOLD_LEN];
pub(crate) type StakeBytes = [u8; STAKE_LEN];

impl Account {
    pub(crate) fn to_record(&self) -> AccountBytes {
        let Self { id, limit, at, behind_since, stakes, state } = self;
        let mut burst = None;
        let (kind, numbers) = match state {
            State::Sliding(Sliding { current, previous }) => (0, [slot(current), slot(previous)]),
            State::Fixed(Fixed { current }) => (1, [slot(current), [0; 3]]),
            State::Bucket(Bucket { used, staked, ended, drained, carry, tick }) => {
                burst = burst_of(limit);
                (2, [[used.units(), staked.units(), ended.units()], [*drained, *carry, *tick]])
            }
        };
        let mut record = [0; ACCOUNT_LEN];
        let mut to = Writer(&mut record);
        to.put(id.to_bits().to_be_bytes());
        to.put(stakes.to_le_bytes());
        to.put([kind]);
        to.number(limit.window.span().as_millis());
        to.number(limit.quota.amount().units());
        to.number(burst.map_or(NONE, Amount::units));
        to.number(at.as_millis());
        to.number(behind_since.map_or(NONE, Timestamp::as_millis));
        numbers.into_iter().flatten().for_each(|number| to.number(number));
        record
    }

    pub(crate) fn from_record(record: &AccountBytes) -> Option<Self> {
        let mut from = Reader(record);
        let id = AccountId::from_bits(u128::from_be_bytes(from.take()?));
        let stakes = u32::from_le_bytes(from.take()?);
        let [kind] = from.take()?;
        let span = Span::from_millis(from.number()?);
        let quota = Quota::of(from.amount()?);
        let burst = from.optional()?.map(Amount::saturating);
        let at = from.time()?;
        let behind_since = from.optional()?.map(Timestamp::from_millis);
        let (window, state) = match kind {
            0 => (
                Window::Sliding(span),
                State::Sliding(Sliding { current: from.slot()?, previous: from.slot()? }),
            ),
            1 => (Window::Fixed(span), State::Fixed(Fixed { current: from.slot()? })),
            2 => (Window::Bucket { period: span, burst }, State::Bucket(from.bucket()?)),
            _ => return None,
        };
        Some(Self { id, limit: Limit { window, quota }, at, behind_since, stakes, state })
    }
}

fn burst_of(limit: &Limit) -> Option<Amount> {
    match limit.window {
        Window::Bucket { period: _, burst } => burst,
        Window::Sliding(_) | Window::Fixed(_) => None,
    }
}

fn slot(slot: &Slot) -> [u64; 3] {
    [slot.number, slot.held.units(), slot.spent.units()]
}

impl Hold {
    pub(crate) fn to_record(self) -> HoldBytes {
        let (state, lease) = match self.state {
            HoldState::Open { lease, on_lease_end: OnLeaseEnd::Charge } => (0, lease),
            HoldState::Open { lease, on_lease_end: OnLeaseEnd::Release } => (1, lease),
            HoldState::Ended => (2, Span::ZERO),
            HoldState::Settled => (3, Span::ZERO),
        };
        let mut record = [0; HOLD_LEN];
        let mut to = Writer(&mut record);
        to.put(self.id.to_bits().to_be_bytes());
        to.put([state]);
        to.number(self.from.as_millis());
        to.number(lease.as_millis());
        record
    }

    pub(crate) fn from_record(record: &HoldBytes) -> Option<Self> {
        let mut reader = Reader(record);
        let id = HoldId::from_bits(u128::from_be_bytes(reader.take()?));
        let [state] = reader.take()?;
        let from = reader.time()?;
        let lease = Span::from_millis(reader.number()?);
        let state = match state {
            0 => HoldState::Open { lease, on_lease_end: OnLeaseEnd::Charge },
            1 => HoldState::Open { lease, on_lease_end: OnLeaseEnd::Release },
            2 => HoldState::Ended,
            3 => HoldState::Settled,
            _ => return None,
        };
        Some(Self { id, from, state })
    }
}

impl Staked {
    pub(crate) fn to_record(self) -> StakeBytes {
        let Self { hold, account, stake: Stake { held, lapsed, mark } } = self;
        let mut record = [0; STAKE_LEN];
        let mut to = Writer(&mut record);
        to.put(stake_key(hold, account));
        to.number(held.units());
        to.number(lapsed.units());
        to.number(mark);
        record
    }

    pub(crate) fn from_record(record: &StakeBytes) -> Option<Self> {
        let mut from = Reader(record);
        let hold = HoldId::from_bits(u128::from_be_bytes(from.take()?));
        let account = AccountId::from_bits(u128::from_be_bytes(from.take()?));
        let stake = Stake { held: from.amount()?, lapsed: from.amount()?, mark: from.number()? };
        Some(Self { hold, account, stake })
    }
}

pub(crate) fn stake_key(hold: HoldId, account: AccountId) -> [u8; 32] {
    let mut key = [0; 32];
    let mut to = Writer(&mut key);
    to.put(hold.to_bits().to_be_bytes());
    to.put(account.to_bits().to_be_bytes());
    key
}

struct Writer<'a>(&'a mut [u8]);

impl Writer<'_> {
    #[inline]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        if let Some((place, rest)) = std::mem::take(&mut self.0).split_first_chunk_mut() {
            *place = bytes;
            self.0 = rest;
        }
    }

    #[inline]
    fn number(&mut self, number: u64) {
        self.put(number.to_le_bytes());
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    #[inline]
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    #[inline]
    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    #[inline]
    fn amount(&mut self) -> Option<Amount> {
        Amount::new(self.number()?)
    }

    #[inline]
    fn optional(&mut self) -> Option<Option<u64>> {
        self.number().map(|number| (number != NONE).then_some(number))
    }

    #[inline]
    fn time(&mut self) -> Option<Timestamp> {
        self.number().filter(|millis| *millis <= LATEST).map(Timestamp::from_millis)
    }

    #[inline]
    fn slot(&mut self) -> Option<Slot> {
        Some(Slot { number: self.number()?, held: self.amount()?, spent: self.amount()? })
    }

    #[inline]
    fn bucket(&mut self) -> Option<Bucket> {
        let (used, staked, ended) = (self.amount()?, self.amount()?, self.amount()?);
        let (drained, carry, tick) = (self.number()?, self.number()?, self.number()?);
        Some(Bucket { used, staked, ended, drained, carry, tick }).filter(Bucket::is_possible)
    }
}
