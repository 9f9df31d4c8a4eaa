//! Every policy file in `tests/config`, through the filter's door and through `tollgate check`.
//!
//! `# expect: …` lines at the head of a file are all that is said about it, word for word, in any order.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tollgate::config::{FilterConfig, schema};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(folder: &str) -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(root().join("tests/config").join(folder)).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

fn expected(text: &str) -> BTreeSet<String> {
    text.lines().filter_map(|line| line.strip_prefix("# expect: ")).map(str::to_owned).collect()
}

fn json(yaml: &str) -> Value {
    serde_saphyr::from_str(yaml).unwrap()
}

fn door(policy: &Value) -> Result<FilterConfig, BTreeSet<String>> {
    FilterConfig::from_slice(policy.to_string().as_bytes())
        .map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

fn tollgate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tollgate")).args(args).output().unwrap()
}

fn check(path: &Path) -> (bool, BTreeSet<String>, String) {
    let output = tollgate(&["check", path.to_str().unwrap()]);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let said = text(&output.stderr).lines().map(str::to_owned).collect();
    (output.status.success(), said, text(&output.stdout))
}

#[test]
fn every_bad_policy_is_refused_with_the_words_expected() {
    for (path, text) in files("bad") {
        let name = path.display();
        let expected = expected(&text);
        assert!(!expected.is_empty(), "{name} expects nothing");
        assert_eq!(door(&json(&text)).map(|_| ()).unwrap_err(), expected, "{name}");
        let (passed, said, enforced) = check(&path);
        assert_eq!((passed, &said, enforced.as_str()), (false, &expected, ""), "{name}");
    }
}

#[test]
fn every_good_policy_is_taken_and_told_in_words() {
    for (path, text) in files("good").into_iter().chain(files("warned")) {
        let name = path.display();
        assert!(door(&json(&text)).is_ok(), "{name}");
        let (passed, _, enforced) = check(&path);
        assert!(passed && enforced.starts_with("Metered"), "{name}");
    }
}

#[test]
fn what_is_seldom_meant_is_warned_of() {
    for (path, text) in files("warned") {
        let expected = expected(&text).iter().map(|line| format!("warning: {line}")).collect();
        assert_eq!(check(&path).1, expected, "{}", path.display());
    }
}

#[test]
fn every_example_in_the_reference_is_a_good_policy() {
    let reference = fs::read_to_string(root().join("docs/policy.md")).unwrap();
    let examples: Vec<&str> =
        reference.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert!(examples.len() >= 3);
    for example in examples {
        if let Err(problems) = door(&json(example)) {
            panic!("{problems:#?}\n{example}");
        }
    }
}

#[test]
fn the_reference_names_every_key() {
    fn keys(schema: &Value, found: &mut BTreeSet<String>) {
        match schema {
            Value::Object(entries) => {
                if let Some(Value::Object(properties)) = entries.get("properties") {
                    found.extend(properties.keys().cloned());
                }
                entries.values().for_each(|value| keys(value, found));
            }
            Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
            _ => {}
        }
    }
    let mut all = BTreeSet::new();
    keys(&schema(), &mut all);
    let reference = fs::read_to_string(root().join("docs/policy.md")).unwrap();
    let missing: Vec<_> = all.iter().filter(|key| !reference.contains(&format!("`{key}`"))).collect();
    assert!(missing.is_empty(), "docs/policy.md does not mention {missing:?}");
}

/// After a change of keys: `cargo run -p tollgate-cli -- schema > policy.schema.json`.
#[test]
fn the_committed_schema_is_the_one_that_the_types_give() {
    let committed = fs::read_to_string(root().join("policy.schema.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&committed).unwrap(), schema());
    assert_eq!(String::from_utf8(tollgate(&["schema"]).stdout).unwrap(), committed);
}

#[test]
fn the_schema_takes_good_policies_and_no_key_that_the_door_refuses() {
    let schema = jsonschema::validator_for(&schema()).unwrap();
    for (path, text) in files("good").into_iter().chain(files("warned")) {
        let policy = json(&text);
        assert!(schema.is_valid(&policy), "{}", path.display());
        for place in maps(&policy) {
            let mut spoilt = policy.clone();
            let Some(Value::Object(entries)) = spoilt.pointer_mut(&place) else { panic!("{place}") };
            entries.insert("unheard-of".to_owned(), json!([[]]));
            assert!(!schema.is_valid(&spoilt), "{} with a key at {place:?}", path.display());
            assert!(door(&spoilt).is_err(), "{} with a key at {place:?}", path.display());
        }
    }
}

/// JSON pointers of all maps in a document.
fn maps(value: &Value) -> Vec<String> {
    let below = |key: String, value: &Value| maps(value).into_iter().map(move |rest| format!("/{key}{rest}"));
    match value {
        Value::Object(entries) => [String::new()]
            .into_iter()
            .chain(
                entries
                    .iter()
                    .flat_map(|(key, value)| below(key.replace('~', "~0").replace('/', "~1"), value)),
            )
            .collect(),
        Value::Array(items) => {
            items.iter().enumerate().flat_map(|(i, item)| below(i.to_string(), item)).collect()
        }
        _ => Vec::new(),
    }
}

#[test]
fn a_file_that_is_not_there_and_one_that_is_not_yaml_are_said_to_be_so() {
    let gone = tollgate(&["check", "no-such-file.yaml"]);
    assert_eq!(gone.status.code(), Some(2));
    assert!(String::from_utf8(gone.stderr).unwrap().contains("no-such-file.yaml"));

    let broken = Path::new(env!("CARGO_TARGET_TMPDIR")).join("broken.yaml");
    fs::write(&broken, "version: 1\nlimits: [\n").unwrap();
    let (passed, said, _) = check(&broken);
    assert!(!passed);
    assert!(said.iter().any(|line| line.starts_with("not YAML") && line.contains("line")), "{said:?}");
}

#[test]
fn the_summary_says_what_matters() {
    let enforced = check(&root().join("tests/config/good/everything.yaml")).2;
    let claims = check(&root().join("tests/config/good/families-and-claims.yaml")).2;
    for line in [
        "  tenant: metadata envoy.filters.http.jwt_authn / jwt_payload / org_id, bearer token (hashed), else the request gets 401",
        "  user: metadata envoy.filters.http.jwt_authn / jwt_payload / sub (hashed), else \"-\"",
        "Headers on answers: token_limit, openai, anthropic, ietf.",
    ] {
        assert!(claims.lines().any(|found| found == line), "{line}\n\n{claims}");
    }
    for line in [
        "  tenant: header x-tenant-id (removed before the upstream), bearer token (hashed), header x-api-key (hashed), else \"anonymous\"",
        "  project: header x-project-id, else the request gets 401",
        "  tier free: 50,000 tokens per 1m (sliding, weighted: up to nearly twice that around a turn) for each tenant",
        "  A tier that is none of these counts as free.",
        "Limit project-input (shadow: counted and reported, never refused):",
        "  90,000 raw tokens every 1m, saved up to 90,000 (bucket) for all callers together",
        "  Only for these models: gpt-4o, gpt-4o-2*.",
        "  Can be overshot by at most 1,336,320 (model gpt-4o*: 87 answers at once, 15,360 each; an answer without a cap is held at the model's default and can be longer).",
        "  Can never be overshot: a request is counted before it passes.",
    ] {
        assert!(enforced.lines().any(|found| found == line), "{line}\n\n{enforced}");
    }
}
