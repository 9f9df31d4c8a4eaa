//! Counts of whole texts, so that a conversation resent at every turn is not tokenized again.
//!
//! The danger is a text that is taken for another one: a tenant who could make a long prompt look like a
//! short one would pay for the short one. So a text is known by 128 bits of a keyed hash, whose key nobody
//! outside the VM ever sees (docs/adr/0010-memo-of-counts.md).

use std::fmt;
use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::config::Vocabulary;

/// Shorter texts are counted faster than remembered.
pub(super) const MEMORABLE: usize = 64;

/// Sets × ways = 2,048 texts in 48 KiB: some hundred conversations of a worker.
const SETS: usize = 512;
const WAYS: usize = 4;

/// One per VM. Fixed size.
pub struct TextMemo {
    key: [u8; 16],
    sets: Vec<Set>,
}

impl fmt::Debug for TextMemo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextMemo").finish_non_exhaustive()
    }
}

impl TextMemo {
    /// `key` from the host's randomness: whoever knows it can build two texts of one name.
    pub fn new(key: [u8; 16]) -> Self {
        Self { key, sets: vec![Set::default(); SETS] }
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

/// How a text is read before it is counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Text,
    Json,
}

/// Stands for a text, its kind, its vocabulary and its scope.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Name {
    place: u64,
    rest: u64,
}

impl Name {
    fn set(self) -> usize {
        usize::try_from(self.place % SETS as u64).unwrap_or_default()
    }
}

impl ScopedMemo<'_> {
    pub(super) fn name(&self, vocabulary: Vocabulary, kind: Kind, text: &str) -> Name {
        let mut hash = SipHasher13::new_with_key(&self.memo.key);
        hash.write_u64(self.scope);
        hash.write_u8(match vocabulary {
            Vocabulary::O200kBase => 0,
            Vocabulary::Cl100kBase => 1,
        });
        hash.write_u8(match kind {
            Kind::Text => 0,
            Kind::Json => 1,
        });
        hash.write(text.as_bytes());
        let hash = hash.finish128();
        Name { place: hash.h1, rest: hash.h2 }
    }

    pub(super) fn recall(&self, name: Name) -> Option<u64> {
        let set = self.memo.sets.get(name.set())?;
        set.entries.iter().find(|entry| entry.name == name).map(|entry| entry.tokens)
    }

    pub(super) fn remember(&mut self, name: Name, tokens: u64) {
        if let Some(set) = self.memo.sets.get_mut(name.set()) {
            set.insert(Entry { name, tokens });
        }
    }
}

/// A vacant entry has the name zero: one more value, among 2^128, that a text must not hit by chance.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    name: Name,
    tokens: u64,
}

#[derive(Clone, Debug, Default)]
struct Set {
    entries: [Entry; WAYS],
    /// Who goes next: the oldest. A conversation that grows is asked for in the order it was remembered.
    next: usize,
}

impl Set {
    fn insert(&mut self, entry: Entry) {
        if let Some(oldest) = self.entries.get_mut(self.next) {
            *oldest = entry;
        }
        self.next = (self.next + 1) % WAYS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const O200K: Vocabulary = Vocabulary::O200kBase;

    #[test]
    fn a_remembered_count_is_recalled_by_its_own_text_only() {
        let mut memo = TextMemo::new([7; 16]);
        let mut tenant = memo.within(1);
        let name = tenant.name(O200K, Kind::Text, "the harbour wall");
        assert_eq!(tenant.recall(name), None);
        tenant.remember(name, 3);
        assert_eq!(tenant.recall(name), Some(3));
        for other in [
            tenant.name(O200K, Kind::Text, "the harbour wal"),
            tenant.name(O200K, Kind::Json, "the harbour wall"),
            tenant.name(Vocabulary::Cl100kBase, Kind::Text, "the harbour wall"),
            memo.within(2).name(O200K, Kind::Text, "the harbour wall"),
            TextMemo::new([8; 16]).within(1).name(O200K, Kind::Text, "the harbour wall"),
        ] {
            assert_eq!(memo.within(1).recall(other), None);
        }
    }

    #[test]
    fn the_oldest_of_a_set_goes_and_no_count_is_ever_mixed_up() {
        let mut memo = TextMemo::new([7; 16]);
        let mut tenant = memo.within(1);
        let names: Vec<Name> =
            (0..20_000).map(|n| tenant.name(O200K, Kind::Text, &format!("text {n}"))).collect();
        for (n, name) in (0..).zip(&names) {
            tenant.remember(*name, n);
        }
        let kept = names.iter().zip(0..).filter(|(name, n)| match tenant.recall(**name) {
            Some(tokens) => {
                assert_eq!(tokens, *n);
                true
            }
            None => false,
        });
        assert_eq!(kept.count(), SETS * WAYS);
    }

    #[test]
    fn the_memo_stays_below_64_kib() {
        assert!(size_of::<Set>() * SETS <= 65_536);
    }
}
