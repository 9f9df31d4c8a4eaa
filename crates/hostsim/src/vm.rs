//! One worker's VM: an instance of the module, its root context, and the contexts of its streams.
//!
//! A trap kills the VM for good (F52): every later callback answers with that trap, until
//! [`Vm::reload`] makes a fresh instance. Shared data, metrics and queues belong to the process and stay.

use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::{Rc, Weak};

use crate::calls::{Answer, Call};
use crate::error::{StartError, Trap};
use crate::headers::Headers;
use crate::machine::{Machine, new_store};
use crate::module::Module;
use crate::process::Process;
use crate::profile::VmOptions;
use crate::shared::Consumer;
use crate::state::{Deferred, HostState, ROOT, Shutdown, StreamCell};
use crate::status::{LogLevel, LogLine};
use crate::stream::{Request, Stream};

/// Cheap to clone; all clones are one VM.
#[derive(Clone)]
pub struct Vm(Rc<VmInner>);

pub(crate) struct VmInner {
    process: Process,
    module: Module,
    options: Rc<VmOptions>,
    number: usize,
    machine: RefCell<Machine>,
}

impl Vm {
    pub(crate) fn new(process: Process, module: Module, options: VmOptions, number: usize) -> Self {
        let options = Rc::new(options);
        let store = new_store(&process, &module, &options, number, 0);
        let machine = RefCell::new(Machine::new(store, 0));
        Self(Rc::new(VmInner { process, module, options, number, machine }))
    }

    /// Instantiates the module, makes the root context, and configures it.
    pub fn start(&self) -> Result<(), StartError> {
        let started = self.bring_up();
        if started.is_ok() {
            self.0.process.deliver_promptly()?;
        }
        started
    }

    fn bring_up(&self) -> Result<(), StartError> {
        self.machine().instantiate(&self.0.module)?;
        self.call_root("_initialize", &[])?;
        self.call_root("proxy_on_context_create", &[ROOT, 0])?;
        let size = self.0.options.vm_config.len() as u32;
        if self.call_root("proxy_on_vm_start", &[ROOT, size])? == Some(0) {
            return Err(StartError::VmStartRefused);
        }
        let size = self.0.options.config.len() as u32;
        self.host().configuring = true;
        let configured = self.call_root("proxy_on_configure", &[ROOT, size]);
        self.host().configuring = false;
        match configured? {
            Some(0) => Err(StartError::ConfigureRefused),
            Some(_) | None => Ok(()),
        }
    }

    /// A fresh VM in the place of this one, as `FAIL_RELOAD` makes (F54). Streams of the old one are lost.
    pub fn reload(&self) -> Result<(), StartError> {
        let VmInner { process, module, options, number, .. } = &*self.0;
        self.machine().replace(|generation| new_store(process, module, options, *number, generation));
        self.start()
    }

    /// The root's `on_tick`, now, whatever its period.
    pub fn tick(&self) -> Result<(), Trap> {
        self.run_tick()?;
        self.0.process.deliver_promptly()
    }

    /// The period asked for; `None` is no tick.
    pub fn tick_period_ms(&self) -> Option<u64> {
        self.host().tick.map(|tick| tick.period_ns / 1_000_000)
    }

    /// Opens a stream and shows its headers to the filter.
    pub fn stream(&self, headers: impl Into<Headers>, end_of_stream: bool) -> Result<Stream, Trap> {
        let request = Request::new(headers);
        self.open(if end_of_stream { request.complete() } else { request })
    }

    /// The same, with properties.
    pub fn open(&self, request: Request) -> Result<Stream, Trap> {
        self.check_alive()?;
        let id = self.next_context();
        let stream = Stream::open(self.clone(), id, request);
        stream.show_request_headers()?;
        Ok(stream)
    }

