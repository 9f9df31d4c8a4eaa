//! A value of the stream's metadata, as the host puts it into bytes → text.
//!
//! The bytes do not say what they are: text comes as it is, a number as the eight bytes of a double, a
//! boolean as one byte, a map or a list as lengths and entries. So they are told apart by what text never
//! has. A list, a map and `null` are no names, and as good as absent.

use std::borrow::Cow;

use serde_json::Number;

pub(super) fn value(bytes: &[u8]) -> Option<Cow<'_, str>> {
    match bytes {
        [0] => return Some("false".into()),
        [1] => return Some("true".into()),
        _ => {}
    }
    text(bytes).map(Cow::Borrowed).or_else(|| number(bytes).map(Cow::Owned))
}

/// No text without a NUL is a map, a list, or a whole number below 2^45: their bytes have one.
fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// Whole numbers without a fraction: a claim `42` and a claim `"42"` name the same account.
fn number(bytes: &[u8]) -> Option<String> {
    let number = f64::from_le_bytes(bytes.try_into().ok()?);
    if number == 0.0 {
        return Some("0".to_owned());
    }
    // Eight bytes with zeros at the end that are no double anybody wrote: lengths.
    let number = Number::from_f64(number).filter(|_| number.is_normal())?.to_string();
    Some(number.strip_suffix(".0").unwrap_or(&number).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_stays_and_numbers_and_booleans_are_written_as_in_json() {
        for text in ["acme", "eight by", "é", "line\nbreak", "42", ""] {
            assert_eq!(value(text.as_bytes()).as_deref(), Some(text));
        }
        let numbers = [
            (42.0, "42"),
            (0.0, "0"),
            (-0.0, "0"),
            (-7.0, "-7"),
            (1.5, "1.5"),
            (0.1, "0.1"),
            (1_767_225_600.0, "1767225600"),
            (9_007_199_254_740_992.0, "9007199254740992"),
            (1e300, "1e+300"),
        ];
        for (number, text) in numbers {
            assert_eq!(value(&f64::to_le_bytes(number)).as_deref(), Some(text));
        }
        assert_eq!((value(&[0]).as_deref(), value(&[1]).as_deref()), (Some("false"), Some("true")));
    }

    #[test]
    fn maps_lists_and_what_is_nothing_are_absent() {
        let nothing: [&[u8]; 9] = [
            b"\0\0\0\0",
            b"\x01\0\0\0\x01\0\0\0\x01\0\0\0k\0v\0",
            b"\x01\0\0\0\0\0\0\0",
            b"\x02\0\0\0\x03\0\0\0",
            b"\xff\xfe",
            b"ends with a nul\0",
            &f64::NAN.to_le_bytes(),
            &f64::INFINITY.to_le_bytes(),
            &f64::from_bits(1).to_le_bytes(),
        ];
        for bytes in nothing {
            assert_eq!(value(bytes), None, "{bytes:?}");
        }
    }
}
