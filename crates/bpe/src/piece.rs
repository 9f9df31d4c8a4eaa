//! A text → its pieces → their tokens, and the memory that this takes.

use std::cell::Cell;

use crate::Encoding;
use crate::hash::hash;
use crate::layout::LONGEST_TOKEN;
use crate::memo::{self, Memo};
use crate::merge::{SHORT, merge_short};
use crate::window::{Mergers, Span, count_windows};

thread_local! {
    /// Taken for the time of one count. A second count meanwhile (there is none today) makes its own.
    static KEPT: Cell<Option<Box<Workspace>>> = const { Cell::new(None) };
}

/// What one count leaves to the next.
#[derive(Debug)]
pub(crate) struct Workspace {
    memo: Memo,
    pub(crate) mergers: Mergers,
}

impl Workspace {
    /// Runs `work` with this thread's workspace.
    pub(crate) fn with<T>(work: impl FnOnce(&mut Self) -> T) -> T {
        let mut workspace =
            KEPT.take().unwrap_or_else(|| Box::new(Self { memo: Memo::new(), mergers: Mergers::default() }));
        let result = work(&mut workspace);
        workspace.mergers.forget_if_large();
        KEPT.set(Some(workspace));
        result
    }

    /// The number of tokens of `text`, or any number above `limit` as soon as there are more.
    pub(crate) fn count(&mut self, encoding: Encoding, text: &[u8], limit: usize) -> usize {
        let mut tokens: usize = 0;
        let mut at = 0;
        while at < text.len() && tokens <= limit {
            let end = encoding.cut(text, at).end;
            debug_assert!(end > at, "a piece without a character");
            let piece = text.get(at..end).unwrap_or_default();
            tokens += self.count_piece(encoding, piece, limit - tokens);
            at = end.max(at + 1);
        }
        tokens
    }

    /// As [`Workspace::count`], for one piece.
    #[inline(always)]
    pub(crate) fn count_piece(&mut self, encoding: Encoding, piece: &[u8], limit: usize) -> usize {
        // Every byte is a token.
        if piece.len() == 1 {
            return 1;
        }
        let vocabulary = encoding.vocabulary();
        if piece.len() <= LONGEST_TOKEN {
            let hash = hash(piece);
            if vocabulary.rank_by_hash(piece, hash).is_some() {
                return 1;
            }
            if piece.len() <= memo::LONGEST {
                let merge = || merge_short(vocabulary, piece);
                return self.memo.recall_or(encoding.shelf(), piece, hash, merge);
            }
            if piece.len() <= SHORT {
                return merge_short(vocabulary, piece);
            }
        }
        count_windows(vocabulary, &mut self.mergers, piece, limit, Span::USUAL)
    }
}
