//! Headers → [`Subject`]: who pays.
//!
//! Values are bytes that a client may have chosen. They are only ever compared, hashed and shown escaped;
//! a secret is hashed before anything else can see it, and a value too long to carry is replaced by its
//! hash, so that two long values stay two accounts.

use sha2::{Digest, Sha256};
use tollgate_budget::BudgetKey;

use crate::config::{Absent, Attribute, FilterConfig, Form, LimitRule, Per, Source, Tier, TierStanding};

/// Longer than any name or token id in use; what a client may make us carry, hash and print per attribute.
pub const MAX_VALUE: usize = 256;

/// Marks a value that was too long; no value within bounds can look like one, for it would be as long.
const LONG: &str = "sha256-of-long-value:";

/// The attribute's values of one request, by the index of [`FilterConfig::subject`].
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Subject {
    values: Vec<Box<[u8]>>,
}

/// A required attribute that no source yields: the caller is nobody, 401.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MissingAttribute {
    pub attribute: String,
}

/// Request headers with lower-case names, in the order of the request.
pub type Headers = [(String, Vec<u8>)];

/// Who pays for a request with these headers.
///
/// # Errors
/// The first attribute that the policy requires and no source yields.
pub fn identify(headers: &Headers, config: &FilterConfig) -> Result<Subject, MissingAttribute> {
    let values =
        config.subject.iter().map(|attribute| value_of(attribute, headers)).collect::<Result<_, _>>()?;
    Ok(Subject { values })
}

/// The account that a limit keeps for a subject. `model` is [`FilterConfig::family`]'s word.
pub fn key(config: &FilterConfig, limit: &LimitRule, subject: &Subject, model: &str) -> BudgetKey {
    let part = |per: &Per| match per {
        Per::Attribute(index) => {
            let name = config.subject.get(*index).map_or("", |attribute| attribute.name.as_str());
            (name.to_owned(), subject.value(*index).to_vec())
        }
        Per::Model => (Per::MODEL.to_owned(), model.as_bytes().to_vec()),
    };
    BudgetKey {
        namespace: config.namespace.clone(),
        limit: limit.name.clone(),
        subject: limit.per.iter().map(part).collect(),
    }
}

impl Subject {
    /// Empty for an index that the policy does not have.
    pub fn value(&self, index: usize) -> &[u8] {
        self.values.get(index).map_or(&[], |value| value)
    }

    /// The tier that the policy's limits see.
    pub fn tier(&self, config: &FilterConfig) -> Tier {
        match &config.tiers {
            Some(tiers) => tiers.tier(self.value(tiers.attribute)),
            None => Tier { index: 0, standing: TierStanding::Known },
        }
    }
}

fn value_of(attribute: &Attribute, headers: &Headers) -> Result<Box<[u8]>, MissingAttribute> {
    match (attribute.sources.iter().find_map(|source| yielded(source, headers)), &attribute.absent) {
        (Some(value), _) => Ok(value),
        (None, Absent::Default(default)) => Ok(default.as_bytes().into()),
        (None, Absent::Refuse) => Err(MissingAttribute { attribute: attribute.name.clone() }),
    }
}

/// `None` for a header that is absent or empty: an empty name is nobody's.
fn yielded(source: &Source, headers: &Headers) -> Option<Box<[u8]>> {
    match source {
        Source::Header { name, form, strip: _, trusted: _ } => {
            let value = trimmed(header(headers, name)?)?;
            Some(match form {
                Form::AsIs => bounded(value),
                Form::Sha256 => hashed(value),
            })
        }
        Source::Bearer => bearer(header(headers, "authorization")?).map(hashed),
    }
}

/// The first of several entries of one name. A client that adds a second one behind a proxy that appends
/// gains nothing; a proxy that joins them (`a, b`) yields one value, which is taken as it is.
fn header<'a>(headers: &'a Headers, name: &str) -> Option<&'a [u8]> {
    headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_slice())
}

fn trimmed(value: &[u8]) -> Option<&[u8]> {
    let value = value.trim_ascii();
    (!value.is_empty()).then_some(value)
}

/// The token of `Bearer <token>`; the scheme in any case, as RFC 9110 has it.
fn bearer(authorization: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = authorization.trim_ascii().split_at_checked(b"bearer ".len())?;
    if scheme.eq_ignore_ascii_case(b"bearer ") { trimmed(token) } else { None }
}

fn bounded(value: &[u8]) -> Box<[u8]> {
    if value.len() <= MAX_VALUE {
        return value.into();
    }
    [LONG.as_bytes(), &hashed(value)].concat().into()
}

fn hashed(value: &[u8]) -> Box<[u8]> {
    let hex = |nibble: u8| char::from_digit(u32::from(nibble), 16).map_or(b'0', |digit| digit as u8);
    Sha256::digest(value).iter().flat_map(|byte| [hex(byte >> 4), hex(byte & 0xf)]).collect()
}
