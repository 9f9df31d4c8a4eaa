//! A count as providers write it.

use tollgate_budget::Tokens;

/// Beyond this no count is believed: larger than any context, and safe to add and to weigh.
const LARGEST: u64 = 1_000_000_000;

/// A JSON number. Integral floats are integers, since some gateways re-encode numbers; anything negative,
/// fractional or beyond reason is "not reported".
pub(super) fn number(token: &[u8]) -> Option<Tokens> {
    digits(token).or_else(|| integral(token))
}

/// The content of a JSON string.
pub(super) fn digits(text: &[u8]) -> Option<Tokens> {
    if text.is_empty() {
        return None;
    }
    let count = text.iter().try_fold(0u64, |count, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        Some(count * 10 + digit).filter(|count| *count <= LARGEST)
    })?;
    Some(Tokens::new(count))
}

fn integral(token: &[u8]) -> Option<Tokens> {
    // Rust also reads "inf" and "nan"; JSON has neither.
    let written_as_number = token.first().is_some_and(|byte| byte.is_ascii_digit() || *byte == b'-');
    let value: f64 = std::str::from_utf8(token).ok().filter(|_| written_as_number)?.parse().ok()?;
    #[expect(clippy::cast_precision_loss, reason = "10^9 is exact in a double")]
    let reasonable = value.fract() == 0.0 && (0.0..=LARGEST as f64).contains(&value);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "integral and in range")]
    reasonable.then(|| Tokens::new(value as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_integral_floats_and_digits_in_a_string_count() {
        for (token, count) in
            [("0", 0), ("17", 17), ("17.0", 17), ("1e3", 1000), ("1.7E1", 17), ("1000000000", LARGEST)]
        {
            assert_eq!(number(token.as_bytes()), Some(Tokens::new(count)), "{token}");
        }
        assert_eq!(digits(b"0042"), Some(Tokens::new(42)));
    }

    #[test]
    fn anything_else_is_not_reported() {
        for token in [
            "-1",
            "1.5",
            "1e10",
            "1000000001",
            "18446744073709551616",
            "NaN",
            "inf",
            "-inf",
            "null",
            "true",
            "",
        ] {
            assert_eq!(number(token.as_bytes()), None, "{token}");
        }
        for text in ["", " 1", "1.0", "1e3", "-1", "٣"] {
            assert_eq!(digits(text.as_bytes()), None, "{text}");
        }
    }
}
