//! JSON text → a tree, with every doubled key refused: of two limits under one key, JSON readers keep
//! the last without a word, and the first would not be enforced.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use sha2::{Digest, Sha256};

/// Room for every list of a policy filled to its bound, and small enough to parse on a proxy's main thread.
pub(super) const MAX_BYTES: usize = 1 << 20;

/// # Errors
/// In words, with line and column where there is one.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, String> {
    if bytes.len() > MAX_BYTES {
        return Err(format!("{} bytes are more than the {MAX_BYTES} that a policy may have", bytes.len()));
    }
    if bytes.trim_ascii().is_empty() {
        return Err("the policy is empty; the smallest one is `version: 1`".to_owned());
    }
    match serde_json::from_slice::<Tree>(bytes) {
        Ok(Tree(value)) => Ok(value),
        Err(error) => wire::parse(bytes).ok_or_else(|| format!("not a JSON document: {error}")),
    }
}

/// Equal documents have equal ones, in whatever order a host writes their keys.
pub(super) fn fingerprint(document: &Value) -> u32 {
    let text = serde_json::to_vec(document).unwrap_or_default();
    Sha256::digest(text).first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

mod wire;

struct Tree(Value);

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor).map(Tree)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Tree(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((key, Tree(value))) = entries.next_entry::<String, Tree>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format_args!(
                    "the key {:?} stands twice",
                    super::problems::shown(&key)
                )));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubled_key_is_refused_with_its_place() {
        let error = parse(b"{\"version\": 1,\n \"limits\": [], \"limits\": []}").unwrap_err();
        assert!(error.contains("\"limits\" stands twice at line 2"), "{error}");
    }

    #[test]
    fn what_is_no_json_is_refused_in_words() {
        for bad in [&b""[..], b" \n", b"{", b"version: 1", b"\xff", b"{} {}", b"\xef\xbb\xbf{}", b"[1e999]"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        assert!(parse(&b"[".repeat(100_000)).is_err());
        assert!(parse(&vec![b' '; MAX_BYTES + 1]).unwrap_err().contains("more than"));
    }
}
