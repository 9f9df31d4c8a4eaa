//! A ledger as bytes, and back.
//!
//! The ledger keeps its lists as records already, so this copies them whole behind a header and
//! a checksum: what a step costs does not grow with what it does not touch. Whoever keeps the bytes may be
//! another program sharing the same memory, so what does not add up is an error; and whatever passes does
//! no more harm than a wrong number.

use std::fmt;

use crate::book::Book;
use crate::ledger::{Capacity, Ledger, Memory};

/// "TGL" and the version of the layout.
const MAGIC: [u8; 4] = *b"TGL\x01";
const COUNTS: usize = 3;
const HEADER_LEN: usize = MAGIC.len() + 8 + COUNTS * 4;

/// Bytes that are no ledger.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ImageError {
    /// Another layout, or not ours at all.
    Version,
    /// Shorter or longer than the records it announces.
    Length { found: usize },
    /// Changed since it was written.
    Checksum,
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version => f.write_str("not a ledger of this version"),
            Self::Length { found } => write!(f, "{found} bytes are not the length its records need"),
            Self::Checksum => f.write_str("the checksum does not match"),
        }
    }
}

impl std::error::Error for ImageError {}

impl Ledger {
    pub fn encode(&self) -> Vec<u8> {
        let Book { accounts, holds, stakes } = &self.book;
        let lists = [accounts.as_flattened(), holds.as_flattened(), stakes.as_flattened()];
        let counts = [accounts.len(), holds.len(), stakes.len()];
        let mut image = Vec::with_capacity(HEADER_LEN + lists.iter().map(|list| list.len()).sum::<usize>());
        image.extend(MAGIC);
        image.extend([0; 8]);
        image.extend(counts.iter().flat_map(|count| u32::try_from(*count).unwrap_or(u32::MAX).to_le_bytes()));
        lists.iter().for_each(|list| image.extend_from_slice(list));
        seal(&mut image);
        image
    }

    pub fn decode(bytes: &[u8], capacity: Capacity, memory: Memory) -> Result<Self, ImageError> {
        let length = ImageError::Length { found: bytes.len() };
        let rest = bytes.strip_prefix(&MAGIC).ok_or(ImageError::Version)?;
        let (sum, body) = rest.split_first_chunk().ok_or(length)?;
        if *sum != checksum(body).to_le_bytes() {
            return Err(ImageError::Checksum);
        }
        let (counts, mut rest) = body.split_first_chunk::<{ COUNTS * 4 }>().ok_or(length)?;
        let mut counts = counts.as_chunks().0.iter().map(|count| u32::from_le_bytes(*count));
        let mut next = || usize::try_from(counts.next()?).ok();
        let book = Book {
            accounts: next().and_then(|count| cut(&mut rest, count)).ok_or(length)?,
            holds: next().and_then(|count| cut(&mut rest, count)).ok_or(length)?,
            stakes: next().and_then(|count| cut(&mut rest, count)).ok_or(length)?,
        };
        if !rest.is_empty() {
            return Err(length);
        }
        Ok(Self { capacity, memory, book })
    }
}

fn cut<const N: usize>(from: &mut &[u8], count: usize) -> Option<Vec<[u8; N]>> {
    let (records, rest) = from.split_at_checked(count.checked_mul(N)?)?;
    *from = rest;
    // Room for one more: most steps add one, and must not copy the list once again for it.
    let mut list = Vec::with_capacity(count + 1);
    list.extend_from_slice(records.as_chunks().0);
    Some(list)
}

/// Puts the checksum of what follows it into its place.
fn seal(image: &mut [u8]) {
    if let Some((head, body)) = image.split_at_mut_checked(MAGIC.len() + 8)
        && let Some(place) = head.last_chunk_mut()
    {
        *place = checksum(body).to_le_bytes();
    }
}

/// Tells torn and foreign bytes, not forged ones. Four lanes, so that it costs less than the copying.
fn checksum(bytes: &[u8]) -> u64 {
    let (blocks, rest) = bytes.as_chunks::<32>();
    let mut lanes = [bytes.len() as u64, 1, 2, 3];
    for block in blocks {
        for (lane, word) in lanes.iter_mut().zip(block.as_chunks().0) {
            *lane = mix(*lane, u64::from_le_bytes(*word));
        }
    }
    let sum = lanes.into_iter().reduce(mix).unwrap_or_default();
    rest.iter().fold(sum, |sum, byte| mix(sum, u64::from(*byte)))
}

#[inline]
fn mix(sum: u64, word: u64) -> u64 {
    (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        AccountId, Amount, Charge, Decision, HoldId, Limit, Mode, OnLeaseEnd, Quota, Reservation, Settlement,
        Span, Timestamp, Window,
    };

    const CAPACITY: Capacity = Capacity { accounts: 1000, holds: 1000 };
    const MEMORY: Memory = Memory { settled: Span::from_secs(60), ended: Span::from_secs(60) };

    fn reservation(n: u64) -> Reservation {
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
        Reservation {
            id: HoldId::from_bits(u128::from(n * 7 % 31)),
            charges: vec![charge],
            lease: Span::from_secs(n),
            on_lease_end: if n.is_multiple_of(2) { OnLeaseEnd::Charge } else { OnLeaseEnd::Release },
        }
    }

    fn busy() -> Ledger {
        let mut ledger = Ledger::new(CAPACITY, MEMORY);
        for n in 0..30_u64 {
            let now = Timestamp::from_millis(100_000 + n * 700);
            assert!(matches!(ledger.reserve(&reservation(n), now), Ok(Decision::Granted(_))));
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
    fn records_that_no_ledger_can_hold_do_no_harm() {
        let bytes = busy().encode();
        for place in 12..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= [0x01, 0x80, 0xff][place % 3];
            seal(&mut changed);
            let Ok(mut ledger) = Ledger::decode(&changed, CAPACITY, MEMORY) else { continue };
            let (soon, far) = (Timestamp::from_millis(130_000), Timestamp::from_millis(u64::MAX));
            for n in 0..6 {
                ledger.reserve(&reservation(n), soon).ok();
                ledger.settle(&Settlement { id: reservation(n + 12).id, entries: Vec::new() }, soon).ok();
            }
            ledger.sweep(far);
            assert!(ledger.accounts() <= 13 && ledger.holds() <= 60);
        }
    }
}
