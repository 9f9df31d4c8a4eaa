//! An account's name as text: what the counter service and its stores know it by.
//!
//! `namespace/limit/attribute=value,attribute=value`, every part percent-encoded but for letters, digits,
//! `.`, `_` and `-`. One account has one such text and one such text names one account: whatever bytes a
//! value is made of, none of them can end its part, start another, or reach into the structure of a key.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::BudgetKey;

/// An encoded value longer than this is told by its hash, so that no caller decides how long a key is.
/// Names that people choose, and hashes of credentials, stay readable.
pub const VALUE_LEN_MOST: usize = 128;
/// Room for sixteen attributes with names of 64 bytes, the most that a policy may name.
pub const KEY_LEN_MOST: usize = 4096;

/// Marks the hash of a value; a `~` in a value is encoded.
const FOLDED: char = '~';
const FOLDED_LEN: usize = 64;

/// The canonical name of one account. Compared as text: there is no second spelling.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct AccountKey(String);

/// Why a text is not an account's name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyError {
    /// Longer than [`KEY_LEN_MOST`].
    Length,
    /// Not three parts between slashes, or an attribute without its value.
    Parts,
    /// A character that must be encoded, an escape that need not be one, or one that is none.
    Encoding,
}

impl AccountKey {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Encoded.
    pub fn namespace(&self) -> &str {
        self.parts().0
    }

    /// Encoded.
    pub fn limit(&self) -> &str {
        self.parts().1
    }

    /// Encoded: `attribute=value,attribute=value`, or nothing.
    pub fn subject(&self) -> &str {
        self.parts().2
    }

    /// What the account shares with those that are decided with it in one step: namespace and subject.
    pub fn slot(&self) -> String {
        let (namespace, _, subject) = self.parts();
        format!("{namespace}/{subject}")
    }

    fn parts(&self) -> (&str, &str, &str) {
        let mut parts = self.0.splitn(3, '/');
        let mut next = || parts.next().unwrap_or_default();
        (next(), next(), next())
    }
}

impl From<&BudgetKey> for AccountKey {
    fn from(key: &BudgetKey) -> Self {
        Self(key.to_string())
    }
}

impl fmt::Display for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for AccountKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        if text.len() > KEY_LEN_MOST {
            return Err(KeyError::Length);
        }
        let mut parts = text.split('/');
        let mut next = || parts.next().ok_or(KeyError::Parts);
        let (namespace, limit, subject) = (next()?, next()?, next()?);
        if parts.next().is_some() || namespace.is_empty() || limit.is_empty() {
            return Err(KeyError::Parts);
        }
        check_encoding(namespace)?;
        check_encoding(limit)?;
        for pair in subject.split(',').filter(|_| !subject.is_empty()) {
            let (attribute, value) = pair.split_once('=').ok_or(KeyError::Parts)?;
            check_encoding(attribute)?;
            check_value(value)?;
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length => write!(f, "longer than {KEY_LEN_MOST} bytes"),
            Self::Parts => f.write_str("not `namespace/limit/attribute=value,…`"),
            Self::Encoding => f.write_str("not in the one way in which its bytes are encoded"),
        }
    }
}

impl std::error::Error for KeyError {}

impl fmt::Display for BudgetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, limit, subject } = self;
        encode(namespace.as_bytes(), f)?;
        f.write_char('/')?;
        encode(limit.as_bytes(), f)?;
        f.write_char('/')?;
        for (index, (attribute, value)) in subject.iter().enumerate() {
            if index > 0 {
                f.write_char(',')?;
            }
            encode(attribute.as_bytes(), f)?;
            f.write_char('=')?;
            write_value(value, f)?;
        }
        Ok(())
    }
}

fn write_value(value: &[u8], to: &mut impl fmt::Write) -> fmt::Result {
    if encoded_len(value) <= VALUE_LEN_MOST {
        return encode(value, to);
    }
    to.write_char(FOLDED)?;
    Sha256::digest(value).iter().try_for_each(|byte| write!(to, "{byte:02x}"))
}

fn encode(bytes: &[u8], to: &mut impl fmt::Write) -> fmt::Result {
    bytes.iter().try_for_each(|byte| {
        if is_plain(*byte) { to.write_char(char::from(*byte)) } else { write!(to, "%{byte:02X}") }
    })
}

fn encoded_len(bytes: &[u8]) -> usize {
    bytes.iter().map(|byte| if is_plain(*byte) { 1 } else { 3 }).sum()
}

const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

fn check_value(value: &str) -> Result<(), KeyError> {
    if let Some(hash) = value.strip_prefix(FOLDED) {
        let lower_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let whole = hash.len() == FOLDED_LEN && hash.bytes().all(lower_hex);
        return whole.then_some(()).ok_or(KeyError::Encoding);
    }
    if value.len() > VALUE_LEN_MOST {
        return Err(KeyError::Encoding);
    }
    check_encoding(value)
}

/// Whether encoding what this decodes to would give it back.
fn check_encoding(text: &str) -> Result<(), KeyError> {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if is_plain(byte) {
            continue;
        }
        let digits = (byte == b'%').then(|| Some((upper_hex(bytes.next()?)?, upper_hex(bytes.next()?)?)));
        let (high, low) = digits.flatten().ok_or(KeyError::Encoding)?;
        if is_plain(high << 4 | low) {
            return Err(KeyError::Encoding);
        }
    }
    Ok(())
}

