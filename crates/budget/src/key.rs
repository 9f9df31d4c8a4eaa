//! Which account: one limit × one subject, in one namespace.

use sha2::{Digest, Sha256};

/// The readable name of one account. Values are data: they are only ever compared as a whole or hashed
/// with their lengths, so no character in them can reach into another account.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct BudgetKey {
    pub namespace: String,
    pub limit: String,
    /// Attribute name and value, in the order of the limit's `per`.
    pub subject: Vec<(String, Vec<u8>)>,
}

impl BudgetKey {
    /// The account's fixed-size name.
    pub fn account(&self) -> AccountId {
        self.subject_hash().account(LimitHash::of(&self.limit))
    }

    /// What decides the account's shard: accounts with the same subject, whatever their limit, share one
    /// shard and are so decided in one atomic step.
    pub fn tag(&self) -> u64 {
        self.subject_hash().tag()
    }

    fn subject_hash(&self) -> SubjectHash {
        SubjectHash::of(&self.namespace, self.subject.iter().map(|(name, value)| (name.as_str(), &**value)))
    }
}

/// SHA-256 over a namespace and a subject: made once for all limits that are kept by the same attributes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SubjectHash {
    account: u128,
    tag: u64,
}

impl SubjectHash {
    /// `subject`: attribute name and value, in the order of the limit's `per`.
    pub fn of<'a>(namespace: &str, subject: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        let mut hash = Sha256::new();
        absorb(&mut hash, namespace.as_bytes());
        for (attribute, value) in subject {
            absorb(&mut hash, attribute.as_bytes());
            absorb(&mut hash, value);
        }
        let digest = hash.finalize();
        let (account, rest) = digest.split_first_chunk().unwrap_or((&[0; 16], &[]));
        let tag = rest.first_chunk().unwrap_or(&[0; 8]);
        Self { account: u128::from_le_bytes(*account), tag: u64::from_le_bytes(*tag) }
    }

    /// The account of this subject under one limit. To hit upon another subject's takes a hash that is known to
    /// the last bit, as without the limit.
    pub const fn account(self, limit: LimitHash) -> AccountId {
        AccountId(self.account ^ limit.0)
    }

    pub const fn tag(self) -> u64 {
        self.tag
    }
}

/// SHA-256 over a limit's name, which no caller can choose.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LimitHash(u128);

impl LimitHash {
    pub fn of(name: &str) -> Self {
        let mut hash = Sha256::new();
        absorb(&mut hash, name.as_bytes());
        let digest = hash.finalize();
        Self(u128::from_le_bytes(*digest.first_chunk().unwrap_or(&[0; 16])))
    }
}

/// Length first, so that no two lists of parts are absorbed as the same bytes.
fn absorb(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_le_bytes());
    hash.update(part);
}

/// 128 bits of SHA-256 over a [`BudgetKey`]: too many for a tenant to find another tenant's account.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct AccountId(u128);

impl AccountId {
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    pub const fn to_bits(self) -> u128 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(subject: &[(&str, &str)]) -> BudgetKey {
        BudgetKey {
            namespace: "default".into(),
            limit: "tokens".into(),
            subject: subject.iter().map(|(a, v)| ((*a).into(), v.as_bytes().to_vec())).collect(),
        }
    }

    #[test]
    fn values_that_look_alike_when_joined_are_different_accounts() {
        let keys = [
            key(&[("org", "a:b"), ("user", "c")]),
            key(&[("org", "a"), ("user", "b:c")]),
            key(&[("org", "a%3Ab"), ("user", "c")]),
            key(&[("org", "a:b:c"), ("user", "")]),
            key(&[("org", "a:b:c")]),
        ];
        for (i, a) in keys.iter().enumerate() {
            for b in keys.iter().skip(i + 1) {
                assert_ne!(a.account(), b.account());
                assert_ne!(a.tag(), b.tag());
            }
        }
    }

    #[test]
    fn limits_of_one_subject_share_a_shard_but_not_an_account() {
        let tokens = key(&[("tenant", "acme")]);
        let requests = BudgetKey { limit: "requests".into(), ..tokens.clone() };
        assert_eq!(tokens.tag(), requests.tag());
        assert_ne!(tokens.account(), requests.account());
    }
}
