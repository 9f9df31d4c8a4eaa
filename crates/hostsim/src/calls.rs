//! HTTP calls of the module: recorded when made, answered by the test (F15–F19).

use crate::headers::Headers;

/// What the host knows of an upstream cluster that a call may name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cluster {
    Healthy,
    /// No endpoint, or its circuit breaker is full: the call fails at once, without a callback.
    Unavailable,
}

/// A call that waits for its answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Call {
    pub token: u32,
    pub cluster: String,
    pub headers: Headers,
    pub body: Vec<u8>,
    pub trailers: Headers,
    /// 0 waits for ever.
    pub timeout_ms: u32,
    pub made_at_ms: u64,
    /// In the host's steady time.
    pub(crate) deadline_ns: Option<u64>,
}

/// How a call ends.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Answer {
    Response(CallResponse),
    /// Envoy makes up a 504 with a text body.
    TimedOut,
    /// Connection refused, or reset before headers: Envoy makes up a 503.
    Refused,
    /// Cut after the headers: a callback without any headers, and no map to read (F16).
    Cut,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CallResponse {
    pub headers: Headers,
    pub body: Vec<u8>,
    pub trailers: Headers,
}

impl Answer {
    pub fn response(status: u16, body: impl AsRef<[u8]>) -> Self {
        let headers = Headers::from([(":status", status.to_string())]);
        Self::Response(CallResponse { headers, body: body.as_ref().to_vec(), trailers: Headers::new() })
    }

    /// Adds a header to a response; the other endings have none.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let Self::Response(response) = &mut self {
            response.headers.add(name, value);
        }
        self
    }

    /// What the callback finds; `None` is the case without maps.
    pub(crate) fn into_response(self) -> Option<CallResponse> {
        let made_up = |status: &str, body: &str| CallResponse {
            headers: Headers::from([
                (":status", status),
                ("content-length", &body.len().to_string()),
                ("content-type", "text/plain"),
            ]),
            body: body.as_bytes().to_vec(),
            trailers: Headers::new(),
        };
        match self {
            Self::Response(response) => Some(response),
            Self::TimedOut => Some(made_up("504", "upstream request timeout")),
            Self::Refused => {
                Some(made_up("503", "upstream connect error or disconnect/reset before headers"))
            }
            Self::Cut => None,
        }
    }
}
