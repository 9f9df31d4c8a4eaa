//! What the world outside the filter saw of a stream.

use crate::headers::Headers;

/// What one peer received: the upstream of a request, the client of a response.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Received {
    pub headers: Option<Headers>,
    /// The body in the pieces in which it was let through; an emptied piece is not sent.
    pub chunks: Vec<Vec<u8>>,
    pub trailers: Option<Headers>,
    /// The message was completed.
    pub ended: bool,
    /// The message was cut off after its headers.
    pub cut: bool,
    /// When the headers were let through.
    pub released_at_ms: Option<u64>,
    /// When each chunk was let through.
    pub chunk_times_ms: Vec<u64>,
}

impl Received {
    pub fn body(&self) -> Vec<u8> {
        self.chunks.concat()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body()).into_owned()
    }

    pub fn status(&self) -> Option<u16> {
        self.headers.as_ref()?.text(":status")?.parse().ok()
    }

    /// The first value of a header that was sent.
    pub fn header(&self, name: &str) -> Option<String> {
        self.headers.as_ref()?.text(name)
    }

    pub(crate) fn send(&mut self, chunk: Vec<u8>, at_ms: u64) {
        if !chunk.is_empty() {
            self.chunks.push(chunk);
            self.chunk_times_ms.push(at_ms);
        }
    }
}

/// A reply that did not come from the upstream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LocalReply {
    pub code: u16,
    /// As the access log shows them: spaces replaced.
    pub details: String,
    pub headers: Headers,
    pub body: Vec<u8>,
    pub by: Author,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Author {
    Filter,
    Host,
}

/// Whether the direction just driven goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Flow {
    Flowing,
    /// The filter paused it.
    Held,
    /// The stream is over, or this direction no longer matters.
    Ended,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    Complete,
    ClientGone,
    UpstreamReset,
    /// Cut by the filter, or by a local reply that came after the headers.
    Reset,
    /// The proxy went down with the stream in flight (F25).
    Shutdown,
    /// The VM died under it (F52–F55): no further callback, no log.
    VmDied,
}

/// The stream's way through the callbacks, in order, for asserting sequences.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Callback {
    RequestHeaders,
    RequestBody,
    RequestTrailers,
    ResponseHeaders,
    ResponseBody,
    ResponseTrailers,
    Log,
    Done,
    Delete,
}
