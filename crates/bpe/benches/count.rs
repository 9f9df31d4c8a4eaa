//! Ratios of one run, not times: machines differ, and this one is busy.
//!
//! Text that never repeats, against `tiktoken-rs`; then every hostile text, in CPU seconds.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program that measures, run by hand"
)]

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs};

use tiktoken_rs::CoreBPE;
use tollgate_bpe::{Counter, Encoding};

#[path = "../tests/corpus/mod.rs"]
mod corpus;

use corpus::hostile::HOSTILE;

/// What issue and facts demand of it.
const LEAST_RATIO: f64 = 5.0;
const MOST_SECONDS: f64 = 0.3;

const UNREPEATED: usize = 10 << 20;
const ROUNDS: usize = 5;

fn main() {
    // `cargo test --benches` passes this; there is nothing to test here.
    if env::args().any(|argument| argument == "--test") {
        return;
    }
    let texts = unrepeated_texts();
    let bytes: usize = texts.iter().map(String::len).sum();
    let encodings = [
        (Encoding::O200kBase, tiktoken_rs::o200k_base().unwrap()),
        (Encoding::Cl100kBase, tiktoken_rs::cl100k_base().unwrap()),
    ];
    for (encoding, oracle) in &encodings {
        println!("{}: {:.1} MB unrepeated in {} texts", encoding.name(), bytes as f64 / 1e6, texts.len());
        against_oracle(*encoding, oracle, &texts, bytes);
        hostile(*encoding);
    }
}

fn against_oracle(encoding: Encoding, oracle: &CoreBPE, texts: &[String], bytes: usize) {
    let mut own = Vec::new();
    let mut theirs = Vec::new();
    let mut pushed = Vec::new();
    for _ in 0..ROUNDS {
        own.push(cpu(|| texts.iter().map(|text| encoding.count(text)).sum::<usize>()));
        theirs.push(cpu(|| texts.iter().map(|text| oracle.encode_ordinary(text).len()).sum::<usize>()));
        pushed.push(cpu(|| texts.iter().map(|text| counted_in_parts(encoding, text)).sum::<usize>()));
    }
    let (own, theirs, pushed) = (median(own), median(theirs), median(pushed));
    let rate = |seconds: f64| bytes as f64 / 1e6 / seconds;
    let ratio = theirs / own;
    println!("  count         {:6.1} MB/s", rate(own));
    println!(
        "  tiktoken-rs   {:6.1} MB/s   {ratio:.1} times slower {}",
        rate(theirs),
        verdict(ratio >= LEAST_RATIO)
    );
    println!("  Counter       {:6.1} MB/s   in parts of 16 bytes", rate(pushed));
}

fn hostile(encoding: Encoding) {
    for (name, make) in HOSTILE {
        let text = make(1 << 20);
        let seconds = median((0..3).map(|_| cpu(|| encoding.count(&text))).collect());
        let pushed = cpu(|| counted_in_parts(encoding, &text));
        let limited = cpu(|| encoding.count_till_limit(&text, 9_000));
        println!(
            "  {name:24} {:6.1} ms {}   Counter {:7.1} ms   limit 9,000: {:5.2} ms",
            seconds * 1e3,
            verdict(seconds <= MOST_SECONDS),
            pushed * 1e3,
            limited * 1e3,
        );
    }
}

fn counted_in_parts(encoding: Encoding, text: &str) -> usize {
    let mut counter = Counter::new(encoding);
    let mut rest = text;
    while !rest.is_empty() {
        let (part, after) = rest.split_at(rest.floor_char_boundary(16));
        counter.push(part);
        rest = after;
    }
    counter.total()
}

fn verdict(holds: bool) -> &'static str {
    if holds { "ok" } else { "TOO SLOW" }
}

/// The median of some seconds.
fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

/// CPU seconds of this thread where the system tells them, else wall seconds. It tells them in steps
/// of some milliseconds, so the work is done as often as it takes for a mean.
fn cpu<T>(mut work: impl FnMut() -> T) -> f64 {
    const ENOUGH: f64 = 0.05;
    let started = Instant::now();
    let before = on_cpu();
    for times in 1.. {
        black_box(work());
        let seconds = match (before, on_cpu()) {
            (Some(before), Some(after)) => (after - before).as_secs_f64(),
            _ => started.elapsed().as_secs_f64(),
        };
        if seconds >= ENOUGH {
            return seconds / f64::from(times);
        }
    }
    f64::NAN
}

fn on_cpu() -> Option<Duration> {
    let times = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(times.split(' ').next()?.parse().ok()?))
}

/// Sources and documents of the dependencies, each once, in texts of 4 KB: they are on every machine
/// that can build this, and written by many hands.
fn unrepeated_texts() -> Vec<String> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(env::home_dir()?.join(".cargo")));
    let mut files = Vec::new();
    collect(&home.unwrap().join("registry/src"), &mut files);
    files.sort();
    let mut texts = Vec::new();
    let mut bytes = 0;
    for file in files {
        let Ok(source) = fs::read_to_string(file) else { continue };
        // Tables are not text, and licences repeat.
        if source.len() > 200_000 {
            continue;
        }
        let mut rest = source.as_str();
        while !rest.is_empty() && bytes < UNREPEATED {
            let (text, after) = rest.split_at(rest.floor_char_boundary(4096));
            bytes += text.len();
            texts.push(text.to_owned());
            rest = after;
        }
    }
    texts
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "md") {
            files.push(path);
        }
    }
}
