//! One HTTP stream, with Envoy's part in it played by the test.
//!
//! The methods of [`Stream`] are what happens at the proxy's edges: bytes come, peers leave. What the
//! filter answers decides what is let through; what hostcalls ask for (resume, reply, reset) is carried
//! out when the callback has returned, before its answer is looked at, as in the real host.

pub(crate) mod direction;
mod drive;
mod ending;
mod reply;

use std::cell::{Ref, RefMut};
use std::collections::BTreeMap;
use std::fmt;

use crate::error::Trap;
use crate::framing::Framing;
use crate::headers::Headers;
use crate::outcome::{Callback, Ending, Flow, LocalReply, Received};
use crate::state::StreamCell;
use crate::status::LogLine;
use crate::vm::Vm;
use direction::{Direction, Hold, Side};

/// A request about to come in.
#[derive(Clone, Debug)]
pub struct Request {
    headers: Headers,
    complete: bool,
    properties: BTreeMap<String, Vec<u8>>,
    attempts: u64,
}

impl Request {
    pub fn new(headers: impl Into<Headers>) -> Self {
        Self { headers: headers.into(), complete: false, properties: BTreeMap::new(), attempts: 1 }
    }

    /// No body will follow: `end_of_stream` comes with the headers.
    #[must_use]
    pub fn complete(self) -> Self {
        Self { complete: true, ..self }
    }

    /// A property by its dotted path; it comes before what the host would say itself.
    #[must_use]
    pub fn property(mut self, path: &str, value: impl AsRef<[u8]>) -> Self {
        self.properties.insert(path.into(), value.as_ref().to_vec());
        self
    }

    /// How often the proxy asks an upstream, retries included (F31).
    #[must_use]
    pub fn attempts(self, attempts: u64) -> Self {
        Self { attempts, ..self }
    }
}

#[derive(Debug)]
pub(crate) struct StreamState {
    pub(crate) id: u32,
    generation: u32,
    /// The filter saw its headers; without, it sees nothing but the log.
    seen: bool,
    /// The access log is being written: maps can be read again, and no longer edited.
    pub(crate) logging: bool,
    pub(crate) request: Direction,
    pub(crate) response: Direction,
    pub(crate) properties: BTreeMap<String, Vec<u8>>,
    pub(crate) filter_state: BTreeMap<String, Vec<u8>>,
    pub(crate) details: Option<String>,
    pub(crate) flags: u64,
    pub(crate) attempts: u64,
    pub(crate) opened_ns: u64,
    local_reply: Option<LocalReply>,
    ending: Option<Ending>,
    trace: Vec<Callback>,
}

impl StreamState {
    pub(crate) fn code(&self) -> Option<u16> {
        let sent = self.response.peer.status();
        sent.or_else(|| self.response.headers.as_ref()?.text(":status")?.parse().ok())
    }

    pub(super) fn side(&mut self, side: Side) -> &mut Direction {
        match side {
            Side::Request => &mut self.request,
            Side::Response => &mut self.response,
        }
    }
}

/// Cheap to clone; all clones are one stream. It can be inspected after its end.
#[derive(Clone)]
pub struct Stream {
    vm: Vm,
    cell: StreamCell,
}

/// The edges of the proxy.
impl Stream {
    /// A piece of the request's body.
    pub fn body(&self, chunk: impl AsRef<[u8]>, end: bool) -> Result<Flow, Trap> {
        self.edge(Side::Request, |stream| stream.show_body(Side::Request, chunk.as_ref(), end))
    }

    /// Trailers end a request without an end of stream in its body (F10).
    pub fn request_trailers(&self, trailers: impl Into<Headers>) -> Result<Flow, Trap> {
        self.edge(Side::Request, |stream| stream.show_trailers(Side::Request, trailers.into()))
    }

    /// The upstream answers.
    ///
    /// # Panics
    ///
    /// When the request has not been let through, so that no upstream can have answered.
    pub fn response_headers(&self, headers: impl Into<Headers>, end: bool) -> Result<Flow, Trap> {
        self.edge(Side::Response, |stream| {
            let asked = stream.state().request.peer.headers.is_some();
            assert!(asked, "the upstream has not been asked: the request is held");
            stream.state().details = Some("via_upstream".into());
            stream.show_headers(Side::Response, headers.into(), end)
        })
    }

    pub fn response_body(&self, chunk: impl AsRef<[u8]>, end: bool) -> Result<Flow, Trap> {
        self.edge(Side::Response, |stream| stream.show_body(Side::Response, chunk.as_ref(), end))
    }

    pub fn response_trailers(&self, trailers: impl Into<Headers>) -> Result<Flow, Trap> {
        self.edge(Side::Response, |stream| stream.show_trailers(Side::Response, trailers.into()))
    }

    /// The proxy itself replies (503, 504, …), through the filter's response callbacks (F14).
    pub fn local_reply(&self, code: u16, details: &str) -> Result<Flow, Trap> {
        self.edge(Side::Response, |stream| stream.reply_by_host(code, details))
    }

