//! Counts a text that arrives in parts.
use crate::Encoding;

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
