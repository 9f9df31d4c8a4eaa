//! Feeding one direction to the filter and doing as it answers (F1–F6, F10, F32–F36).

use super::direction::{Direction, Hold, Side};
use super::{Stream, StreamState};
use crate::error::Trap;
use crate::headers::Headers;
use crate::outcome::{Callback, Ending};
use crate::profile::Profile;

/// The filter's answer to a callback.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Action {
    Continue,
    Pause,
}

impl Stream {
    pub(crate) fn show_request_headers(&self) -> Result<(), Trap> {
        let (id, headers, bodiless) = {
            let mut state = self.state();
            state.seen = true;
            let headers = state.request.headers.take().expect("a request is opened with headers");
            (state.id, headers, state.request.bodiless)
        };
        self.guarded(|| self.vm.call(id, "proxy_on_context_create", &[id, crate::state::ROOT]))?;
        self.show_headers(Side::Request, headers, bodiless)?;
        self.vm.process().deliver_promptly()
    }

    pub(super) fn show_headers(&self, side: Side, headers: Headers, end: bool) -> Result<(), Trap> {
        let count = headers.len();
        self.arrive(side, |direction| {
            direction.headers = Some(headers);
            direction.headers_readable = true;
            direction.bodiless = end;
            direction.complete = end;
        });
        let id = self.id();
        let action = self.callback(side.headers_callback(), &[id, count as u32, u32::from(end)])?;
        if self.is_over(side) {
            return Ok(());
        }
        match (action, self.vm.options().profile) {
            (Action::Continue, _) => self.release(side),
            (Action::Pause, Profile::EnvoyHold) => self.hold(side, Hold::Headers),
            (Action::Pause, Profile::EnvoyNoHold) => self.hold(side, Hold::Everything),
        }
    }

    pub(super) fn show_body(&self, side: Side, chunk: &[u8], end: bool) -> Result<(), Trap> {
        let hold = self.state().side(side).hold;
        self.arrive(side, |direction| {
            direction.complete = end;
            match hold {
                Hold::Everything => direction.unseen.extend(chunk),
                Hold::Nothing | Hold::Headers | Hold::Body | Hold::Trailers => {
                    direction.body.extend(chunk);
                }
            }
        });
        match hold {
            Hold::Everything => return self.check_limit(side),
            // The buffer takes the chunk before the filter is asked.
            Hold::Body => self.check_limit(side)?,
            Hold::Nothing | Hold::Headers | Hold::Trailers => {}
        }
        if self.is_over(side) {
            return Ok(());
        }
        self.ask_about_body(side, end)
    }

    fn ask_about_body(&self, side: Side, end: bool) -> Result<(), Trap> {
        let size = {
            let mut state = self.state();
            let direction = state.side(side);
            direction.body_readable = true;
            direction.body.len()
        };
        let id = self.id();
        let action = self.callback(side.body_callback(), &[id, size as u32, u32::from(end)])?;
        if self.is_over(side) {
            return Ok(());
        }
        match action {
            Action::Continue => self.release(side),
            Action::Pause => {
                self.hold(side, Hold::Body)?;
                self.check_limit(side)
            }
        }
    }

    pub(super) fn show_trailers(&self, side: Side, trailers: Headers) -> Result<(), Trap> {
        let count = trailers.len();
        let hold = self.state().side(side).hold;
        self.arrive(side, |direction| {
            direction.trailers = Some(trailers);
            direction.complete = true;
        });
        if hold == Hold::Everything {
            return Ok(());
        }
        self.state().side(side).trailers_readable = true;
        let action = self.callback(side.trailers_callback(), &[self.id(), count as u32])?;
        if self.is_over(side) {
            return Ok(());
        }
        match action {
            Action::Continue => self.release(side),
            Action::Pause => self.hold(side, Hold::Trailers),
        }
    }

    pub(crate) fn resume_request(&self) -> Result<(), Trap> {
        self.resume(Side::Request)
    }

    pub(crate) fn resume_response(&self) -> Result<(), Trap> {
        self.resume(Side::Response)
    }

