//! JSON as a model is shown it: without blanks between its parts, and with letters as letters.

use std::borrow::Cow;

/// `json` must be valid. Escapes below U+0080 stay, since they keep strings closed; the others are letters
/// that some client's encoder spelled out, at six bytes and several tokens each.
pub(super) fn compact(json: &str) -> Cow<'_, str> {
    if !needs_work(json) {
        return Cow::Borrowed(json);
    }
    let mut compact = String::with_capacity(json.len());
    let mut rest = json;
    while let Some((outside, string)) = rest.split_once('"') {
        push_unblanked(&mut compact, outside);
        compact.push('"');
        rest = push_string(&mut compact, string);
    }
    push_unblanked(&mut compact, rest);
    Cow::Owned(compact)
}

fn needs_work(json: &str) -> bool {
    json.contains("\\u") || {
        // Every second stretch between unescaped quotes is outside of strings; a blank inside a string
        // must not cost a copy.
        let mut inside = false;
        let mut escaped = false;
        json.bytes().any(|byte| match byte {
            _ if escaped => {
                escaped = false;
                false
            }
            b'\\' => {
                escaped = inside;
                false
            }
            b'"' => {
                inside = !inside;
                false
            }
            b' ' | b'\n' | b'\r' | b'\t' => !inside,
            _ => false,
        })
    }
}

fn push_unblanked(to: &mut String, outside: &str) {
    to.extend(outside.chars().filter(|c| !matches!(c, ' ' | '\n' | '\r' | '\t')));
}

/// Copies a string up to and with its closing quote; what follows it is returned.
fn push_string<'a>(to: &mut String, string: &'a str) -> &'a str {
    let mut rest = string;
    while let Some(at) = rest.find(['"', '\\']) {
        let (plain, stop) = rest.split_at(at);
        to.push_str(plain);
        match (letter(stop), stop.strip_prefix('"')) {
            (Some((letter, after)), _) => {
                to.push(letter);
                rest = after;
            }
            (None, Some(after)) => {
                to.push('"');
                return after;
            }
            // The backslash and what it escapes, a quote among others.
            (None, None) => {
                let (escape, after) = stop.split_at_checked(2).unwrap_or((stop, ""));
                to.push_str(escape);
                rest = after;
            }
        }
    }
    to.push_str(rest);
    ""
}

/// The letter that an escape (or a pair of them) at the start of `text` spells.
fn letter(text: &str) -> Option<(char, &str)> {
    let (high, rest) = unit(text)?;
    match char::decode_utf16([high]).next()? {
        Ok(letter) if letter.is_ascii() => None,
        Ok(letter) => Some((letter, rest)),
        Err(_) => {
            let (low, rest) = unit(rest)?;
            let letter = char::decode_utf16([high, low]).next()?.ok()?;
            Some((letter, rest))
        }
    }
}

fn unit(text: &str) -> Option<(u16, &str)> {
    let (digits, rest) = text.strip_prefix("\\u")?.split_at_checked(4)?;
    u16::from_str_radix(digits, 16).ok().map(|unit| (unit, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    #[test]
    fn blanks_go_and_letters_come() {
        for (json, expected) in [
            (r#"{"a":1}"#, r#"{"a":1}"#),
            ("{ \"a\" :\n\t[ 1 , \"b c\" ] }", r#"{"a":[1,"b c"]}"#),
            (r#"{"a \" : b" : "\\"}"#, r#"{"a \" : b":"\\"}"#),
            (r#"["\u4e2d\u6587"]"#, r#"["中文"]"#),
            (r#"["\ud83d\ude00"]"#, r#"["😀"]"#),
            (r#"["\u0022\u000a"]"#, r#"["\u0022\u000a"]"#),
            (r#"["\ud83d x", " \ude00"]"#, r#"["\ud83d x"," \ude00"]"#),
        ] {
            assert_eq!(compact(json), expected, "{json}");
        }
        assert!(matches!(compact(r#"{"a b":" c "}"#), Cow::Borrowed(_)));
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(2026), ..ProptestConfig::default() })]

        #[test]
        fn compact_json_means_the_same_and_is_no_longer(strings in prop::collection::vec("\\PC{0,12}|[\"\\\\ a]{0,6}", 0..6)) {
            let value = serde_json::Value::from(strings);
            let json = serde_json::to_string_pretty(&value).unwrap();
            let compact = compact(&json);
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&compact).unwrap(), value.clone());
            prop_assert_eq!(compact.as_ref(), serde_json::to_string(&value).unwrap());
        }

        #[test]
        fn no_text_makes_it_panic(text in "(\\\\u[0-9a-fx]{0,5}|[\"\\\\ a]|\\PC){0,20}") {
            let _ = compact(&text);
        }
    }
}
