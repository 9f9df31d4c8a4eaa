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
    /// [`account`](Self::account) and [`tag`](Self::tag) at once.
    pub fn account_and_tag(&self) -> (AccountId, u64) {
        let subject = self.subject_hash();
        (self.account_of(subject.clone()), tag_of(subject))
    }

    /// The account's fixed-size name.
    pub fn account(&self) -> AccountId {
        self.account_of(self.subject_hash())
    }

    fn account_of(&self, mut subject: Sha256) -> AccountId {
        absorb(&mut subject, self.limit.as_bytes());
        AccountId(truncate(subject))
    }

    /// What decides the account's shard: accounts with the same subject, whatever their limit, share one
    /// shard and are so decided in one atomic step.
    pub fn tag(&self) -> u64 {
        tag_of(self.subject_hash())
    }

    fn subject_hash(&self) -> Sha256 {
        let mut hash = Sha256::new();
        absorb(&mut hash, self.namespace.as_bytes());
        for (attribute, value) in &self.subject {
            absorb(&mut hash, attribute.as_bytes());
            absorb(&mut hash, value);
        }
        hash
    }
}

fn tag_of(subject: Sha256) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = truncate(subject).to_le_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// Length first, so that no two lists of parts are absorbed as the same bytes.
fn absorb(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_le_bytes());
    hash.update(part);
}

fn truncate(hash: Sha256) -> u128 {
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().zip(hash.finalize()) {
        *to = from;
    }
    u128::from_le_bytes(bytes)
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
