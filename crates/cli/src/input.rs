//! Files → the JSON text that a proxy would hand to the filter.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use serde_json::Value;
use tollgate::config::ConfigError;

/// A policy found in a file, and where in the file.
#[derive(Debug)]
pub(crate) struct Policy {
    /// Empty when the policy is the whole file.
    pub(crate) place: String,
    pub(crate) json: Vec<u8>,
}

/// `-` is standard input.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        io::stdin().read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    fs::read(path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// The policies in a file: the file itself, or the configurations of the Wasm filters in an Envoy's.
pub(crate) fn policies(path: &Path, bytes: Vec<u8>) -> Result<Vec<Policy>, ConfigError> {
    // JSON goes through the filter's own reader, so that its messages are the ones a proxy would log.
    if path.extension().is_some_and(|extension| extension == "json") {
        return Ok(vec![Policy { place: String::new(), json: bytes }]);
    }
    let document = yaml(&bytes)?;
    if document.get("static_resources").is_none() {
        return Ok(vec![Policy { place: String::new(), json: document.to_string().into_bytes() }]);
    }
    let mut found = Vec::new();
    gather(&document, String::new(), &mut found);
    if found.is_empty() {
        return Err(whole(
            "this is an Envoy configuration, and no Wasm filter in it has a `configuration`".into(),
        ));
    }
    Ok(found)
}

fn yaml(bytes: &[u8]) -> Result<Value, ConfigError> {
    // Booleans are YAML 1.1's, as Envoy reads them: an unquoted `off` must be refused here too.
    let options = serde_saphyr::options! { with_snippet: false };
    serde_saphyr::from_slice_with_options(bytes, options).map_err(|error| whole(format!("not YAML: {error}")))
}

const fn whole(problem: String) -> ConfigError {
    ConfigError { path: String::new(), problem }
}

/// Every `configuration` of a Wasm plugin below `value`.
fn gather(value: &Value, place: String, found: &mut Vec<Policy>) {
    match value {
        Value::Object(entries) => {
            let is_wasm = entries
                .get("@type")
                .and_then(Value::as_str)
                .is_some_and(|name| name.ends_with(".wasm.v3.Wasm"));
            if let Some(configuration) = value.pointer("/config/configuration").filter(|_| is_wasm) {
                let place = format!("{place}.config.configuration");
                found.push(Policy { place, json: unwrapped(configuration) });
                return;
            }
            for (key, value) in entries {
                let dot = if place.is_empty() { "" } else { "." };
                gather(value, format!("{place}{dot}{key}"), found);
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                gather(item, format!("{place}[{i}]"), found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The policy inside an `Any`: a `Struct` or a `StringValue`.
fn unwrapped(configuration: &Value) -> Vec<u8> {
    match configuration.get("value") {
        Some(Value::String(text)) => text.clone().into_bytes(),
        Some(value) => value.to_string().into_bytes(),
        None => configuration.to_string().into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_yaml(text: &str) -> Value {
        yaml(text.as_bytes()).unwrap()
    }

    #[test]
    fn yaml_keeps_what_a_policy_needs() {
        let value = read_yaml(
            "a: 0.80\nb: \"4000000000000000\"\nc: 4000000000000000\nd: off\ne: 60s\nf: \"-\"\ng:\nh: '*'",
        );
        assert_eq!(value["a"], 0.8);
        assert_eq!(value["b"], "4000000000000000");
        assert_eq!(value["c"], 4_000_000_000_000_000_u64);
        assert_eq!(value["d"], false);
        assert_eq!(value["e"], "60s");
        assert_eq!(value["f"], "-");
        assert_eq!(value["g"], Value::Null);
        assert_eq!(value["h"], "*");
    }

    #[test]
    fn broken_yaml_is_refused_with_its_line() {
        for bad in ["a: 1\nb: [", "a: 1\na: 2", "a: 1\n\tb: 2"] {
            let error = yaml(bad.as_bytes()).unwrap_err();
            assert!(error.problem.contains(" at line "), "{bad:?}: {error}");
        }
    }

    #[test]
    fn the_policy_is_found_inside_an_envoy_configuration() {
        let envoy = r#"
static_resources:
  listeners:
  - filters:
    - typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
        config:
          configuration:
            "@type": type.googleapis.com/google.protobuf.Struct
            value: {version: 1}
    - typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
        config:
          configuration: {"@type": type.googleapis.com/google.protobuf.StringValue, value: '{"version": 2}'}
"#;
        let found = policies(Path::new("envoy.yaml"), envoy.into()).unwrap();
        let texts: Vec<_> =
            found.iter().map(|policy| String::from_utf8_lossy(&policy.json).into_owned()).collect();
        assert_eq!(texts, [r#"{"version":1}"#, r#"{"version": 2}"#]);
        assert_eq!(
            found[0].place,
            "static_resources.listeners[0].filters[0].typed_config.config.configuration"
        );
        assert!(policies(Path::new("-"), b"static_resources: {}".to_vec()).is_err());
    }
}
