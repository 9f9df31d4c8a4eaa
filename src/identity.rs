//! Headers and metadata → [`Subject`]: who pays.
//!
//! Values are bytes that a client may have chosen. They are only ever compared, hashed and shown escaped;
//! a secret is hashed before anything else can see it, and a value too long to carry is replaced by its
//! hash, so that two long values stay two accounts.

mod metadata;

use std::hash::{DefaultHasher, Hash, Hasher};

use sha2::{Digest, Sha256};
use tollgate_budget::BudgetKey;

use crate::config::{Absent, Attribute, FilterConfig, Form, LimitRule, Per, Source, Tier, TierStanding};

/// Longer than any name or token id in use; what a client may make us carry, hash and print per attribute.
pub const MAX_VALUE: usize = 256;

/// Marks a value that was too long. A short value that begins so is hashed too, lest it pass for another's.
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

/// Names in lower case and values, in the order of the message: borrowed from the host's own block, since
/// most are never looked at.
pub type Headers<'a> = [(&'a [u8], &'a [u8])];

/// What a request says of its caller, and what the filters in front have said.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    pub headers: &'a Headers<'a>,
    /// The properties of [`FilterConfig::metadata`], as the host gives them; `None` where there is none.
    pub metadata: &'a [Option<Vec<u8>>],
}

/// Who pays for this caller's request.
///
/// # Errors
/// The first attribute that the policy requires and no source yields.
pub fn identify(caller: Caller<'_>, config: &FilterConfig) -> Result<Subject, MissingAttribute> {
    let values =
        config.subject.iter().map(|attribute| value_of(attribute, caller)).collect::<Result<_, _>>()?;
    Ok(Subject { values })
}

/// The account that a limit keeps for a subject. `model` is [`FilterConfig::family`]'s word; only a limit
/// that is kept per model looks at it.
pub fn key(config: &FilterConfig, limit: &LimitRule, subject: &Subject, model: &str) -> BudgetKey {
    let owned = |(name, value): (&str, &[u8])| (name.to_owned(), value.to_vec());
    BudgetKey {
        namespace: config.namespace.clone(),
        limit: limit.name.clone(),
        subject: limit.per.iter().map(|per| owned(part(config, subject, model, per))).collect(),
    }
}

/// One attribute's name and value in a key.
pub(crate) fn part<'a>(
    config: &'a FilterConfig,
    subject: &'a Subject,
    model: &'a str,
    per: &Per,
) -> (&'a str, &'a [u8]) {
    match per {
        Per::Attribute(index) => {
            let name = config.subject.get(*index).map_or("", |attribute| attribute.name.as_str());
            (name, subject.value(*index))
        }
        Per::Model => (Per::MODEL, model.as_bytes()),
    }
}

impl Subject {
    /// Empty for an index that the policy does not have.
    pub fn value(&self, index: usize) -> &[u8] {
        self.values.get(index).map_or(&[], |value| value)
    }

    /// Tells subjects apart where only their privacy from each other is at stake.
    pub fn scope(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// The tier that the policy's limits see.
    pub fn tier(&self, config: &FilterConfig) -> Tier {
        match &config.tiers {
            Some(tiers) => tiers.tier(self.value(tiers.attribute)),
            None => Tier { index: 0, standing: TierStanding::Known },
        }
    }
}

fn value_of(attribute: &Attribute, caller: Caller<'_>) -> Result<Box<[u8]>, MissingAttribute> {
    match (attribute.sources.iter().find_map(|source| yielded(source, caller)), &attribute.absent) {
        (Some(value), _) => Ok(value),
        (None, Absent::Default(default)) => Ok(default.as_bytes().into()),
        (None, Absent::Refuse) => Err(MissingAttribute { attribute: attribute.name.clone() }),
    }
}

/// `None` for a value that is absent or empty: an empty name is nobody's.
fn yielded(source: &Source, caller: Caller<'_>) -> Option<Box<[u8]>> {
    match source {
        Source::Header { name, form, strip: _, trusted: _ } => {
            Some(formed(trimmed(header(caller.headers, name)?)?, *form))
        }
        Source::Bearer => bearer(header(caller.headers, "authorization")?).map(hashed),
        Source::Metadata { property, form } => {
            let value = metadata::value(caller.metadata.get(*property)?.as_deref()?)?;
            Some(formed(trimmed(value.as_bytes())?, *form))
        }
    }
}

fn formed(value: &[u8], form: Form) -> Box<[u8]> {
    match form {
        Form::AsIs => bounded(value),
        Form::Sha256 => hashed(value),
    }
}

/// The first of several entries of one name. Entries that a proxy has joined (`a, b`) are one value, taken as
/// it is. Neither makes a header trustworthy: a filter that authenticates must replace, not append.
pub(crate) fn header<'a>(headers: &Headers<'a>, name: &str) -> Option<&'a [u8]> {
    headers.iter().find(|(found, _)| *found == name.as_bytes()).map(|(_, value)| *value)
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
    if value.len() <= MAX_VALUE && !value.starts_with(LONG.as_bytes()) {
        return value.into();
    }
    [LONG.as_bytes(), &hashed(value)].concat().into()
}