    /// A stream of which the filter sees nothing but the log: an earlier filter, or the codec, replied (F14).
    pub fn unseen(&self, request: Request, code: u16, details: &str) -> Result<Stream, Trap> {
        self.check_alive()?;
        let id = self.next_context();
        let stream = Stream::open(self.clone(), id, request);
        stream.end_unseen(code, details)?;
        Ok(stream)
    }

    /// The root's `on_done`. False: it still has something to deliver, and `done` will tell (F26).
    pub fn shut_down(&self) -> Result<bool, Trap> {
        let done = self.call_root("proxy_on_done", &[ROOT])? != Some(0);
        self.host().shutdown = if done { Shutdown::Done } else { Shutdown::Pending };
        if done {
            self.call_root("proxy_on_delete", &[ROOT])?;
        }
        self.0.process.deliver_promptly()?;
        Ok(done)
    }

    /// The root has ended, at once or by its own `done` call.
    pub fn is_done(&self) -> bool {
        self.host().shutdown == Shutdown::Done
    }

    /// The calls that wait for an answer, oldest first.
    pub fn calls(&self) -> Vec<Call> {
        self.host().calls.values().cloned().collect()
    }

    /// Ends a call. The callback goes to the root, whoever made the call (F17).
    ///
    /// # Panics
    ///
    /// When no such call is open.
    pub fn answer(&self, token: u32, answer: Answer) -> Result<(), Trap> {
        self.finish_call(token, answer)?;
        self.0.process.deliver_promptly()
    }

    pub fn log(&self) -> Vec<LogLine> {
        self.host().records.log.clone()
    }

    /// The messages of one level.
    pub fn messages(&self, level: LogLevel) -> Vec<String> {
        let log = self.log().into_iter();
        log.filter(|line| line.level == level).map(|line| line.message).collect()
    }

    pub fn clear_log(&self) {
        self.host().records.log.clear();
    }

    /// What the real host would have swallowed, and a filter should not have done.
    pub fn misuses(&self) -> Vec<String> {
        self.host().records.misuses.clone()
    }

    /// How often each hostcall was made.
    pub fn hostcalls(&self) -> BTreeMap<&'static str, u64> {
        self.host().records.hostcalls.clone()
    }

    pub fn metric_definitions(&self) -> usize {
        self.host().metric_ids.count()
    }

    /// Burnt since the start or the last reset; the same inputs burn the same.
    pub fn fuel_used(&self) -> u64 {
        self.host().records.fuel
    }

    pub fn reset_fuel(&self) {
        self.host().records.fuel = 0;
    }

    /// The linear memory, which never shrinks.
    pub fn memory_bytes(&self) -> usize {
        self.machine().memory_bytes()
    }

    /// The trap that killed this VM.
    pub fn trap(&self) -> Option<Trap> {
        self.machine().dead.clone()
    }

    /// Contexts alive beside the root.
    pub fn open_streams(&self) -> usize {
        self.host().streams.len()
    }

    pub fn process(&self) -> &Process {
        &self.0.process
    }

    pub fn options(&self) -> &VmOptions {
        &self.0.options
    }
}

/// For the streams and the process.
impl Vm {
    pub(crate) fn downgrade(&self) -> Weak<VmInner> {
        Rc::downgrade(&self.0)
    }

    pub(crate) fn upgrade(weak: &Weak<VmInner>) -> Option<Self> {
        weak.upgrade().map(Self)
    }

