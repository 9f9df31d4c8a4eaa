//! Reproducible randomness for `random_get` (SplitMix64, after Steele, Lea and Flood).

#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Each life of each VM gets its own sequence, or their ids would collide.
    pub(crate) fn new(seed: u64, vm: usize, generation: u32) -> Self {
        let mut mixed = Self(seed ^ ((vm as u64) << 32) ^ u64::from(generation));
        Self(mixed.next())
    }

    pub(crate) fn fill(&mut self, size: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(size + 8);
        while bytes.len() < size {
            bytes.extend(self.next().to_le_bytes());
        }
        bytes.truncate(size);
        bytes
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}
