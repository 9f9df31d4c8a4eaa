//! One stream: a callback becomes an input, an effect becomes a hostcall.

use std::cell::RefCell;
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use super::calls::{self, Buffer, Headers};
use super::service::CallResponse;
use super::worker::Worker;
use crate::exchange::{Body, End, Exchange, Flow, Input, Origin};
use crate::identity::Caller;

const CODE_DETAILS: &str = "response\0code_details";

#[derive(Debug)]
pub(super) struct Stream {
    worker: Rc<Worker>,
    context: u32,
    exchange: Rc<RefCell<Exchange>>,
    /// The last byte of an answer has come.
    answered: bool,
}

impl Stream {
    pub(super) fn new(worker: Rc<Worker>, context: u32) -> Self {
        let exchange = worker.exchange();
        Self { worker, context, exchange, answered: false }
    }

    fn on(&self, input: Input<'_>) {
        self.worker.drive(&self.exchange, input);
    }
}

impl Context for Stream {
    fn on_http_call_response(&mut self, _token: u32, headers: usize, body: usize, _trailers: usize) {
        let response = CallResponse::read(headers, body);
        self.on(Input::Answered(Ok(response.as_ref().map(CallResponse::view))));
    }
}

impl HttpContext for Stream {
    fn on_http_request_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        let headers = calls::headers(Headers::Request).unwrap_or_default();
        let (headers, metadata) = (headers.pairs(), self.worker.metadata());
        let caller = Caller { headers: &headers, metadata: &metadata };
        self.on(Input::RequestHeaders { caller, body: body(end_of_stream) });
        if self.exchange.borrow().needs_ticks() {
            self.worker.watch(self.context, &self.exchange);
        }
        action(self.exchange.borrow().headers_flow())
    }

    fn on_http_request_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        self.on(Input::RequestBody { waiting: size, body: body(end_of_stream) });
        action(self.exchange.borrow().body_flow())
    }

    fn on_http_request_trailers(&mut self, _count: usize) -> Action {
        self.on(Input::RequestTrailers);
        action(self.exchange.borrow().body_flow())
    }

    fn on_http_response_headers(&mut self, _count: usize, _end_of_stream: bool) -> Action {
        if self.exchange.borrow().awaits_answer() {
            let headers = calls::headers(Headers::Response).unwrap_or_default();
            self.on(Input::ResponseHeaders { headers: &headers.pairs(), origin: origin() });
        }
        Action::Continue
    }

    fn on_http_response_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        if self.exchange.borrow().follows_answer() {
            // The end often comes by itself.
            let chunk = match size {
                0 => None,
                size => calls::buffer(Buffer::ResponseBody, 0, size).ok().flatten(),
            };
            let chunk = chunk.unwrap_or_default();
            self.on(Input::ResponseBody { chunk: &chunk, body: body(end_of_stream) });
            self.answered = end_of_stream;
        }
        Action::Continue
    }

    fn on_log(&mut self) {
        self.worker.forget(self.context);
        // What broke after the last byte of the answer changes nothing of what it cost.
        self.on(Input::Ended(if self.answered { End::Complete } else { end() }));
    }
}

const fn body(end_of_stream: bool) -> Body {
    if end_of_stream { Body::Ends } else { Body::Goes }
}

const fn action(flow: Flow) -> Action {
    match flow {
        Flow::Continue => Action::Continue,
        Flow::Pause => Action::Pause,
    }
}

/// Who ended the stream, as the proxy's response code details tell.
fn end() -> End {
    match calls::property(CODE_DETAILS) {
        Ok(Some(details)) if details == b"via_upstream" => End::Complete,
        Ok(Some(details)) if details.starts_with(b"upstream_") || details == b"response_timeout" => {
            End::Upstream
        }
        // Whatever else breaks a stream is the client's doing, or must not be worth doing.
        Ok(_) | Err(_) => End::Client,
    }
}

/// The proxy runs the callbacks for its own answers (a time-out, a broken upstream) as for the upstream's.
fn origin() -> Origin {
    match calls::property(CODE_DETAILS) {
        Ok(Some(details)) if details == b"via_upstream" => Origin::Upstream,
        Ok(_) | Err(_) => Origin::Proxy,
    }
}
