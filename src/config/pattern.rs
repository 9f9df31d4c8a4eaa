//! What a policy matches names and paths with.
//!
//! A path that escapes its route is a request that escapes its budget. So paths are compared as the
//! most lenient upstream would read them: without the query, with percent-escapes of plain characters
//! undone, empty and dot segments resolved.

use std::borrow::Cow;
use std::fmt;

/// A name with `*` for any run of characters. Case is not looked at, as some servers of models do not.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Glob(pub String);

impl Glob {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn matches(&self, name: &str) -> bool {
        matches(self.0.as_bytes(), name.as_bytes())
    }

    /// Whether some name matches both.
    pub fn overlaps(&self, other: &Self) -> bool {
        overlap(self.0.as_bytes(), other.0.as_bytes())
    }
}

impl From<&str> for Glob {
    fn from(pattern: &str) -> Self {
        Self(pattern.to_owned())
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Only the last `*` is ever tried again, so the time is the product of the lengths at worst.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while let Some(&byte) = name.get(n) {
        match (pattern.get(p), retry) {
            (Some(b'*'), _) => {
                retry = Some((p, n));
                p += 1;
            }
            (Some(wanted), _) if wanted.eq_ignore_ascii_case(&byte) => (p, n) = (p + 1, n + 1),
            (_, Some((star, taken))) => {
                retry = Some((star, taken + 1));
                (p, n) = (star + 1, taken + 1);
            }
            (_, None) => return false,
        }
    }
    pattern.iter().skip(p).all(|&b| b == b'*')
}

/// For each tail of `a`, from its end, whether it overlaps each tail of `b`, from its end: the time is the product of
/// the lengths.
fn overlap(a: &[u8], b: &[u8]) -> bool {
    // The empty tail of `a`: of `b`, only a `*` is as good as nothing.
    let stars = b.iter().rev().take_while(|&&byte| byte == b'*').count();
    let mut tails: Vec<bool> = (0..=b.len()).map(|tail| tail <= stars).collect();
    for &x in a.iter().rev() {
        let mut last = x == b'*' && tails.first() == Some(&true);
        let mut longer = vec![last];
        for (pair, &y) in tails.windows(2).zip(b.iter().rev()) {
            let (Some(&both), Some(&ours)) = (pair.first(), pair.last()) else { continue };
            last = if x == b'*' || y == b'*' { ours || last } else { x == y && both };
            longer.push(last);
        }
        tails = longer;
    }
    tails.last() == Some(&true)
}

/// The segments of a path; matches every path that ends in them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PathPattern(Vec<Segment>);

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Segment {
    Literal(String),
    /// `*`: exactly one segment.
    Any,
}

impl PathPattern {
    /// `None` for a path without a segment, which would match everything.
    pub fn new(path: &str) -> Option<Self> {
        let segments: Vec<Segment> = path
            .split('/')
            .filter(|segment| !segment.is_empty())
            .map(|segment| match segment {
                "*" => Segment::Any,
                literal => Segment::Literal(literal.to_owned()),
            })
            .collect();
        (!segments.is_empty()).then_some(Self(segments))
    }

    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    pub fn matches(&self, path: &RequestPath) -> bool {
        path.0.iter().any(|reading| self.matches_reading(reading))
    }

    fn matches_reading(&self, segments: &[Vec<u8>]) -> bool {
        let Some(skipped) = segments.len().checked_sub(self.0.len()) else {
            return false;
        };
        self.0.iter().zip(segments.iter().skip(skipped)).all(|(wanted, found)| match wanted {
            // Express and ASP.NET do not look at case; where an upstream does, the path leads nowhere.
            Segment::Literal(literal) => literal.as_bytes().eq_ignore_ascii_case(found),
            Segment::Any => true,
        })
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|segment| match segment {
            Segment::Literal(literal) => write!(f, "/{literal}"),
            Segment::Any => f.write_str("/*"),
        })
    }
}

/// A request's path in each way that a lenient upstream may read it, as segments.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RequestPath([Vec<Vec<u8>>; 2]);

/// What `..` takes back after a doubled slash.
#[derive(Clone, Copy)]
enum EmptySegments {
    /// The slashes are merged first, so the last segment with a name.
    Merged,
    /// The empty segment, as RFC 3986 (5.2.4) has it.
    Kept,
}

impl RequestPath {
    pub fn new(path: &str) -> Self {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        let path = unescaped(path.as_bytes());
        Self([EmptySegments::Merged, EmptySegments::Kept].map(|empty| segments(&path, empty)))
    }

    /// The model that the path names: Azure's `…/deployments/NAME/…`, whose servers do not look at the body's,
    /// and Vertex' `…/models/NAME:verb`.
    pub fn model(&self) -> Option<Cow<'_, str>> {
        let [merged, _] = &self.0;
        let after = |name: &[u8]| {
            let place = merged.iter().rposition(|segment| segment.eq_ignore_ascii_case(name))?;
            merged.get(place.checked_add(1)?).map(Vec::as_slice)
        };
        let verb = || {
            let last = after(b"models").filter(|named| merged.last().is_some_and(|last| last == named))?;
            let colon = last.iter().rposition(|byte| *byte == b':')?;
            last.get(..colon)
        };
        after(b"deployments").or_else(verb).map(String::from_utf8_lossy)
    }
}

