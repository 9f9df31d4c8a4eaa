//! Bounded gathering: what may be read at all, decided on the headers first.

use crate::config::BodyRules;

/// A body that is not read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unread {
    /// Answered with 413.
    TooLarge { max: usize },
    /// A content coding that is not undone here; answered with 415.
    Compressed,
}

/// Whether a body with these headers is worth gathering.
pub fn admit(
    rules: &BodyRules,
    content_length: Option<&str>,
    content_encoding: Option<&str>,
) -> Result<(), Unread> {
    if content_encoding.is_some_and(is_coded) {
        return Err(Unread::Compressed);
    }
    match content_length.and_then(announced) {
        Some(length) if length > rules.max as u64 => Err(Unread::TooLarge { max: rules.max }),
        // Nonsense is the host's to refuse; what arrives is measured again.
        Some(_) | None => Ok(()),
    }
}

/// Saturates; `None` for what is no number.
fn announced(content_length: &str) -> Option<u64> {
    let digits = content_length.trim();
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

/// Whether the bytes that have come so far may still grow.
pub fn fits(rules: &BodyRules, gathered: usize) -> Result<(), Unread> {
    if gathered > rules.max { Err(Unread::TooLarge { max: rules.max }) } else { Ok(()) }
}

/// `identity` and an empty value say that there is nothing to undo.
pub(crate) fn is_coded(content_encoding: &str) -> bool {
    content_encoding
        .split(',')
        .map(str::trim)
        .any(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("identity"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Unreadable;

    const RULES: BodyRules = BodyRules { max: 100, unreadable: Unreadable::Estimate };
    const TOO_LARGE: Result<(), Unread> = Err(Unread::TooLarge { max: 100 });

    #[test]
    fn a_body_is_refused_on_its_headers_where_they_tell() {
        for (length, coding, expected) in [
            (None, None, Ok(())),
            (Some("100"), None, Ok(())),
            (Some("101"), None, TOO_LARGE),
            (Some(" 101 "), None, TOO_LARGE),
            (Some("18446744073709551615"), None, TOO_LARGE),
            (Some("99999999999999999999999"), None, TOO_LARGE),
            (Some("-1"), None, Ok(())),
            (Some("many"), None, Ok(())),
            (None, Some(""), Ok(())),
            (None, Some("identity"), Ok(())),
            (None, Some("Identity, identity"), Ok(())),
            (None, Some("gzip"), Err(Unread::Compressed)),
            (None, Some("identity, zstd"), Err(Unread::Compressed)),
            (None, Some("unheard-of"), Err(Unread::Compressed)),
            (Some("101"), Some("gzip"), Err(Unread::Compressed)),
        ] {
            assert_eq!(admit(&RULES, length, coding), expected, "{length:?} {coding:?}");
        }
    }

    #[test]
    fn what_has_come_may_grow_up_to_the_bound_and_not_a_byte_beyond() {
        assert_eq!(fits(&RULES, 100), Ok(()));
        assert_eq!(fits(&RULES, 101), TOO_LARGE);
    }
}
