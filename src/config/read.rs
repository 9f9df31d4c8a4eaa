//! How a tree becomes the types of [`super::raw`]: everything readable is read, everything else reported.
//!
//! Not serde's derive: it stops at the first problem, takes lists for maps, and cannot tell a key that is
//! not built yet from one that does not exist.

use serde_json::{Map, Value, json};

use super::problems::{Place, Problems, listed, nearest, shown};

/// Longer than any name, pattern or header in use.
const MAX_TEXT: usize = 256;

/// Entries of one list or map; above it the lookups of every request would be felt.
pub(super) const MAX_ITEMS: usize = 256;

/// A value of the policy.
pub(super) trait Read: Sized {
    /// `None` once the problem is reported.
    fn read(value: &Value, at: Place<'_>, problems: &mut Problems) -> Option<Self>;

    /// JSON Schema of what [`Read::read`] takes.
    fn schema() -> Value;
}

/// Declares a map of the policy: its keys, all of them optional, and those that are not built yet.
macro_rules! record {
    (
        $(#[doc = $about:literal])+
        $name:ident, $noun:literal {
            $( $(#[doc = $doc:literal])+ $field:ident $(as $key:literal)? : $type:ty, )+
        }
        later [$($later:literal),* $(,)?]
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, Default)]
        #[allow(dead_code, reason = "a key that has one word so far is checked by reading it, and never looked at")]
        pub(super) struct $name {
            $( $(#[doc = $doc])+ pub(super) $field: Option<$type>, )+
        }

        impl Read for $name {
            fn read(value: &Value, at: Place<'_>, problems: &mut Problems) -> Option<Self> {
                let entries = $crate::config::read::entries(
                    value, at, problems, $noun, &[$(record!(@key $field $($key)?)),+], &[$($later),*],
                )?;
                Some(Self {
                    $( $field: $crate::config::read::field(entries, record!(@key $field $($key)?), at, problems), )+
                })
            }

            fn schema() -> Value {
                $crate::config::read::record_schema(
                    &[$($about),+],
                    [$( (record!(@key $field $($key)?), &[$($doc),+][..], <$type as Read>::schema()), )+],
                )
            }
        }
    };
    (@key $field:ident $key:literal) => { $key };
    (@key $field:ident) => { stringify!($field) };
}
pub(super) use record;

/// Teaches an enum its words, and the words that are not built yet.
macro_rules! words {
    ($name:ty { $($variant:ident = $word:literal),+ $(,)? } later [$($later:literal),* $(,)?]) => {
        impl Read for $name {
            fn read(value: &Value, at: Place<'_>, problems: &mut Problems) -> Option<Self> {
                match $crate::config::read::word(value, at, problems, &[$($word),+], &[$($later),*])? {
                    $( $word => Some(Self::$variant), )+
                    _ => None,
                }
            }

            fn schema() -> Value {
                ::serde_json::json!({"enum": [$($word),+]})
            }
        }
    };
}
pub(super) use words;

/// The entries of a map, after every key that does not belong there is reported.
pub(super) fn entries<'v>(
    value: &'v Value,
    at: Place<'_>,
    problems: &mut Problems,
    noun: &str,
    keys: &[&str],
    later: &[&str],
) -> Option<&'v Map<String, Value>> {
    let Value::Object(entries) = value else {
        problems.unexpected(at, value, format_args!("{noun}: a map with {}", listed(keys)));
        return None;
    };
    for key in entries.keys().map(String::as_str).filter(|key| !keys.contains(key)) {
        if later.contains(&key) {
            problems.add(at.key(key), format!("`{key}` is not supported yet"));
        } else {
            problems.add(at.key(key), unknown(key, &format!("a key of {noun}"), keys));
        }
    }
    Some(entries)
}

fn unknown(word: &str, what: &str, known: &[&str]) -> String {
    let hint = match nearest(word, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("what would do: {}", listed(known)),
    };
    format!("`{}` is not {what}; {hint}", shown(word).escape_debug())
}

/// `null` is how YAML writes a key without a value: as good as absent.
pub(super) fn field<T: Read>(
    entries: &Map<String, Value>,
    key: &str,
    at: Place<'_>,
    problems: &mut Problems,
) -> Option<T> {
    let value = entries.get(key).filter(|value| !value.is_null())?;
    T::read(value, at.key(key), problems)
}

/// One of the known words, as the static text to match on.
pub(super) fn word(
    value: &Value,
    at: Place<'_>,
    problems: &mut Problems,
    words: &[&'static str],
    later: &[&str],
) -> Option<&'static str> {
    let Value::String(text) = value else {
        problems.unexpected(at, value, listed(words));
        return None;
    };
    let found = words.iter().copied().find(|word| word == text);
    match found {
        Some(_) => {}
        None if later.contains(&text.as_str()) => problems.add(at, format!("`{text}` is not supported yet")),
        None => problems.add(at, unknown(text, "one of the words for this", words)),
    }
    found
}

pub(super) fn record_schema<const N: usize>(
    about: &[&str],
    fields: [(&'static str, &[&str], Value); N],
) -> Value {
    let mut properties = Map::new();
    for (key, doc, mut schema) in fields {
        if let Value::Object(schema) = &mut schema {
            schema.insert("description".to_owned(), Value::String(prose(doc)));
        }
        // A key without a value is as good as absent.
        properties.insert(key.to_owned(), json!({"anyOf": [schema, {"type": "null"}]}));
    }
    json!({"type": "object", "description": prose(about), "properties": properties, "additionalProperties": false})
}

/// The lines of a doc comment as one.
fn prose(lines: &[&str]) -> String {
    lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ")
}

impl Read for String {
    fn read(value: &Value, at: Place<'_>, problems: &mut Problems) -> Option<Self> {
        match value {
            Value::String(text) if text.len() > MAX_TEXT => {
                problems.add(at, format!("{} bytes of text are more than {MAX_TEXT}", text.len()));
                None
            }
            Value::String(text) => Some(text.clone()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                problems.unexpected(at, value, "text; put it in quotes");
                None
            }
        }
    }

    fn schema() -> Value {
        json!({"type": "string", "maxLength": MAX_TEXT})
    }
}

impl Read for bool {
    fn read(value: &Value, at: Place<'_>, problems: &mut Problems) -> Option<Self> {
        match value {
            Value::Bool(flag) => Some(*flag),
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
                problems.unexpected(at, value, listed(&["true", "false"]));
                None
            }
        }
    }

    fn schema() -> Value {
        json!({"type": "boolean"})
    }
}

/// A list. What could not be read leaves a hole, so that the rest keeps its index.
#[derive(Clone, Debug, Default)]
pub(super) struct List<T>(pub(super) Vec<Option<T>>);

impl<T> List<T> {
    pub(super) fn read_items(&self) -> impl Iterator<Item = (usize, &T)> {
        self.0.iter().enumerate().filter_map(|(index, item)| Some((index, item.as_ref()?)))
    }
}

impl<T: Read> Read for List<T> {
    fn read(value: &Value, at: Place<'_>, problems: &mut Problems) -> Option<Self> {
        let items = match value {
            Value::Array(items) => items.as_slice(),
            // Lua has one empty table for both, so Kong prints an empty list as a map.
            Value::Object(entries) if entries.is_empty() => &[],
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
                problems.unexpected(at, value, "a list");
                return None;
            }
        };
        if items.len() > MAX_ITEMS {
            problems.add(at, format!("{} entries are more than {MAX_ITEMS}", items.len()));
            return None;
        }
        let read = |(index, item)| T::read(item, at.item(index), problems);
        Some(Self(items.iter().enumerate().map(read).collect()))
    }

    fn schema() -> Value {
        json!({"anyOf": [
            {"type": "array", "items": T::schema(), "maxItems": MAX_ITEMS},
            {"type": "object", "maxProperties": 0}
        ]})
    }
}

/// A map whose keys the policy chooses. Hosts do not keep its order, so it has none: by key.
#[derive(Clone, Debug)]
pub(super) struct Table<T>(pub(super) Vec<(String, Option<T>)>);

impl<T: Read> Read for Table<T> {
    fn read(value: &Value, at: Place<'_>, problems: &mut Problems) -> Option<Self> {
        let Value::Object(entries) = value else {
            problems.unexpected(at, value, "a map");
            return None;
        };
        if entries.len() > MAX_ITEMS {
            problems.add(at, format!("{} entries are more than {MAX_ITEMS}", entries.len()));
            return None;
        }
        let mut table: Vec<(String, Option<T>)> = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let place = table.partition_point(|(other, _)| other <= key);
            table.insert(place, (key.clone(), T::read(value, at.key(key), problems)));
        }
        Some(Self(table))
    }

    fn schema() -> Value {
        json!({"type": "object", "additionalProperties": T::schema(), "maxProperties": MAX_ITEMS})
    }
}
