//! A piece followed character by character, for who cannot wait for its end.

use super::Opening;
use crate::Encoding;
use crate::class::{Class, class_at};

/// What of its regex a piece is in. All but the numbers go on without end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Run {
    /// The first half of a word of `o200k_base`: `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`.
    Capitals,
    /// Its second half: `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`.
    Small,
    /// `\p{L}` of `cl100k_base`.
    Letters,
    /// `[^\s\p{L}\p{N}]`.
    Signs,
    /// Newlines behind signs.
    Trail,
    /// `\s`.
    Spaces,
}

/// A character that belongs to the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunStep {
    pub(crate) run: Run,
    pub(crate) length: usize,
    /// Whether the piece can end behind it, should the run end before the piece can end again.
    pub(crate) may_end: bool,
}

impl Run {
    /// The run of the piece at the start of `text`, and where it begins.
    pub(crate) fn open(encoding: Encoding, text: &[u8]) -> Option<(Self, usize)> {
        match encoding.opening(text, 0) {
            Opening::Word { from } => Some((encoding.word_run(), from)),
            Opening::Signs { from } => Some((Self::Signs, from)),
            Opening::Space => Some((Self::Spaces, 0)),
            Opening::Number | Opening::Contraction { .. } => None,
        }
    }

    /// The character at `at`, if the run goes on with it.
    pub(crate) fn step(self, encoding: Encoding, text: &[u8], at: usize) -> Option<RunStep> {
        let (class, length) = class_at(text, at);
        let trails = || text.get(at).is_some_and(|&byte| encoding.trails(byte));
        let (run, may_end) = match (self, class) {
            // Capitals are given back to the last character that small letters could start with.
            (Self::Capitals, Class::Upper) => (Self::Capitals, false),
            (Self::Capitals, Class::Caseless | Class::Mark) => (Self::Capitals, true),
            (Self::Capitals | Self::Small, Class::Lower) | (Self::Small, Class::Caseless | Class::Mark) => {
                (Self::Small, true)
            }
            (Self::Letters, Class::Upper | Class::Lower | Class::Caseless) => (Self::Letters, true),
            (Self::Signs, Class::Other | Class::Mark) => (Self::Signs, true),
            (Self::Signs | Self::Trail, Class::Other | Class::Newline) if trails() => (Self::Trail, true),
            // Spaces are given back to the last newline.
            (Self::Spaces, Class::Newline) => (Self::Spaces, true),
            (Self::Spaces, Class::Space) => (Self::Spaces, false),
            (
                Self::Capitals | Self::Small | Self::Letters | Self::Signs | Self::Trail | Self::Spaces,
                Class::Other
                | Class::Upper
                | Class::Lower
                | Class::Caseless
                | Class::Mark
                | Class::Number
                | Class::Space
                | Class::Newline
                | Class::End,
            ) => return None,
        };
        Some(RunStep { run, length, may_end })
    }
}
