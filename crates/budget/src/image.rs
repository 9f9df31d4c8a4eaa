//! A ledger as bytes, and back.
//!
//! Little-endian records of fixed width, sorted, behind a checksum. Whoever keeps the bytes may be another
//! program sharing the same memory, so nothing in them is believed: what does not add up is an error, never
//! a panic, and never a ledger that would give out what it should not.

use std::fmt;

use crate::account::Account;
use crate::book::{Book, Hold, HoldState, Staked};
use crate::ledger::{Capacity, Ledger, Memory};
use crate::window::{Bucket, Fixed, LATEST, Sliding, Slot, Stake, State};
use crate::{AccountId, Amount, HoldId, Limit, OnLeaseEnd, Quota, Span, Timestamp, Window};

/// "TGL" and the version of the layout.
const MAGIC: u32 = u32::from_le_bytes(*b"TGL\x01");
/// Stands for "none" where a number may be missing; above every amount and time.
const NONE: u64 = u64::MAX;

const HEADER_LEN: usize = 4 + 8 + 3 * 4;
const ACCOUNT_LEN: usize = 16 + 1 + 5 * 8 + 6 * 8;
const HOLD_LEN: usize = 16 + 8 + 1 + 8;
const STAKE_LEN: usize = 16 + 4 + 3 * 8;

/// Bytes that are no ledger.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ImageError {
    /// Another layout, or not ours at all.
    Version { found: u32 },
    /// Shorter or longer than the records it announces.
    Length { found: usize },
    /// Changed since it was written.
    Checksum,
    /// A record that no ledger can hold: out of order, out of range, or without its counterpart.
    Record(Record),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Record {
    Account,
    Hold,
    Stake,
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { found } => {
                write!(f, "not a ledger of this version (it begins with {found:#010x})")
            }
            Self::Length { found } => write!(f, "{found} bytes are not the length its records need"),
            Self::Checksum => f.write_str("the checksum does not match"),
            Self::Record(record) => write!(f, "a record ({record:?}) that no ledger can hold"),
        }
    }
}

impl std::error::Error for ImageError {}

impl Ledger {
    pub fn encode(&self) -> Vec<u8> {
        let Book { accounts, holds, stakes } = &self.book;
        let len =
            HEADER_LEN + accounts.len() * ACCOUNT_LEN + holds.len() * HOLD_LEN + stakes.len() * STAKE_LEN;
        let mut body = Writer(Vec::with_capacity(len));
        body.u32(MAGIC);
        body.u64(0);
        for len in [accounts.len(), holds.len(), stakes.len()] {
            body.u32(u32::try_from(len).unwrap_or(u32::MAX));
        }
        accounts.iter().for_each(|account| write_account(&mut body, account));
        holds.iter().for_each(|hold| write_hold(&mut body, hold));
        for staked in stakes {
            let account = accounts.binary_search_by_key(&staked.account, |account| account.id);
            write_stake(&mut body, staked, account.unwrap_or_default());
        }
        body.seal()
    }

    pub fn decode(bytes: &[u8], capacity: Capacity, memory: Memory) -> Result<Self, ImageError> {
        let mut reader = Reader(bytes);
        let found = reader.u32().unwrap_or_default();
        if found != MAGIC {
            return Err(ImageError::Version { found });
        }
        let length = ImageError::Length { found: bytes.len() };
        let sum = reader.u64().ok_or(length)?;
        if sum != checksum(reader.0) {
            return Err(ImageError::Checksum);
        }
        let [accounts, holds, stakes] = reader.counts().ok_or(length)?;
        let mut book = Book {
            accounts: read_all(&mut reader, accounts, ACCOUNT_LEN, Record::Account, read_account)?,
            holds: read_all(&mut reader, holds, HOLD_LEN, Record::Hold, read_hold)?,
            stakes: Vec::new(),
        };
        let ids: Vec<AccountId> = book.accounts.iter().map(|account| account.id).collect();
        book.stakes =
            read_all(&mut reader, stakes, STAKE_LEN, Record::Stake, |reader| read_stake(reader, &ids))?;
        if !reader.0.is_empty() {
            return Err(length);
        }
        book.check()?;
        Ok(Self { capacity, memory, book })
    }
}

impl Book {
    /// Order, and every stake's hold and account; counts the stakes of each account.
    fn check(&mut self) -> Result<(), ImageError> {
        if !self.accounts.is_sorted_by(|a, b| a.id < b.id) {
            return Err(ImageError::Record(Record::Account));
        }
        if !self.holds.is_sorted_by(|a, b| a.id < b.id) {
            return Err(ImageError::Record(Record::Hold));
        }
        if !self.stakes.is_sorted_by(|a, b| (a.hold, a.account) < (b.hold, b.account)) {
            return Err(ImageError::Record(Record::Stake));
        }
        let mut holds = self.holds.iter();
        let mut owner = holds.next();
        for staked in &self.stakes {
            while owner.is_some_and(|hold| hold.id < staked.hold) {
                owner = holds.next();
            }
            let owned = owner.is_some_and(|hold| hold.id == staked.hold && hold.state != HoldState::Settled);
            let place = self.accounts.binary_search_by_key(&staked.account, |account| account.id);
            match place.ok().and_then(|place| self.accounts.get_mut(place)) {
                Some(account) if owned => account.stakes = account.stakes.saturating_add(1),
                Some(_) | None => return Err(ImageError::Record(Record::Stake)),
            }
        }
        Ok(())
    }
}