    /// The client leaves (F12, F29).
    pub fn client_gone(&self) -> Result<(), Trap> {
        self.finally(|stream| stream.end(Ending::ClientGone, "downstream_remote_disconnect"))
    }

    /// The upstream resets: a 503 before its headers, a cut stream after them (F29, F30).
    pub fn upstream_reset(&self) -> Result<(), Trap> {
        self.finally(Self::lose_upstream)
    }

    /// The end: log, done, delete. Does nothing where the stream has ended by itself;
    /// one still in flight ends as by a shutdown of the proxy (F25).
    pub fn finish(&self) -> Result<(), Trap> {
        self.finally(|stream| stream.end(Ending::Shutdown, "downstream_local_disconnect(stream_reset)"))
    }

    fn edge(&self, side: Side, act: impl FnOnce(&Self) -> Result<(), Trap>) -> Result<Flow, Trap> {
        if !self.is_over(side) {
            act(self)?;
            self.vm.process().deliver_promptly()?;
        }
        Ok(self.flow(side))
    }

    fn finally(&self, act: impl FnOnce(&Self) -> Result<(), Trap>) -> Result<(), Trap> {
        if self.ending().is_none() {
            act(self)?;
            self.vm.process().deliver_promptly()?;
        }
        Ok(())
    }
}

/// What came of it.
impl Stream {
    /// The context's id.
    pub fn id(&self) -> u32 {
        self.peek().id
    }

    /// What the upstream received.
    pub fn upstream(&self) -> Received {
        self.peek().request.peer.clone()
    }

    /// What the client received.
    pub fn client(&self) -> Received {
        self.peek().response.peer.clone()
    }

    /// The smuggling check: does the length announced to the upstream fit the bytes sent (F8)?
    pub fn upstream_framing(&self) -> Framing {
        Framing::of(&self.peek().request.peer)
    }

    pub fn client_framing(&self) -> Framing {
        Framing::of(&self.peek().response.peer)
    }

    pub fn request_flow(&self) -> Flow {
        self.flow(Side::Request)
    }

    pub fn response_flow(&self) -> Flow {
        self.flow(Side::Response)
    }

    /// The reply that did not come from the upstream, as it was made; the client's copy may be edited.
    pub fn reply(&self) -> Option<LocalReply> {
        self.peek().local_reply.clone()
    }

    /// `%RESPONSE_CODE_DETAILS%`.
    pub fn details(&self) -> Option<String> {
        self.peek().details.clone()
    }

    /// Filter state that the filter set, by its full name (`wasm.…`).
    pub fn filter_state(&self, name: &str) -> Option<Vec<u8>> {
        self.peek().filter_state.get(name).cloned()
    }

    pub fn filter_states(&self) -> BTreeMap<String, Vec<u8>> {
        self.peek().filter_state.clone()
    }

    /// `None` while the stream is in flight.
    pub fn ending(&self) -> Option<Ending> {
        self.peek().ending
    }

    /// The callbacks made for this stream, in order.
    pub fn callbacks(&self) -> Vec<Callback> {
        self.peek().trace.clone()
    }

    /// The lines logged in this stream's callbacks.
    pub fn log(&self) -> Vec<LogLine> {
        let id = self.id();
        self.vm.log().into_iter().filter(|line| line.context == id).collect()
    }

    /// A property the host learns while the stream runs.
    pub fn set_property(&self, path: &str, value: impl AsRef<[u8]>) {
        self.state().properties.insert(path.into(), value.as_ref().to_vec());
    }

    pub fn vm(&self) -> &Vm {
        &self.vm
    }
}

impl Stream {
    pub(crate) fn open(vm: Vm, id: u32, request: Request) -> Self {
        let headers = Some(request.headers);
        let direction = Direction { headers, bodiless: request.complete, ..Direction::default() };
        let state = StreamState {
            id,
            generation: vm.generation(),
            seen: false,
            logging: false,
            request: direction,
            response: Direction::default(),
            properties: request.properties,
            filter_state: BTreeMap::new(),
            details: None,
            flags: 0,
            attempts: request.attempts,
            opened_ns: vm.process().world.borrow().steady_ns,
            local_reply: None,
            ending: None,
            trace: Vec::new(),
        };
        let cell = StreamCell::new(state.into());
        vm.host().streams.insert(id, StreamCell::clone(&cell));
        Self { vm, cell }
    }

    pub(crate) fn of(vm: Vm, cell: StreamCell) -> Self {
        Self { vm, cell }
    }

    fn peek(&self) -> Ref<'_, StreamState> {
        self.cell.borrow()
    }

    fn state(&self) -> RefMut<'_, StreamState> {
        self.cell.borrow_mut()
    }

    fn is_over(&self, side: Side) -> bool {
        let mut state = self.state();
        state.ending.is_some() || state.side(side).closed
    }

    fn flow(&self, side: Side) -> Flow {
        if self.is_over(side) {
            return Flow::Ended;
        }
        match self.state().side(side).hold {
            Hold::Nothing => Flow::Flowing,
            Hold::Headers | Hold::Everything | Hold::Body | Hold::Trailers => Flow::Held,
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.peek().fmt(out)
    }
}
