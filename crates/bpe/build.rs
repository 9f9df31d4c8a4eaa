//! Makes the tables of the crate: one set a vocabulary, and the classes of all characters.
//!
//! The vocabularies come out of `tiktoken-rs`, the classes out of `regex-syntax`: the very code the
//! tests compare with, so both follow the same published files and the same version of Unicode.
//!
//! Whatever the crate takes for granted about a table is asserted here.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a build that cannot make its tables must stop"
)]

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use regex_syntax::hir::{Class, HirKind};
use tiktoken_rs::CoreBPE;

#[path = "src/hash.rs"]
mod hash;
#[path = "src/layout.rs"]
mod layout;

use layout::{EMPTY, LONGEST_TOKEN, OFFSET_BITS};

/// Zeros behind arena and starts, so that a word can be read at the last token.
const PADDING: usize = 8;

/// Some 200 reads in a row are a fraction of a microsecond: that is the worst a made-up text can do.
const LONGEST_CHAIN: usize = 200;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/hash.rs");
    println!("cargo::rerun-if-changed=src/layout.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));

    write_classes(&out.join("classes.rs"));
    if env::var_os("CARGO_FEATURE_O200K").is_some() {
        write_vocabulary(&out, "o200k_base", &tokens(&tiktoken_rs::o200k_base().unwrap(), 199_998));
    }
    if env::var_os("CARGO_FEATURE_CL100K").is_some() {
        write_vocabulary(&out, "cl100k_base", &tokens(&tiktoken_rs::cl100k_base().unwrap(), 100_256));
    }
}

/// The bytes of all ordinary tokens, by rank.
fn tokens(vocabulary: &CoreBPE, count: u32) -> Vec<Vec<u8>> {
    let token = |rank| vocabulary.decode_bytes(&[rank]);
    assert!(token(count).is_err(), "the vocabulary has grown");
    let tokens: Vec<_> = (0..count).map(|rank| token(rank).expect("every rank has a token")).collect();

    let distinct: HashSet<_> = tokens.iter().collect();
    assert_eq!(distinct.len(), tokens.len(), "two ranks with the same bytes");
    assert!(tokens.iter().all(|token| (1..=LONGEST_TOKEN).contains(&token.len())));
    assert!((0..=u8::MAX).all(|byte| distinct.contains(&vec![byte])), "a byte that is no token");
    tokens
}

fn write_vocabulary(out: &Path, name: &str, tokens: &[Vec<u8>]) {
    let length: usize = tokens.iter().map(Vec::len).sum();
    assert!(length < 1 << OFFSET_BITS, "the offset of a token does not fit its slot");

    let mut arena = Vec::with_capacity(length);
    let mut starts = vec![0_u8; length / 8 + 1 + PADDING];
    let mut slots = vec![EMPTY; slot_count(tokens.len())];
    let mut pairs = vec![EMPTY; 1 << 16];
    for token in tokens {
        let offset = u32::try_from(arena.len()).unwrap();
        starts[arena.len() / 8] |= 1 << (arena.len() % 8);
        arena.extend_from_slice(token);

        let hash = hash::hash(token);
        let mut at = layout::home(hash, slots.len());
        while slots[at] != EMPTY {
            at = layout::beside(at, slots.len());
        }
        slots[at] = layout::tag(hash) | offset;
        assert_ne!(slots[at], EMPTY, "a token looks like an empty slot");

        if let &[first, second] = token.as_slice() {
            pairs[layout::pair(first, second)] = offset;
        }
    }
    arena.resize(length + PADDING, 0);
    // One start more, so that the last token has an end.
    starts[length / 8] |= 1 << (length % 8);
    assert!(longest_chain(&slots) <= LONGEST_CHAIN, "a text could be made that is slow to look up");

    let write = |kind: &str, bytes: &[u8]| fs::write(out.join(format!("{name}.{kind}")), bytes).unwrap();
    write("arena", &arena);
    write("starts", &starts);
    write("slots", &little_endian(&slots));
    write("pairs", &little_endian(&pairs));
}

/// The smallest power of two that leaves a fifth of the slots empty.
fn slot_count(tokens: usize) -> usize {
    (tokens + tokens / 4).next_power_of_two()
}

/// Full slots in a row: no search takes more steps.
fn longest_chain(slots: &[u32]) -> usize {
    // The table is a ring; it starts behind an empty slot.
    let start = slots.iter().position(|slot| *slot == EMPTY).expect("a search in a full table has no end");
    let (front, back) = slots.split_at(start);
    let ring = [back, front].concat();
    ring.split(|slot| *slot == EMPTY).map(<[u32]>::len).max().unwrap_or_default()
}

fn little_endian(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// What the two regexes tell apart, by the name of its variant in `src/class.rs`.
const CLASSES: [(&str, &str); 7] = [
    ("Upper", r"[\p{Lu}\p{Lt}]"),
    ("Lower", r"\p{Ll}"),
    ("Caseless", r"[\p{Lm}\p{Lo}]"),
    ("Mark", r"\p{M}"),
    ("Number", r"\p{N}"),
    ("Space", r"[\s--[\r\n]]"),
    ("Newline", r"[\r\n]"),
];

fn write_classes(path: &Path) {
    let mut classes = vec!["Other"; 0x11_0000];
    for (name, pattern) in CLASSES {
        let hir = regex_syntax::parse(pattern).unwrap();
        let HirKind::Class(Class::Unicode(class)) = hir.kind() else { panic!("{pattern} is no class") };
        for range in class.ranges() {
            for class in &mut classes[range.start() as usize..=range.end() as usize] {
                assert_eq!(*class, "Other", "a character is of two classes");
                *class = name;
            }
        }
    }

    let mut blocks: Vec<&[&str]> = Vec::new();
    let mut index = Vec::new();
    for block in classes.chunks(layout::BLOCK) {
        let place = blocks.iter().position(|known| *known == block).unwrap_or_else(|| {
            blocks.push(block);
            blocks.len() - 1
        });
        index.push(u8::try_from(place).expect("at most 256 different blocks"));
    }
    fs::write(path, class_source(&index, &blocks)).unwrap();
}

fn class_source(index: &[u8], blocks: &[&[&str]]) -> String {
    let block = layout::BLOCK;
    let mut source = format!("static INDEX: [u8; {}] = {index:?};\n", index.len());
    writeln!(source, "static BLOCKS: [[Class; {block}]; {}] = [", blocks.len()).unwrap();
    for block in blocks {
        let classes: Vec<_> = block.iter().map(|class| format!("Class::{class}")).collect();
        writeln!(source, "[{}],", classes.join(",")).unwrap();
    }
    source.push_str("];\n");
    source
}
