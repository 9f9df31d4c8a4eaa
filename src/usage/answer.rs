//! Reads answers, whole or in events: what they cost by the provider's word, what of them was seen, how they
//! ended. The dialects differ in where things stand (`places`), and in little else.

use tollgate_budget::Tokens;

use super::count;
use super::hide::Verdict;
use super::json::{Reader, Scanner};
use super::places::{Field, Place, Source, finish};
use super::report::{Answered, Ending, Finish, Reach, Report};
use super::seen::Seen;
use super::tally::{Counts, Tally};
use super::word::Word;
use crate::config::Tokenizer;

/// Text gathered before it is counted. Some providers tell a choice's index after its text, so the text of
/// one chunk waits for it; a longer one is counted under the choice's position.
const MOST_WAITING: usize = 4096;

/// Choices whose end is watched; the ends of more are not waited for.
const MOST_WATCHED: u64 = 64;

#[derive(Debug)]
pub(super) struct Answer {
    seen: Seen,
    tally: Tally,
    reach: Reach,
    output: Presence,
    error: Presence,
    done: Presence,
    finish: Option<Finish>,
    /// Choices that have appeared, and those that have ended: one bit each.
    appeared: u64,
    ended: u64,
    document: Document,
    /// The choice being read.
    choice: Choice,
    /// Text of that choice, not yet counted.
    waiting: Vec<u8>,
    /// The short string being read.
    word: Word,
}

/// Whether something has come.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Presence {
    #[default]
    Absent,
    Present,
}

/// Usage objects that one document may hold and that are told apart.
const SOURCES: usize = 4;

/// The one among them that speaks of the begin of an answer.
const START: usize = 3;

/// One body, or the data of one event.
#[derive(Debug, Default)]
struct Document {
    /// Closed usage objects, in the order in which they are believed.
    usages: [Option<Counts>; SOURCES],
    /// The usage object being read.
    open: Counts,
    usage: TopUsage,
    choices: u64,
    output: Presence,
    error: Presence,
    /// It is a list, such as `[DONE]`.
    mark: Presence,
    /// What it adds is sound, not text.
    sound: Presence,
}

/// What stands under `usage`, as far as it matters for hiding.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum TopUsage {
    #[default]
    Absent,
    Null,
    Object,
}

#[derive(Clone, Copy, Debug, Default)]
struct Choice {
    position: u64,
    index: Option<u64>,
    finished: Presence,
    /// The key under which reasoning came; the same text under a second key is a copy of it.
    reasoning: Option<Place>,
}

impl Reader for Answer {
    type Place = Place;
    const IGNORED: Place = Place::Ignored;

    fn member(&self, object: Place, key: &[u8]) -> Place {
        let place = object.member(key);
        let believed = place != Place::Usage(Source::FirstChoice) || self.choice.position == 0;
        if believed { place } else { Place::Ignored }
    }

    fn element(&self, array: Place) -> Place {
        array.element()
    }

    fn open(&mut self, place: Place) {
        if let Place::Usage(source) = place {
            self.document.open = Counts::default();
            if source == Source::Top {
                self.document.usage = TopUsage::Object;
            }
        } else if place == Place::Choice {
            self.choice = Choice { position: self.document.choices, ..Choice::default() };
            self.document.choices += 1;
        } else if place == Place::Error {
            self.document.error = Presence::Present;
        }
    }

    fn close(&mut self, place: Place) {
        if let Place::Usage(source) = place {
            let [top, x_groq, first_choice, start] = &mut self.document.usages;
            let open = self.document.open;
            let (slot, counts) = match source {
                Source::Top | Source::Response => (top, open),
                Source::XGroq => (x_groq, open),
                Source::FirstChoice => (first_choice, open),
                Source::Message => (top, open.with_caches_within()),
                Source::Start => (start, open.with_caches_within()),
            };
            *slot = Some(counts);
        } else if place == Place::Choice {
            self.end_of_choice();
        }
    }

