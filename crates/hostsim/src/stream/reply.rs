//! Replies that no upstream gave: the filter's own, and the proxy's (F13, F14).

use super::direction::Side;
use super::{Stream, StreamState};
use crate::error::Trap;
use crate::headers::Headers;
use crate::outcome::{Author, Ending, LocalReply};

/// How far the response has come decides what a local reply can still do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Route {
    /// Nothing yet: the reply passes through the filter's own response callbacks.
    ThroughFilters,
    /// The filter has seen a response the client has not: it is replaced, without callbacks.
    Straight,
    /// The client has headers already: all that is left is to cut the stream.
    TooLate,
}

impl Stream {
    pub(crate) fn reply_by_filter(
        &self,
        code: u16,
        details: &str,
        headers: Headers,
        body: Vec<u8>,
    ) -> Result<(), Trap> {
        let details = details.replace(' ', "_");
        self.reply_locally(LocalReply { code, details, headers, body, by: Author::Filter })
    }

    pub(super) fn reply_by_host(&self, code: u16, details: &str) -> Result<(), Trap> {
        let (details, body) = (details.replace(' ', "_"), host_text(code).as_bytes().to_vec());
        let headers = Headers::new();
        self.reply_locally(LocalReply { code, details, headers, body, by: Author::Host })
    }

    fn reply_locally(&self, reply: LocalReply) -> Result<(), Trap> {
        if self.ending().is_some() {
            return Ok(());
        }
        if self.peek().local_reply.is_some() {
            self.vm.host().misuse(format!("a second local reply ({}) was ignored", reply.code));
            return Ok(());
        }
        let (headers, body) = (reply_headers(&reply), reply.body.clone());
        let route = {
            let mut state = self.state();
            state.request.close();
            state.details = Some(reply.details.clone());
            state.local_reply = Some(reply);
            state.route()
        };
        match route {
            Route::ThroughFilters => self.show_reply(headers, &body),
            Route::Straight => {
                self.state().response.replace(headers, body, self.vm.process().now_ms());
                self.end(Ending::Complete, "")
            }
            Route::TooLate => self.end(Ending::Reset, ""),
        }
    }

    fn show_reply(&self, headers: Headers, body: &[u8]) -> Result<(), Trap> {
        self.show_headers(Side::Response, headers, body.is_empty())?;
        if body.is_empty() || self.is_over(Side::Response) {
            return Ok(());
        }
        self.show_body(Side::Response, body, true)
    }
}

impl StreamState {
    fn route(&self) -> Route {
        if self.response.peer.headers.is_some() {
            Route::TooLate
        } else if self.response.headers.is_some() || !self.seen {
            Route::Straight
        } else {
            Route::ThroughFilters
        }
    }
}

/// Exactly the given headers, and what the length and the type need.
fn reply_headers(reply: &LocalReply) -> Headers {
    let mut headers = Headers::from([(":status", reply.code.to_string())]);
    for (name, value) in reply.headers.iter() {
        headers.add(name, value);
    }
    if !reply.body.is_empty() {
        headers.set("content-length", reply.body.len().to_string());
        if !headers.contains("content-type") {
            headers.add("content-type", "text/plain");
        }
    }
    headers
}

fn host_text(code: u16) -> &'static str {
    match code {
        408 => "request timeout",
        413 => "Payload Too Large",
        500 => "Internal Server Error",
        503 => "upstream connect error or disconnect/reset before headers",
        504 => "upstream request timeout",
        _ => "",
    }
}