fn read_all<T>(
    reader: &mut Reader<'_>,
    count: u32,
    len: usize,
    record: Record,
    read: impl Fn(&mut Reader<'_>) -> Option<T>,
) -> Result<Vec<T>, ImageError> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    // Before anything is set aside: a lying count must not allocate.
    if count.saturating_mul(len) > reader.0.len() {
        return Err(ImageError::Length { found: reader.0.len() });
    }
    let mut all = Vec::with_capacity(count);
    for _ in 0..count {
        all.push(read(reader).ok_or(ImageError::Record(record))?);
    }
    Ok(all)
}

fn write_account(to: &mut Writer, account: &Account) {
    let Account { id, limit, at, behind_since, stakes: _, state } = account;
    let (burst, numbers) = match state {
        State::Sliding(Sliding { current, previous }) => (None, [slot(current), slot(previous)]),
        State::Fixed(Fixed { current }) => (None, [slot(current), [0; 3]]),
        State::Bucket(Bucket { used, staked, ended, drained, carry, tick }) => {
            (burst_of(limit), [[used.units(), staked.units(), ended.units()], [*drained, *carry, *tick]])
        }
    };
    to.u128(id.to_bits());
    to.u8(match limit.window {
        Window::Sliding(_) => 0,
        Window::Fixed(_) => 1,
        Window::Bucket { .. } => 2,
    });
    to.u64(limit.window.span().as_millis());
    to.u64(limit.quota.amount().units());
    to.u64(burst.map_or(NONE, Amount::units));
    to.u64(at.as_millis());
    to.u64(behind_since.map_or(NONE, Timestamp::as_millis));
    numbers.into_iter().flatten().for_each(|number| to.u64(number));
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

fn read_account(from: &mut Reader<'_>) -> Option<Account> {
    let id = AccountId::from_bits(from.u128()?);
    let kind = from.u8()?;
    let span = Span::from_millis(from.u64()?);
    let quota = Quota::of(from.amount()?);
    let burst = from.optional()?.map(Amount::new);
    let at = from.time()?;
    let behind_since = from.optional()?.map(Timestamp::from_millis);
    let (window, state) = match (kind, burst) {
        (0, None) => {
            (Window::Sliding(span), State::Sliding(Sliding { current: from.slot()?, previous: from.slot()? }))
        }
        (1, None) => {
            let current = from.slot()?;
            from.slot()?;
            (Window::Fixed(span), State::Fixed(Fixed { current }))
        }
        (2, None) => (Window::Bucket { period: span, burst: None }, State::Bucket(from.bucket()?)),
        (2, Some(burst)) => {
            (Window::Bucket { period: span, burst: Some(burst?) }, State::Bucket(from.bucket()?))
        }
        (_, _) => return None,
    };
    Some(Account { id, limit: Limit { window, quota }, at, behind_since, stakes: 0, state })
}

fn write_hold(to: &mut Writer, hold: &Hold) {
    let (state, lease) = match hold.state {
        HoldState::Open { lease, on_lease_end: OnLeaseEnd::Charge } => (0, lease),
        HoldState::Open { lease, on_lease_end: OnLeaseEnd::Release } => (1, lease),
        HoldState::Ended => (2, Span::ZERO),
        HoldState::Settled => (3, Span::ZERO),
    };
    to.u128(hold.id.to_bits());
    to.u64(hold.from.as_millis());
    to.u8(state);
    to.u64(lease.as_millis());
}

fn read_hold(from: &mut Reader<'_>) -> Option<Hold> {
    let id = HoldId::from_bits(from.u128()?);
    let since = from.time()?;
    let state = from.u8()?;
    let lease = Span::from_millis(from.u64()?);
    let state = match state {
        0 => HoldState::Open { lease, on_lease_end: OnLeaseEnd::Charge },
        1 => HoldState::Open { lease, on_lease_end: OnLeaseEnd::Release },
        2 => HoldState::Ended,
        3 => HoldState::Settled,
        _ => return None,
    };
    Some(Hold { id, from: since, state })
}

fn write_stake(to: &mut Writer, staked: &Staked, account: usize) {
    to.u128(staked.hold.to_bits());
    to.u32(u32::try_from(account).unwrap_or(u32::MAX));
    let Stake { held, lapsed, mark } = staked.stake;
    to.u64(held.units());
    to.u64(lapsed.units());
    to.u64(mark);
}

fn read_stake(from: &mut Reader<'_>, accounts: &[AccountId]) -> Option<Staked> {
    let hold = HoldId::from_bits(from.u128()?);
    let account = *accounts.get(usize::try_from(from.u32()?).ok()?)?;
    let stake = Stake { held: from.amount()?, lapsed: from.amount()?, mark: from.u64()? };
    Some(Staked { hold, account, stake })
}

struct Writer(Vec<u8>);

impl Writer {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn u128(&mut self, value: u128) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Puts the checksum of what follows it into its place.
    fn seal(mut self) -> Vec<u8> {
        if let Some((head, body)) = self.0.split_at_mut_checked(4 + 8)
            && let Some(place) = head.last_chunk_mut()
        {
            *place = checksum(body).to_le_bytes();
        }
        self.0
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn u128(&mut self) -> Option<u128> {
        self.take().map(u128::from_le_bytes)
    }

    fn counts(&mut self) -> Option<[u32; 3]> {
        Some([self.u32()?, self.u32()?, self.u32()?])
    }

    fn amount(&mut self) -> Option<Amount> {
        Amount::new(self.u64()?)
    }

    fn optional(&mut self) -> Option<Option<u64>> {
        self.u64().map(|value| (value != NONE).then_some(value))
    }

    fn time(&mut self) -> Option<Timestamp> {
        self.u64().filter(|millis| *millis <= LATEST).map(Timestamp::from_millis)
    }

    fn slot(&mut self) -> Option<Slot> {
        Some(Slot { number: self.u64()?, held: self.amount()?, spent: self.amount()? })
    }

    fn bucket(&mut self) -> Option<Bucket> {
        let (used, staked, ended) = (self.amount()?, self.amount()?, self.amount()?);
        Some(Bucket { used, staked, ended, drained: self.u64()?, carry: self.u64()?, tick: self.u64()? })
            .filter(Bucket::is_possible)
    }
}

/// Told apart from a torn or foreign write, not from a forged one: eight bytes at a time, so that it costs
/// less than the copying.
fn checksum(bytes: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sum = bytes.len() as u64;
    for word in words {
        sum = (sum ^ u64::from_le_bytes(*word)).wrapping_mul(ODD).rotate_left(29);
    }
    for byte in rest {
        sum = (sum ^ u64::from(*byte)).wrapping_mul(ODD).rotate_left(29);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Charge, Decision, Mode, Reservation};

    const CAPACITY: Capacity = Capacity { accounts: 1000, holds: 1000 };
    const MEMORY: Memory = Memory { settled: Span::from_secs(60), ended: Span::from_secs(60) };

    fn busy() -> Ledger {
        let mut ledger = Ledger::new(CAPACITY, MEMORY);
        for n in 0..30_u64 {
            let window = match n % 3 {
                0 => Window::Sliding(Span::from_secs(60)),
                1 => Window::Fixed(Span::from_secs(60)),
                _ => Window::Bucket { period: Span::from_secs(60), burst: Some(Amount::saturating(5000)) },
            };
            let charge = Charge {
                account: AccountId::from_bits(u128::from(n % 12)),
                limit: Limit { window, quota: Quota::of(Amount::saturating(1000)) },
                cost: Amount::saturating(n),
                largest: Amount::MAX,
                mode: Mode::Enforce,
            };
            let reservation = Reservation {
                id: HoldId::from_bits(u128::from(n * 7 % 31)),
                charges: vec![charge],
                lease: Span::from_secs(n),
                on_lease_end: if n % 2 == 0 { OnLeaseEnd::Charge } else { OnLeaseEnd::Release },
            };
            let decision = ledger.reserve(&reservation, Timestamp::from_millis(100_000 + n * 700));
            assert!(matches!(decision, Ok(Decision::Granted(_))));
        }
        ledger
    }

    #[test]
    fn what_is_written_is_read_back() {
        let ledger = busy();
        assert_eq!(Ledger::decode(&ledger.encode(), CAPACITY, MEMORY), Ok(ledger));
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_told() {
        let bytes = busy().encode();
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 0x10;
            assert!(Ledger::decode(&changed, CAPACITY, MEMORY).is_err(), "byte {place}");
            assert!(Ledger::decode(&bytes[..place], CAPACITY, MEMORY).is_err(), "cut at {place}");
        }
    }

    /// Behind a checksum that fits, so that the records themselves must be told.
    #[test]
    fn records_that_no_ledger_can_hold_are_refused_or_harmless() {
        let bytes = busy().encode();
        for place in 12..bytes.len() {
            for mask in [0x01, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[place] ^= mask;
                if let Ok(mut ledger) = Ledger::decode(&Writer(changed).seal(), CAPACITY, MEMORY) {
                    let far = Timestamp::from_millis(u64::MAX);
                    ledger.sweep(Timestamp::from_millis(130_000));
                    ledger.sweep(far);
                    for account in 0..12 {
                        let limit = Limit {
                            window: Window::Fixed(Span::ZERO),
                            quota: Quota::of(Amount::saturating(1)),
                        };
                        ledger.standing(AccountId::from_bits(account), &limit, far);
                    }
                }
            }
        }
    }
}
