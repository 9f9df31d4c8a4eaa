//! What the documents say about the code, held against the code as text. README.md's commands are run by
//! `tests/envoy/test_readme.py`.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test that cannot go on has failed"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders that hold no documents of ours.
const PASSED_OVER: [&str; 4] = ["target", ".git", "node_modules", "fuzz/corpus"];

/// Bounds that docs/operations.md states: file, constant, and the words there.
const BOUNDS: [(&str, &str, &str); 10] = [
    ("src/local/shard.rs", "ACCOUNTS_PER_SHARD: usize = 128;", "128 accounts"),
    ("src/local/shard.rs", "HOLDS_PER_SHARD: usize = 4096;", "4,096 holds"),
    ("src/local/shard.rs", "OVERFLOW_ACCOUNTS: usize = 1024;", "1,024 overflow accounts"),
    ("src/local/shard.rs", "MAX_CAS_ATTEMPTS: u32 = 64;", "64 times in a row"),
    ("src/local/shard.rs", "ended: Span::from_secs(600)", "10 minutes after its lease"),
    ("src/exchange/gather.rs", "HOLD_WITHOUT_BODY: Span = Span::from_secs(2);", "2 s"),
    ("src/exchange/gather.rs", "LOOK_FIRST: usize = 16 * 1024;", "16 KiB"),
    ("src/exchange/answer.rs", "STEP: Tokens = Tokens::new(256);", "256 tokens"),
    ("src/usage/hide.rs", "MOST_HELD: usize = 64 * 1024;", "64 KiB"),
    ("src/chat/mod.rs", "MAX_PIECES: usize = 65_536;", "65,536 messages and parts"),
];

#[test]
fn every_metric_and_label_value_is_documented() {
    let code = read("src/metrics.rs");
    let page = read("docs/metrics.md");
    let names: BTreeSet<&str> = literals(&code).filter(|text| text.starts_with("tollgate_")).collect();
    assert!(names.len() > 10, "found only {names:?}");
    for name in names {
        assert!(page.contains(&format!("`{name}`")), "docs/metrics.md does not name {name}");
    }
    // `Self::OverLimit => "over_limit",`
    let values = code.lines().filter_map(|line| line.trim().strip_suffix("\",")?.split_once(" => \""));
    for (variant, value) in values {
        assert!(page.contains(&format!("`{value}`")), "docs/metrics.md does not tell {value} ({variant})");
    }
    for status in ["ok", "client_disconnect", "upstream_error", "refused"] {
        assert!(read("src/exchange/record.rs").contains(&format!("\"{status}\"")), "{status}");
        assert!(page.contains(&format!("`{status}`")), "docs/metrics.md does not tell the status {status}");
    }
}

#[test]
fn the_tags_in_the_documents_are_those_of_envoy_yaml() {
    let tags = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.trim_start().starts_with("- {tag_name:"));
        lines.map(|line| line.trim().to_owned()).collect()
    };
    assert_eq!(tags(&read("docs/metrics.md")), tags(&read("envoy.yaml")));
    for label in literals(&read("src/metrics.rs"))
        .filter(|text| ["outcome", "limit", "model", "kind", "reason"].contains(text))
    {
        let tag = format!("- {{tag_name: {label},");
        assert!(read("envoy.yaml").contains(&tag), "envoy.yaml has no tag for the label {label}");
    }
}

#[test]
fn the_bounds_that_operators_are_told_are_those_of_the_code() {
    let page = read("docs/operations.md").split_whitespace().collect::<Vec<_>>().join(" ");
    for (file, constant, words) in BOUNDS {
        assert!(
            read(file).contains(constant),
            "{file} no longer says `{constant}`: change docs/operations.md too"
        );
        assert!(page.contains(words), "docs/operations.md does not say `{words}`");
    }
}

#[test]
fn every_decision_is_in_the_index() {
    let index = read("docs/adr/README.md");
    let mut numbers = Vec::new();
    for name in names_in("docs/adr").into_iter().filter(|name| name != "README.md") {
        let (number, _) = name.split_once('-').unwrap();
        let title = read(&format!("docs/adr/{name}")).lines().next().unwrap_or_default().to_owned();
        let number: usize = number.parse().unwrap();
        assert!(title.starts_with(&format!("# {number}. ")), "{name} is headed {title}");
        assert!(index.contains(&format!("({name})")), "docs/adr/README.md does not list {name}");
        numbers.push(number);
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=numbers.len()).collect::<Vec<_>>(), "numbers of decisions");
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut broken = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        for target in links(&text).filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let to = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            let found = to.exists()
                && (heading.is_empty()
                    || headings(&fs::read_to_string(&to).unwrap()).any(|name| name == heading));
            if !found {
                broken.push(format!("{}: {target}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn documents_named_in_comments_exist() {
    for path in files(&root().join("src"), "rs").into_iter().chain(files(&root().join("crates"), "rs")) {
        let text = fs::read_to_string(&path).unwrap();
        for (at, _) in text.match_indices("docs/") {
            let end = text[at..].find(|c: char| !(c.is_alphanumeric() || "/-._".contains(c)));
            let name = text[at..].get(..end.unwrap_or(0)).unwrap_or_default().trim_end_matches('.');
            assert!(!name.ends_with(".md") || root().join(name).exists(), "{}: {name}", path.display());
        }
    }
}

// --- reading

fn links(text: &str) -> impl Iterator<Item = &str> {
    let starts = text.match_indices("](").map(|(at, opening)| at + opening.len());
    starts.filter_map(|start| text[start..].split_once(')').map(|(target, _)| target))
}

/// As hosts of repositories make anchors of them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter(|line| line.starts_with('#')).map(|line| {
        let words = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        words.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
    })
}

fn literals(code: &str) -> impl Iterator<Item = &str> {
    code.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| line.split('"').skip(1).step_by(2))
}

fn documents() -> Vec<PathBuf> {
    let found = files(root(), "md");
    assert!(found.len() > 10, "only {} documents", found.len());
    found
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/");
            if PASSED_OVER.contains(&name.as_str()) || name.starts_with("fuzz/target") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found
}

fn names_in(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
