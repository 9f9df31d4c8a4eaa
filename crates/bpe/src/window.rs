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
    /// Joints up to here are not looked at.
    accepted: usize,
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

impl Default for Walk {
    fn default() -> Self {
        Self::new(Span::USUAL)
    }
}

impl Walk {
    pub(crate) fn new(span: Span) -> Self {
        Self { span, tokens: 0, at: 0, starts: VecDeque::new(), failed: None, accepted: 0, last: 0..0 }
    }

    pub(crate) fn width(&self) -> usize {
        self.span.width
    }

    /// Gives up on the joints that failed: they will be taken as they are. Each call moves the accepted
    /// place on, so there is an end to it.
    pub(crate) fn accept(&mut self) {
        let accepted = self.failed.unwrap_or(self.at).max(self.accepted);
        *self = Self { tokens: self.tokens, at: self.at, accepted, ..Self::default() };
    }

    /// Forgets the bytes before the tokens that may be given back; returns how many.
    pub(crate) fn forget(&mut self) -> usize {
        let forgotten = self.starts.front().copied().unwrap_or(self.at);
        self.starts.iter_mut().for_each(|start| *start -= forgotten);
        self.at -= forgotten;
        self.failed = self.failed.and_then(|failed| failed.checked_sub(forgotten));
        self.accepted = self.accepted.saturating_sub(forgotten);
        self.last = 0..0;
        forgotten
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
        if self.at <= self.accepted {
            return true;
        }
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

#[cfg(test)]
#[cfg(all(feature = "o200k", feature = "cl100k"))]
mod tests {
    use super::*;
    use crate::corpus::{Random, corpus, hostile::HOSTILE};
    use crate::table::{CL100K_BASE, O200K_BASE};

    /// So small that joints fail all the time.
    const TINY: [Span; 4] = [
        Span { width: 20, margin: 1 },
        Span { width: 40, margin: 4 },
        Span { width: 160, margin: 1 },
        Span { width: 160, margin: 8 },
    ];

    fn pieces() -> impl Iterator<Item = String> {
        let hostile = HOSTILE.into_iter().map(|(_, make)| make(5000));
        corpus().map(|(_, text)| text).chain(hostile)
    }

    #[test]
    fn windows_of_any_size_make_the_tokens_of_one_merge() {
        let mut mergers = Mergers::default();
        let mut whole = Merger::default();
        for vocabulary in [&O200K_BASE, &CL100K_BASE] {
            for piece in pieces() {
                let piece = piece.as_bytes();
                let tokens = whole.merge(vocabulary, piece).len();
                for span in TINY.into_iter().chain([Span::USUAL]) {
                    let found = count_windows(vocabulary, &mut mergers, piece, usize::MAX, span);
                    assert_eq!(found, tokens, "{span:?}: {piece:?}");
                }
            }
        }
    }

    #[test]
    fn tiny_windows_go_back_and_grow() {
        let mut mergers = Mergers::default();
        let mut went_back = 0;
        let mut grew = 0;
        for piece in pieces() {
            for span in TINY {
                let mut walk = Walk::new(span);
                loop {
                    match walk.step(&O200K_BASE, &mut mergers, piece.as_bytes()) {
                        Step::Kept => {}
                        Step::WentBack => went_back += 1,
                        Step::Finished { .. } | Step::Lost => break,
                    }
                }
                grew += usize::from(walk.span.width > span.width);
            }
        }
        assert!(went_back > 1000 && grew > 100, "went back {went_back} times, grew {grew} times");
    }

    #[test]
    fn the_usual_window_never_goes_back_on_hostile_text() {
        let mut mergers = Mergers::default();
        for (name, make) in HOSTILE {
            let mut walk = Walk::default();
            let piece = make(50_000);
            while let step @ (Step::Kept | Step::WentBack) =
                walk.step(&O200K_BASE, &mut mergers, piece.as_bytes())
            {
                assert_eq!(step, Step::Kept, "{name}");
            }
        }
    }

    #[test]
    fn random_letters_never_make_the_usual_window_go_back() {
        let mut mergers = Mergers::default();
        let mut random = Random::seeded(3);
        const ALPHABET: &[u8; 26] = b"abcdefghijklmnopqrstuvwxyz";
        for _ in 0..200 {
            let letters = random.between(2, 26);
            let piece: Vec<u8> = (0..4000).map(|_| random.pick(&ALPHABET[..letters])).collect();
            let mut walk = Walk::default();
            while let step @ (Step::Kept | Step::WentBack) = walk.step(&CL100K_BASE, &mut mergers, &piece) {
                assert_eq!(step, Step::Kept);
            }
        }
    }
}
