//! Walks JSON as its bytes arrive, resumable at any byte, keeping none of it.
//!
//! A [`Reader`] gives every value a place by the keys that lead to it. Values without a place are skipped
//! without being looked at, so the walk keeps no more of a document than the path to where it stands, and
//! depth costs nothing. Structure is checked strictly, scalars are not: a `NaN` somewhere in a log
//! probability must not hide the usage after it.

use std::num::NonZeroU64;

use super::runs::{is_bare, is_newline, split, split_plain};
use super::word::Word;

/// Deeper values are skipped: no place of interest lies so deep, nested content parts included.
const DEEPEST: usize = 16;

/// Says which values matter, and takes them. The root is an object or an array; anything else is broken.
pub(super) trait Reader {
    type Place: Copy + Eq + std::fmt::Debug;
    /// A value nobody wants.
    const IGNORED: Self::Place;

    fn member(&self, object: Self::Place, key: &[u8]) -> Self::Place;
    fn element(&self, array: Self::Place) -> Self::Place;
    fn open(&mut self, place: Self::Place);
    fn close(&mut self, place: Self::Place);
    /// A part of a string, decoded; not necessarily whole characters.
    fn piece(&mut self, place: Self::Place, bytes: &[u8]);
    fn string_end(&mut self, place: Self::Place);
    /// A number, `true`, `false`, `null`, or whatever else stands there without quotes.
    fn scalar(&mut self, place: Self::Place, token: &[u8]);
}

#[derive(Debug)]
pub(super) struct Scanner<P> {
    state: State,
    root: P,
    /// The place of the value that is expected or being read.
    place: P,
    /// The containers around it, outermost first.
    frames: [Frame<P>; DEEPEST],
    depth: usize,
    string: Role,
    word: Word,
    /// The first half of an escaped surrogate pair.
    high: Option<u16>,
    newline: Newline,
}

/// What a line end between two bytes of JSON is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Newline {
    Blank,
    /// The end of what is fed: the rest belongs to the framing around.
    End,
}

#[derive(Clone, Copy, Debug)]
struct Frame<P> {
    place: P,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Object,
    Array,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Role {
    Key,
    Value,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Before a value, or the end of an array.
    Value,
    /// Before a key, or the end of an object.
    Key,
    Colon,
    /// After a value inside a container.
    Next,
    String,
    Escape,
    Unicode {
        digits: u8,
        unit: u16,
    },
    Bare,
    /// Inside a container without a place: this many are open.
    Skip(NonZeroU64),
    SkipString(NonZeroU64),
    SkipEscape(NonZeroU64),
    Whole,
    Broken,
}

impl<P: Copy> Scanner<P> {
    pub(super) const fn new(root: P, newline: Newline) -> Self {
        Self {
            state: State::Value,
            root,
            place: root,
            frames: [Frame { place: root, kind: Kind::Object }; DEEPEST],
            depth: 0,
            string: Role::Value,
            word: Word::new(),
            high: None,
            newline,
        }
    }

    /// Before anything is fed.
    pub(super) const fn ends_at_newlines(&mut self) {
        self.newline = Newline::End;
    }

    /// Ready for the next document.
    pub(super) const fn reset(&mut self) {
        self.state = State::Value;
        self.place = self.root;
        self.depth = 0;
        self.high = None;
        self.word.clear();
    }

    pub(super) fn whole(&self) -> bool {
        self.state == State::Whole
    }

