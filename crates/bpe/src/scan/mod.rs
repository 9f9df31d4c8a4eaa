//! Where a text is cut into pieces before any token is looked up.
//!
//! Each encoding has a published regex; its scanner finds the same cuts by hand. A regex engine would
//! be most of the module's code, and one that backtracks dies on a long run of spaces.
//!
//! The regexes are tried alternative by alternative at one place, so a scanner first settles which
//! alternative it is (two characters tell), then how far that one reaches.

use crate::class::{Class, class_at};

#[cfg(feature = "cl100k")]
pub(crate) mod cl100k;
#[cfg(feature = "o200k")]
pub(crate) mod o200k;
mod run;

pub(crate) use run::Run;

/// The end of a piece.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Cut {
    pub(crate) end: usize,
    /// Where the scanner stopped reading, but for [`LOOKAHEAD`]. Beyond `end` if it had to turn back.
    pub(crate) seen: usize,
}

/// How far behind [`Cut::seen`] a scanner may look: the length of a contraction.
pub(crate) const LOOKAHEAD: usize = 3;

/// The alternative of the regex that matches, and where its run begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Opening {
    /// Letters, perhaps behind one other character.
    Word {
        from: usize,
    },
    /// At most three numbers.
    Number,
    /// Signs, perhaps behind a blank.
    Signs {
        from: usize,
    },
    Space,
    /// An `'s` that is a piece of its own.
    #[cfg_attr(not(feature = "cl100k"), expect(dead_code, reason = "o200k_base has it in its words"))]
    Contraction {
        end: usize,
    },
}

/// The first place from `from` on with a character that is not `inside`.
#[inline]
fn run_end(text: &[u8], from: usize, inside: impl Fn(Class) -> bool) -> usize {
    let mut at = from;
    loop {
        let (class, length) = class_at(text, at);
        if !inside(class) {
            return at;
        }
        at += length;
    }
}

/// `\p{N}{1,3}`
#[inline]
fn number(text: &[u8], from: usize) -> Cut {
    let mut at = from;
    for _ in 0..3 {
        let (class, length) = class_at(text, at);
        if class != Class::Number {
            break;
        }
        at += length;
    }
    Cut { end: at, seen: at }
}

/// `[^\s\p{L}\p{N}]+` and then what the encoding lets `trail`.
#[inline]
fn signs(text: &[u8], from: usize, trails: impl Fn(u8) -> bool) -> Cut {
    let mut end = run_end(text, from, Class::is_sign);
    while text.get(end).is_some_and(|&byte| trails(byte)) {
        end += 1;
    }
    Cut { end, seen: end }
}

/// A run of whitespace.
#[derive(Clone, Copy, Debug)]
struct Spaces {
    end: usize,
    /// Behind its last newline.
    newline: Option<usize>,
    /// Without its last character, if it has more than one.
    shortened: usize,
}

#[inline]
fn spaces(text: &[u8], from: usize) -> Spaces {
    let mut spaces = Spaces { end: from, newline: None, shortened: from };
    loop {
        let (class, length) = class_at(text, spaces.end);
        if !class.is_space() {
            break;
        }
        spaces.shortened = spaces.end;
        spaces.end += length;
        if class == Class::Newline {
            spaces.newline = Some(spaces.end);
        }
    }
    if spaces.shortened == from {
        spaces.shortened = spaces.end;
    }
    spaces
}

/// The length of a `(?i:'s|'t|'re|'ve|'m|'ll|'d)` at `at`, or zero.
#[inline]
pub(crate) fn contraction(text: &[u8], at: usize) -> usize {
    if text.get(at) != Some(&b'\'') {
        return 0;
    }
    match text.get(at + 1..).unwrap_or_default() {
        [b's' | b'S' | b't' | b'T' | b'm' | b'M' | b'd' | b'D', ..] => 2,
        [b'r' | b'R' | b'v' | b'V', b'e' | b'E', ..] | [b'l' | b'L', b'l' | b'L', ..] => 3,
        // U+017F, the long s, is an s to a regex that ignores case.
        [0xC5, 0xBF, ..] => 3,
        _ => 0,
    }
}
