//! Follows an answer as it streams: bytes in, what it cost out.
//!
//! Nothing is kept of an answer but counts and a few hundred bytes: every byte is looked at once, where
//! it stands, and resuming works at any byte. The one thing that may be held back is a usage chunk that
//! the client did not ask for, and then only its own bytes.
//!
//! What must not go wrong: text that looks like usage is text. Only the structure of the JSON decides,
//! so a model that writes a cheap usage object into its answer pays in full.

mod answer;
mod charge;
mod count;
mod hide;
mod json;
mod places;
mod report;
mod runs;
mod seen;
mod sse;
mod tally;
mod word;

use tollgate_budget::Tokens;

pub use charge::{Cost, Outcome, charge};
pub use hide::{HideUsage, Passed};
pub use report::{Answered, Ending, Finish, Reach, Report};

use crate::config::{Api, Tokenizer};
use answer::Answer;
use hide::Gate;
use json::{Newline, Scanner};
use places::Place;
use sse::Lines;

/// The way an answer is spelt.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Dialect {
    /// Chat and text completions and embeddings, by OpenAI and everyone who speaks like it.
    OpenAi,
    /// OpenAI's Responses.
    Responses,
    /// Anthropic's messages.
    Anthropic,
}

impl Dialect {
    pub const ALL: [Self; 3] = [Self::OpenAi, Self::Responses, Self::Anthropic];

    /// `None` where the answer is not read.
    pub const fn of(api: Api) -> Option<Self> {
        match api {
            Api::OpenAiChat | Api::OpenAiCompletions | Api::OpenAiEmbeddings => Some(Self::OpenAi),
            Api::OpenAiResponses => Some(Self::Responses),
            Api::AnthropicMessages => Some(Self::Anthropic),
            Api::RequestOnly | Api::Free => None,
        }
    }
}

/// One answer, plain or streamed.
#[derive(Debug)]
pub struct UsageMeter {
    wire: Wire,
    /// What a first byte tells that no answer in use begins with.
    otherwise: Wire,
    scanner: Scanner<Place>,
    answer: Answer,
    lines: Lines,
    gate: Gate,
}