    fn piece(&mut self, place: Place, bytes: &[u8]) {
        if matches!(place, Place::Text | Place::Content | Place::Part | Place::Argument) {
            self.text(bytes);
        } else if place == Place::ResponseDelta {
            match self.document.sound {
                Presence::Absent => self.text(bytes),
                Presence::Present => self.document.output = Presence::Present,
            }
        } else if matches!(place, Place::Reasoning | Place::ReasoningContent) {
            if *self.choice.reasoning.get_or_insert(place) == place {
                self.text(bytes);
            }
        } else if matches!(place, Place::Count(_) | Place::Finish | Place::Kind | Place::Type | Place::Status)
        {
            self.word.push(bytes);
        } else if place == Place::Media {
            self.document.output = Presence::Present;
        } else if place == Place::Error {
            self.document.error = Presence::Present;
        }
    }

    fn string_end(&mut self, place: Place) {
        if let Place::Count(field) = place {
            self.document.open.set(field, count::digits(self.word.bytes()));
        } else if place == Place::Finish {
            self.finish = finish(self.word.bytes()).or(self.finish);
            self.choice.finished = Presence::Present;
        } else if place == Place::Kind && self.word.bytes() == b"error" {
            self.document.error = Presence::Present;
        } else if place == Place::Type {
            self.event_type();
        } else if place == Place::Status {
            self.status();
        }
        self.word.clear();
    }

    fn scalar(&mut self, place: Place, token: &[u8]) {
        if let Place::Count(field) = place {
            self.document.open.set(field, count::number(token));
        } else if place == Place::Index {
            self.choice.index = count::number(token).map(Tokens::count);
        } else if place == Place::Usage(Source::Top) {
            self.document.usage = TopUsage::Null;
        } else if place == Place::Choice {
            self.document.choices += 1;
        } else if place == Place::Mark {
            self.document.mark = Presence::Present;
            if token == b"DONE" {
                self.done = Presence::Present;
            }
        }
    }
}

impl Answer {
    fn event_type(&mut self) {
        match self.word.bytes() {
            b"error" => self.failed(),
            b"message_stop" => self.done = Presence::Present,
            b"response.audio.delta" => self.document.sound = Presence::Present,
            _ => {}
        }
    }

    /// Of a response. Others than these say that more is to come.
    fn status(&mut self) {
        match self.word.bytes() {
            b"completed" => {
                self.done = Presence::Present;
                self.finish = self.finish.or(Some(Finish::Stop));
            }
            b"incomplete" | b"cancelled" => self.done = Presence::Present,
            b"failed" => {
                self.done = Presence::Present;
                self.failed();
            }
            _ => {}
        }
    }

    fn failed(&mut self) {
        self.document.error = Presence::Present;
        self.finish = Some(Finish::Error);
    }
}

impl Counts {
    /// The last count under a key stands, unless it is none.
    fn set(&mut self, field: Field, count: Option<Tokens>) {
        let slot = match field {
            Field::Prompt => &mut self.prompt,
            Field::Completion => &mut self.completion,
            Field::Total => &mut self.total,
            Field::Cached => &mut self.cached,
            Field::CacheWrite => &mut self.cache_write,
            Field::Reasoning => &mut self.reasoning,
        };
        *slot = count.or(*slot);
    }
}

impl Answer {
    pub(super) fn new(tokenizer: Tokenizer) -> Self {
        Self {
            seen: Seen::new(tokenizer),
            tally: Tally::default(),
            reach: Reach::Everything,
            output: Presence::Absent,
            error: Presence::Absent,
            done: Presence::Absent,
            finish: None,
            appeared: 0,
            ended: 0,
            document: Document::default(),
            choice: Choice::default(),
            waiting: Vec::new(),
            word: Word::new(),
        }
    }

    pub(super) const fn text_bytes(&self) -> u64 {
        self.seen.bytes()
    }

    pub(super) fn seen(&self) -> Tokens {
        self.seen.total()
    }

    pub(super) fn kept(&self) -> usize {
        self.waiting.len()
    }

    /// Whether what has been read of the event shows that it is not the usage chunk.
    pub(super) fn cannot_be_hidden(&self) -> bool {
        self.document.choices > 0
            || self.document.error == Presence::Present
            || self.document.usage == TopUsage::Null
            || self.document.mark == Presence::Present
    }

    /// The event is over. Says whether it is a chunk with usage and without choices.
    pub(super) fn end_of_event(&mut self, scanner: &mut Scanner<Place>) -> Verdict {
        let is_usage_chunk =
            scanner.whole() && self.document.usage == TopUsage::Object && !self.cannot_be_hidden();
        // Half an event is no report, but its text has been generated and sent.
        let usages = if scanner.whole() { self.document.usages } else { [None; SOURCES] };
        self.end_of_document(usages);
        scanner.reset();
        if is_usage_chunk { Verdict::Hide } else { Verdict::Pass }
    }

