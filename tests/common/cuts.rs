//! Ways to cut bytes into pieces.

/// A small generator with a seed of its own, so that a failing cut can be replayed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn seeded(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound.max(1) as u64).unwrap()
    }
}

/// At the given offsets, which rise.
pub fn at<'a>(bytes: &'a [u8], offsets: &[usize]) -> Vec<&'a [u8]> {
    let starts = std::iter::once(0).chain(offsets.iter().copied());
    let ends = offsets.iter().copied().chain([bytes.len()]);
    starts.zip(ends).map(|(start, end)| &bytes[start..end]).collect()
}

/// Into pieces of 1 to `longest` bytes.
pub fn random(bytes: &[u8], longest: usize, seed: u64) -> Vec<&[u8]> {
    let mut random = Random::seeded(seed);
    let mut pieces = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, later) = rest.split_at((1 + random.below(longest)).min(rest.len()));
        pieces.push(piece);
        rest = later;
    }
    pieces
}