fn segments(path: &[u8], empty: EmptySegments) -> Vec<Vec<u8>> {
    let mut segments = Vec::new();
    for segment in path.split(|&byte| matches!(byte, b'/' | b'\\')) {
        // Servlet containers drop a segment's parameters.
        let name = segment.split(|&byte| byte == b';').next().unwrap_or_default();
        match (name, empty) {
            (b".", _) | (b"", EmptySegments::Merged) => {}
            (b"..", _) => {
                segments.pop();
            }
            (name, _) => segments.push(name.to_vec()),
        }
    }
    segments.retain(|name| !name.is_empty());
    segments
}

/// Once only: `%2561` is the text `%61`, for us as for an upstream.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [first, tail @ ..] = rest {
        rest = match (first, tail) {
            (b'%', [high, low, after @ ..]) => match (nibble(*high), nibble(*low)) {
                (Some(high), Some(low)) => {
                    plain.push(high << 4 | low);
                    after
                }
                (_, _) => {
                    plain.push(b'%');
                    tail
                }
            },
            (byte, _) => {
                plain.push(*byte);
                tail
            }
        };
    }
    plain
}

const fn nibble(hex: u8) -> Option<u8> {
    match hex {
        b'0'..=b'9' => Some(hex - b'0'),
        b'a'..=b'f' => Some(hex - b'a' + 10),
        b'A'..=b'F' => Some(hex - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_overlap_when_some_name_matches_both() {
        let cases = [
            ("gpt-4o", "gpt-4*", true),
            ("gpt-*-mini", "gpt-4o*", true),
            ("*a", "b*", true),
            ("gpt-4o", "gpt-4", false),
            ("a*b", "a*c", false),
            ("*", "", true),
            ("", "x", false),
            ("", "", true),
            ("**", "", true),
            ("a*", "*b*", true),
        ];
        for (a, b, expected) in cases {
            assert_eq!(overlap(a.as_bytes(), b.as_bytes()), expected, "{a} {b}");
            assert_eq!(overlap(b.as_bytes(), a.as_bytes()), expected, "{b} {a}");
        }
        assert!(!overlap("*a".repeat(120).as_bytes(), ("*a".repeat(120) + "b").as_bytes()));
    }

    #[test]
    fn a_star_stands_for_any_run_of_characters() {
        let cases = [
            ("gpt-4o*", "gpt-4o", true),
            ("gpt-4o*", "gpt-4o-mini", true),
            ("gpt-4o*", "my-gpt-4o", false),
            ("gpt-4o", "gpt-4o-mini", false),
            ("*", "", true),
            ("**", "anything", true),
            ("", "", true),
            ("", "x", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-b-b-c-", false),
            ("claude-*-4-5*", "claude-sonnet-4-5-20250929", true),
            ("gpt-4o*", "GPT-4o-Mini", true),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(Glob(pattern.into()).matches(name), expected, "{pattern} on {name}");
        }
    }

    #[test]
    fn a_hostile_name_costs_no_more_than_the_product_of_the_lengths() {
        let pattern = Glob("*a".repeat(60) + "b");
        assert!(!pattern.matches(&"a".repeat(100_000)));
    }

    #[test]
    fn a_path_matches_as_a_suffix_however_it_is_dressed_up() {
        let route = PathPattern::new("/v1/chat/completions").unwrap();
        for path in [
            "/v1/chat/completions",
            "/openai/v1/chat/completions",
            "/v1/chat/completions?stream=true",
            "/v1/chat/completions/",
            "//v1//chat/completions",
            "/v1/./chat/completions",
            "/v1/models/../chat/completions",
            "/v1/%63hat/completions",
            "/v1/chat%2Fcompletions",
            "/v1/chat//../completions",
            "/v1/chat/x//../../completions",
            "/v1/chat;x=y/completions;z",
            "/v1/Chat/Completions",
        ] {
            assert!(route.matches(&RequestPath::new(path)), "{path}");
        }
        for path in
            ["/v1/chat/completions/x", "/chat/completions", "/v1/chat", "/", "", "%", "/v1/chat%2completions"]
        {
            assert!(!route.matches(&RequestPath::new(path)), "{path}");
        }
    }

    #[test]
    fn a_path_may_name_the_model() {
        for (path, model) in [
            ("/openai/deployments/my-gpt/chat/completions?api-version=1", Some("my-gpt")),
            ("/openai/Deployments/my%2Dgpt/embeddings", Some("my-gpt")),
            (
                "/v1/projects/p/locations/l/publishers/anthropic/models/claude-opus-4@1:rawPredict",
                Some("claude-opus-4@1"),
            ),
            ("/v1/models/gpt-4o", None),
            ("/v1/models/a:b/chat/completions", None),
            ("/v1/chat/completions", None),
            ("/deployments", None),
        ] {
            assert_eq!(RequestPath::new(path).model().as_deref(), model, "{path}");
        }
    }

    #[test]
    fn a_star_in_a_path_stands_for_one_segment() {
        let route = PathPattern::new("/deployments/*/chat/completions").unwrap();
        assert!(route.matches(&RequestPath::new("/openai/deployments/mine/chat/completions?api-version=1")));
        assert!(!route.matches(&RequestPath::new("/openai/deployments/chat/completions")));
        assert!(!route.matches(&RequestPath::new("/openai/deployments/a/b/chat/completions")));
    }
}
