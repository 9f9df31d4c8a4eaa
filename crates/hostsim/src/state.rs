//! What a hostcall can reach: the VM's side of the world, kept in the interpreter's store.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use wasmi::StoreLimits;

use crate::calls::{Call, CallResponse};
use crate::headers::Headers;
use crate::metrics::Ids;
use crate::process::World;
use crate::profile::VmOptions;
use crate::random::Random;
use crate::shared::Consumer;
use crate::status::LogLine;
use crate::stream::StreamState;

/// The one root context of a VM.
pub(crate) const ROOT: u32 = 1;

pub(crate) type StreamCell = Rc<RefCell<StreamState>>;

pub(crate) struct HostState {
    pub(crate) world: Rc<RefCell<World>>,
    pub(crate) me: Consumer,
    pub(crate) options: Rc<VmOptions>,
    pub(crate) limits: StoreLimits,
    pub(crate) random: Random,

    /// The context whose callback runs, and the one it speaks for (F50).
    pub(crate) current: u32,
    pub(crate) effective: Option<u32>,
    pub(crate) streams: BTreeMap<u32, StreamCell>,
    /// What must wait until the outermost callback has returned, as in the real host.
    pub(crate) deferred: VecDeque<Deferred>,
    /// The plugin's configuration can be read only while it is being configured.
    pub(crate) configuring: bool,

    pub(crate) calls: BTreeMap<u32, Call>,
    pub(crate) last_token: u32,
    pub(crate) call_response: Option<CallResponse>,

    pub(crate) metric_ids: Ids,
    pub(crate) tick: Option<Tick>,
    pub(crate) shutdown: Shutdown,

    pub(crate) records: Records,
}

/// What a test reads afterwards; kept over a reload.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) log: Vec<LogLine>,
    pub(crate) misuses: Vec<String>,
    pub(crate) hostcalls: BTreeMap<&'static str, u64>,
    pub(crate) fuel: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Tick {
    pub(crate) period_ns: u64,
    /// In steady time.
    pub(crate) due_ns: u64,
}

/// Where the root's end stands (F26).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Shutdown {
    Running,
    /// `on_done` returned false; `proxy_done` is awaited.
    Pending,
    Done,
}

#[derive(Debug)]
pub(crate) enum Deferred {
    ResumeRequest(u32),
    ResumeResponse(u32),
    Reset(u32),
    Reply { context: u32, code: u16, details: String, headers: Headers, body: Vec<u8> },
}

impl HostState {
    /// The context a hostcall acts on. One that has gone leaves the call with the real one.
    pub(crate) fn context(&self) -> u32 {
        match self.effective {
            Some(id) if id == ROOT || self.streams.contains_key(&id) => id,
            Some(_) | None => self.current,
        }
    }

    /// `None` in the root.
    pub(crate) fn stream(&self) -> Option<StreamCell> {
        self.streams.get(&self.context()).cloned()
    }

    pub(crate) fn misuse(&mut self, what: impl Into<String>) {
        self.records.misuses.push(what.into());
    }
}