    /// The body is over. A usage object that closed before the body was cut off or went wrong is as good
    /// as any.
    pub(super) fn end_of_body(&mut self, scanner: &mut Scanner<Place>) {
        if scanner.whole() {
            self.done = Presence::Present;
        }
        self.end_of_document(self.document.usages);
        scanner.reset();
    }

    fn end_of_document(&mut self, usages: [Option<Counts>; SOURCES]) {
        self.count_waiting();
        let known =
            || usages.iter().enumerate().filter_map(|(source, counts)| Some((source, counts.as_ref()?)));
        let best = known().find(|(_, counts)| counts.says_something()).or_else(|| known().next());
        if let Some((_, counts)) = best {
            self.tally.add(counts);
        }
        self.reach = match (best, self.document.output, self.reach) {
            (Some((START, counts)), _, _) if counts.says_something() => Reach::Begin,
            (Some((_, counts)), _, _) if counts.says_something() => Reach::Everything,
            (_, Presence::Present, Reach::Everything | Reach::Earlier) => Reach::Earlier,
            (_, _, reach) => reach,
        };
        if self.document.output == Presence::Present {
            self.output = Presence::Present;
        }
        if self.document.error == Presence::Present {
            self.error = Presence::Present;
        }
        self.document = Document::default();
    }

    pub(super) fn report(&self) -> Report {
        let answered = match (self.output, self.error) {
            (Presence::Absent, Presence::Absent) => Answered::Nothing,
            (Presence::Absent, Presence::Present) => Answered::ErrorOnly,
            (Presence::Present, Presence::Absent) => Answered::Output,
            (Presence::Present, Presence::Present) => Answered::OutputThenError,
        };
        let usage = match self.output {
            Presence::Present => self.tally.usage(),
            Presence::Absent => self.tally.usage_of_nothing(),
        };
        let all_ended = self.ended != 0 && self.appeared & !self.ended == 0;
        let ending = if all_ended || self.done == Presence::Present { Ending::Whole } else { Ending::Cut };
        Report { usage, reach: self.reach, seen: self.seen(), answered, finish: self.finish, ending }
    }

    fn text(&mut self, mut bytes: &[u8]) {
        self.document.output = Presence::Present;
        while !bytes.is_empty() {
            let room = MOST_WAITING.saturating_sub(self.waiting.len());
            let (now, later) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
            self.waiting.extend_from_slice(now);
            if self.waiting.len() >= MOST_WAITING {
                self.count_whole_characters();
            }
            bytes = later;
        }
    }

    fn end_of_choice(&mut self) {
        self.appeared |= self.bit();
        if self.choice.finished == Presence::Present {
            self.ended |= self.bit();
        }
        self.count_waiting();
    }

    /// The bit of the current choice among those that are watched.
    fn bit(&self) -> u64 {
        match self.index() {
            index if index < MOST_WATCHED => 1 << index,
            _ => 0,
        }
    }

    fn index(&self) -> u64 {
        self.choice.index.unwrap_or(self.choice.position)
    }

    fn count_waiting(&mut self) {
        if !self.waiting.is_empty() {
            let mut waiting = std::mem::take(&mut self.waiting);
            self.count(&waiting);
            waiting.clear();
            self.waiting = waiting;
        }
    }

    /// All that waits but a character whose last bytes have not come.
    fn count_whole_characters(&mut self) {
        let mut waiting = std::mem::take(&mut self.waiting);
        let tail = waiting.utf8_chunks().last().map_or(&[][..], |last| last.invalid());
        let unfinished = std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none());
        let whole = if unfinished { waiting.len() - tail.len() } else { waiting.len() };
        let rest = waiting.split_off(whole);
        self.count(&waiting);
        self.waiting = rest;
    }

    fn count(&mut self, text: &[u8]) {
        let index = self.index();
        for part in text.utf8_chunks() {
            self.seen.push(index, part.valid());
            if !part.invalid().is_empty() {
                self.seen.push(index, "\u{FFFD}");
            }
        }
    }
}