const fn upper_hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(subject: &[(&str, &[u8])]) -> BudgetKey {
        BudgetKey {
            namespace: "default".into(),
            limit: "tokens".into(),
            subject: subject.iter().map(|(name, value)| ((*name).into(), value.to_vec())).collect(),
        }
    }

    #[test]
    fn names_read_as_people_wrote_them() {
        for (subject, expected) in [
            (&[][..], "default/tokens/"),
            (&[("tenant", b"acme".as_slice())], "default/tokens/tenant=acme"),
            (&[("org", b"a.b_c-9"), ("user", b"")], "default/tokens/org=a.b_c-9,user="),
            (&[("tenant", b"a/b:{c},\n%~")], "default/tokens/tenant=a%2Fb%3A%7Bc%7D%2C%0A%25%7E"),
            (&[("tenant", &[0, 0xff])], "default/tokens/tenant=%00%FF"),
        ] {
            let name = AccountKey::from(&key(subject));
            assert_eq!(name.as_str(), expected);
            assert_eq!(name.as_str().parse(), Ok(name));
        }
    }

    #[test]
    fn a_value_of_any_length_makes_a_key_of_bounded_length() {
        let long = AccountKey::from(&key(&[("tenant", &[b'a'; 10_240])]));
        assert_eq!(long.as_str().len(), "default/tokens/tenant=~".len() + 64);
        assert_eq!(long.as_str().parse(), Ok(long.clone()));
        assert_ne!(long, AccountKey::from(&key(&[("tenant", &[b'a'; 10_241])])));
        // The hash itself, sent as a value, is another tenant.
        let hash = long.subject().split_once('=').unwrap().1;
        assert_ne!(long, AccountKey::from(&key(&[("tenant", hash.as_bytes())])));
    }

    #[test]
    fn there_is_no_second_spelling() {
        for (text, error) in [
            ("default/tokens", KeyError::Parts),
            ("default/tokens/tenant", KeyError::Parts),
            ("default/tokens/tenant=a/", KeyError::Parts),
            ("/tokens/tenant=a", KeyError::Parts),
            ("default//tenant=a", KeyError::Parts),
            ("default/tokens/tenant=a,", KeyError::Parts),
            ("default/tokens/tenant=a=b", KeyError::Encoding),
            ("default/tokens/tenant=%61", KeyError::Encoding),
            ("default/tokens/tenant=%2f", KeyError::Encoding),
            ("default/tokens/tenant=%2", KeyError::Encoding),
            ("default/tokens/tenant=%", KeyError::Encoding),
            ("default/tokens/tenant=é", KeyError::Encoding),
            ("default/tokens/tenant=a b", KeyError::Encoding),
            ("default/tokens/tenant={a}", KeyError::Encoding),
            ("default/tokens/tenant=~00", KeyError::Encoding),
        ] {
            assert_eq!(text.parse::<AccountKey>(), Err(error), "{text}");
        }
        let long = format!("default/tokens/tenant={}", "a".repeat(VALUE_LEN_MOST + 1));
        assert_eq!(long.parse::<AccountKey>(), Err(KeyError::Encoding));
        assert_eq!("a".repeat(KEY_LEN_MOST + 1).parse::<AccountKey>(), Err(KeyError::Length));
    }

    #[test]
    fn accounts_of_one_subject_share_a_slot() {
        let name = AccountKey::from(&key(&[("tenant", b"acme")]));
        assert_eq!((name.namespace(), name.limit(), name.subject()), ("default", "tokens", "tenant=acme"));
        assert_eq!(name.slot(), "default/tenant=acme");
        assert_eq!(AccountKey::from(&key(&[])).slot(), "default/");
    }

    fn any_key() -> impl Strategy<Value = BudgetKey> {
        // Few letters, so that keys are near each other, and bytes that mean something.
        let byte = prop_oneof![prop::sample::select(b"ab/=,%~{}:2F\n".to_vec()), any::<u8>()];
        let value = prop::collection::vec(byte, 0..6);
        let name = "[a-b/=,%~é]{1,3}";
        let subject = prop::collection::vec((name, value), 0..3);
        (name, name, subject).prop_map(|(namespace, limit, subject)| BudgetKey { namespace, limit, subject })
    }

    proptest! {
        #[test]
        fn every_key_has_one_text_and_every_text_one_key(one in any_key(), other in any_key()) {
            let (text, other_text) = (AccountKey::from(&one), AccountKey::from(&other));
            prop_assert_eq!(text.as_str().parse::<AccountKey>(), Ok(text.clone()));
            prop_assert_eq!(one == other, text == other_text);
            prop_assert_eq!(one.namespace == other.namespace && one.subject == other.subject,
                text.slot() == other_text.slot());
        }

        #[test]
        fn no_text_makes_the_parser_fail(text in ".{0,40}") {
            if let Ok(key) = text.parse::<AccountKey>() {
                prop_assert_eq!(key.as_str(), text);
            }
        }
    }
}
