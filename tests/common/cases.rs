//! The requests of `tests/fixtures` and `tests/cases`, as they come to a proxy.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tollgate::chat::Dialect;
use tollgate::config::{FilterConfig, RequestPath};

use super::requests::Ask;

/// One request, and what is right about it.
#[derive(Clone, Debug)]
pub struct Case {
    pub id: String,
    pub ask: Ask,
    /// Offsets of special interest.
    pub split: Vec<usize>,
    pub expected: Value,
    pub why: String,
}

/// Every request whose body is read by default, compressed ones included.
pub fn requests() -> Vec<Case> {
    let cases =
        list("cases").into_iter().filter(|case| case["kind"] == "request").map(|case| read("cases", &case));
    let fixtures = list("fixtures");
    let fixtures = fixtures.iter().flat_map(|fixture| {
        let asked = [&fixture["request"], &fixture["request_stream"]]
            .into_iter()
            .filter(|request| request.is_object());
        asked.map(|request| read("fixtures", request)).collect::<Vec<_>>()
    });
    let config = FilterConfig::from_slice(br#"{"version": 1}"#).unwrap();
    let is_read = |case: &Case| {
        let dialect = config.route(&RequestPath::new(&case.ask.path)).and_then(Dialect::of);
        dialect.is_some() && case.ask.method == "POST"
    };
    cases.chain(fixtures).filter(is_read).collect()
}

/// The sequences by name.
pub fn sequences() -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder("cases")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if name.starts_with("seq-") {
            found.push((name, serde_json::from_slice(&fs::read(&path).unwrap()).unwrap()));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

fn read(from: &str, request: &Value) -> Case {
    let file = text(&request["file"]);
    let body = inflated(fs::read(folder(from).join(&file)).unwrap(), &request["inflate"]);
    let mut ask = Ask::raw(body).path(&text(&request["path"]));
    if let Some(method) = request["method"].as_str() {
        ask.method = method.to_owned();
    }
    for (name, value) in request["headers"].as_object().into_iter().flatten() {
        if name != "content-type" && name != "content-length" {
            ask = ask.header(&name.to_lowercase(), text(value));
        }
    }
    let split = request["delivery"].as_array().into_iter().flatten();
    Case {
        id: request["id"].as_str().map_or(file, str::to_owned),
        ask,
        split: split.filter_map(Value::as_u64).map(|at| usize::try_from(at).unwrap()).collect(),
        expected: request["expected"].clone(),
        why: text(&request["why"]),
    }
}

fn inflated(raw: Vec<u8>, inflate: &Value) -> Vec<u8> {
    if !inflate.is_object() {
        return raw;
    }
    let count = usize::try_from(inflate["count"].as_u64().unwrap()).unwrap();
    let many = text(&inflate["unit"]).repeat(count);
    String::from_utf8(raw).unwrap().replace(&text(&inflate["marker"]), &many).into_bytes()
}

fn list(name: &str) -> Vec<Value> {
    let manifest: Value =
        serde_json::from_slice(&fs::read(folder(name).join("manifest.json")).unwrap()).unwrap();
    manifest[name].as_array().unwrap().clone()
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
