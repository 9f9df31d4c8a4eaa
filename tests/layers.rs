//! The layers of docs/ARCHITECTURE.md, enforced: who may name whom in `src/`.
//!
//! A module may name modules of lower layers, and in its own layer those to its left. What this reads is
//! text, so an import hidden in a macro escapes it; what it must not do is to pass over a plain one.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test that cannot go on has failed"
)]

use std::fs;
use std::path::{Path, PathBuf};

/// From the bottom to the top; the order within a layer counts.
const LAYERS: [(&str, &[&str]); 4] = [
    ("parse", &["config", "identity", "chat", "usage"]),
    ("decide", &["metrics", "estimate", "local", "remote", "plan", "reply"]),
    ("drive", &["exchange"]),
    ("touch", &["host"]),
];

/// The one that talks to the proxy, and may name its SDK.
const HOST: &str = "host";

/// Layer 0: crates that know nothing of the filter, and what they may depend on at run time.
const VOCABULARY: [(&str, &[&str]); 2] = [("budget", &["serde", "sha2"]), ("bpe", &[])];

#[test]
fn no_module_names_one_above_it_or_to_its_right() {
    let findings: Vec<String> = sources().iter().flat_map(|source| source.forbidden()).collect();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn every_module_has_a_layer() {
    let listed: Vec<&str> = LAYERS.iter().flat_map(|(_, modules)| *modules).copied().collect();
    let text = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let mut declared: Vec<&str> = text.lines().filter_map(module_declared).collect();
    declared.sort_unstable();
    let mut sorted = listed.clone();
    sorted.sort_unstable();
    assert_eq!(declared, sorted, "src/lib.rs and the table of layers name different modules");
    let page = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    for (name, modules) in LAYERS {
        let row = modules.iter().map(|module| format!("`{module}`")).collect::<Vec<_>>().join(", ");
        let told = page.lines().any(|line| line.contains(name) && line.contains(&row));
        assert!(told, "docs/ARCHITECTURE.md has no row `{name}` with {row}");
    }
}

#[test]
fn the_vocabulary_depends_on_nothing_of_ours() {
    for (name, allowed) in VOCABULARY {
        let manifest = fs::read_to_string(root().join(format!("crates/{name}/Cargo.toml"))).unwrap();
        for dependency in dependencies(&manifest) {
            assert!(allowed.contains(&dependency), "crates/{name} depends on {dependency} at run time");
        }
    }
}

#[test]
fn a_broken_layer_is_caught() {
    let broken = [
        ("src/config/compile.rs", "use crate::identity::Subject;", "identity"),
        ("src/config/mod.rs", "use crate::{error, plan::Plan};", "plan"),
        ("src/chat/openai.rs", "let held = crate::exchange::Exchange::new(gate, id);", "exchange"),
        ("src/estimate/mod.rs", "use crate::{\n    chat::{Chat, Piece},\n    local::Place,\n};", "local"),
        ("src/plan.rs", "use super::reply::Reply;", "reply"),
        ("src/reply/mod.rs", "use super::super::host::calls;", HOST),
        ("src/exchange/mod.rs", "use crate::host::calls::HostError;", HOST),
        ("src/exchange/step.rs", "fn log() { proxy_wasm::hostcalls::log(level, text); }", "proxy_wasm"),
        ("src/metrics.rs", "use crate::*;", "everything"),
    ];
    for (path, text, named) in broken {
        let found = Source::new(path, text).forbidden();
        assert!(found.len() == 1 && found[0].contains(named), "{path}: {text}\nfound {found:?}");
    }
    let sound = [
        ("src/identity.rs", "use crate::config::{Absent, FilterConfig};"),
        ("src/plan.rs", "use crate::{config::Api, identity::Subject, local::Place};"),
        ("src/exchange/admit.rs", "use super::state::State;\nuse crate::estimate::{self, Basis, bytes};"),
        ("src/config/mod.rs", "// crate::host is named in a comment only\nuse crate::config::number;"),
        ("src/host/http.rs", "use crate::exchange::Exchange;\nuse proxy_wasm::types::Action;"),
        ("src/usage/seen.rs", "use super::super::usage::report;\npub(crate) struct Reply;"),
    ];
    for (path, text) in sound {
        assert_eq!(Source::new(path, text).forbidden(), Vec::<String>::new(), "{path}: {text}");
    }
}

// --- one file

struct Source {
    path: String,
    /// The top-level module it belongs to; none for `lib.rs`, which only lists modules.
    module: Option<String>,
    /// How many `super::` lead to the crate's root.
    depth: usize,
    /// Without comments.
    text: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        let inside = path.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
        let module = inside.split('/').next().filter(|name| *name != "lib");
        let code = text.lines().map(|line| line.split_once("//").map_or(line, |(code, _)| code));
        Self {
            path: path.to_owned(),
            module: module.map(str::to_owned),
            depth: inside.split('/').count(),
            text: code.collect::<Vec<_>>().join("\n"),
        }
    }

    /// One line for each name that it may not use.
    fn forbidden(&self) -> Vec<String> {
        let Some(module) = &self.module else { return Vec::new() };
        let own = place(module).unwrap_or_else(|| panic!("`{module}` of {} has no layer", self.path));
        let mut findings: Vec<String> = self
            .names()
            .into_iter()
            .filter(|name| name == "*" || place(name).is_some_and(|other| other > own))
            .map(|name| if name == "*" { "everything in the crate".to_owned() } else { format!("`{name}`") })
            .collect();
        if module != HOST && self.text.contains("proxy_wasm") {
            findings.push("`proxy_wasm`".to_owned());
        }
        findings.iter().map(|name| format!("{}: `{module}` may not name {name}", self.path)).collect()
    }

    /// The first names after the crate's root, however it was reached.
    fn names(&self) -> Vec<String> {
        let climb = "super::".repeat(self.depth);
        let mut names = Vec::new();
        for root in ["crate::", &climb] {
            for (at, _) in self.text.match_indices(root) {
                let (before, after) = (&self.text[..at], &self.text[at + root.len()..]);
                // `my_crate::`, and the rest of a chain of `super::` that has been seen from its start.
                if !before.ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c)) {
                    names.extend(first_names(after.trim_start_matches("super::")));
                }
            }
        }
        // Tests take all of their own module by `super::*`; all of the crate is another matter.
        names.retain(|name| name != "*" || self.text.contains("crate::*"));
        names
    }
}

