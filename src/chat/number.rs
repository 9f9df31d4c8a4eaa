//! A count out of a JSON literal, with no float on the way: `1500.0`, `1.5e3` and `"1500"` are 1500 to the
//! servers behind, `1e400` is more than any limit, and 2^64 must not wrap to a small one.

use super::shape::text_of;

/// What a field for a count says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Count {
    /// Null.
    Missing,
    /// Zero or below.
    NotPositive,
    /// Fractions are rounded up; [`u64::MAX`] stands for everything above it.
    Positive(u64),
}

/// `None` where the literal is no number and no string of one.
pub(super) fn count(literal: &str) -> Option<Count> {
    if literal == "null" {
        return Some(Count::Missing);
    }
    match text_of(literal) {
        Some(text) => decimal(text.trim_ascii()),
        None => decimal(literal),
    }
}

fn decimal(number: &str) -> Option<Count> {
    let (magnitude, negative) = match number.strip_prefix('-') {
        Some(magnitude) => (magnitude, true),
        None => (number.strip_prefix('+').unwrap_or(number), false),
    };
    let (mantissa, exponent) = match magnitude.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, power(exponent)?),
        None => (magnitude, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || whole.bytes().chain(fraction.bytes());
    if digits().next().is_none() || !digits().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let leading = digits().take_while(|&digit| digit == b'0').count();
    let places = i64::try_from(whole.len()).ok()?.saturating_add(exponent);
    let places = places.saturating_sub(i64::try_from(leading).ok()?);
    Some(match ceil(digits().skip(leading), places) {
        _ if negative => Count::NotPositive,
        0 => Count::NotPositive,
        positive => Count::Positive(positive),
    })
}

/// The exponent, saturating: its own digits may be too many for any integer.
fn power(exponent: &str) -> Option<i64> {
    let (digits, sign) = match exponent.strip_prefix('-') {
        Some(digits) => (digits, -1),
        None => (exponent.strip_prefix('+').unwrap_or(exponent), 1),
    };
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let magnitude = digits
        .bytes()
        .fold(0_i64, |sum, digit| sum.saturating_mul(10).saturating_add(i64::from(digit.wrapping_sub(b'0'))));
    Some(magnitude.saturating_mul(sign))
}

/// The number that has `places` of these digits before its point, rounded up. The first digit is not zero.
fn ceil(mut digits: impl Iterator<Item = u8>, places: i64) -> u64 {
    let mut value = 0_u64;
    let mut left = places;
    while left > 0 {
        let digit = digits.next().unwrap_or(b'0').wrapping_sub(b'0');
        value = value.saturating_mul(10).saturating_add(u64::from(digit));
        // All digits were zeros, or nothing can be added any more: do not walk an exponent of 10^18.
        if value == 0 || value == u64::MAX {
            return value;
        }
        left -= 1;
    }
    value.saturating_add(u64::from(digits.any(|digit| digit != b'0')))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    #[test]
    fn literals_are_read_as_the_servers_behind_read_them() {
        use Count::{Missing, NotPositive, Positive};
        for (literal, expected) in [
            ("null", Some(Missing)),
            ("1500", Some(Positive(1500))),
            ("1500.0", Some(Positive(1500))),
            ("1.5e3", Some(Positive(1500))),
            ("1.5E+3", Some(Positive(1500))),
            ("15000e-1", Some(Positive(1500))),
            ("\"1500\"", Some(Positive(1500))),
            ("\" 1500.0 \"", Some(Positive(1500))),
            ("\"+7\"", Some(Positive(7))),
            ("200.5", Some(Positive(201))),
            ("0.001", Some(Positive(1))),
            ("1e-400", Some(Positive(1))),
            ("0", Some(NotPositive)),
            ("-0.0", Some(NotPositive)),
            ("0e999999999999999999999", Some(NotPositive)),
            ("-1", Some(NotPositive)),
            ("-1e400", Some(NotPositive)),
            ("4294967295", Some(Positive(4_294_967_295))),
            ("18446744073709551615", Some(Positive(u64::MAX))),
            ("18446744073709551616", Some(Positive(u64::MAX))),
            ("18446744073709551615.5", Some(Positive(u64::MAX))),
            ("1e300", Some(Positive(u64::MAX))),
            ("1e400", Some(Positive(u64::MAX))),
            ("1e999999999999999999999", Some(Positive(u64::MAX))),
            ("true", None),
            ("{}", None),
            ("[1]", None),
            ("\"\"", None),
            ("\"many\"", None),
            ("\"1e\"", None),
            ("\".\"", None),
            ("\"0x10\"", None),
            ("\"Infinity\"", None),
        ] {
            assert_eq!(count(literal), expected, "{literal}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(2026), ..ProptestConfig::default() })]

        #[test]
        fn shifting_the_point_by_the_exponent_changes_nothing(value in 1_u64..=u64::MAX, shift in 0_usize..12) {
            let zeros = "0".repeat(shift);
            prop_assert_eq!(count(&value.to_string()), Some(Count::Positive(value)));
            let literal = format!("{value}{zeros}e-{shift}");
            prop_assert_eq!(count(&literal), Some(Count::Positive(value)));
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,40}") {
            let _ = count(&text);
            let _ = decimal(&text);
        }
    }
}
