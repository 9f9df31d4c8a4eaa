//! Which byte strings are tokens, and which of two merges comes first.
//!
//! The tables lie in the data segment and are read where they lie: nothing is built at run time.
//! `layout.rs` says what is in them, the build script asserts it.

use crate::hash::{hash, short_word};
use crate::layout::{EMPTY, LONGEST_TOKEN, OFFSET_BITS, beside, home, pair, tag};

/// The place of a token in its vocabulary; lower merges first. (Its offset in the arena: monotone in
/// the published rank, not equal to it.)
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Rank(pub(crate) u32);

impl Rank {
    /// All ranks are below `1 << BITS`.
    pub(crate) const BITS: u32 = OFFSET_BITS;
}

#[derive(Debug)]
pub(crate) struct Vocabulary {
    arena: &'static [u8],
    starts: &'static [u8],
    slots: &'static [[u8; 4]],
    pairs: &'static [[u8; 4]],
}

macro_rules! vocabulary {
    ($name:literal) => {
        Vocabulary {
            arena: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".arena")),
            starts: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".starts")),
            slots: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".slots")).as_chunks().0,
            pairs: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".pairs")).as_chunks().0,
        }
    };
}

#[cfg(feature = "o200k")]
pub(crate) static O200K_BASE: Vocabulary = vocabulary!("o200k_base");
#[cfg(feature = "cl100k")]
pub(crate) static CL100K_BASE: Vocabulary = vocabulary!("cl100k_base");

impl Vocabulary {
    /// The rank of the token with these bytes.
    #[inline]
    pub(crate) fn rank(&self, bytes: &[u8]) -> Option<Rank> {
        if bytes.len() > LONGEST_TOKEN {
            return None;
        }
        self.rank_by_hash(bytes, hash(bytes))
    }

    /// As [`Vocabulary::rank`], for who has the hash at hand.
    #[inline(always)]
    pub(crate) fn rank_by_hash(&self, bytes: &[u8], hash: u64) -> Option<Rank> {
        let tag = tag(hash);
        let mut at = home(hash, self.slots.len());
        loop {
            let slot = u32::from_le_bytes(*self.slots.get(at)?);
            if slot == EMPTY {
                return None;
            }
            if (slot ^ tag) >> OFFSET_BITS == 0 {
                let offset = slot & ((1 << OFFSET_BITS) - 1);
                if self.has_at(offset as usize, bytes) {
                    return Some(Rank(offset));
                }
            }
            at = beside(at, self.slots.len());
        }
    }

    /// As [`Vocabulary::rank`], for two bytes.
    #[inline]
    pub(crate) fn rank_of_pair(&self, first: u8, second: u8) -> Option<Rank> {
        let rank = u32::from_le_bytes(*self.pairs.get(pair(first, second))?);
        (rank != EMPTY).then_some(Rank(rank))
    }

    /// Whether the token that starts at `offset` is `bytes`, no more and no less.
    #[inline]
    fn has_at(&self, offset: usize, bytes: &[u8]) -> bool {
        self.arena.get(offset..).is_some_and(|rest| starts_with(rest, bytes))
            && self.length_at(offset) == Some(bytes.len())
    }

    /// The length of the token that starts at `offset`: as far as the next start.
    #[inline]
    fn length_at(&self, offset: usize) -> Option<usize> {
        // A word read at a byte holds at least this many bits from any bit of that byte on.
        const IN_SIGHT: usize = u64::BITS as usize - 7;
        let mut at = offset + 1;
        loop {
            let word = u64::from_le_bytes(*self.starts.get(at / 8..)?.first_chunk()?) >> (at % 8);
            if word != 0 {
                return Some(at + word.trailing_zeros() as usize - offset);
            }
            at += IN_SIGHT;
        }
    }
}

/// Whether `arena` starts with `bytes`. Most are short, and a call to compare them costs more than
/// one word, or two that overlap.
#[inline]
fn starts_with(arena: &[u8], bytes: &[u8]) -> bool {
    let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) else {
        // The padding lets a word be read at the last token too. What is beyond `bytes` is shifted out.
        // (Of no bytes any answer will do: no token is as short.)
        const BITS: usize = u64::BITS as usize;
        let Some(word) = arena.first_chunk() else { return false };
        let difference = u64::from_le_bytes(*word) ^ short_word(bytes);
        return difference << ((BITS - 8 * bytes.len()) % BITS) == 0;
    };
    let Some(own) = arena.get(..bytes.len()) else { return false };
    own.first_chunk() == Some(first) && own.last_chunk() == Some(last) && (bytes.len() <= 16 || own == bytes)
}
