//! Counts of whole texts, so that a conversation resent at every turn is not tokenized again.

/// One per VM. Fixed size.
#[derive(Debug)]
pub struct TextMemo {
    key: [u8; 16],
}

impl TextMemo {
    /// `key` from the host's randomness: without it, two texts of one key could be sought.
    pub fn new(key: [u8; 16]) -> Self {
        Self { key }
    }

    /// The memo as one subject sees it. Subjects share nothing: the time that a count takes must not tell
    /// one tenant which texts another has sent.
    pub fn within(&mut self, scope: u64) -> ScopedMemo<'_> {
        ScopedMemo { memo: self, scope }
    }
}

#[derive(Debug)]
pub struct ScopedMemo<'m> {
    memo: &'m mut TextMemo,
    scope: u64,
}
