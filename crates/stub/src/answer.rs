//! An answer as a value: a head, and the steps in which its bytes leave.

use std::{io::Write, time::Duration};

use axum::body::Bytes;
use flate2::{Compression, write::GzEncoder};
use hyper::{HeaderMap, StatusCode, header};
use serde_json::json;

use crate::script::{Fault, Script};

/// Long enough for what was written before it to leave the process.
const SETTLE: Duration = Duration::from_millis(20);

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Step {
    Send(Bytes),
    /// The same, after an SSE comment with the nanosecond in which it is sent.
    SendStamped(Bytes),
    Wait(Duration),
    Trailers(HeaderMap),
    /// The connection ends here, and with it the answer.
    Cut,
    /// Nothing more comes, and no end either.
    Hang,
}

impl Answer {
    pub fn new(status: StatusCode, content_type: &'static str, steps: Vec<Step>) -> Self {
        let mut answer = Self { status, headers: HeaderMap::new(), steps };
        answer.header("content-type", content_type);
        answer
    }

    pub fn json(status: StatusCode, body: &serde_json::Value) -> Self {
        Self::new(status, "application/json", vec![Step::Send(body.to_string().into())])
    }

    /// A provider's refusal in OpenAI's shape; a 429 says when to come back.
    pub fn error(status: StatusCode, message: &str) -> Self {
        let (kind, code) = match status.as_u16() {
            429 => ("tokens", json!("rate_limit_exceeded")),
            500.. => ("server_error", json!(null)),
            _ => ("invalid_request_error", json!(null)),
        };
        let mut answer = Self::json(status, &error_body(message, kind, &code));
        if status == StatusCode::TOO_MANY_REQUESTS {
            for (name, value) in PROVIDER_429 {
                answer.header(name, value);
            }
        }
        answer
    }

    pub fn header(&mut self, name: &'static str, value: &'static str) {
        self.headers.insert(name, header::HeaderValue::from_static(value));
    }

    /// The faults and cuts that do not depend on what the bytes mean.
    pub fn spoiled(mut self, script: &Script, accepts_gzip: bool) -> Self {
        match script.fault {
            Fault::ResetAfterHeaders => {
                self.promise_length();
                self.steps = vec![Step::Wait(SETTLE), Step::Cut];
            }
            Fault::ResetMid => self.cut_in_half(),
            Fault::Trailers => {
                self.header("trailer", "x-stub-trailer");
                let trailer = HeaderMap::from_iter([(
                    header::HeaderName::from_static("x-stub-trailer"),
                    header::HeaderValue::from_static("end"),
                )]);
                self.steps.push(Step::Trailers(trailer));
            }
            Fault::SplitUtf8 => self.steps = split_inside_characters(self.steps),
            Fault::Gzip if accepts_gzip => self.compress(),
            Fault::GzipAlways => self.compress(),
            Fault::None
            | Fault::ResetBefore
            | Fault::Hang
            | Fault::HangEnd
            | Fault::NoUsage
            | Fault::UsageThenEvent
            | Fault::UsageEveryChunk
            | Fault::NoDone
            | Fault::Error200
            | Fault::Gzip => {}
        }
        if script.piece > 0 {
            self.steps = in_pieces(self.steps, script.piece);
        }
        self
    }

    /// A cut body is only a fault if more was promised.
    fn promise_length(&mut self) {
        if let [Step::Send(body)] = self.steps.as_slice() {
            self.headers.insert(header::CONTENT_LENGTH, body.len().into());
        }
    }

    fn cut_in_half(&mut self) {
        self.promise_length();
        if let [Step::Send(body)] = self.steps.as_mut_slice() {
            body.truncate(body.len() / 2);
        } else {
            self.steps.truncate(self.steps.len() / 2);
        }
        self.steps.extend([Step::Wait(SETTLE), Step::Cut]);
    }

    /// Each step stays readable by itself: a stream is flushed after every event.
    fn compress(&mut self) {
        self.header("content-encoding", "gzip");
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        for step in &mut self.steps {
            if let Step::Send(bytes) = step {
                // Writing to a `Vec` cannot fail.
                let _ = encoder.write_all(bytes).and_then(|()| encoder.flush());
                *bytes = std::mem::take(encoder.get_mut()).into();
            }
        }
        self.steps.push(Step::Send(encoder.finish().unwrap_or_default().into()));
    }
}