/// `config::Api` → `config`; `{config::{self, Api}, plan}` → `config`, `plan`.
fn first_names(path: &str) -> Vec<String> {
    let Some(group) = path.strip_prefix('{') else { return vec![name(path)] };
    let mut names = vec![name(group)];
    let mut open = 1;
    for (at, c) in group.char_indices() {
        match c {
            '{' => open += 1,
            '}' => open -= 1,
            ',' if open == 1 => names.push(name(&group[at + 1..])),
            _ => {}
        }
        if open == 0 {
            break;
        }
    }
    names
}

fn name(path: &str) -> String {
    let path = path.trim_start();
    if path.starts_with('*') {
        return "*".to_owned();
    }
    path.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// Layer, and place in it: what a module may name stands lower.
fn place(module: &str) -> Option<(usize, usize)> {
    LAYERS.iter().enumerate().find_map(|(layer, (_, modules))| {
        modules.iter().position(|name| *name == module).map(|place| (layer, place))
    })
}

fn module_declared(line: &str) -> Option<&str> {
    line.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';')
}

fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let section = manifest.lines().skip_while(|line| line.trim() != "[dependencies]").skip(1);
    section
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
}

fn sources() -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders = vec![root().join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(Source::new(&relative(&path), &fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(found.len() > 50, "only {} files in src/", found.len());
    found
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/")
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
