//! One piece → its tokens.
//!
//! Byte pair encoding starts with single bytes and joins, again and again, the leftmost pair of the
//! lowest rank. Here that is done twice: for short pieces in two machine words and an array, for longer
//! ones in a tree of minima. Pieces beyond a window are for `window.rs`.

use crate::table::{Rank, Vocabulary};

/// The longest piece for [`merge_short`]: one bit a byte.
pub(crate) const SHORT: usize = u64::BITS as usize;

/// The number of tokens of a piece of at most [`SHORT`] bytes.
pub(crate) fn merge_short(vocabulary: &Vocabulary, piece: &[u8]) -> usize {
    let mut merges = ShortMerges::of(vocabulary, piece);
    while let Some(at) = merges.first() {
        merges.join(vocabulary, piece, at);
    }
    merges.starts.count_ones() as usize
}

struct ShortMerges {
    /// The bit of a byte says that a token starts there.
    starts: u64,
    /// For each token that may be joined with its follower, the rank of both and then the place, so
    /// that the lowest key is the next merge.
    keys: [u32; SHORT],
    length: u32,
}

const NEVER: u32 = u32::MAX;
const PLACE_BITS: u32 = SHORT.trailing_zeros();
const _: () = assert!(Rank::BITS + PLACE_BITS < u32::BITS);

impl ShortMerges {
    #[inline]
    fn of(vocabulary: &Vocabulary, piece: &[u8]) -> Self {
        let length = u32::try_from(piece.len()).unwrap_or(u32::MAX).min(u64::BITS);
        let starts = u64::MAX.checked_shr(u64::BITS - length).unwrap_or(0);
        let mut merges = Self { starts, keys: [NEVER; SHORT], length };
        for ((at, key), pair) in (0..).zip(&mut merges.keys).zip(piece.windows(2)) {
            if let &[first, second] = pair {
                *key = key_of(vocabulary.rank_of_pair(first, second), at);
            }
        }
        merges
    }

    #[inline]
    fn first(&self) -> Option<u32> {
        let keys = self.keys.get(..self.length as usize).unwrap_or(&self.keys);
        let key = keys.iter().fold(NEVER, |least, &key| least.min(key));
        (key != NEVER).then_some(key % (1 << PLACE_BITS))
    }

    /// Joins the token at `at` with its follower.
    #[inline]
    fn join(&mut self, vocabulary: &Vocabulary, piece: &[u8], at: u32) {
        let gone = self.after(at);
        self.starts &= !(1_u64.checked_shl(gone).unwrap_or(0));
        self.put(gone, NEVER);

        let end = self.after(at);
        let key = if end < self.length { self.key(vocabulary, piece, at, self.after(end)) } else { NEVER };
        self.put(at, key);
        if let Some(before) = self.before(at) {
            let key = self.key(vocabulary, piece, before, end);
            self.put(before, key);
        }
    }

    #[inline]
    fn key(&self, vocabulary: &Vocabulary, piece: &[u8], from: u32, to: u32) -> u32 {
        let rank = piece.get(from as usize..to as usize).and_then(|both| vocabulary.rank(both));
        key_of(rank, from)
    }

    #[inline]
    fn put(&mut self, at: u32, key: u32) {
        if let Some(place) = self.keys.get_mut(at as usize) {
            *place = key;
        }
    }

    /// The start behind `at`, or the end of the piece.
    #[inline]
    fn after(&self, at: u32) -> u32 {
        let later = self.starts.checked_shr(at + 1).unwrap_or(0);
        (at + 1 + later.trailing_zeros()).min(self.length)
    }

    #[inline]
    fn before(&self, at: u32) -> Option<u32> {
        let earlier = self.starts & !(u64::MAX << at);
        earlier.checked_ilog2()
    }
}

#[inline]
fn key_of(rank: Option<Rank>, at: u32) -> u32 {
    rank.map_or(NEVER, |rank| rank.0 << PLACE_BITS | at)
}

/// Merges pieces of any length in `n log n`, and keeps its memory from one to the next.
#[derive(Debug, Default)]
pub(crate) struct Merger {
    /// A binary tree of minima over the bytes of the piece: the root is at 1, the children of `n` are at
    /// `2n` and `2n + 1`. A leaf is the rank of the token that starts there joined with its follower,
    /// and then its place.
    keys: Vec<u64>,
    leaves: usize,
    /// For every start of a token: the next one, and the one before.
    next: Vec<u32>,
    previous: Vec<u32>,
    ends: Vec<u32>,
}

const NEVER_LONG: u64 = u64::MAX;

#[expect(clippy::cast_possible_truncation, reason = "a piece is a window, and that is no gigabytes")]
impl Merger {
    /// Where the tokens of `piece` end, in order.
    pub(crate) fn merge(&mut self, vocabulary: &Vocabulary, piece: &[u8]) -> &[u32] {
        self.start(vocabulary, piece);
        while let Some(at) = self.first() {
            self.join(vocabulary, piece, at);
        }
        self.ends.clear();
        let mut at = 0;
        while at < piece.len() {
            let next = self.next_of(at);
            self.ends.push(next as u32);
            at = next;
        }
        &self.ends
    }

