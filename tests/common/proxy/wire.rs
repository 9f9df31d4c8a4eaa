//! The host's side of one native stream: what came in, what is held back, what was let through.

use tollgate::reply::Reply;
use tollgate_hostsim::{Headers, Received};

/// What the filter's last answer keeps back.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Hold {
    #[default]
    Nothing,
    /// Headers wait; body callbacks come.
    Headers,
    /// Everything waits, and no callback comes until resumed.
    Everything,
    Body,
}

/// One direction.
#[derive(Debug, Default)]
pub(super) struct Half {
    pub(super) headers: Headers,
    pub(super) body: Vec<u8>,
    pub(super) hold: Hold,
    pub(super) trailers: bool,
    /// The sender has finished.
    pub(super) complete: bool,
    pub(super) closed: bool,
    pub(super) peer: Received,
}

impl Half {
    /// Lets through all that waits.
    pub(super) fn release(&mut self) {
        self.hold = Hold::Nothing;
        if self.peer.headers.is_none() {
            self.peer.headers = Some(self.headers.clone());
        }
        if !self.body.is_empty() {
            self.peer.chunks.push(std::mem::take(&mut self.body));
        }
        if self.complete {
            self.peer.trailers = self.trailers.then(|| Headers::from([("x-checksum", "1")]));
            self.peer.ended = true;
        }
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
        self.peer.cut = self.peer.headers.is_some() && !self.peer.ended;
    }
}

#[derive(Debug, Default)]
pub(super) struct Wire {
    pub(super) request: Half,
    pub(super) response: Half,
    pub(super) details: Option<String>,
    pub(super) record: Option<String>,
    pub(super) ended: bool,
    /// Asked for in a callback, carried out after it.
    pub(super) reply: Option<Reply>,
    pub(super) resume: bool,
}