/// How the answer is framed. Its first byte tells: a content type may lie, and no event stream can begin
/// with the brace that every JSON answer begins with. Only a first byte that tells nothing leaves it to the
/// content type, since an event may begin with a field that nobody knows.
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
    pub fn new(dialect: Dialect, tokenizer: Tokenizer, hide: HideUsage) -> Self {
        Self::on(Wire::Unknown, dialect, tokenizer, hide)
    }

    /// For an answer that is known to be unreadable, such as a compressed one.
    pub fn unreadable(tokenizer: Tokenizer) -> Self {
        Self::on(Wire::Opaque, Dialect::OpenAi, tokenizer, HideUsage::Keep)
    }

    /// The answer's headers call it an event stream.
    #[must_use]
    pub fn announced_as_events(self) -> Self {
        Self { otherwise: Wire::Sse, ..self }
    }

    fn on(wire: Wire, dialect: Dialect, tokenizer: Tokenizer, hide: HideUsage) -> Self {
        Self {
            wire,
            otherwise: Wire::Opaque,
            scanner: Scanner::new(Place::Root(dialect), Newline::Blank),
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

    /// Output seen so far: visible text, reasoning, refusals, tool calls. Asking counts a short tail of text
    /// anew; a token has at least one byte, so who waits for some tokens more need not ask until there are as
    /// many more [`text_bytes`](Self::text_bytes).
    pub fn seen(&self) -> Tokens {
        self.answer.seen()
    }

    /// Bytes of what [`seen`](Self::seen) counts.
    pub fn text_bytes(&self) -> u64 {
        self.answer.text_bytes()
    }

    /// What is known so far; final after [`UsageMeter::finish`].
    pub fn report(&self) -> Report {
        let mut report = self.answer.report();
        if self.wire == Wire::Opaque {
            report.answered = Answered::Unreadable;
        }
        report
    }

    /// Events that were too large to hold back, and so passed before they were understood.
    pub fn too_large(&self) -> u64 {
        self.gate.too_large()
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
            Some(_) | None => self.otherwise,
        };
        if self.wire == Wire::Sse {
            self.scanner.ends_at_newlines();
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use tollgate_budget::{Caching, Toll};

    use super::*;

    const TOKENIZER: Tokenizer = Tokenizer::Characters { per_token_milli: 1000 };

    fn read(answer: &str) -> Report {
        let mut meter = UsageMeter::new(Dialect::OpenAi, TOKENIZER, HideUsage::Keep);
        assert_eq!(meter.chunk(answer.as_bytes()), Passed::AsIs);
        assert_eq!(meter.finish(), b"");
        meter.report()
    }

    /// What the client sees of each chunk, and at the end.
    fn shown(chunks: &[&str]) -> Vec<String> {
        let mut meter = UsageMeter::new(Dialect::OpenAi, TOKENIZER, HideUsage::Hide);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let mut all: Vec<String> = chunks
            .iter()
            .map(|chunk| match meter.chunk(chunk.as_bytes()) {
                Passed::AsIs => (*chunk).to_owned(),
                Passed::Instead(bytes) => text(&bytes),
            })
            .collect();
        all.push(text(&meter.finish()));
        all
    }

    fn delta(delta: &str) -> String {
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{delta}}}]}}\n\n")
    }

    fn characters(answer: &str) -> u64 {
        read(answer).seen.count()
    }

    fn input_and_output(answer: &str) -> Option<(u64, u64)> {
        let usage = read(answer).usage?;
        Some((usage.input?.count(), usage.output?.count()))
    }

    const USAGE: &str =
        r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7}}"#;

    #[test]
    fn all_that_a_model_writes_is_seen() {
        for (written, count) in [
            (r#"{"content":"1234"}"#, 4),
            (r#"{"content":null,"reasoning_content":"12"}"#, 2),
            (r#"{"reasoning":"12","reasoning_content":"12"}"#, 2),
            (r#"{"refusal":"no"}"#, 2),
            (r#"{"content":[{"type":"text","text":"1"},{"type":"thinking","thinking":[{"text":"23"}]}]}"#, 3),
            (
                r#"{"tool_calls":[{"id":"x","function":{"name":"f","arguments":"{}"}},{"custom":{"input":"123"}}]}"#,
                6,
            ),
            (r#"{"function_call":{"name":"f","arguments":"{}"}}"#, 3),
            (r#"{"audio":{"id":"a","transcript":"12"}}"#, 2),
            (r#"{"content":"\u00e9\ud83e\udd80\ud800x\n"}"#, 5),
            (r#"{"content":"1","role":"assistant","name":"not this","x":{"content":"nor this"}}"#, 1),
        ] {
            assert_eq!(characters(&delta(written)), count, "{written}");
        }
        assert_eq!(characters(r#"{"choices":[{"text":"1234"},{"message":{"content":"56"}}]}"#), 6);
    }

    #[test]
    fn a_field_that_nobody_knows_may_open_an_event_stream() {
        let stream = format!("meta: 1\ndata: {USAGE}\n\n");
        let read = |mut meter: UsageMeter| {
            assert_eq!(meter.chunk(stream.as_bytes()), Passed::AsIs);
            meter.finish();
            meter.report()
        };
        let meter = || UsageMeter::new(Dialect::OpenAi, TOKENIZER, HideUsage::Keep);
        assert_eq!(
            read(meter().announced_as_events()).usage.and_then(|usage| usage.input),
            Some(Tokens::new(3))
        );
        assert_eq!(read(meter()).answered, Answered::Unreadable);
        assert_eq!(
            read(UsageMeter::unreadable(TOKENIZER).announced_as_events()).answered,
            Answered::Unreadable
        );
    }

    #[test]
    fn an_answer_without_text_is_still_an_answer() {
        let picture = delta(r#"{"images":[{"image_url":{"url":"data:image/png;base64,AA"}}]}"#);
        let zero = r#"{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}"#;
        assert_eq!(read(&format!("{picture}data: {zero}\n\n")).usage, None);
        assert_eq!(input_and_output(&format!("data: {zero}\n\n")), Some((0, 0)));
    }

    #[test]
    fn usage_is_found_by_structure_and_never_by_its_looks() {
        for answer in [
            r#"{"choices":[{"message":{"content":"x","usage":{"prompt_tokens":1,"completion_tokens":1}}}]}"#,
            r#"{"metadata":{"usage":{"prompt_tokens":1,"completion_tokens":1}}}"#,
            r#"{"choices":[{},{"usage":{"prompt_tokens":1,"completion_tokens":1}}]}"#,
            r#"[{"usage":{"prompt_tokens":1,"completion_tokens":1}}]"#,
            "data: \"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}\n\n",
            "data: {\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}\n\n",
            "data: {\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1]}\n\n",
            r#"{"\ud83eusage":{"prompt_tokens":1,"completion_tokens":1}}"#,
            "usage: {\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\n",
        ] {
            assert_eq!(read(answer).usage, None, "{answer}");
        }
        assert_eq!(
            input_and_output(r#"{"\u0075sage":{"prompt_tokens":1,"completion_tokens":2}}"#),
            Some((1, 2))
        );
    }

    #[test]
    fn odd_json_around_it_does_not_hide_usage() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        for odd in [r#""a\"}]\\""#, "NaN", "-Infinity", "{\"usage\":[[{}]]}", "1E400", "true", &deep] {
            let answer = format!(
                r#"{{"odd":{odd},"choices":[{{"logprobs":{odd}}}],"usage":{{"prompt_tokens":1,"odd":{odd},"completion_tokens":2}}}}"#
            );
            assert_eq!(input_and_output(&answer), Some((1, 2)), "{odd:.20}");
        }
    }

    #[test]
    fn a_report_is_taken_from_the_best_place_and_the_last_time() {
        let one = r#""usage":{"prompt_tokens":1,"completion_tokens":1}"#;
        let two = r#""usage":{"prompt_tokens":2,"completion_tokens":2}"#;
        let zero = r#""usage":{"prompt_tokens":0,"completion_tokens":0}"#;
        for (answer, expected) in [
            (format!(r#"{{"x_groq":{{{two}}},{one}}}"#), 1),
            (format!(r#"{{"choices":[{{{one}}}],"x_groq":{{{two}}}}}"#), 2),
            (format!(r#"{{{zero},"x_groq":{{{two}}}}}"#), 2),
            (format!("data: {{{one}}}\n\ndata: {{{two}}}\n\ndata: {{{zero}}}\n\n"), 2),
            (format!("data: {{{one}}}\n\ndata: {{{two},\n\n"), 1),
        ] {
            assert_eq!(input_and_output(&answer), Some((expected, expected)), "{answer}");
        }
    }

    #[test]
    fn a_report_reaches_up_to_the_last_output_before_it() {
        let text = delta(r#"{"content":"four"}"#);
        let role = delta(r#"{"role":"assistant","content":""}"#);
        for (stream, reach) in [
            (format!("{text}data: {USAGE}\n\n{role}"), Reach::Everything),
            (format!("data: {USAGE}\n\n{text}"), Reach::Earlier),
            (format!("data: {USAGE}\n\n{text}data: {USAGE}\n\n"), Reach::Everything),
            (format!("data: {USAGE}\n\n{}", text.trim_end_matches("}]}\n\n")), Reach::Earlier),
        ] {
            assert_eq!(read(&stream).reach, reach, "{stream}");
        }
    }

    #[test]
    fn events_are_framed_as_the_standard_says() {
        let (head, tail) = USAGE.split_at(13);
        for stream in [
            format!("data: {head}\ndata: {tail}\n\n"),
            format!("data:{head}\rdata:{tail}\r\r"),
            format!(": hi\r\n\r\nevent: x\r\ndata: {USAGE}\r\nid: 7\r\n\r\n"),
            format!("\u{FEFF}data: {USAGE}\n\ndatas: {{}}\ndata\n\n"),
            format!("id: 1\ndata: {USAGE}"),
            format!("data: x{{\n\ndata: {USAGE}\n"),
            format!("data: {{\"unclosed\":\"text\n\ndata: {USAGE}\n"),
            format!("data: {{\"skipped\":{{\"unclosed\":\"text\n\ndata: {USAGE}\n"),
        ] {
            assert_eq!(input_and_output(&stream), Some((3, 4)), "{stream:?}");
        }
        assert_eq!(read(&format!("data: {USAGE}\ndata: x\n\n")).usage, None, "it is not JSON as a whole");
    }

    #[test]
    fn the_first_byte_tells_a_body_from_a_stream() {
        assert_eq!(input_and_output(&format!("\u{FEFF}\n {USAGE}")), Some((3, 4)));
        assert_eq!(input_and_output(&format!("\n\ndata: {USAGE}")), Some((3, 4)));
        assert_eq!(read("\u{1f}\u{8b}\u{8}").answered, Answered::Unreadable);
        assert_eq!(read("<html>").answered, Answered::Unreadable);
        assert_eq!(read(" \n").answered, Answered::Nothing);
    }

    #[test]
    fn a_body_cut_after_its_usage_object_has_reported() {
        let body =
            r#"{"usage":{"prompt_tokens":12,"completion_tokens":34},"choices":[{"message":{"content":"cut"#;
        let report = read(body);
        assert_eq!(report.usage.map(|usage| usage.output), Some(Some(Tokens::new(34))));
        assert_eq!((report.ending, report.seen), (Ending::Cut, Tokens::new(3)));
        assert_eq!(read(r#"{"usage":{"prompt_tokens":12,"completion_tokens":3"#).usage, None);
    }

    #[test]
    fn an_error_is_told_from_an_answer_and_its_text_is_not_seen() {
        let error = "data: {\"error\":{\"message\":\"no\",\"content\":\"x\"}}\n\n";
        let text = delta(r#"{"content":"four"}"#);
        let empty = delta(r#"{"role":"assistant","content":""}"#);
        for (stream, answered, seen) in [
            (error.to_owned(), Answered::ErrorOnly, 0),
            (format!("{empty}{error}"), Answered::ErrorOnly, 0),
            (format!("{text}{error}"), Answered::OutputThenError, 4),
            (r#"{"object":"error","message":"no"}"#.to_owned(), Answered::ErrorOnly, 0),
            (format!("data: {{\"error\":null}}\n\n{text}"), Answered::Output, 4),
        ] {
            let report = read(&stream);
            assert_eq!((report.answered, report.seen.count()), (answered, seen), "{stream}");
        }
    }

    #[test]
    fn a_stream_is_whole_when_done_or_when_every_choice_has_ended() {
        let end = |index: u64| {
            format!("data: {{\"choices\":[{{\"finish_reason\":\"stop\",\"index\":{index}}}]}}\n\n")
        };
        let text = delta(r#"{"content":"x"}"#);
        assert_eq!(read(&format!("{text}{}", end(0))).ending, Ending::Whole);
        assert_eq!(read(&format!("{text}{}", end(1))).ending, Ending::Cut);
        assert_eq!(read(&format!("{text}data: [DONE]\n\n")).ending, Ending::Whole);
        assert_eq!(read(&text).ending, Ending::Cut);
    }

    #[test]
    fn only_the_usage_chunk_is_hidden_with_all_its_lines() {
        let text = delta(r#"{"content":"x"}"#);
        let with_choices =
            r#"data: {"choices":[{"delta":{}}],"usage":{"prompt_tokens":1}}"#.to_owned() + "\n\n";
        let error = format!("data: {{\"error\":{{}},{}\n\n", USAGE.trim_start_matches('{'));
        let null = "data: {\"choices\":[],\"usage\":null}\n\n".to_owned();
        for kept in [&text, &with_choices, &error, &null, &format!("data: [{USAGE}]\n\n"), &USAGE.to_owned()]
        {
            assert_eq!(shown(&[kept]), [kept.as_str(), ""], "{kept}");
        }
        let stream = format!("{text}event: u\r\ndata: {USAGE}\r\nid: 3\r\n\r\n: bye\r\n{text}");
        assert_eq!(shown(&[&stream]), [format!("{text}: bye\r\n{text}"), String::new()]);
    }

    #[test]
    fn an_event_is_let_go_as_soon_as_it_cannot_be_the_usage_chunk() {
        assert_eq!(
            shown(&["data: {\"id\":1,", "\"choices\":[", "{", "}"]),
            ["", "", "data: {\"id\":1,\"choices\":[{", "}", ""]
        );
        assert_eq!(
            shown(&[": com", "ment\ndata: [DO", "NE]", "\n\n"]),
            [": com", "ment\n", "data: [DONE]", "\n\n", ""]
        );
        assert_eq!(shown(&["data: {\"usage\":nu", "ll,", "x"]), ["", "data: {\"usage\":null,", "x", ""]);
        assert_eq!(shown(&["data: hel", "lo"]), ["data: hel", "lo", ""]);
        assert_eq!(shown(&["data: {\"usage\":{"]), ["", "data: {\"usage\":{"], "at the end all is let go");
    }

    #[test]
    fn a_hidden_chunk_may_come_in_pieces_and_end_anyhow() {
        let (head, tail) = USAGE.split_at(30);
        assert_eq!(
            shown(&["data: ", head, tail, "\r", "\n", "\r", "\n", "data: [DONE]"]),
            ["", "", "", "", "", "", "", "data: [DONE]", ""]
        );
        assert_eq!(shown(&["data: ", USAGE]), ["", "", ""], "the stream ends with it");
        assert_eq!(shown(&["data: ", USAGE, "\n\ndata: x\n\n"]), ["", "", "data: x\n\n", ""]);
    }

    #[test]
    fn an_event_too_large_to_hold_passes() {
        let large = format!("data: {{\"x\":\"{}\"", "y".repeat(70_000));
        let rest = format!(",{}\n\n", USAGE.trim_start_matches('{'));
        assert_eq!(shown(&[&large, &rest]), [large.as_str(), rest.as_str(), ""]);
    }

    #[test]
    fn a_long_text_is_counted_in_parts_and_no_character_is_lost() {
        let text = "a潮🦀é".repeat(5_000);
        for answer in
            [delta(&format!("{{\"content\":\"{text}\"}}")), format!(r#"{{"choices":[{{"text":"{text}"}}]}}"#)]
        {
            let mut meter = UsageMeter::new(Dialect::OpenAi, TOKENIZER, HideUsage::Keep);
            for piece in answer.as_bytes().chunks(777) {
                assert_eq!(meter.chunk(piece), Passed::AsIs);
                assert!(meter.kept() < 5_000);
            }
            assert!(meter.seen().count() + 5_000 > 20_000, "what passed long ago is counted");
            meter.finish();
            assert_eq!(meter.seen(), Tokens::new(20_000));
        }
    }

    fn read_as(dialect: Dialect, answer: &str) -> Report {
        let mut meter = UsageMeter::new(dialect, TOKENIZER, HideUsage::Hide);
        assert_eq!(meter.chunk(answer.as_bytes()), Passed::AsIs);
        assert_eq!(meter.finish(), b"");
        meter.report()
    }

    #[test]
    fn all_that_a_model_writes_is_seen_once_in_every_dialect() {
        use Dialect::{Anthropic, Responses};
        for (dialect, answer, count) in [
            (
                Anthropic,
                r#"{"content":[{"type":"text","text":"1234"},{"type":"thinking","thinking":"56","signature":"zz"}]}"#,
                6,
            ),
            (
                Anthropic,
                r#"{"content":[{"type":"tool_use","id":"x","name":"f","input":{"a":["12",{"b":"3"}]}}]}"#,
                4,
            ),
            (
                Anthropic,
                "data: {\"delta\":{\"partial_json\":\"{}\"}}\n\ndata: {\"delta\":{\"thinking\":\"1\"}}\n\n",
                3,
            ),
            (
                Anthropic,
                "data: {\"content_block\":{\"type\":\"tool_use\",\"name\":\"fn\",\"input\":{}}}\n\n",
                2,
            ),
            (Anthropic, "data: {\"delta\":{\"signature\":\"zz\",\"text\":\"\"}}\n\n", 0),
            (
                Responses,
                r#"{"output":[{"type":"reasoning","summary":[{"text":"12"}]},{"content":[{"text":"34"},{"refusal":"5"}]},{"name":"f","arguments":"{}"}]}"#,
                8,
            ),
            (
                Responses,
                "data: {\"type\":\"response.output_text.delta\",\"delta\":\"12\"}\n\ndata: {\"type\":\"response.output_text.done\",\"text\":\"12\"}\n\ndata: {\"type\":\"response.completed\",\"response\":{\"output\":[{\"content\":[{\"text\":\"12\"}]}]}}\n\n",
                2,
            ),
            (Responses, "data: {\"type\":\"response.audio.delta\",\"delta\":\"AAAA\"}\n\n", 0),
        ] {
            assert_eq!(read_as(dialect, answer).seen.count(), count, "{answer}");
        }
    }

    #[test]
    fn sound_and_sealed_thoughts_are_an_answer_without_text() {
        for (dialect, answer) in [
            (Dialect::Responses, "data: {\"type\":\"response.audio.delta\",\"delta\":\"AA\"}\n\n"),
            (Dialect::Anthropic, r#"{"content":[{"type":"redacted_thinking","data":"AA"}]}"#),
        ] {
            assert_eq!(read_as(dialect, answer).answered, Answered::Output, "{answer}");
        }
    }

    #[test]
    fn what_anthropic_says_at_the_begin_is_true_of_the_prompt_and_a_lower_bound_of_the_rest() {
        let start = "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":7,\"cache_read_input_tokens\":3,\"output_tokens\":1}}}\n\n";
        let text = "data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"four\"}}\n\n";
        let end = "data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9}}\n\n";
        let held = Toll::held(Tokens::new(40), Tokens::new(400), Caching::Unmarked);
        let stop = "data: {\"type\":\"message_stop\"}\n\n";
        for (stream, reach, ending, cost) in [
            (start.to_owned(), Reach::Begin, Ending::Cut, (10, 1)),
            (format!("{start}{text}"), Reach::Begin, Ending::Cut, (10, 4)),
            (format!("{start}{text}{end}{stop}"), Reach::Everything, Ending::Whole, (10, 9)),
            (format!("{start}{end}{text}"), Reach::Earlier, Ending::Cut, (10, 9)),
        ] {
            let report = read_as(Dialect::Anthropic, &stream);
            assert_eq!((report.reach, report.ending), (reach, ending), "{stream}");
            let charged = charge(&report, held).toll;
            assert_eq!((charged.input.count(), charged.output.count()), cost, "{stream}");
        }
    }

    #[test]
    fn a_response_tells_by_its_status_whether_it_is_over() {
        for (status, ending, answered, finish) in [
            ("queued", Ending::Cut, Answered::Nothing, None),
            ("in_progress", Ending::Cut, Answered::Nothing, None),
            ("completed", Ending::Whole, Answered::Nothing, Some(Finish::Stop)),
            ("incomplete", Ending::Whole, Answered::Nothing, None),
            ("cancelled", Ending::Whole, Answered::Nothing, None),
            ("failed", Ending::Whole, Answered::ErrorOnly, Some(Finish::Error)),
        ] {
            let stream = format!(
                "data: {{\"type\":\"x\",\"response\":{{\"status\":\"{status}\",\"error\":null}}}}\n\n"
            );
            let report = read_as(Dialect::Responses, &stream);
            assert_eq!(
                (report.ending, report.answered, report.finish),
                (ending, answered, finish),
                "{status}"
            );
        }
    }

    #[test]
    fn counts_of_another_dialect_are_none() {
        let usage =
            r#"{"usage":{"prompt_tokens":1,"completion_tokens":2,"input_tokens":0,"output_tokens":0}}"#;
        assert_eq!(input_and_output(usage), Some((1, 2)));
        let usage = r#"{"usage":{"input_tokens":1,"output_tokens":2,"prompt_tokens":7,"cached_tokens":7}}"#;
        for dialect in [Dialect::Responses, Dialect::Anthropic] {
            let usage = read_as(dialect, usage).usage.unwrap();
            assert_eq!(
                (usage.input, usage.output, usage.cached_input),
                (Some(Tokens::new(1)), Some(Tokens::new(2)), Tokens::ZERO)
            );
        }
    }
}
