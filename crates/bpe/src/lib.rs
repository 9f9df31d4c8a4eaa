//! Exact token counting on static tables.
//!
//! [`Encoding::count`] is the number of tokens that the published tokenizer makes of a text in
//! *ordinary* encoding: what looks like a special token is text. Counting is for untrusted text inside
//! a proxy, so it has no panic, no recursion, no step that is worse than `n log n`, no table to build at
//! run time, and less than 256 KiB of memory of its own, whatever the text.
//!
//! Bytes travel: `scan` cuts a text into pieces (`class` tells characters apart), `piece` looks a piece up
//! (`table`, `memo`) or has it merged (`merge`, and `window` if it is long). `counter` does the same with a
//! text that comes in parts, and `unbroken` and `strand` with a piece that comes in parts.

#[cfg(not(any(feature = "o200k", feature = "cl100k")))]
compile_error!("a counter without a vocabulary: choose the features `o200k`, `cl100k` or both");

mod class;
mod counter;
mod hash;
mod layout;
mod memo;
mod merge;
mod piece;
mod scan;
mod strand;
mod table;
mod unbroken;
mod window;

pub use counter::Counter;

use layout::LONGEST_TOKEN;
use memo::Shelf;
use piece::Workspace;
use scan::{Cut, Opening, Run};
use table::Vocabulary;

/// A published vocabulary, and the regex that cuts text into pieces for it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Encoding {
    /// Of gpt-4o, gpt-4.1, the o-series, gpt-5.
    #[cfg(feature = "o200k")]
    O200kBase,
    /// Of gpt-4, gpt-3.5, text-embedding-3.
    #[cfg(feature = "cl100k")]
    Cl100kBase,
}

impl Encoding {
    /// The number of tokens of `text`.
    pub fn count(self, text: &str) -> usize {
        Workspace::with(|workspace| workspace.count(self, text.as_bytes(), usize::MAX))
    }

    /// As [`Encoding::count`], or `None` as soon as there are clearly more than `limit`.
    pub fn count_till_limit(self, text: &str, limit: usize) -> Option<usize> {
        if text.len() / LONGEST_TOKEN > limit {
            return None;
        }
        let tokens = Workspace::with(|workspace| workspace.count(self, text.as_bytes(), limit));
        (tokens <= limit).then_some(tokens)
    }

    /// The name under which it was published.
    pub const fn name(self) -> &'static str {
        match self {
            #[cfg(feature = "o200k")]
            Self::O200kBase => "o200k_base",
            #[cfg(feature = "cl100k")]
            Self::Cl100kBase => "cl100k_base",
        }
    }

    #[inline]
    pub(crate) fn vocabulary(self) -> &'static Vocabulary {
        match self {
            #[cfg(feature = "o200k")]
            Self::O200kBase => &table::O200K_BASE,
            #[cfg(feature = "cl100k")]
            Self::Cl100kBase => &table::CL100K_BASE,
        }
    }

    #[inline]
    pub(crate) fn shelf(self) -> Shelf {
        match self {
            #[cfg(feature = "o200k")]
            Self::O200kBase => Shelf::O200kBase,
            #[cfg(feature = "cl100k")]
            Self::Cl100kBase => Shelf::Cl100kBase,
        }
    }

    /// The end of the piece that starts at `at`.
    #[inline(always)]
    pub(crate) fn cut(self, text: &[u8], at: usize) -> Cut {
        match self {
            #[cfg(feature = "o200k")]
            Self::O200kBase => scan::o200k::cut(text, at),
            #[cfg(feature = "cl100k")]
            Self::Cl100kBase => scan::cl100k::cut(text, at),
        }
    }

    /// What kind of piece starts at `at`.
    #[inline]
    pub(crate) fn opening(self, text: &[u8], at: usize) -> Opening {
        match self {
            #[cfg(feature = "o200k")]
            Self::O200kBase => scan::o200k::opening(text, at),
            #[cfg(feature = "cl100k")]
            Self::Cl100kBase => scan::cl100k::opening(text, at),
        }
    }

    /// What the letters of a word are to its regex at first.
    pub(crate) fn word_run(self) -> Run {
        match self {
            #[cfg(feature = "o200k")]
            Self::O200kBase => Run::Capitals,
            #[cfg(feature = "cl100k")]
            Self::Cl100kBase => Run::Letters,
        }
    }

    /// Whether `byte` may follow signs in their piece.
    pub(crate) fn trails(self, byte: u8) -> bool {
        match self {
            #[cfg(feature = "o200k")]
            Self::O200kBase => scan::o200k::trails(byte),
            #[cfg(feature = "cl100k")]
            Self::Cl100kBase => scan::cl100k::trails(byte),
        }
    }

    /// Whether spaces at the end of the text are one piece in spite of their newlines.
    pub(crate) fn spaces_end_with_text(self) -> bool {
        match self {
            #[cfg(feature = "o200k")]
            Self::O200kBase => false,
            #[cfg(feature = "cl100k")]
            Self::Cl100kBase => true,
        }
    }
}

#[cfg(test)]
#[path = "../tests/corpus/mod.rs"]
mod corpus;
