//! The counter says what the oracle says.
#![allow(clippy::unwrap_used, clippy::string_slice, reason = "a test")]

use std::sync::LazyLock;

use tiktoken_rs::CoreBPE;
use tollgate_bpe::{Counter, Encoding};

mod corpus;

use corpus::{Random, corpus};

static O200K: LazyLock<CoreBPE> = LazyLock::new(|| tiktoken_rs::o200k_base().unwrap());
static CL100K: LazyLock<CoreBPE> = LazyLock::new(|| tiktoken_rs::cl100k_base().unwrap());

const ENCODINGS: [Encoding; 2] = [Encoding::O200kBase, Encoding::Cl100kBase];

fn oracle(encoding: Encoding, text: &str) -> usize {
    let oracle = match encoding {
        Encoding::O200kBase => &O200K,
        Encoding::Cl100kBase => &CL100K,
    };
    oracle.encode_ordinary(text).len()
}

fn short(text: &str) -> String {
    text.chars().take(200).collect()
}

#[test]
fn three_thousand_texts_of_all_kinds_count_as_by_the_oracle() {
    assert!(corpus().count() >= 3000);
    for encoding in ENCODINGS {
        for (kind, text) in corpus() {
            assert_eq!(
                encoding.count(&text),
                oracle(encoding, &text),
                "{encoding:?}, {kind}: {:?}",
                short(&text)
            );
        }
    }
}

#[test]
fn every_character_counts_as_by_the_oracle_alone_and_behind_a_letter_and_behind_a_space() {
    for encoding in ENCODINGS {
        for character in '\0'..=char::MAX {
            for text in [character.to_string(), format!("a{character}"), format!(" {character}")] {
                assert_eq!(encoding.count(&text), oracle(encoding, &text), "{encoding:?}: {text:?}");
            }
        }
    }
}

#[test]
fn long_repeats_count_as_by_the_oracle() {
    const UNITS: [&str; 24] = [
        "a",
        "A",
        " ",
        "\n",
        "\t",
        "\r\n",
        "!",
        "=",
        "-",
        "/",
        "1",
        "漢",
        "ab",
        "aA",
        "a ",
        " a",
        "\n ",
        "\u{301}",
        "👨\u{200D}👩\u{200D}👧",
        "the",
        " the",
        "'s",
        "<|endoftext|>",
        "aaaaaaab",
    ];
    for encoding in ENCODINGS {
        for unit in UNITS {
            let text = corpus::hostile::repeat_to(unit, 100_000) + "x";
            assert_eq!(encoding.count(&text), oracle(encoding, &text), "{encoding:?}: {unit:?}");
        }
    }
}

#[test]
fn hostile_texts_count_as_by_the_oracle_whole_and_in_parts() {
    let mut random = Random::seeded(7);
    for encoding in ENCODINGS {
        for (name, make) in corpus::hostile::HOSTILE {
            let text = make(60_000);
            let tokens = oracle(encoding, &text);
            assert_eq!(encoding.count(&text), tokens, "{encoding:?}: {name}");
            assert_eq!(in_parts(encoding, &mut random, &text), tokens, "{encoding:?}: {name}, in parts");
        }
    }
}

#[test]
fn a_text_in_random_parts_counts_as_the_whole() {
    let mut random = Random::seeded(8);
    for encoding in ENCODINGS {
        for (kind, text) in corpus() {
            let tokens = in_parts(encoding, &mut random, &text);
            assert_eq!(tokens, encoding.count(&text), "{encoding:?}, {kind}: {:?}", short(&text));
        }
    }
}

/// The total of a counter that gets one to twelve bytes at a time, as far as characters allow.
fn in_parts(encoding: Encoding, random: &mut Random, text: &str) -> usize {
    let mut counter = Counter::new(encoding);
    let mut rest = text;
    while !rest.is_empty() {
        let (part, after) = rest.split_at(rest.ceil_char_boundary(random.between(1, 12)));
        counter.push(part);
        rest = after;
    }
    counter.total()
}

#[test]
fn the_total_is_that_of_the_text_so_far_at_every_character() {
    let mut random = Random::seeded(9);
    for encoding in ENCODINGS {
        for _ in 0..150 {
            let text = corpus::adversarial(&mut random);
            let mut counter = Counter::new(encoding);
            for (at, character) in text.char_indices() {
                counter.push(character.encode_utf8(&mut [0; 4]));
                let so_far = &text[..at + character.len_utf8()];
                assert_eq!(counter.total(), encoding.count(so_far), "{encoding:?}: {so_far:?}");
            }
        }
    }
}

/// The pieces for which a scanner turns back long after it has forgotten where.
#[test]
fn a_piece_without_end_counts_as_the_whole_at_any_end() {
    let capitals = &corpus::hostile::HOSTILE.iter().find(|(name, _)| *name == "random capitals").unwrap().1;
    let starts =
        ["", "x", "x ", "漢", " 漢", "\u{301}", "!\u{301}", "ǅ", "\n", "x\n", "\n\n", "!", " !", "!\n"];
    let long =
        [capitals(5_000), " ".repeat(5_000), "\n ".repeat(2_500), " \n".repeat(2_500), "漢A".repeat(1_250)];
    let joints = ["", "漢", "\n", "\u{301}", "a"];
    let ends = ["", "a", "'", "'r", "'re", "'s", "'S x", "!", "\n", " ", " x", "1", "/", "漢", "\u{301}b"];
    for encoding in ENCODINGS {
        for start in starts {
            for middle in &long {
                for joint in joints {
                    // The counter up to here is common to all ends.
                    let text = format!("{start}{middle}{joint}{middle}");
                    let mut counter = Counter::new(encoding);
                    for part in text.as_str().chars().collect::<Vec<_>>().chunks(97) {
                        counter.push(&part.iter().collect::<String>());
                    }
                    for end in ends {
                        let mut counter = counter.clone();
                        counter.push(end);
                        let whole = format!("{text}{end}");
                        let about =
                            || format!("{encoding:?}: {start:?} {:?} {joint:?} {end:?}", &middle[..3]);
                        assert_eq!(counter.total(), encoding.count(&whole), "{}", about());
                        counter.push(" More text.");
                        assert_eq!(
                            counter.total(),
                            encoding.count(&(whole + " More text.")),
                            "{}, more",
                            about()
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn a_limit_changes_nothing_below_it_and_is_noticed_above() {
    for encoding in ENCODINGS {
        for (kind, text) in corpus() {
            let tokens = encoding.count(&text);
            for limit in [0, 1, 5, 100, 1000, tokens.saturating_sub(1), tokens, tokens + 1] {
                let expected = (tokens <= limit).then_some(tokens);
                let found = encoding.count_till_limit(&text, limit);
                assert_eq!(found, expected, "{encoding:?}, {kind}, limit {limit}: {:?}", short(&text));
            }
        }
    }
}

#[test]
fn what_looks_like_a_special_token_is_text() {
    assert_eq!(Encoding::O200kBase.count("<|endoftext|>"), 7);
    assert_eq!(Encoding::Cl100kBase.count("<|endoftext|>"), 7);
}
