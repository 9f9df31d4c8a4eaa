//! A key, a number, a short string: gathered over chunks, and bounded.

/// Longer ones are read as empty, which is nothing anybody looks for. The longest key of interest has 25
/// bytes, the longest honest number fewer.
const LONGEST: usize = 40;

#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    bytes: [u8; LONGEST],
    length: usize,
}

impl Word {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; LONGEST], length: 0 }
    }

    pub(super) const fn clear(&mut self) {
        self.length = 0;
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let end = self.length.saturating_add(bytes.len());
        if let Some(room) = self.bytes.get_mut(self.length..end) {
            room.copy_from_slice(bytes);
        }
        // Past the end it stays: `bytes` below is then out of range, that is, empty.
        self.length = end;
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_too_long_is_no_word_until_it_is_cleared() {
        let mut word = Word::new();
        word.push(&[b'x'; LONGEST]);
        assert_eq!(word.bytes(), [b'x'; LONGEST]);
        word.push(b"y");
        word.push(b"z");
        assert_eq!(word.bytes(), b"");
        word.clear();
        word.push(b"ab");
        word.push(b"c");
        assert_eq!(word.bytes(), b"abc");
    }
}
