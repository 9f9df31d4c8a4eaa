//! The end of a stream: log, done, delete, in that order, exactly once (F21).

use super::Stream;
use crate::error::Trap;
use crate::outcome::{Callback, Ending};

/// Bits of `response.flags`, as the access log's flags are numbered.
mod flag {
    pub(super) const UPSTREAM_TERMINATED: u64 = 0x40;
    pub(super) const CLIENT_GONE: u64 = 0x4000;
    pub(super) const UPSTREAM_PROTOCOL: u64 = 0x80_0000;
}

impl Stream {
    /// Empty details leave those that are set.
    pub(super) fn end(&self, ending: Ending, details: &str) -> Result<(), Trap> {
        let id = self.id();
        {
            let mut state = self.state();
            if state.ending.is_some() {
                return Ok(());
            }
            state.ending = Some(ending);
            state.flags |= match ending {
                Ending::ClientGone | Ending::Shutdown => flag::CLIENT_GONE,
                Ending::UpstreamReset => flag::UPSTREAM_PROTOCOL,
                Ending::Complete | Ending::Reset | Ending::VmDied => 0,
            };
            if !details.is_empty() {
                state.details = Some(details.into());
            }
            state.request.close();
            state.response.close();
            state.logging = true;
        }
        let logged = self.last_callback((Callback::Log, "proxy_on_log"), id);
        self.state().logging = false;
        logged?;
        self.last_callback((Callback::Done, "proxy_on_done"), id)?;
        self.last_callback((Callback::Delete, "proxy_on_delete"), id)?;
        self.vm.host().streams.remove(&id);
        Ok(())
    }

    pub(super) fn lose_upstream(&self) -> Result<(), Trap> {
        let answered = self.peek().response.headers.is_some();
        if answered {
            let details = "upstream_reset_after_response_started{protocol_error}";
            return self.end(Ending::UpstreamReset, details);
        }
        self.state().flags |= flag::UPSTREAM_TERMINATED;
        self.reply_by_host(503, "upstream_reset_before_response_started{connection_termination}")
    }

    pub(crate) fn reset_by_filter(&self) -> Result<(), Trap> {
        self.end(Ending::Reset, "wasm_fail_stream")
    }

    /// The context is made for the log alone.
    pub(crate) fn end_unseen(&self, code: u16, details: &str) -> Result<(), Trap> {
        let id = self.id();
        self.vm.call(id, "proxy_on_context_create", &[id, crate::state::ROOT])?;
        self.reply_by_host(code, details)?;
        self.vm.process().deliver_promptly()
    }

    fn last_callback(&self, callback: (Callback, &'static str), id: u32) -> Result<(), Trap> {
        self.notify(callback, &[id]).map(drop)
    }
}
