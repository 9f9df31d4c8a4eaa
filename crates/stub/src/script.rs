//! What the stub shall do with one request: `x-stub-…` headers over the defaults of the command line.
//!
//! An unknown or unreadable header is an error: a test with a typo must not pass by accident.

use std::time::Duration;

use hyper::HeaderMap;

/// Largest number of chunks a script may ask for: a typo must not fill the memory.
const MAX_CHUNKS: u64 = 100_000;

const PREFIX: &str = "x-stub-";

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Script {
    /// `None`: the words of the request's strings.
    pub prompt_tokens: Option<u64>,
    /// `None`: one for each chunk.
    pub completion_tokens: Option<u64>,
    /// Before the answer's headers.
    pub delay: Duration,
    /// Wait before the answer's headers until a test opens the gate of this name.
    pub gate: Option<String>,
    /// Pieces of text in the answer.
    pub chunks: u64,
    /// Between two pieces of a stream.
    pub chunk_delay: Duration,
    pub status: u16,
    pub fault: Fault,
    /// A file below the fixtures folder whose bytes are the answer.
    pub replay: Option<String>,
    /// Size of the pieces in which the answer is sent; 0: as they come.
    pub piece: usize,
    pub stamp: Stamp,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            prompt_tokens: None,
            completion_tokens: None,
            delay: Duration::ZERO,
            gate: None,
            chunks: 5,
            chunk_delay: Duration::ZERO,
            status: 200,
            fault: Fault::None,
            replay: None,
            piece: 0,
            stamp: Stamp::None,
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    None,
    /// The connection ends before a byte of the answer.
    ResetBefore,
    /// The connection ends after the headers of the answer.
    ResetAfterHeaders,
    /// The connection ends in the middle of the answer.
    ResetMid,
    /// Nothing ever comes.
    Hang,
    /// A stream that says all its text and then never ends.
    HangEnd,
    NoUsage,
    /// One more event between the usage and `[DONE]`.
    UsageThenEvent,
    /// A running total in every chunk of a stream.
    UsageEveryChunk,
    NoDone,
    /// Every write ends inside a character.
    SplitUtf8,
    Trailers,
    /// Status 200, and an error object where the answer should be.
    Error200,
    /// Compressed, if the request accepts it.
    Gzip,
    /// Compressed, whatever the request accepts.
    GzipAlways,
}

/// Whether each chunk of a stream carries the time of its sending, for benchmarks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stamp {
    None,
    Nanoseconds,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ScriptError {
    UnknownHeader(String),
    BadValue { header: String, value: String },
}

impl std::fmt::Display for ScriptError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::UnknownHeader(header) => write!(f, "{header} is not a word of the script"),
            Self::BadValue { header, value } => write!(f, "{header}: {value:?} is no good value"),
        }
    }
}

impl Script {
    /// This script with what the request's headers say instead.
    pub fn told_by(&self, headers: &HeaderMap) -> Result<Self, ScriptError> {
        let mut script = self.clone();
        for (name, value) in headers {
            if let Some(word) = name.as_str().strip_prefix(PREFIX) {
                script.tell(word, &String::from_utf8_lossy(value.as_bytes()))?;
            }
        }
        Ok(script)
    }

    fn tell(&mut self, word: &str, value: &str) -> Result<(), ScriptError> {
        let bad = || ScriptError::BadValue { header: format!("{PREFIX}{word}"), value: value.to_owned() };
        let number = || value.parse::<u64>().map_err(|_| bad());
        match word {
            "prompt-tokens" => self.prompt_tokens = Some(number()?),
            "completion-tokens" => self.completion_tokens = Some(number()?),
            "delay-ms" => self.delay = Duration::from_millis(number()?),
            "gate" => self.gate = Some(value.to_owned()),
            "chunks" => self.chunks = Some(number()?).filter(|n| *n <= MAX_CHUNKS).ok_or_else(bad)?,
            "chunk-delay-ms" => self.chunk_delay = Duration::from_millis(number()?),
            "status" => {
                self.status = value.parse().ok().filter(|s| (200..600).contains(s)).ok_or_else(bad)?;
            }
            "fault" => self.fault = value.parse().map_err(|UnknownFault| bad())?,
            "replay" => self.replay = Some(value.to_owned()),
            "piece" => self.piece = value.parse().map_err(|_| bad())?,
            "stamp" => self.stamp = if value == "ns" { Stamp::Nanoseconds } else { return Err(bad()) },
            _ => return Err(ScriptError::UnknownHeader(format!("{PREFIX}{word}"))),
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UnknownFault;

impl std::fmt::Display for UnknownFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("not a fault of the stub")
    }
}

impl std::error::Error for UnknownFault {}

impl std::str::FromStr for Fault {
    type Err = UnknownFault;

    fn from_str(word: &str) -> Result<Self, UnknownFault> {
        Ok(match word {
            "none" => Self::None,
            "reset-before" => Self::ResetBefore,
            "reset-after-headers" => Self::ResetAfterHeaders,
            "reset-mid" => Self::ResetMid,
            "hang" => Self::Hang,
            "hang-end" => Self::HangEnd,
            "no-usage" => Self::NoUsage,
            "usage-then-event" => Self::UsageThenEvent,
            "usage-every-chunk" => Self::UsageEveryChunk,
            "no-done" => Self::NoDone,
            "split-utf8" => Self::SplitUtf8,
            "trailers" => Self::Trailers,
            "error-200" => Self::Error200,
            "gzip" => Self::Gzip,
            "gzip-always" => Self::GzipAlways,
            _ => return Err(UnknownFault),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (n.parse().unwrap(), v.parse().unwrap())).collect()
    }

    #[test]
    fn headers_overrule_the_defaults_and_leave_the_rest() {
        let told = headers(&[("x-stub-chunks", "7"), ("x-stub-fault", "no-done"), ("x-other", "?")]);
        let script = Script::default().told_by(&told).unwrap();
        assert_eq!(script, Script { chunks: 7, fault: Fault::NoDone, ..Script::default() });
    }

    #[test]
    fn a_script_that_cannot_be_read_is_refused() {
        for pair in [
            ("x-stub-chunk", "7"),
            ("x-stub-chunks", "many"),
            ("x-stub-chunks", "100001"),
            ("x-stub-status", "99"),
            ("x-stub-fault", "explode"),
            ("x-stub-stamp", "ms"),
        ] {
            assert!(Script::default().told_by(&headers(&[pair])).is_err(), "{pair:?}");
        }
    }
}