    fn resume(&self, side: Side) -> Result<(), Trap> {
        if self.is_over(side) {
            return Ok(());
        }
        let hold = self.state().side(side).hold;
        match hold {
            // Resuming what flows does nothing, and does not undo a pause that comes after it.
            Hold::Nothing => Ok(()),
            Hold::Headers | Hold::Body | Hold::Trailers => self.release(side),
            Hold::Everything => self.resume_everything(side),
        }
    }

    /// The headers go, and the filter is shown at last what came behind them.
    fn resume_everything(&self, side: Side) -> Result<(), Trap> {
        let (unseen, bodiless, complete, trailers) = {
            let mut state = self.state();
            let direction = state.side(side);
            let unseen = std::mem::take(&mut direction.unseen);
            (unseen, direction.bodiless, direction.complete, direction.trailers.take())
        };
        self.state().side(side).complete = bodiless;
        self.release(side)?;
        let ended_by_body = complete && !bodiless && trailers.is_none();
        if !self.is_over(side) && (!unseen.is_empty() || ended_by_body) {
            self.show_body(side, &unseen, ended_by_body)?;
        }
        match trailers {
            Some(trailers) if !self.is_over(side) => self.show_trailers(side, trailers),
            Some(_) | None => Ok(()),
        }
    }

    fn arrive(&self, side: Side, change: impl FnOnce(&mut Direction)) {
        change(self.state().side(side));
    }

    fn hold(&self, side: Side, hold: Hold) -> Result<(), Trap> {
        self.state().side(side).hold = hold;
        Ok(())
    }

    fn release(&self, side: Side) -> Result<(), Trap> {
        let now_ms = self.vm.process().now_ms();
        self.state().side(side).release(now_ms);
        let answered = side == Side::Response && self.peek().response.peer.ended;
        if answered { self.end(Ending::Complete, "") } else { Ok(()) }
    }

    /// A paused body has a limit (F6, F36); one that flows has none.
    fn check_limit(&self, side: Side) -> Result<(), Trap> {
        let held = {
            let mut state = self.state();
            let direction = state.side(side);
            direction.body.len() + direction.unseen.len()
        };
        if held <= self.vm.options().body_limit {
            return Ok(());
        }
        match side {
            Side::Request => self.reply_by_host(413, "request_payload_too_large"),
            Side::Response => self.reply_by_host(500, "response_payload_too_large"),
        }
    }

    fn callback(&self, (name, export): (Callback, &'static str), words: &[u32]) -> Result<Action, Trap> {
        Ok(if self.notify((name, export), words)? == Some(1) { Action::Pause } else { Action::Continue })
    }

    /// Runs one callback and what it put off.
    pub(super) fn notify(
        &self,
        (name, export): (Callback, &'static str),
        words: &[u32],
    ) -> Result<Option<u32>, Trap> {
        self.guarded(|| {
            self.state().trace.push(name);
            let answer = self.vm.call(words[0], export, words)?;
            self.vm.run_deferred()?;
            Ok(answer)
        })
    }

    /// A stream whose VM is dead, or has been replaced, is failed by the host (F52–F55).
    fn guarded<T>(&self, act: impl FnOnce() -> Result<T, Trap>) -> Result<T, Trap> {
        let stranded = self.peek().generation != self.vm.generation();
        let outcome = if stranded { Err(stranded_trap()) } else { act() };
        outcome.inspect_err(|_| self.state().fail())
    }
}

fn stranded_trap() -> Trap {
    let message = "the VM that held this stream has been replaced".into();
    Trap { callback: "none", message, panic: None }
}

impl StreamState {
    /// The host's own answer where it still can, and no callback.
    fn fail(&mut self) {
        if self.ending.is_some() {
            return;
        }
        self.ending = Some(Ending::VmDied);
        self.request.close();
        if self.response.peer.headers.is_none() {
            self.response.peer.headers = Some(Headers::from([(":status", "503")]));
            self.response.peer.ended = true;
            self.details = Some("wasm_fail_stream".into());
        }
        self.response.close();
    }
}