pub fn error_body(message: &str, kind: &str, code: &serde_json::Value) -> serde_json::Value {
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

/// As OpenAI sends them; tests look for these very values at the client.
const PROVIDER_429: [(&str, &str); 9] = [
    ("retry-after", "7"),
    ("retry-after-ms", "6543"),
    ("x-should-retry", "true"),
    ("x-ratelimit-limit-requests", "5000"),
    ("x-ratelimit-remaining-requests", "0"),
    ("x-ratelimit-reset-requests", "12ms"),
    ("x-ratelimit-limit-tokens", "160000"),
    ("x-ratelimit-remaining-tokens", "0"),
    ("x-ratelimit-reset-tokens", "6m0s"),
];

/// One write for each byte that ends inside a character, so that no write is valid UTF-8 by itself.
fn split_inside_characters(steps: Vec<Step>) -> Vec<Step> {
    cut(steps, |bytes| bytes.iter().position(|byte| *byte >= 0xc0).map(|lead| lead + 1))
}

fn in_pieces(steps: Vec<Step>, size: usize) -> Vec<Step> {
    cut(steps, |bytes| (bytes.len() > size).then_some(size))
}

/// Cuts every piece where `place` says, again and again; the pieces leave one by one.
fn cut(steps: Vec<Step>, place: impl Fn(&Bytes) -> Option<usize>) -> Vec<Step> {
    let mut cut = Vec::with_capacity(steps.len());
    for step in steps {
        let Step::Send(mut rest) = step else {
            cut.push(step);
            continue;
        };
        while let Some(at) = place(&rest) {
            cut.extend([Step::Send(rest.split_to(at)), Step::Wait(Duration::from_millis(1))]);
        }
        cut.push(Step::Send(rest));
    }
    cut
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    fn answer(texts: &[&'static str]) -> Answer {
        let steps = texts.iter().map(|text| Step::Send(Bytes::from_static(text.as_bytes())));
        Answer::new(StatusCode::OK, "text/plain", steps.collect())
    }

    fn sent(answer: &Answer) -> Vec<Vec<u8>> {
        let bytes = |step: &Step| match step {
            Step::Send(bytes) => Some(bytes.to_vec()),
            Step::SendStamped(_) | Step::Wait(_) | Step::Trailers(_) | Step::Cut | Step::Hang => None,
        };
        answer.steps.iter().filter_map(bytes).collect()
    }

    fn spoiled(texts: &[&'static str], script: Script) -> Answer {
        answer(texts).spoiled(&script, true)
    }

    #[test]
    fn cut_or_compressed_the_bytes_are_the_same() {
        let texts = ["data: é\n\n", "data: 🙂 b\n\n"];
        let whole = texts.concat().into_bytes();
        for piece in 1..whole.len() {
            let pieces = sent(&spoiled(&texts, Script { piece, ..Script::default() }));
            assert_eq!(pieces.concat(), whole);
            assert!(pieces.iter().all(|bytes| bytes.len() <= piece));
        }
        let gzip = sent(&spoiled(&texts, Script { fault: Fault::Gzip, ..Script::default() })).concat();
        let mut plain = Vec::new();
        GzDecoder::new(gzip.as_slice()).read_to_end(&mut plain).unwrap();
        assert_eq!(plain, whole);
    }

    #[test]
    fn a_split_ends_every_write_but_the_last_inside_a_character() {
        let pieces = sent(&spoiled(&["aé🙂b"], Script { fault: Fault::SplitUtf8, ..Script::default() }));
        let (last, first) = pieces.split_last().unwrap();
        assert!(first.len() == 2 && first.iter().all(|bytes| std::str::from_utf8(bytes).is_err()));
        assert_eq!([first.concat(), last.clone()].concat(), "aé🙂b".as_bytes());
    }

    #[test]
    fn half_an_answer_promises_the_whole_and_ends_with_a_cut() {
        let half = spoiled(&["0123456789"], Script { fault: Fault::ResetMid, ..Script::default() });
        assert_eq!(half.headers["content-length"], "10");
        assert_eq!(sent(&half).concat(), b"01234");
        assert_eq!(half.steps.last(), Some(&Step::Cut));
    }
}
