//! Follows an answer as it streams: bytes in, what it cost out.
//!
//! Nothing is kept of an answer but counts and a few hundred bytes: every byte is looked at once, where
//! it stands, and resuming works at any byte. The one thing that may be held back is a usage chunk that
//! the client did not ask for, and then only its own bytes.
//!
//! What must not go wrong: text that looks like usage is text. Only the structure of the JSON decides,
//! so a model that writes a cheap usage object into its answer pays in full.

mod charge;
mod count;
mod hide;
mod json;
mod openai;
mod report;
mod seen;
mod sse;
mod tally;

use tollgate_budget::Tokens;

pub use charge::{Cost, Held, Outcome, charge};
pub use hide::{HideUsage, Passed};
pub use report::{Answered, Ending, Finish, Reach, Report};

use crate::config::Tokenizer;
use hide::Gate;
use json::Scanner;
use openai::{Answer, Place};
use sse::Lines;

/// One answer of the OpenAI dialect, plain or streamed.
#[derive(Debug)]
pub struct UsageMeter {
    wire: Wire,
    scanner: Scanner<Place>,
    answer: Answer,
    lines: Lines,
    gate: Gate,
}

/// How the answer is framed. Its first byte tells: a content type may lie, and no event stream can begin
/// with the brace that every JSON answer begins with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Wire {
    /// Only byte order mark and blanks so far.
    Unknown,
    Json,
    Sse,
    /// Compressed, or something else that cannot be read.
    Opaque,
}

impl UsageMeter {
    pub fn new(tokenizer: Tokenizer, hide: HideUsage) -> Self {
        Self::on(Wire::Unknown, tokenizer, hide)
    }

    /// For an answer that is known to be unreadable, such as a compressed one.
    pub fn unreadable(tokenizer: Tokenizer) -> Self {
        Self::on(Wire::Opaque, tokenizer, HideUsage::Keep)
    }

    fn on(wire: Wire, tokenizer: Tokenizer, hide: HideUsage) -> Self {
        Self {
            wire,
            scanner: Scanner::new(Place::Root),
            answer: Answer::new(tokenizer),
            lines: Lines::new(),
            gate: Gate::new(hide),
        }
    }

    /// Takes the next bytes of the body and tells what the client is to see in their place.
    pub fn chunk(&mut self, bytes: &[u8]) -> Passed {
        let preamble = match self.wire {
            Wire::Unknown => self.sniff(bytes),
            Wire::Json | Wire::Sse | Wire::Opaque => 0,
        };
        match self.wire {
            Wire::Unknown | Wire::Opaque => Passed::AsIs,
            Wire::Json => {
                let body = bytes.get(preamble..).unwrap_or_default();
                self.scanner.feed(body, &mut self.answer);
                Passed::AsIs
            }
            Wire::Sse => {
                self.lines.feed(bytes, preamble, &mut self.scanner, &mut self.answer, &mut self.gate)
            }
        }
    }

    /// The answer is over, whole or not: to be called on every ending, before the report is read.
    /// Returns the bytes still held back, for the client if it is still there.
    pub fn finish(&mut self) -> Vec<u8> {
        match self.wire {
            Wire::Unknown | Wire::Opaque => Vec::new(),
            Wire::Json => {
                self.answer.end_of_body(&mut self.scanner);
                Vec::new()
            }
            Wire::Sse => self.lines.finish(&mut self.scanner, &mut self.answer, &mut self.gate),
        }
    }

    /// Output seen so far: visible text, reasoning, refusals, tool calls.
    pub fn seen(&self) -> Tokens {
        self.answer.seen()
    }

    /// What is known so far; final after [`UsageMeter::finish`].
    pub fn report(&self) -> Report {
        let mut report = self.answer.report();
        if self.wire == Wire::Opaque {
            report.answered = Answered::Unreadable;
        }
        report
    }

    /// Bytes of the answer kept at this moment.
    pub fn kept(&self) -> usize {
        self.gate.held() + self.answer.kept()
    }

    /// Finds the first byte that tells the wire, and returns how many bytes stand before it.
    fn sniff(&mut self, bytes: &[u8]) -> usize {
        const BYTE_ORDER_MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];
        let told = |byte: &u8| !byte.is_ascii_whitespace() && !BYTE_ORDER_MARK.contains(byte);
        let Some(first) = bytes.iter().position(told) else { return bytes.len() };
        self.wire = match bytes.get(first) {
            Some(b'{' | b'[') => Wire::Json,
            // The first letters of the fields an event may have, and of a comment.
            Some(b'd' | b'e' | b'i' | b'r' | b':') => Wire::Sse,
            Some(_) | None => Wire::Opaque,
        };
        first
    }
}
