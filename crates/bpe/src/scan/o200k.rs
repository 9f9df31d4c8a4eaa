//! The cuts of `o200k_base`. With `B` for `\p{Lm}\p{Lo}\p{M}` and `'s` for all contractions:
//!
//! ```text
//! 1  [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}B]*[\p{Ll}B]+(?i:'s)?
//! 2  [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}B]+[\p{Ll}B]*(?i:'s)?
//! 3  \p{N}{1,3}
//! 4   ?[^\s\p{L}\p{N}]+[\r\n/]*
//! 5  \s*[\r\n]+
//! 6  \s+(?!\S)
//! 7  \s+
//! ```

use super::{Cut, Opening, contraction, number, run_end, signs, spaces};
use crate::class::{Class, class_at};

#[inline(always)]
pub(crate) fn cut(text: &[u8], at: usize) -> Cut {
    match opening(text, at) {
        Opening::Word { from } => word(text, from),
        Opening::Number => number(text, at),
        Opening::Signs { from } => signs(text, from, trails),
        Opening::Space => space(text, at),
        Opening::Contraction { end } => Cut { end, seen: end },
    }
}

#[inline(always)]
pub(crate) fn opening(text: &[u8], at: usize) -> Opening {
    let (class, length) = class_at(text, at);
    let next = at + length;
    match class {
        // A mark may stand before a word or in it; either way the piece reaches as far, and a mark
        // alone is a word by 1.
        Class::Upper | Class::Lower | Class::Caseless | Class::Mark => Opening::Word { from: at },
        Class::Number => Opening::Number,
        Class::Newline | Class::End => Opening::Space,
        Class::Other => match class_at(text, next).0 {
            Class::Upper | Class::Lower | Class::Caseless | Class::Mark => Opening::Word { from: next },
            Class::Other | Class::Number | Class::Space | Class::Newline | Class::End => {
                Opening::Signs { from: at }
            }
        },
        Class::Space => match class_at(text, next).0 {
            Class::Upper | Class::Lower | Class::Caseless | Class::Mark => Opening::Word { from: next },
            Class::Other if text.get(at) == Some(&b' ') => Opening::Signs { from: next },
            Class::Other | Class::Number | Class::Space | Class::Newline | Class::End => Opening::Space,
        },
    }
}

/// 1 and 2. The first half of 1 takes all it can; if no `\p{Ll}` follows it must leave the last
/// character of `B` to the second half and give back the capitals behind. Without such a character 1
/// fails, and 2 takes what is then capitals only.
#[inline]
fn word(text: &[u8], from: usize) -> Cut {
    let mut at = from;
    let mut caseless = None;
    loop {
        let (class, length) = class_at(text, at);
        match class {
            Class::Upper => at += length,
            Class::Caseless | Class::Mark => {
                at += length;
                caseless = Some(at);
            }
            Class::Lower => {
                let end = run_end(text, at + length, continues_lower);
                return Cut { end: end + contraction(text, end), seen: end };
            }
            Class::Other | Class::Number | Class::Space | Class::Newline | Class::End => break,
        }
    }
    let end = caseless.unwrap_or(at);
    Cut { end: end + contraction(text, end), seen: at }
}

#[inline]
fn continues_lower(class: Class) -> bool {
    matches!(class, Class::Lower | Class::Caseless | Class::Mark)
}

/// 5, 6 and 7.
#[inline]
fn space(text: &[u8], at: usize) -> Cut {
    let spaces = spaces(text, at);
    let end = match spaces.newline {
        Some(end) => end,
        None if spaces.end == text.len() => spaces.end,
        None => spaces.shortened,
    };
    Cut { end, seen: spaces.end }
}

/// What may follow the signs of 4.
#[inline]
pub(crate) fn trails(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n' | b'/')
}
