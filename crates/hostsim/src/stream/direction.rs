//! One half of a stream: what came in, what the filter may see of it, what was let through.

use crate::headers::Headers;
use crate::outcome::{Callback, Received};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Side {
    Request,
    Response,
}

impl Side {
    pub(super) fn headers_callback(self) -> (Callback, &'static str) {
        match self {
            Self::Request => (Callback::RequestHeaders, "proxy_on_request_headers"),
            Self::Response => (Callback::ResponseHeaders, "proxy_on_response_headers"),
        }
    }

    pub(super) fn body_callback(self) -> (Callback, &'static str) {
        match self {
            Self::Request => (Callback::RequestBody, "proxy_on_request_body"),
            Self::Response => (Callback::ResponseBody, "proxy_on_response_body"),
        }
    }

    pub(super) fn trailers_callback(self) -> (Callback, &'static str) {
        match self {
            Self::Request => (Callback::RequestTrailers, "proxy_on_request_trailers"),
            Self::Response => (Callback::ResponseTrailers, "proxy_on_response_trailers"),
        }
    }
}

/// What the filter's last answer keeps back.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Hold {
    #[default]
    Nothing,
    /// Headers wait; body callbacks come.
    Headers,
    /// Everything waits, and no callback comes until resumed (F1).
    Everything,
    Body,
    Trailers,
}

#[derive(Debug, Default)]
pub(crate) struct Direction {
    /// The map the filter edits; `None` until the headers have come.
    pub(crate) headers: Option<Headers>,
    pub(crate) headers_readable: bool,
    /// The body the filter may see: all that is buffered, and the newest chunk.
    pub(crate) body: Vec<u8>,
    pub(crate) body_readable: bool,
    pub(crate) trailers: Option<Headers>,
    pub(crate) trailers_readable: bool,
    pub(crate) hold: Hold,
    /// Body that came behind [`Hold::Everything`].
    pub(crate) unseen: Vec<u8>,
    /// The headers came with the end of the stream.
    pub(crate) bodiless: bool,
    /// The sender has finished.
    pub(crate) complete: bool,
    /// Nothing of it matters any more.
    pub(crate) closed: bool,
    pub(crate) peer: Received,
}

impl Direction {
    /// Lets through all that waits.
    pub(super) fn release(&mut self, now_ms: u64) {
        self.hold = Hold::Nothing;
        self.hide();
        if self.peer.headers.is_none() {
            self.peer.headers.clone_from(&self.headers);
            self.peer.released_at_ms = Some(now_ms);
        }
        self.peer.send(std::mem::take(&mut self.body), now_ms);
        if self.complete {
            self.peer.trailers.clone_from(&self.trailers);
            self.peer.ended = true;
        }
    }

    /// Another message in the place of the one the filter saw.
    pub(super) fn replace(&mut self, headers: Headers, body: Vec<u8>, now_ms: u64) {
        self.peer.headers = Some(headers);
        self.peer.released_at_ms = Some(now_ms);
        self.peer.send(body, now_ms);
        self.peer.ended = true;
    }

    /// What the filter could read, it can no longer.
    ///
    /// Stricter than the real host, where headers let go by a body callback happen to stay
    /// readable (F56): a filter must not rely on it, and one that does fails here.
    pub(crate) fn hide(&mut self) {
        self.headers_readable = false;
        self.body_readable = false;
        self.trailers_readable = false;
    }

    /// The stream stops here: a message begun and not finished is cut.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.hide();
        self.peer.cut = self.peer.headers.is_some() && !self.peer.ended;
    }
}
