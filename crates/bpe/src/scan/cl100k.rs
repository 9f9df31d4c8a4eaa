//! The cuts of `cl100k_base`:
//!
//! ```text
//! 1  '(?i:[sdmt]|ll|ve|re)
//! 2  [^\r\n\p{L}\p{N}]?+\p{L}++
//! 3  \p{N}{1,3}+
//! 4   ?[^\s\p{L}\p{N}]++[\r\n]*+
//! 5  \s++$
//! 6  \s*[\r\n]
//! 7  \s+(?!\S)
//! 8  \s
//! ```

use super::{Cut, Opening, contraction, number, run_end, signs, spaces};
use crate::class::{Class, class_at};

#[inline(always)]
pub(crate) fn cut(text: &[u8], at: usize) -> Cut {
    match opening(text, at) {
        Opening::Word { from } => {
            let end = run_end(text, from, Class::is_letter);
            Cut { end, seen: end }
        }
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
        Class::Upper | Class::Lower | Class::Caseless => Opening::Word { from: at },
        Class::Number => Opening::Number,
        Class::Newline | Class::End => Opening::Space,
        Class::Other | Class::Mark => match contraction(text, at) {
            0 if class_at(text, next).0.is_letter() => Opening::Word { from: next },
            0 => Opening::Signs { from: at },
            length => Opening::Contraction { end: at + length },
        },
        Class::Space => match class_at(text, next).0 {
            Class::Upper | Class::Lower | Class::Caseless => Opening::Word { from: next },
            Class::Other | Class::Mark if text.get(at) == Some(&b' ') => Opening::Signs { from: next },
            Class::Other | Class::Mark | Class::Number | Class::Space | Class::Newline | Class::End => {
                Opening::Space
            }
        },
    }
}

/// 5 to 8. Unlike in `o200k_base`, the end of the text comes before the newlines.
#[inline]
fn space(text: &[u8], at: usize) -> Cut {
    let spaces = spaces(text, at);
    let end = match spaces.newline {
        _ if spaces.end == text.len() => spaces.end,
        Some(end) => end,
        None => spaces.shortened,
    };
    Cut { end, seen: spaces.end }
}

/// What may follow the signs of 4.
#[inline]
pub(crate) fn trails(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}