    pub(crate) fn host(&self) -> RefMut<'_, HostState> {
        RefMut::map(self.machine(), |machine| machine.store.data_mut())
    }

    pub(crate) fn generation(&self) -> u32 {
        self.machine().generation
    }

    pub(crate) fn is_living(&self, consumer: Consumer) -> bool {
        let machine = self.machine();
        machine.generation == consumer.generation && machine.dead.is_none()
    }

    pub(crate) fn check_alive(&self) -> Result<(), Trap> {
        self.trap().map_or(Ok(()), Err)
    }

    fn machine(&self) -> RefMut<'_, Machine> {
        self.0.machine.try_borrow_mut().expect("a VM was driven from inside one of its own callbacks")
    }

    fn next_context(&self) -> u32 {
        let mut machine = self.machine();
        machine.last_context += 1;
        machine.last_context
    }

    /// When a tick or a call's time-out comes due, in steady time.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.check_alive().ok()?;
        let host = self.host();
        let calls = host.calls.values().filter_map(|call| call.deadline_ns);
        calls.chain(host.tick.map(|tick| tick.due_ns)).min()
    }

    pub(crate) fn run_due(&self) -> Result<(), Trap> {
        let now = self.0.process.world.borrow().steady_ns;
        let late = self.calls().into_iter().find(|call| call.deadline_ns.is_some_and(|due| due <= now));
        match late {
            Some(call) => self.finish_call(call.token, Answer::TimedOut)?,
            None => self.run_tick()?,
        }
        self.0.process.deliver_promptly()
    }

    fn run_tick(&self) -> Result<(), Trap> {
        let now = self.0.process.world.borrow().steady_ns;
        if let Some(tick) = &mut self.host().tick {
            tick.due_ns = now + tick.period_ns;
        }
        self.call_root("proxy_on_tick", &[ROOT]).map(drop)
    }

    pub(crate) fn queue_ready(&self, queue: u32) -> Result<(), Trap> {
        self.call_root("proxy_on_queue_ready", &[ROOT, queue]).map(drop)
    }

    fn finish_call(&self, token: u32, answer: Answer) -> Result<(), Trap> {
        self.check_alive()?;
        assert!(self.host().calls.remove(&token).is_some(), "no call {token} is open");
        let response = answer.into_response();
        let sizes =
            response.as_ref().map_or([0; 3], |it| [it.headers.len(), it.body.len(), it.trailers.len()]);
        let [headers, body, trailers] = sizes.map(|size| size as u32);
        self.host().call_response = response;
        let outcome = self.call_root("proxy_on_http_call_response", &[ROOT, token, headers, body, trailers]);
        self.host().call_response = None;
        outcome.map(drop)
    }

    fn call_root(&self, export: &'static str, arguments: &[u32]) -> Result<Option<u32>, Trap> {
        let answer = self.call(ROOT, export, arguments)?;
        self.run_deferred()?;
        Ok(answer)
    }

    /// Runs one export; a missing one answers nothing.
    pub(crate) fn call(
        &self,
        context: u32,
        export: &'static str,
        arguments: &[u32],
    ) -> Result<Option<u32>, Trap> {
        self.check_alive()?;
        self.machine().call(context, export, arguments)
    }

    /// Carries out what hostcalls put off until their callback had returned.
    pub(crate) fn run_deferred(&self) -> Result<(), Trap> {
        loop {
            let next = self.host().deferred.pop_front();
            let Some(action) = next else { return Ok(()) };
            match action {
                Deferred::ResumeRequest(id) => self.with_stream(id, |stream| stream.resume_request())?,
                Deferred::ResumeResponse(id) => self.with_stream(id, |stream| stream.resume_response())?,
                Deferred::Reset(id) => self.with_stream(id, |stream| stream.reset_by_filter())?,
                Deferred::Reply { context, code, details, headers, body } => {
                    self.with_stream(context, |stream| stream.reply_by_filter(code, &details, headers, body))?
                }
            }
        }
    }

    fn with_stream(&self, id: u32, act: impl FnOnce(&Stream) -> Result<(), Trap>) -> Result<(), Trap> {
        let cell: Option<StreamCell> = self.host().streams.get(&id).cloned();
        // It may have ended by an action before this one.
        cell.map_or(Ok(()), |cell| act(&Stream::of(self.clone(), cell)))
    }
}

impl fmt::Debug for Vm {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Vm").field("number", &self.0.number).finish_non_exhaustive()
    }
}
