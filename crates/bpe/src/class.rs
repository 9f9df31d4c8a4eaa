//! What the two regexes see of a character: nine classes.

use crate::layout::BLOCK;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Class {
    /// None of the others: signs, symbols, control, unassigned.
    Other,
    /// `\p{Lu}` or `\p{Lt}`.
    Upper,
    /// `\p{Ll}`.
    Lower,
    /// `\p{Lm}` or `\p{Lo}`.
    Caseless,
    /// `\p{M}`.
    Mark,
    /// `\p{N}`.
    Number,
    /// `\s` but no newline.
    Space,
    /// `\r` or `\n`.
    Newline,
    /// There is no character.
    End,
}

impl Class {
    #[cfg(feature = "cl100k")]
    #[inline]
    pub(crate) fn is_letter(self) -> bool {
        matches!(self, Self::Upper | Self::Lower | Self::Caseless)
    }

    /// `[^\s\p{L}\p{N}]`.
    #[inline]
    pub(crate) fn is_sign(self) -> bool {
        matches!(self, Self::Other | Self::Mark)
    }

    #[inline]
    pub(crate) fn is_space(self) -> bool {
        matches!(self, Self::Space | Self::Newline)
    }
}

include!(concat!(env!("OUT_DIR"), "/classes.rs"));

/// The class of the character at `at` and its length in bytes; `at` is a boundary of UTF-8.
// Inlined by order, as all the way to here is: in wasm a pair comes back by way of memory, and that
// once a character is half the speed.
#[inline(always)]
pub(crate) fn class_at(text: &[u8], at: usize) -> (Class, usize) {
    match text.get(at) {
        None => (Class::End, 0),
        Some(&byte) if byte.is_ascii() => (class_of(u32::from(byte)), 1),
        Some(&byte) => wide_class_at(text, at, byte),
    }
}

#[inline(never)]
fn wide_class_at(text: &[u8], at: usize, lead: u8) -> (Class, usize) {
    // Text comes from `str`, so the bytes asked for are there.
    let bits = |ahead: usize| u32::from(text.get(at + ahead).copied().unwrap_or_default() & 0x3F);
    let lead = u32::from(lead);
    if lead < 0xE0 {
        (class_of((lead & 0x1F) << 6 | bits(1)), 2)
    } else if lead < 0xF0 {
        (class_of((lead & 0x0F) << 12 | bits(1) << 6 | bits(2)), 3)
    } else {
        (class_of((lead & 0x07) << 18 | bits(1) << 12 | bits(2) << 6 | bits(3)), 4)
    }
}

#[inline]
fn class_of(character: u32) -> Class {
    let character = character as usize;
    INDEX
        .get(character / BLOCK)
        .and_then(|&block| BLOCKS.get(usize::from(block)))
        .and_then(|block| block.get(character % BLOCK))
        .copied()
        .unwrap_or(Class::Other)
}
