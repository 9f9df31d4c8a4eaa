//! Counts a text that arrives in parts.
//!
//! A piece is settled when no later text can change where it ends; until then its bytes wait in a tail.
//! What must not go wrong is a piece without an end: a megabyte without a space would be scanned again
//! with every part. So the tail is looked at only when it has grown by as much as it holds, and a piece
//! that outgrows it goes to [`Unbroken`], which keeps tokens instead of bytes.

use crate::Encoding;
use crate::piece::Workspace;
use crate::scan::LOOKAHEAD;
use crate::unbroken::Unbroken;

/// Counts a text that arrives in parts: the total is that of the whole, wherever the parts were cut.
///
/// Takes time in proportion to the text and a few KiB of memory, whatever the text.
#[derive(Clone, Debug)]
pub struct Counter {
    encoding: Encoding,
    settled: usize,
    /// The piece that outgrew the tail; it is before the tail.
    unbroken: Option<Box<Unbroken>>,
    tail: Vec<u8>,
    /// The length of the tail at which to look at it again.
    look_at: usize,
}

/// The least growth of the tail that is worth a look.
const WORTH_A_LOOK: usize = 64;
/// A piece beyond this is not of any text, and merging it again for a total takes noticeable time.
const LONGEST_TAIL: usize = 2048;
/// So much of a part goes into the tail at once: a long part is not copied as a whole.
const LONGEST_PART: usize = 4096;

impl Counter {
    pub const fn new(encoding: Encoding) -> Self {
        Self { encoding, settled: 0, unbroken: None, tail: Vec::new(), look_at: WORTH_A_LOOK }
    }

    pub fn push(&mut self, text: &str) {
        let mut rest = text;
        while !rest.is_empty() {
            let (part, after) = rest.split_at(rest.floor_char_boundary(LONGEST_PART));
            self.tail.extend_from_slice(part.as_bytes());
            if self.tail.len() >= self.look_at {
                Workspace::with(|workspace| self.settle(workspace));
                self.look_at = self.tail.len() + self.tail.len().max(WORTH_A_LOOK);
            }
            rest = after;
        }
    }

    /// The number of tokens of all that was pushed so far, as if the text ended here.
    pub fn total(&self) -> usize {
        Workspace::with(|workspace| {
            let Some(unbroken) = &self.unbroken else {
                return self.settled + workspace.count(self.encoding, &self.tail, usize::MAX);
            };
            let mut unbroken = unbroken.clone();
            let eaten = unbroken.eat(workspace, &self.tail);
            let tail = self.tail.get(eaten..).unwrap_or_default();
            if tail.is_empty() {
                return self.settled + unbroken.total(workspace);
            }
            let (tokens, rest) = unbroken.end(workspace, tail);
            self.settled + tokens + workspace.count(self.encoding, &rest, usize::MAX)
        })
    }

    fn settle(&mut self, workspace: &mut Workspace) {
        if let Some(mut unbroken) = self.unbroken.take() {
            let eaten = unbroken.eat(workspace, &self.tail);
            self.tail.drain(..eaten);
            if self.tail.len() < LOOKAHEAD {
                self.unbroken = Some(unbroken);
                return;
            }
            let (tokens, rest) = unbroken.end(workspace, &self.tail);
            self.settled += tokens;
            self.tail = rest;
        }
        self.settle_pieces(workspace);
        if self.tail.len() > LONGEST_TAIL {
            self.unbroken = Unbroken::open(self.encoding, workspace, &mut self.tail).map(Box::new);
        }
    }

    fn settle_pieces(&mut self, workspace: &mut Workspace) {
        let mut at = 0;
        loop {
            let cut = self.encoding.cut(&self.tail, at);
            if cut.seen + LOOKAHEAD > self.tail.len() {
                break;
            }
            let piece = self.tail.get(at..cut.end).unwrap_or_default();
            self.settled += workspace.count_piece(self.encoding, piece, usize::MAX);
            at = cut.end.max(at + 1);
        }
        self.tail.drain(..at);
    }
}
