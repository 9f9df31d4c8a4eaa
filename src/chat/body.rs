//! Bounded gathering: what may be read at all, decided on the headers first.

use crate::config::BodyRules;

/// A body that is not read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unread {
    /// Answered with 413.
    TooLarge { max: usize },
    /// A content coding that is not undone here; answered with 415.
    Compressed,
}

/// Whether a body with these headers is worth gathering.
pub fn admit(
    rules: &BodyRules,
    content_length: Option<&str>,
    content_encoding: Option<&str>,
) -> Result<(), Unread> {
    if content_encoding.is_some_and(is_coded) {
        return Err(Unread::Compressed);
    }
    match content_length.and_then(|length| length.trim().parse::<u64>().ok()) {
        Some(length) if length > rules.max as u64 => Err(Unread::TooLarge { max: rules.max }),
        // Digits beyond 64 bits are the host's to refuse; what arrives is measured again.
        Some(_) | None => Ok(()),
    }
}

/// Whether the bytes that have come so far may still grow.
pub fn fits(rules: &BodyRules, gathered: usize) -> Result<(), Unread> {
    if gathered > rules.max { Err(Unread::TooLarge { max: rules.max }) } else { Ok(()) }
}

/// `identity` and an empty value say that there is nothing to undo.
fn is_coded(content_encoding: &str) -> bool {
    content_encoding
        .split(',')
        .map(str::trim)
        .any(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("identity"))
}

/// Pieces of a body, for a host that hands them over one by one.
#[derive(Debug)]
pub struct BodyBuffer {
    bytes: Vec<u8>,
    rules: BodyRules,
}

impl BodyBuffer {
    pub const fn new(rules: BodyRules) -> Self {
        Self { bytes: Vec::new(), rules }
    }

    pub fn push(&mut self, piece: &[u8]) -> Result<(), Unread> {
        fits(&self.rules, self.bytes.len().saturating_add(piece.len()))?;
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}
