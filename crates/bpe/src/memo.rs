//! The pieces of more than one token that were merged last.
//!
//! Text repeats its words, and scripts that are poor in a vocabulary repeat the same few letters:
//! remembering what they came to is half the speed there. A table of fixed size, in which a newer piece
//! takes the place of an older one. It can be wrong about nothing: the piece itself is compared.

use crate::hash::rest_as_word;

/// Bytes of the longest piece remembered: with its tag and its count an entry is 32.
pub(crate) const LONGEST: usize = 30;

/// 128 KiB, half of what a VM may spend beside tables and input.
const ENTRIES: usize = 4096;

/// Which vocabulary a count is for: one memo serves all.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shelf {
    #[cfg(feature = "o200k")]
    O200kBase = 1,
    #[cfg(feature = "cl100k")]
    Cl100kBase = 2,
}

#[derive(Debug)]
pub(crate) struct Memo {
    entries: Box<[Entry]>,
}

/// The bytes of a piece as four numbers. The highest byte of the last is shelf and length, never zero;
/// the one below is free for the count.
type Key = [u64; 4];

#[derive(Clone, Copy, Debug)]
struct Entry(Key);

const TAG_SHIFT: u32 = 56;
const TOKENS_SHIFT: u32 = 48;
const TOKENS_MASK: u64 = 0xFF << TOKENS_SHIFT;
const _: () = assert!(LONGEST < 1 << 5, "the length of a piece and its shelf share a byte");
const _: () = assert!(LONGEST <= 24 + TOKENS_SHIFT as usize / 8, "the piece leaves the last two bytes free");

impl Memo {
    pub(crate) fn new() -> Self {
        Self { entries: vec![Entry([0; 4]); ENTRIES].into_boxed_slice() }
    }

    /// The tokens of a piece of at most [`LONGEST`] bytes, as remembered or else as merged now.
    #[inline]
    pub(crate) fn recall_or(
        &mut self,
        shelf: Shelf,
        piece: &[u8],
        hash: u64,
        merge: impl FnOnce() -> usize,
    ) -> usize {
        let key = key_of(shelf, piece);
        // The table of tokens is searched by the lowest bits: taken from others, a piece that
        // collides there does not collide here as well.
        let place = (hash >> 20) as usize % ENTRIES;
        let Some(entry) = self.entries.get_mut(place) else { return merge() };
        if entry.is_for(&key) {
            return entry.tokens();
        }
        let tokens = merge();
        *entry = Entry::new(key, tokens);
        tokens
    }
}

impl Entry {
    #[inline]
    fn new([a, b, c, d]: Key, tokens: usize) -> Self {
        Self([a, b, c, d | (tokens as u64) << TOKENS_SHIFT])
    }

    #[inline]
    fn is_for(&self, key: &Key) -> bool {
        let [a, b, c, d] = self.0;
        [a, b, c, d & !TOKENS_MASK] == *key
    }

    #[inline]
    fn tokens(&self) -> usize {
        let [_, _, _, last] = self.0;
        ((last & TOKENS_MASK) >> TOKENS_SHIFT) as usize
    }
}

#[inline]
fn key_of(shelf: Shelf, piece: &[u8]) -> Key {
    let (words, rest) = piece.as_chunks::<8>();
    let mut key = [0; 4];
    for (place, word) in key.iter_mut().zip(words) {
        *place = u64::from_le_bytes(*word);
    }
    if !rest.is_empty()
        && let Some(place) = key.get_mut(words.len())
    {
        *place = rest_as_word(piece, rest);
    }
    let tag = (shelf as u64) << 5 | piece.len() as u64;
    let [a, b, c, d] = key;
    [a, b, c, d | tag << TAG_SHIFT]
}
