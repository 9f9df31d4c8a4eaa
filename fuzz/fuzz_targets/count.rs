//! The counter equals the oracle on any text, whole, under a limit, and in any parts.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use tollgate_bpe::{Counter, Encoding};

#[derive(Arbitrary, Debug)]
struct Case<'a> {
    limit: u16,
    /// Where the text is cut, as distances that come round again.
    parts: [u8; 4],
    /// The text is said more than once, for the pieces that outgrow a tail.
    times: u8,
    text: &'a str,
}

/// Beyond this the oracle's regex runs out of stack on a run of spaces.
const MOST_SPACES: usize = 500_000;
const LONGEST: usize = 20_000;

fuzz_target!(
    // The oracle's start is longer than any case, and would be the first one's time-out.
    init: {
        tiktoken_rs::o200k_base_singleton();
        tiktoken_rs::cl100k_base_singleton();
    },
    |case: Case<'_>| compare(&case)
);

fn compare(case: &Case<'_>) {
    let times = (usize::from(case.times) + 1).min(LONGEST / case.text.len().max(1)).max(1);
    let text = case.text.repeat(times);
    if text.chars().filter(|character| character.is_whitespace()).count() > MOST_SPACES {
        return;
    }
    for encoding in [Encoding::O200kBase, Encoding::Cl100kBase] {
        let oracle = match encoding {
            Encoding::O200kBase => tiktoken_rs::o200k_base_singleton(),
            Encoding::Cl100kBase => tiktoken_rs::cl100k_base_singleton(),
        };
        let tokens = oracle.encode_ordinary(&text).len();
        assert_eq!(encoding.count(&text), tokens, "{encoding:?}");

        let limit = usize::from(case.limit);
        let expected = (tokens <= limit).then_some(tokens);
        assert_eq!(encoding.count_till_limit(&text, limit), expected, "{encoding:?}, limit {limit}");

        let mut counter = Counter::new(encoding);
        let mut rest = text.as_str();
        for part in case.parts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (part, after) = rest.split_at(rest.ceil_char_boundary(usize::from(*part) + 1));
            counter.push(part);
            rest = after;
        }
        assert_eq!(counter.total(), tokens, "{encoding:?}, in parts");
    }
}
