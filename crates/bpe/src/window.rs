//! A long piece → its tokens, in windows.
//!
//! Merging a window knows nothing of the bytes behind it, so its last tokens may be wrong: they are left
//! to the next window, which starts at the end of a token well inside. Whether both fit together is
//! then *proved*: a sequence of tokens is the encoding of its bytes if and only if every two neighbours
//! are the encoding of theirs. (A merge that crosses a boundary can only involve the two tokens beside
//! it, and would come in the same order.) Inside a window that holds by construction, so only the
//! joint is looked at. If it does not hold, the last kept token goes and the window starts earlier.
//!
//! The danger is to go back and forth between two windows for ever. A joint that fails at or before a
//! place that failed already therefore doubles the window; a window as long as the piece has no joint.
//!
//! The property of neighbours is used by the crate `bpe` (GitHub, rust-gems) too, to other ends.

use std::collections::VecDeque;
use std::ops::Range;

use crate::merge::Merger;
use crate::table::Vocabulary;

/// How a piece is cut into windows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) width: usize,
    /// What is left to the next window: tokens that end within so many bytes before the window's end.
    pub(crate) margin: usize,
}

impl Span {
    /// Large enough that no text is known whose first joint fails, small enough for the fastest cache.
    pub(crate) const USUAL: Self = Self { width: 1024, margin: 256 };
}

/// Kept tokens that can be given back. One suffices for every text known.
pub(crate) const HISTORY: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Mergers {
    window: Merger,
    joint: Merger,
}

/// The number of tokens of `piece`; once there are clearly more than `limit`, any number above it.
pub(crate) fn count_windows(
    vocabulary: &Vocabulary,
    mergers: &mut Mergers,
    piece: &[u8],
    limit: usize,
    mut span: Span,
) -> usize {
    loop {
        let mut walk = Walk::new(span);
        loop {
            match walk.step(vocabulary, mergers, piece) {
                Step::Kept if walk.tokens > limit.saturating_add(HISTORY) => return walk.tokens,
                Step::Kept | Step::WentBack => {}
                Step::Finished { tokens } => return tokens,
                Step::Lost => break,
            }
        }
        span.width = span.width.saturating_mul(2);
    }
}

/// A walk through one piece, window by window.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    span: Span,
    /// Kept tokens, and where they end: where the next window starts.
    pub(crate) tokens: usize,
    pub(crate) at: usize,
    /// The starts of the last kept tokens.
    starts: VecDeque<usize>,
    /// The farthest place where a joint failed.
    failed: Option<usize>,
    /// The window merged last.
    last: Range<usize>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    /// The first tokens of a window were kept.
    Kept,
    /// The joint did not hold; a token was given back.
    WentBack,
    /// The window reached the end of the piece.
    Finished { tokens: usize },
    /// The joint did not hold and the history is at its end.
    Lost,
}

impl Walk {
    pub(crate) fn new(span: Span) -> Self {
        Self { span, tokens: 0, at: 0, starts: VecDeque::new(), failed: None, last: 0..0 }
    }

    /// Merges the next window of `piece`.
    pub(crate) fn step(&mut self, vocabulary: &Vocabulary, mergers: &mut Mergers, piece: &[u8]) -> Step {
        let end = self.at.saturating_add(self.span.width).min(piece.len());
        let window = piece.get(self.at..end).unwrap_or_default();
        // A piece that repeats itself makes equal windows.
        if self.last.is_empty() || piece.get(self.last.clone()) != Some(window) {
            mergers.window.merge(vocabulary, window);
        }
        self.last = self.at..end;

        let ends = mergers.window.ends();
        let first_end = ends.first().map_or(self.at, |&end| self.at + end as usize);
        if !self.joins(vocabulary, &mut mergers.joint, piece, first_end) {
            return self.go_back();
        }
        if end == piece.len() {
            return Step::Finished { tokens: self.tokens + ends.len() };
        }
        self.keep(ends, window.len());
        Step::Kept
    }

    /// Whether the last kept token and the one from here to `end` are neighbours in an encoding.
    fn joins(&self, vocabulary: &Vocabulary, merger: &mut Merger, piece: &[u8], end: usize) -> bool {
        let Some(&start) = self.starts.back() else {
            // Nothing was kept yet: only at the start of the piece, where there is no joint.
            return true;
        };
        let both = piece.get(start..end).unwrap_or_default();
        let ends = merger.merge(vocabulary, both);
        ends.len() == 2 && ends.first().is_some_and(|&first| first as usize == self.at - start)
    }

    fn go_back(&mut self) -> Step {
        if self.failed.is_some_and(|failed| self.at <= failed) {
            self.span.width = self.span.width.saturating_mul(2);
        }
        self.failed = self.failed.max(Some(self.at));
        let Some(start) = self.starts.pop_back() else { return Step::Lost };
        self.tokens -= 1;
        self.at = start;
        // Where nothing is left the next joint could not be looked at, except at the start of the piece.
        if self.starts.is_empty() && self.tokens > 0 { Step::Lost } else { Step::WentBack }
    }

    /// Keeps the tokens that end before the margin, and one at least.
    fn keep(&mut self, ends: &[u32], width: usize) {
        let before_margin = width.saturating_sub(self.span.margin);
        let kept = ends.partition_point(|&end| end as usize <= before_margin).max(1);
        let from = self.at;
        for &end in ends.iter().take(kept) {
            self.starts.push_back(self.at);
            self.at = from + end as usize;
        }
        self.tokens += kept;
        let forgotten = self.starts.len().saturating_sub(HISTORY);
        self.starts.drain(..forgotten);
    }
}

impl Mergers {
    /// Gives back the memory of an enlarged window.
    pub(crate) fn forget_if_large(&mut self) {
        const LARGE: usize = 4 * Span::USUAL.width;
        if self.window.capacity() > LARGE {
            self.window = Merger::default();
        }
    }
}
