//! Texts that are bad for one counter or another, each as long as asked for.

use super::Random;

type Make = fn(usize) -> String;

pub const HOSTILE: [(&str, Make); 19] = [
    ("one letter", |length| "a".repeat(length)),
    ("one capital", |length| "A".repeat(length)),
    ("spaces", |length| " ".repeat(length)),
    ("spaces, then a letter", |length| " ".repeat(length) + "x"),
    ("letter and space", |length| repeat_to("a ", length)),
    ("newlines", |length| "\n".repeat(length)),
    ("one CJK character", |length| repeat_to("漢", length)),
    ("random CJK", |length| random_from(&('\u{4E00}'..'\u{9FA5}').collect::<Vec<_>>(), length)),
    ("random base64", |length| {
        random_from_str("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", length)
    }),
    ("emoji family", |length| repeat_to("👨\u{200D}👩\u{200D}👧\u{200D}👦", length)),
    ("random a-z", |length| random_from_str("abcdefghijklmnopqrstuvwxyz", length)),
    ("random capitals", |length| random_from_str("ABCDEFGHIJKLMNOPQRSTUVWXYZ", length)),
    ("random punctuation", |length| random_from_str("!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~", length)),
    ("Fibonacci word", fibonacci_word),
    ("newline and 63 spaces", |length| repeat_to(&("\n".to_owned() + &" ".repeat(63)), length)),
    ("combining marks", |length| repeat_to("\u{301}", length)),
    ("digits", |length| repeat_to("0123456789", length)),
    ("aA", |length| repeat_to("aA", length)),
    ("caseless, then capitals", |length| {
        "漢".to_owned() + &random_from_str("ABCDEFGHIJKLMNOPQRSTUVWXYZ", length)
    }),
];

pub fn repeat_to(unit: &str, length: usize) -> String {
    unit.repeat(length / unit.len() + 1)
}

fn random_from_str(alphabet: &str, length: usize) -> String {
    random_from(&alphabet.chars().collect::<Vec<_>>(), length)
}

fn random_from(alphabet: &[char], length: usize) -> String {
    let mut random = Random::seeded(1);
    let mut text = String::with_capacity(length + 4);
    while text.len() < length {
        text.push(random.pick(alphabet));
    }
    text
}

/// Not periodic anywhere, and yet the same everywhere.
fn fibonacci_word(length: usize) -> String {
    let (mut shorter, mut longer) = ("b".to_owned(), "a".to_owned());
    while longer.len() < length {
        let next = longer.clone() + &shorter;
        shorter = std::mem::replace(&mut longer, next);
    }
    longer.truncate(length);
    longer
}