fn hashed(value: &[u8]) -> Box<[u8]> {
    let hex = |nibble: u8| char::from_digit(u32::from(nibble), 16).map_or(b'0', |digit| digit as u8);
    Sha256::digest(value).iter().flat_map(|byte| [hex(byte >> 4), hex(byte & 0xf)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(subject: &str) -> FilterConfig {
        let limits = r#"[{"name": "t", "per": ["tenant"], "unit": "tokens", "window": {"fixed": "60s"}, "amount": 9}]"#;
        let policy = format!(r#"{{"version": 1, "subject": {{"tenant": {subject}}}, "limits": {limits}}}"#);
        FilterConfig::from_slice(policy.as_bytes()).unwrap()
    }

    fn headers<'a>(all: &[(&'a str, &'a str)]) -> Vec<(&'a [u8], &'a [u8])> {
        all.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect()
    }

    fn by_headers<'a>(headers: &'a Headers<'a>) -> Caller<'a> {
        Caller { headers, metadata: &[] }
    }

    fn tenant(config: &FilterConfig, all: &[(&str, &str)]) -> String {
        let subject = identify(by_headers(&headers(all)), config).unwrap();
        String::from_utf8(subject.value(0).to_vec()).unwrap()
    }

    const SHA256_OF_SECRET: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    #[test]
    fn the_first_source_that_yields_a_value_wins() {
        let config = config(
            r#"{"from": [{"header": "X-Tenant"}, {"bearer": "sha256"}, {"header": "x-api-key", "as": "sha256"}], "default": "anonymous"}"#,
        );
        let bearer = ("authorization", "Bearer secret");
        assert_eq!(tenant(&config, &[bearer, ("x-tenant", "acme")]), "acme");
        assert_eq!(tenant(&config, &[bearer, ("x-tenant", " ")]), SHA256_OF_SECRET);
        assert_eq!(tenant(&config, &[("authorization", "bearer  secret ")]), SHA256_OF_SECRET);
        assert_eq!(tenant(&config, &[("x-api-key", "secret")]), SHA256_OF_SECRET);
        for nobody in ["Basic c2VjcmV0", "Bearer", "Bearer ", "Bearersecret", ""] {
            assert_eq!(tenant(&config, &[("authorization", nobody)]), "anonymous", "{nobody}");
        }
    }

    #[test]
    fn a_header_that_carries_a_credential_is_hashed_unasked() {
        let config = config(r#"{"from": [{"header": "X-API-Key"}], "default": "anonymous"}"#);
        assert_eq!(tenant(&config, &[("x-api-key", "secret")]), SHA256_OF_SECRET);
    }

    #[test]
    fn metadata_is_a_source_like_any_other() {
        let config = config(
            r#"{"from": [{"header": "x-tenant"}, {"metadata": ["jwt", "claims", "org"]},
                {"metadata": ["jwt", "sub"], "as": "sha256"}, {"metadata": ["jwt", "claims", "org"]}], "default": "-"}"#,
        );
        assert_eq!(
            config.metadata,
            ["metadata\0filter_metadata\0jwt\0claims\0org", "metadata\0filter_metadata\0jwt\0sub"]
        );
        let tenant = |all: &[(&str, &str)], org: Option<&[u8]>, sub: Option<&[u8]>| {
            let metadata = [org, sub].map(|value| value.map(<[u8]>::to_vec));
            let subject = identify(Caller { headers: &headers(all), metadata: &metadata }, &config).unwrap();
            String::from_utf8(subject.value(0).to_vec()).unwrap()
        };
        assert_eq!(tenant(&[("x-tenant", "a")], Some(b"b"), None), "a");
        assert_eq!(tenant(&[], Some(b" b "), Some(b"secret")), "b");
        assert_eq!(tenant(&[], Some(&42_f64.to_le_bytes()), None), "42");
        for nothing in [None, Some(&b""[..]), Some(b" "), Some(b"\x01\0\0\0\x01\0\0\0\x01\0\0\0k\0v\0")] {
            assert_eq!(tenant(&[], nothing, Some(b"secret")), SHA256_OF_SECRET);
            assert_eq!(tenant(&[], nothing, None), "-");
        }
        let long = vec![b'x'; 4096];
        assert!(tenant(&[], Some(&long), None).starts_with(LONG));
        // A host that hands over fewer than it was asked for.
        assert!(identify(Caller { headers: &[], metadata: &[] }, &config).is_ok());
    }

    #[test]
    fn a_required_attribute_that_is_missing_refuses_the_request() {
        let config = config(r#"{"from": [{"header": "x-tenant"}], "required": true}"#);
        let missing = identify(by_headers(&headers(&[("x-tenant", "")])), &config).unwrap_err();
        assert_eq!(missing.attribute, "tenant");
    }

    #[test]
    fn long_values_stay_bounded_and_apart_and_nothing_passes_for_them() {
        let config = config(r#"{"from": [{"header": "x-tenant"}], "default": "-"}"#);
        let long = |last: &str| tenant(&config, &[("x-tenant", &("x".repeat(10_000) + last))]);
        assert!(long("a").len() <= MAX_VALUE);
        assert_ne!(long("a"), long("b"));
        let forged = long("a");
        assert_ne!(tenant(&config, &[("x-tenant", &forged)]), forged);
        let longest = "y".repeat(MAX_VALUE);
        assert_eq!(tenant(&config, &[("x-tenant", &longest)]), longest);
    }

    #[test]
    fn bytes_of_any_kind_are_values_and_make_accounts_of_their_own() {
        let config = config(r#"{"from": [{"header": "x-tenant"}], "default": "-"}"#);
        let values: [&[u8]; 6] = [b"a:b", b"a{b}", b"a\nb", b"a\0", b"\xff\xfe", b"a"];
        let limit = &config.limits[0];
        let accounts: std::collections::BTreeSet<_> = values
            .iter()
            .map(|value| {
                let subject = identify(by_headers(&[(b"x-tenant", value)]), &config).unwrap();
                assert_eq!(subject.value(0), *value);
                key(&config, limit, &subject, "gpt-4o*").account()
            })
            .collect();
        assert_eq!(accounts.len(), values.len());
    }

    #[test]
    fn of_two_entries_the_first_counts_and_joined_ones_are_one_value() {
        let config = config(r#"{"from": [{"header": "x-tenant"}], "default": "-"}"#);
        assert_eq!(tenant(&config, &[("x-tenant", "a"), ("x-tenant", "b")]), "a");
        assert_eq!(tenant(&config, &[("x-tenant", "a, b")]), "a, b");
    }

    #[test]
    fn a_tier_that_no_amount_names_counts_as_the_default() {
        let policy = br#"{"version": 1,
            "subject": {"tier": {"from": [{"header": "x-tier"}], "default": "free"}},
            "limits": [{"name": "t", "per": ["tier"], "unit": "requests", "window": {"fixed": "60s"},
                        "amount": {"free": 1, "pro": 2}}]}"#;
        let config = FilterConfig::from_slice(policy).unwrap();
        let tier =
            |value| identify(by_headers(&headers(&[("x-tier", value)])), &config).unwrap().tier(&config);
        let units = |tier| config.limits[0].amount.of(tier).units();
        assert_eq!((units(tier("pro")), tier("pro").standing), (2, TierStanding::Known));
        assert_eq!((units(tier("free")), tier("free").standing), (1, TierStanding::Known));
        assert_eq!((units(tier("gold")), tier("gold").standing), (1, TierStanding::Unknown));
        assert_eq!(config.tier_name(tier("gold")), Some("free"));
    }
}
