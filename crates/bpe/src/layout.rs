//! How the tables lie in memory: what the build script writes and the crate reads.
//!
//! * The *arena* is the bytes of all tokens, by rank. An offset into it grows with the rank, so the
//!   offset serves as the rank; no identifier is needed to count.
//! * The *starts* are one bit a byte of the arena: where a token starts.
//! * The *slots* are a hash table with open addressing, sized to a power of two; a slot is
//!   the token's offset below and the highest bits of its hash above.
//! * The *pairs* are the ranks of all tokens of two bytes, at [`pair`].

/// No token is longer; a text of `n` bytes is at least `n / LONGEST_TOKEN` tokens.
pub(crate) const LONGEST_TOKEN: usize = 128;

/// Characters in a block of the class table.
pub(crate) const BLOCK: usize = 128;

/// The bits of a slot for the offset. Those for the hash turn away nearly every wrong token before its
/// bytes are looked at.
pub(crate) const OFFSET_BITS: u32 = 21;

/// Neither a slot nor a rank: no offset comes near it.
pub(crate) const EMPTY: u32 = u32::MAX;

/// The bits of a slot that tell of the hash.
#[inline]
pub(crate) fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32 >> OFFSET_BITS << OFFSET_BITS
}

/// Where the search for a hash begins.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "only the lowest bits are asked for")]
pub(crate) fn home(hash: u64, slots: usize) -> usize {
    hash as usize & (slots - 1)
}

/// Where it goes on.
#[inline]
pub(crate) fn beside(at: usize, slots: usize) -> usize {
    (at + 1) & (slots - 1)
}

#[inline]
pub(crate) fn pair(first: u8, second: u8) -> usize {
    usize::from(first) << 8 | usize::from(second)
}
