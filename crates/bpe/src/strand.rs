//! The tokens of one long piece whose bytes come in parts.
//!
//! The windows of `window.rs`, with as many bytes kept as the tokens span that may be given back.

use crate::Encoding;
use crate::piece::Workspace;
use crate::window::{Span, Step, Walk};

#[derive(Clone, Debug, Default)]
pub(crate) struct Strand {
    walk: Walk,
    /// The bytes that the walk may still ask for.
    bytes: Vec<u8>,
}

/// Wide enough for every text known. Should a joint ever want more, memory goes before exactness: the
/// strand takes the tokens as they are, and may be a token off.
const WIDEST: usize = 8 * Span::USUAL.width;

impl Strand {
    fn starting_with(bytes: &[u8]) -> Self {
        Self { walk: Walk::default(), bytes: bytes.to_vec() }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether [`Strand::keep`] would find something to keep.
    pub(crate) fn is_ripe(&self) -> bool {
        self.walk.at + self.walk.width() < self.bytes.len()
    }

    /// Keeps the tokens of full windows, and forgets their bytes; returns how many.
    pub(crate) fn keep(&mut self, encoding: Encoding, workspace: &mut Workspace) -> usize {
        while self.is_ripe() {
            advance(&mut self.walk, encoding, workspace, &self.bytes);
        }
        let forgotten = self.walk.forget().min(self.bytes.len());
        self.bytes.drain(..forgotten);
        forgotten
    }

    /// The tokens of the whole piece if it ends here.
    pub(crate) fn total(&self, encoding: Encoding, workspace: &mut Workspace) -> usize {
        self.total_until(encoding, workspace, self.bytes.len())
    }

    /// The tokens if the piece ended at `place`, which is not among those kept; and a piece that starts there.
    pub(crate) fn split(&self, encoding: Encoding, workspace: &mut Workspace, place: usize) -> (usize, Self) {
        let behind = Self::starting_with(self.bytes.get(place..).unwrap_or_default());
        (self.total_until(encoding, workspace, place), behind)
    }

    /// Takes the last character off; it is not among those kept.
    pub(crate) fn pop_character(&mut self) -> Vec<u8> {
        let is_start = |byte: &u8| *byte & 0xC0 != 0x80;
        let start = self.bytes.iter().rposition(is_start).unwrap_or(0);
        self.bytes.split_off(start)
    }

    fn total_until(&self, encoding: Encoding, workspace: &mut Workspace, end: usize) -> usize {
        let piece = self.bytes.get(..end).unwrap_or_default();
        if self.walk.tokens == 0 {
            // Nothing kept: it may be a single token, which windows would not see.
            return if piece.is_empty() { 0 } else { workspace.count_piece(encoding, piece, usize::MAX) };
        }
        let mut walk = self.walk.clone();
        loop {
            if let Some(tokens) = advance(&mut walk, encoding, workspace, piece) {
                return tokens;
            }
        }
    }
}

/// One step of a walk that cannot start again; the number of tokens if it was the last.
fn advance(walk: &mut Walk, encoding: Encoding, workspace: &mut Workspace, piece: &[u8]) -> Option<usize> {
    match walk.step(encoding.vocabulary(), &mut workspace.mergers, piece) {
        Step::Kept => {}
        Step::WentBack if walk.width() <= WIDEST => {}
        Step::WentBack | Step::Lost => walk.accept(),
        Step::Finished { tokens } => return Some(tokens),
    }
    None
}

#[cfg(test)]
#[cfg(all(feature = "o200k", feature = "cl100k"))]
mod tests {
    use super::*;
    use crate::corpus::{Random, corpus, hostile::HOSTILE};
    use crate::merge::Merger;

    fn strand(width: usize, margin: usize) -> Strand {
        Strand { walk: Walk::new(Span { width, margin }), ..Strand::default() }
    }

    #[test]
    fn a_piece_in_parts_has_the_tokens_of_one_merge() {
        let mut random = Random::seeded(2);
        let mut merger = Merger::default();
        let hostile = HOSTILE.into_iter().map(|(_, make)| make(20_000));
        let pieces: Vec<_> = corpus().map(|(_, text)| text).chain(hostile).collect();
        Workspace::with(|workspace| {
            for encoding in [Encoding::O200kBase, Encoding::Cl100kBase] {
                for piece in &pieces {
                    let piece = piece.as_bytes();
                    let tokens = merger.merge(encoding.vocabulary(), piece).len();
                    for (width, margin) in [(40, 4), (160, 1), (160, 8), (1024, 256)] {
                        let mut strand = strand(width, margin);
                        for part in piece.chunks(random.between(1, 3000)) {
                            strand.push(part);
                            strand.keep(encoding, workspace);
                        }
                        let total = strand.total(encoding, workspace);
                        assert_eq!(total, tokens, "{width}, {margin}: {piece:?}");
                    }
                }
            }
        });
    }

    /// Windows smaller than a token lose their way; then the count may be off, but it comes.
    #[test]
    fn a_strand_that_cannot_find_a_joint_goes_on() {
        Workspace::with(|workspace| {
            for (name, make) in HOSTILE {
                let piece = make(5000);
                let mut strand = strand(3, 2);
                let mut merger = Merger::default();
                for part in piece.as_bytes().chunks(100) {
                    strand.push(part);
                    strand.keep(Encoding::O200kBase, workspace);
                }
                let tokens = merger.merge(Encoding::O200kBase.vocabulary(), piece.as_bytes()).len();
                let total = strand.total(Encoding::O200kBase, workspace);
                assert!(total.abs_diff(tokens) <= tokens / 2, "{name}: {total} for {tokens}");
            }
        });
    }
}
