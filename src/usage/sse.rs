//! Frames server-sent events, as bytes, resumable at any byte.
//!
//! Lines end with LF, CRLF or CR. The lines of an event's data are walked where they stand; none is
//! gathered. A last event without its blank line counts when its JSON is whole, which the standard would
//! drop: providers that forget the blank line report their usage in that event.

use super::answer::Answer;
use super::hide::{Gate, Passage, Passed, Verdict};
use super::json::Scanner;
use super::places::Place;
use super::runs::{is_newline, split};

const DATA: &[u8] = b"data";

#[derive(Debug)]
pub(super) struct Lines {
    line: Line,
    data: Data,
    after: After,
}

/// What has been read of the line.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Line {
    #[default]
    Start,
    /// So many bytes of the field name, all as in `data`.
    Name(usize),
    /// After the colon of `data`, where one space does not belong to the value.
    Space,
    Value,
    /// A comment, or a field that says nothing of usage.
    Unread,
}

/// Whether the event has had a line of data: the next one is joined to it by a newline.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Data {
    Without,
    With,
}

/// What an LF means if it comes next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum After {
    Anything,
    /// The rest of a line end that passed.
    Return,
    /// The rest of a line end that was hidden.
    HiddenReturn,
}

impl Lines {
    pub(super) const fn new() -> Self {
        Self { line: Line::Start, data: Data::Without, after: After::Anything }
    }

    /// Reads `chunk` from `start`; what stands before it passes.
    pub(super) fn feed(
        &mut self,
        chunk: &[u8],
        start: usize,
        scanner: &mut Scanner<Place>,
        answer: &mut Answer,
        gate: &mut Gate,
    ) -> Passed {
        let mut passage = gate.pass(chunk);
        let mut at = start;
        while let Some((byte, _)) = chunk.get(at..).and_then(<[u8]>::split_first) {
            match byte {
                b'\n' if self.after != After::Anything => {
                    if self.after == After::HiddenReturn {
                        passage.drop_until(at, at + 1);
                    }
                    self.after = After::Anything;
                    at += 1;
                }
                b'\n' | b'\r' => {
                    at += 1;
                    let fate = self.line_end(at, scanner, answer, &mut passage);
                    self.after = match (byte, fate) {
                        (b'\r', Verdict::Pass) => After::Return,
                        (b'\r', Verdict::Hide) => After::HiddenReturn,
                        _ => After::Anything,
                    };
                }
                _ => {
                    self.after = After::Anything;
                    let rest = self.text(chunk, at, scanner, answer, &mut passage);
                    at = chunk.len().saturating_sub(rest.len());
                }
            }
        }
        passage.close()
    }

    /// The stream is over: an event without its blank line counts now.
    pub(super) fn finish(
        &mut self,
        scanner: &mut Scanner<Place>,
        answer: &mut Answer,
        gate: &mut Gate,
    ) -> Vec<u8> {
        let verdict = answer.end_of_event(scanner);
        *self = Self::new();
        gate.last(verdict)
    }

    /// A part of a line, from `at`. Returns what is left: nothing, or all from the end of the line.
    fn text<'b>(
        &mut self,
        chunk: &'b [u8],
        at: usize,
        scanner: &mut Scanner<Place>,
        answer: &mut Answer,
        passage: &mut Passage<'_>,
    ) -> &'b [u8] {
        let mut text = chunk.get(at..).unwrap_or_default();
        if self.line == Line::Start && text.first().is_some_and(|byte| *byte != b':') {
            passage.begin(at);
        }
        while let Some((byte, rest)) = text.split_first() {
            let (next, rest) = match (self.line, *byte) {
                (Line::Value, _) => {
                    text = scanner.feed(text, answer);
                    break;
                }
                (_, b'\n' | b'\r') => break,
                (Line::Unread, _) => (Line::Unread, split(rest, is_newline).1),
                (Line::Space, b' ') => (Line::Value, rest),
                (Line::Space, _) => (Line::Value, text),
                (Line::Start, byte) if DATA.first() == Some(&byte) => (Line::Name(1), rest),
                (Line::Name(read), byte) if DATA.get(read) == Some(&byte) => (Line::Name(read + 1), rest),
                (Line::Name(read), b':') if read == DATA.len() => {
                    self.join(scanner, answer);
                    (Line::Space, rest)
                }
                (Line::Start | Line::Name(_), _) => (Line::Unread, rest),
            };
            (self.line, text) = (next, rest);
        }
        if scanner.broken() || answer.cannot_be_hidden() {
            passage.release();
        }
        text
    }

    /// A second line of data is joined to the first by a newline, which to JSON is a blank.
    fn join(&mut self, scanner: &mut Scanner<Place>, answer: &mut Answer) {
        if self.data == Data::With {
            scanner.feed(b" ", answer);
        }
        self.data = Data::With;
    }

    /// The line ended before `end`; says what becomes of its end.
    fn line_end(
        &mut self,
        end: usize,
        scanner: &mut Scanner<Place>,
        answer: &mut Answer,
        passage: &mut Passage<'_>,
    ) -> Verdict {
        match std::mem::take(&mut self.line) {
            Line::Start => {
                self.data = Data::Without;
                let verdict = answer.end_of_event(scanner);
                passage.end(end, verdict)
            }
            Line::Name(read) => {
                // `data` without a colon is a line of data, and empty.
                if read == DATA.len() {
                    self.join(scanner, answer);
                }
                Verdict::Pass
            }
            Line::Space | Line::Value | Line::Unread => Verdict::Pass,
        }
    }
}