    /// What the last [`Merger::merge`] found.
    pub(crate) fn ends(&self) -> &[u32] {
        &self.ends
    }

    /// The longest piece for which there is memory now.
    pub(crate) fn capacity(&self) -> usize {
        self.next.capacity()
    }

    fn start(&mut self, vocabulary: &Vocabulary, piece: &[u8]) {
        let length = piece.len() as u32;
        self.next.clear();
        self.next.extend(1..=length);
        self.previous.clear();
        self.previous.extend((0..length).map(|at| at.wrapping_sub(1)));

        self.leaves = piece.len().next_power_of_two();
        self.keys.clear();
        self.keys.resize(2 * self.leaves, NEVER_LONG);
        let leaves = self.keys.get_mut(self.leaves..).unwrap_or_default();
        for ((at, leaf), pair) in (0..).zip(leaves).zip(piece.windows(2)) {
            if let &[first, second] = pair {
                *leaf = long_key_of(vocabulary.rank_of_pair(first, second), at);
            }
        }
        for node in (1..self.leaves).rev() {
            let key = self.key_at(2 * node).min(self.key_at(2 * node + 1));
            self.put_at(node, key);
        }
    }

    #[inline]
    fn first(&self) -> Option<usize> {
        let key = self.key_at(1);
        (key != NEVER_LONG).then_some((key & u64::from(u32::MAX)) as usize)
    }

    /// Joins the token at `at` with its follower.
    fn join(&mut self, vocabulary: &Vocabulary, piece: &[u8], at: usize) {
        let gone = self.next_of(at);
        let end = self.next_of(gone);
        if let Some(next) = self.next.get_mut(at) {
            *next = end as u32;
        }
        if let Some(previous) = self.previous.get_mut(end) {
            *previous = at as u32;
        }
        self.put(gone, NEVER_LONG);

        let key =
            if end < piece.len() { key_long(vocabulary, piece, at, self.next_of(end)) } else { NEVER_LONG };
        self.put(at, key);
        if let Some(before) = self.previous.get(at).map(|&before| before as usize)
            && before < at
        {
            self.put(before, key_long(vocabulary, piece, before, end));
        }
    }

    /// The start behind `at`, or the end of the piece.
    #[inline]
    fn next_of(&self, at: usize) -> usize {
        self.next.get(at).map_or(usize::MAX, |&next| next as usize)
    }

    /// Sets a leaf, and the minima above it.
    #[inline]
    fn put(&mut self, leaf: usize, mut key: u64) {
        let mut node = self.leaves + leaf;
        self.put_at(node, key);
        while node > 1 {
            key = key.min(self.key_at(node ^ 1));
            node /= 2;
            if self.key_at(node) == key {
                return;
            }
            self.put_at(node, key);
        }
    }

    #[inline]
    fn key_at(&self, node: usize) -> u64 {
        self.keys.get(node).copied().unwrap_or(NEVER_LONG)
    }

    #[inline]
    fn put_at(&mut self, node: usize, key: u64) {
        if let Some(place) = self.keys.get_mut(node) {
            *place = key;
        }
    }
}

#[inline]
fn key_long(vocabulary: &Vocabulary, piece: &[u8], from: usize, to: usize) -> u64 {
    long_key_of(piece.get(from..to).and_then(|both| vocabulary.rank(both)), from as u64)
}

#[inline]
fn long_key_of(rank: Option<Rank>, at: u64) -> u64 {
    rank.map_or(NEVER_LONG, |rank| u64::from(rank.0) << u32::BITS | at)
}

#[cfg(test)]
#[cfg(all(feature = "o200k", feature = "cl100k"))]
mod tests {
    use super::*;
    use crate::corpus::{Random, corpus};
    use crate::table::{CL100K_BASE, O200K_BASE};

    /// Byte pair encoding as it is defined.
    fn defined(vocabulary: &Vocabulary, piece: &[u8]) -> Vec<u32> {
        let mut ends: Vec<usize> = (1..=piece.len()).collect();
        loop {
            let starts = || [0].into_iter().chain(ends.iter().copied());
            let pairs = starts().zip(ends.iter().skip(1)).enumerate();
            let ranks =
                pairs.filter_map(|(at, (start, &end))| Some((vocabulary.rank(&piece[start..end])?, at)));
            let Some((_, at)) = ranks.min() else { break };
            ends.remove(at);
        }
        ends.into_iter().map(|end| u32::try_from(end).unwrap()).collect()
    }

    #[test]
    fn both_merges_do_as_defined() {
        let mut random = Random::seeded(1);
        let mut merger = Merger::default();
        for vocabulary in [&O200K_BASE, &CL100K_BASE] {
            for (kind, text) in corpus() {
                let start = random.below(text.len() + 1);
                let length = random.between(0, 300).min(text.len() - start);
                // Not at characters: a piece of any bytes will do.
                let piece = &text.as_bytes()[start..start + length];
                let ends = defined(vocabulary, piece);
                assert_eq!(merger.merge(vocabulary, piece), ends, "{kind}: {piece:?}");

                let piece = &piece[..length.min(SHORT)];
                let tokens = defined(vocabulary, piece).len();
                assert_eq!(merge_short(vocabulary, piece), tokens, "{kind}: {piece:?}");
            }
        }
    }
}