    pub(super) fn broken(&self) -> bool {
        self.state == State::Broken
    }
}

impl<P: Copy + Eq> Scanner<P> {
    /// Returns what is left: nothing, or all from a line end where it ends what is fed.
    pub(super) fn feed<'b, R: Reader<Place = P>>(&mut self, mut bytes: &'b [u8], reader: &mut R) -> &'b [u8] {
        while let Some((byte, rest)) = bytes.split_first() {
            if self.newline == Newline::End && is_newline(*byte) {
                break;
            }
            bytes = match self.state {
                State::String => self.string(bytes, reader),
                State::Bare => self.bare(bytes, reader),
                State::Skip(open) => self.skip(open, bytes),
                State::SkipString(open) => self.skip_string(open, bytes),
                State::SkipEscape(open) => {
                    self.state = State::SkipString(open);
                    rest
                }
                State::Escape => {
                    self.escape(*byte, reader);
                    rest
                }
                State::Unicode { digits, unit } => {
                    self.unicode(digits, unit, *byte, reader);
                    rest
                }
                State::Value | State::Key | State::Colon | State::Next | State::Whole => {
                    self.structure(bytes, *byte, rest, reader)
                }
                State::Broken => split(bytes, |byte| self.newline == Newline::End && is_newline(byte)).1,
            };
        }
        bytes
    }

    /// `byte` and `rest` are `bytes`, between values.
    fn structure<'b, R: Reader<Place = P>>(
        &mut self,
        bytes: &'b [u8],
        byte: u8,
        rest: &'b [u8],
        reader: &mut R,
    ) -> &'b [u8] {
        match (self.state, byte) {
            (_, b' ' | b'\t' | b'\n' | b'\r') => {}
            (State::Value, b'"') if self.depth > 0 => self.open_string(Role::Value),
            (State::Key, b'"') => self.open_string(Role::Key),
            (State::Value, b'{') => self.open(Kind::Object, reader),
            (State::Value, b'[') => self.open(Kind::Array, reader),
            (State::Value | State::Next, b']') => self.close(Kind::Array, reader),
            (State::Key | State::Next, b'}') => self.close(Kind::Object, reader),
            (State::Colon, b':') => self.state = State::Value,
            (State::Next, b',') => self.comma(reader),
            (State::Value, byte) if is_bare(byte) && self.depth > 0 => {
                self.word.clear();
                self.state = State::Bare;
                return bytes;
            }
            _ => self.state = State::Broken,
        }
        rest
    }

    fn open_string(&mut self, role: Role) {
        self.string = role;
        self.word.clear();
        self.state = State::String;
    }

    fn open<R: Reader<Place = P>>(&mut self, kind: Kind, reader: &mut R) {
        let place = self.place;
        match self.frames.get_mut(self.depth) {
            Some(frame) if place != R::IGNORED => {
                *frame = Frame { place, kind };
                self.depth += 1;
                reader.open(place);
                match kind {
                    Kind::Object => self.state = State::Key,
                    Kind::Array => self.expect(reader.element(place)),
                }
            }
            Some(_) | None => self.state = State::Skip(NonZeroU64::MIN),
        }
    }

    fn expect(&mut self, place: P) {
        self.place = place;
        self.state = State::Value;
    }

    fn close<R: Reader<Place = P>>(&mut self, kind: Kind, reader: &mut R) {
        match self.frame() {
            Some(frame) if frame.kind == kind => {
                self.depth -= 1;
                reader.close(frame.place);
                self.after_value();
            }
            Some(_) | None => self.state = State::Broken,
        }
    }

    fn comma<R: Reader<Place = P>>(&mut self, reader: &R) {
        match self.frame() {
            Some(Frame { kind: Kind::Object, .. }) => self.state = State::Key,
            Some(Frame { kind: Kind::Array, place }) => {
                self.expect(reader.element(place));
            }
            None => self.state = State::Broken,
        }
    }

    /// The innermost container.
    fn frame(&self) -> Option<Frame<P>> {
        self.depth.checked_sub(1).and_then(|top| self.frames.get(top).copied())
    }

    const fn after_value(&mut self) {
        self.state = if self.depth == 0 { State::Whole } else { State::Next };
    }

    fn string<'b, R: Reader<Place = P>>(&mut self, bytes: &'b [u8], reader: &mut R) -> &'b [u8] {
        let (piece, rest) = split_plain(bytes);
        let Some((byte, after)) = rest.split_first() else {
            self.deliver(piece, reader);
            return rest;
        };
        match (*byte, self.string) {
            // A key that stands in one piece needs no gathering, and nearly all do.
            (b'"', Role::Key) if self.word.is_empty() && self.high.is_none() => self.key(piece, reader),
            (b'"', role) => {
                self.deliver(piece, reader);
                self.lone_surrogate(reader);
                match role {
                    Role::Key => self.gathered_key(reader),
                    Role::Value => self.string_end(reader),
                }
            }
            (b'\\', _) => {
                self.deliver(piece, reader);
                self.state = State::Escape;
            }
            (byte, _) => {
                self.deliver(piece, reader);
                if self.newline == Newline::End && is_newline(byte) {
                    return rest;
                }
                // A control byte, which the grammar forbids and some servers send.
                self.deliver(&[byte], reader);
            }
        }
        after
    }

    fn key<R: Reader<Place = P>>(&mut self, key: &[u8], reader: &R) {
        let object = self.frame().map_or(self.root, |frame| frame.place);
        self.place = reader.member(object, key);
        self.state = State::Colon;
    }

    fn gathered_key<R: Reader<Place = P>>(&mut self, reader: &R) {
        let word = self.word;
        self.key(word.bytes(), reader);
    }

    fn string_end<R: Reader<Place = P>>(&mut self, reader: &mut R) {
        if self.place != R::IGNORED {
            reader.string_end(self.place);
        }
        self.after_value();
    }

    /// Hands over a part of the string that was written as it is.
    fn deliver<R: Reader<Place = P>>(&mut self, piece: &[u8], reader: &mut R) {
        if !piece.is_empty() {
            self.lone_surrogate(reader);
            self.deliver_decoded(piece, reader);
        }
    }

    fn deliver_decoded<R: Reader<Place = P>>(&mut self, piece: &[u8], reader: &mut R) {
        match self.string {
            Role::Key => self.word.push(piece),
            Role::Value if self.place != R::IGNORED => reader.piece(self.place, piece),
            Role::Value => {}
        }
    }

    fn escape<R: Reader<Place = P>>(&mut self, byte: u8, reader: &mut R) {
        let plain = match byte {
            b'"' | b'\\' | b'/' => byte,
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'b' => 0x08,
            b'f' => 0x0C,
            b'u' => {
                self.state = State::Unicode { digits: 0, unit: 0 };
                return;
            }
            _ => {
                self.state = State::Broken;
                return;
            }
        };
        self.deliver(&[plain], reader);
        self.state = State::String;
    }

    fn unicode<R: Reader<Place = P>>(&mut self, digits: u8, unit: u16, byte: u8, reader: &mut R) {
        let Some(digit) = char::from(byte).to_digit(16).and_then(|digit| u16::try_from(digit).ok()) else {
            self.state = State::Broken;
            return;
        };
        let unit = (unit << 4) | digit;
        if digits < 3 {
            self.state = State::Unicode { digits: digits + 1, unit };
        } else {
            self.state = State::String;
            self.code_unit(unit, reader);
        }
    }

    fn code_unit<R: Reader<Place = P>>(&mut self, unit: u16, reader: &mut R) {
        let is_low = (0xDC00..0xE000).contains(&unit);
        if !is_low {
            self.lone_surrogate(reader);
        }
        if (0xD800..0xDC00).contains(&unit) {
            self.high = Some(unit);
            return;
        }
        let pair = [self.high.take().unwrap_or(unit), unit];
        let units = if is_low && pair[0] != unit { &pair[..] } else { &pair[1..] };
        for char in char::decode_utf16(units.iter().copied()) {
            self.deliver_char(char.unwrap_or(char::REPLACEMENT_CHARACTER), reader);
        }
    }

    /// Half a pair that was not followed by its other half is unreadable, as it is for the client.
    fn lone_surrogate<R: Reader<Place = P>>(&mut self, reader: &mut R) {
        if self.high.take().is_some() {
            self.deliver_char(char::REPLACEMENT_CHARACTER, reader);
        }
    }

    fn deliver_char<R: Reader<Place = P>>(&mut self, char: char, reader: &mut R) {
        self.deliver_decoded(char.encode_utf8(&mut [0; 4]).as_bytes(), reader);
    }

    fn bare<'b, R: Reader<Place = P>>(&mut self, bytes: &'b [u8], reader: &mut R) -> &'b [u8] {
        let (piece, rest) = split(bytes, |byte| !is_bare(byte));
        let in_one_piece = self.word.is_empty() && !rest.is_empty();
        if !in_one_piece {
            self.word.push(piece);
        }
        if !rest.is_empty() {
            if self.place != R::IGNORED {
                reader.scalar(self.place, if in_one_piece { piece } else { self.word.bytes() });
            }
            self.after_value();
        }
        rest
    }

    fn skip<'b>(&mut self, open: NonZeroU64, bytes: &'b [u8]) -> &'b [u8] {
        let (_, rest) =
            split(bytes, |byte| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']') || is_newline(byte));
        let Some((byte, after)) = rest.split_first() else { return rest };
        match byte {
            b'"' => self.state = State::SkipString(open),
            b'{' | b'[' => self.state = State::Skip(open.saturating_add(1)),
            b'}' | b']' => match NonZeroU64::new(open.get() - 1) {
                Some(open) => self.state = State::Skip(open),
                None => self.after_value(),
            },
            _ if self.newline == Newline::End => return rest,
            _ => {}
        }
        after
    }

    fn skip_string<'b>(&mut self, open: NonZeroU64, bytes: &'b [u8]) -> &'b [u8] {
        let (_, rest) = split_plain(bytes);
        let Some((byte, after)) = rest.split_first() else { return rest };
        match byte {
            b'"' => self.state = State::Skip(open),
            b'\\' => self.state = State::SkipEscape(open),
            byte if self.newline == Newline::End && is_newline(*byte) => return rest,
            _ => {}
        }
        after
    }
}
