//! Where in a policy we are, and all that is wrong with it so far.

use std::fmt;

use serde_json::Value;

use super::ConfigError;

/// Beyond this nobody reads on, and a hostile policy must not make us write megabytes.
pub(super) const MAX_PROBLEMS: usize = 64;

/// Enough of a found value to recognise it.
const MAX_SHOWN: usize = 40;

/// A path into the document, from the inside out.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    Document,
    Key(&'a Place<'a>, &'a str),
    Item(&'a Place<'a>, usize),
}

impl Place<'_> {
    pub(super) const fn key<'a>(&'a self, key: &'a str) -> Place<'a> {
        Place::Key(self, key)
    }

    pub(super) const fn item(&self, index: usize) -> Place<'_> {
        Place::Item(self, index)
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Document => Ok(()),
            Self::Item(list, index) => write!(f, "{list}[{index}]"),
            Self::Key(map, key) if !is_plain(key) => write!(f, "{map}[{:?}]", shown(key)),
            Self::Key(Self::Document, key) => f.write_str(key),
            Self::Key(map, key) => write!(f, "{map}.{key}"),
        }
    }
}

fn is_plain(key: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !key.is_empty() && key.len() <= MAX_SHOWN && key.bytes().all(plain)
}

/// Everything found so far. A value with a problem is left out of what is read, so later checks ask
/// [`Problems::touched`] before they call something missing.
#[derive(Default)]
pub(super) struct Problems {
    found: Vec<ConfigError>,
    unlisted: usize,
}

impl Problems {
    pub(super) fn add(&mut self, at: Place<'_>, problem: impl Into<String>) {
        if self.found.len() < MAX_PROBLEMS {
            self.found.push(ConfigError { path: at.to_string(), problem: problem.into() });
        } else {
            self.unlisted += 1;
        }
    }

    /// For what follows from an absence: silent where the absent thing was there and refused.
    pub(super) fn add_unless_touched(&mut self, at: Place<'_>, problem: impl Into<String>) {
        if !self.touched(at) {
            self.add(at, problem);
        }
    }

    /// Whether something at this place, or inside it, was refused already.
    pub(super) fn touched(&self, at: Place<'_>) -> bool {
        let at = at.to_string();
        let inside = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[']);
        self.found.iter().any(|error| error.path.strip_prefix(at.as_str()).is_some_and(inside))
    }

    /// "Found X, expected Y."
    pub(super) fn unexpected(&mut self, at: Place<'_>, found: &Value, expected: impl fmt::Display) {
        self.add(at, format!("found {}, expected {expected}", Found(found)));
    }

    /// What was made of the document, if nothing was wrong with it.
    pub(super) fn into_result<T>(self, made: Option<T>) -> Result<T, Vec<ConfigError>> {
        let Self { mut found, unlisted } = self;
        if unlisted > 0 {
            found.push(ConfigError { path: String::new(), problem: format!("{unlisted} more problems") });
        }
        match made {
            Some(made) if found.is_empty() => Ok(made),
            Some(_) | None => Err(found),
        }
    }
}

/// A value as a person would name it.
struct Found<'a>(&'a Value);

impl fmt::Display for Found<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("nothing (`null`)"),
            // The one trace that YAML leaves of a word which it takes for a boolean.
            Value::Bool(false) => f.write_str("`false` (YAML reads an unquoted `off` or `no` so)"),
            Value::Bool(true) => f.write_str("`true` (YAML reads an unquoted `on` or `yes` so)"),
            Value::Number(number) => write!(f, "the number {number}"),
            Value::String(text) => write!(f, "the text {:?}", shown(text)),
            Value::Array(_) => f.write_str("a list"),
            Value::Object(_) => f.write_str("a map"),
        }
    }
}

/// The start of a text, for messages.
pub(super) fn shown(text: &str) -> String {
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => text.get(..end).unwrap_or_default().to_owned() + "…",
        None => text.to_owned(),
    }
}

/// "`a`, `b` or `c`".
pub(super) fn listed(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

/// The known word that a typing mistake away from `word` is, if there is one.
pub(super) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    /// Two slips in a word of six letters still leave it recognisable; more is guessing.
    const LETTERS_PER_SLIP: usize = 3;
    /// Longer than every word of ours; keeps the comparison short.
    const MAX_WORD: usize = 40;
    if word.len() > MAX_WORD {
        return None;
    }
    let near = |known: &&str| distance(word, known) <= (known.len() / LETTERS_PER_SLIP).max(1);
    known.iter().copied().filter(near).min_by_key(|known| distance(word, known))
}

/// Levenshtein's.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.bytes().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (above, to) in row.iter_mut().skip(1).zip(b.bytes()) {
            let best = (diagonal + usize::from(from != to)).min(left + 1).min(*above + 1);
            diagonal = std::mem::replace(above, best);
            left = best;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_the_one_a_person_would_write() {
        let limits = Place::Document.key("limits");
        let limit = limits.item(2);
        let window = limit.key("window");
        assert_eq!(window.key("sliding").to_string(), "limits[2].window.sliding");
        assert_eq!(window.key("a b\n").to_string(), r#"limits[2].window["a b\n"]"#);
        assert_eq!(Place::Document.to_string(), "");
    }

    #[test]
    fn a_typing_mistake_is_recognised_and_a_different_word_is_not() {
        let known = ["amount", "window", "per"];
        assert_eq!(nearest("amout", &known), Some("amount"));
        assert_eq!(nearest("windwo", &known), Some("window"));
        assert_eq!(nearest("pre", &known), None);
        assert_eq!(nearest("color", &known), None);
        assert_eq!(nearest(&"x".repeat(1000), &known), None);
    }

    #[test]
    fn problems_beyond_the_bound_are_counted() {
        let mut problems = Problems::default();
        for _ in 0..MAX_PROBLEMS + 5 {
            problems.add(Place::Document, "x");
        }
        let all = problems.into_result(Some(())).unwrap_err();
        assert_eq!(all.len(), MAX_PROBLEMS + 1);
        assert_eq!(all.last().unwrap().problem, "5 more problems");
    }
}
