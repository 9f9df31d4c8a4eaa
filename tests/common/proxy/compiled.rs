//! The compiled module in the host simulator.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::OnceLock;
use std::{env, fs};

use tollgate_hostsim::{
    Answer, Cluster, Ending, Flow, Headers, LogLevel, Module, Process, Request, Trap, Vm, VmOptions,
};

use super::{Proxy, Seen, Setup, Stream};
use crate::common::counter::{Counter, End, Manner, TARGET};

const VM_ID: &str = "tollgate";

/// As often as the module's timer rings.
const STEP_MS: usize = 100;

/// Every proxy of a test program draws other hold ids, the same in every run.
const SEED: u64 = 20_260_101;

pub struct CompiledProxy {
    process: Process,
    workers: Vec<Vm>,
    line: Rc<Line>,
    lives: Vec<Rc<Cell<u32>>>,
    conflicts: Rc<Cell<u64>>,
}

/// Between the workers and the counter service.
struct Line {
    process: Process,
    workers: Vec<Vm>,
    counter: Counter,
}

impl Line {
    /// The service takes the calls that are under way, and those that come of its answers.
    fn serve(&self) {
        while self.counter.manner() != Manner::Hangs {
            let calls = self.workers.iter().find_map(|vm| Some((vm, vm.calls().into_iter().next()?)));
            let Some((vm, call)) = calls else { return };
            let path = call.headers.text(":path").unwrap();
            let end = match self.counter.manner() {
                Manner::Unreachable => End::Cut,
                Manner::Answers | Manner::Says(..) | Manner::Cut | Manner::Deaf | Manner::Hangs => {
                    self.counter.take(&path, &call.body, self.process.now_ms())
                }
            };
            let answer = match end {
                End::Response(status, body) => Answer::response(status, body),
                End::Cut => Answer::Cut,
            };
            run(vm.answer(call.token, answer));
        }
    }

    fn settle_manner(&self) {
        let state = match self.counter.manner() {
            Manner::Unreachable => Cluster::Unavailable,
            Manner::Answers | Manner::Says(..) | Manner::Cut | Manner::Deaf | Manner::Hangs => {
                Cluster::Healthy
            }
        };
        self.process.cluster(TARGET, state);
    }
}

#[derive(Clone)]
pub struct CompiledStream {
    line: Rc<Line>,
    stream: tollgate_hostsim::Stream,
    life: Rc<Cell<u32>>,
    born: u32,
}

/// The module's bytes, as `make build` leaves them.
pub fn module_bytes() -> Vec<u8> {
    let path = module_path();
    fs::read(&path).unwrap_or_else(|why| {
        panic!(
            "no compiled module at {} ({why}): run `make build`, or name it in TOLLGATE_MODULE",
            path.display()
        )
    })
}

fn module_path() -> PathBuf {
    if let Some(path) = env::var_os("TOLLGATE_MODULE") {
        return path.into();
    }
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    root.join(target).join("wasm32-wasip1/release/tollgate.wasm")
}

pub fn module() -> Module {
    static MODULE: OnceLock<Module> = OnceLock::new();
    let load =
        || Module::load(module_bytes()).unwrap_or_else(|why| panic!("the module cannot be run: {why}"));
    MODULE.get_or_init(load).clone()
}

impl CompiledProxy {
    pub fn vm(&self, worker: usize) -> &Vm {
        &self.workers[worker]
    }

    /// What no scenario may leave behind.
    fn check(&self) {
        for vm in &self.workers {
            assert_eq!(vm.trap(), None);
            assert_eq!(vm.misuses(), Vec::<String>::new());
            let failed = vm
                .log()
                .into_iter()
                .filter(|line| line.level >= LogLevel::Error || line.message.contains("the host failed"));
            assert_eq!(failed.map(|line| line.message).collect::<Vec<_>>(), Vec::<String>::new());
        }
    }
}

impl Drop for CompiledProxy {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check();
        }
    }
}

impl Proxy for CompiledProxy {
    type Stream = CompiledStream;

    fn start(setup: &Setup) -> Result<Self, String> {
        let process = Process::new(&module()).seeded(SEED);
        process.set_time(setup.start_ms);
        let options =
            VmOptions::new(&setup.policy).vm_id(VM_ID).profile(setup.profile).body_limit(setup.body_limit);
        let workers: Vec<Vm> = (0..setup.workers).map(|_| process.vm(options.clone())).collect();
        for vm in &workers {
            if let Err(why) = vm.start() {
                return Err(format!("{why}: {:?}", vm.messages(LogLevel::Error)));
            }
        }
        let lives = workers.iter().map(|_| Rc::default()).collect();
        let (workers_too, counter) = (workers.clone(), Counter::default());
        let line = Rc::new(Line { process: process.clone(), workers: workers_too, counter });
        Ok(Self { process, workers, line, lives, conflicts: Rc::default() })
    }

    fn open_with(
        &self,
        worker: usize,
        headers: &Headers,
        metadata: &[(String, Vec<u8>)],
        ends: bool,
    ) -> CompiledStream {
        let request = metadata.iter().fold(Request::new(headers.clone()), |request, (path, value)| {
            request.property(&format!("metadata.filter_metadata.{path}"), value)
        });
        let request = if ends { request.complete() } else { request };
        self.line.settle_manner();
        let stream = run(self.workers[worker].open(request));
        self.line.serve();
        let life = Rc::clone(&self.lives[worker]);
        CompiledStream { line: Rc::clone(&self.line), stream, born: life.get(), life }
    }

    fn now_ms(&self) -> u64 {
        self.process.now_ms()
    }

    /// In steps, between which the counter service takes what was sent to it.
    fn advance(&self, ms: u64) {
        for step in (0..ms).step_by(STEP_MS) {
            self.line.settle_manner();
            run(self.process.advance((ms - step).min(STEP_MS as u64)));
            self.line.serve();
        }
    }

    fn counter(&self) -> &Counter {
        &self.line.counter
    }

    fn set_time(&self, now_ms: u64) {
        self.process.set_time(now_ms);
    }

    fn reload(&self, worker: usize) {
        self.lives[worker].set(self.lives[worker].get() + 1);
        self.workers[worker].reload().unwrap();
    }

    /// Told the host at a tick.
    fn metrics(&self) -> BTreeMap<String, u64> {
        self.workers.iter().for_each(|vm| vm.tick().unwrap());
        self.process.metrics().into_iter().map(|(name, metric)| (name, metric.value)).collect()
    }

    fn shared(&self) -> BTreeMap<String, Vec<u8>> {
        let value = |key: Vec<u8>| {
            let value = self.process.shared_data(VM_ID, &key)?.value;
            Some((String::from_utf8(key).unwrap(), value))
        };
        self.process.shared_keys(VM_ID).into_iter().filter_map(value).collect()
    }

    fn put_shared(&self, key: &str, value: &[u8]) {
        self.process.set_shared_data(VM_ID, key, value);
    }

    /// Another worker writes the same bytes anew in the gap, so that the version is another.
    fn conflict(&self, times: u64) {
        self.conflicts.set(times);
        let (process, left) = (self.process.clone(), Rc::clone(&self.conflicts));
        self.process.interpose(move |write| {
            let Some(fewer) = left.get().checked_sub(1).filter(|_| write.cas != 0) else { return };
            left.set(fewer);
            let stored = process.shared_data(VM_ID, &write.key).unwrap().value;
            process.set_shared_data(VM_ID, &write.key, stored);
        });
    }

    fn log(&self) -> Vec<String> {
        self.workers.iter().flat_map(Vm::log).map(|line| line.message).collect()
    }
}

impl CompiledStream {
    /// What the edges of a stream say whose VM is gone matters to nobody.
    fn drive<T>(&self, act: impl FnOnce(&tollgate_hostsim::Stream) -> Result<T, Trap>) {
        if self.born == self.life.get() {
            self.line.settle_manner();
            run(act(&self.stream));
            self.line.serve();
        }
    }
}

impl Stream for CompiledStream {
    fn body(&self, chunk: &[u8], ends: bool) {
        self.drive(|stream| stream.body(chunk, ends));
    }

    fn request_trailers(&self) {
        self.drive(|stream| stream.request_trailers([("x-checksum", "1")]));
    }

    fn answer_headers(&self, headers: &Headers, ends: bool) {
        self.drive(|stream| stream.response_headers(headers.clone(), ends));
    }

    fn answer_chunk(&self, chunk: &[u8], ends: bool) {
        self.drive(|stream| stream.response_body(chunk, ends));
    }

    fn answer_trailers(&self) {
        self.drive(|stream| stream.response_trailers([("x-checksum", "1")]));
    }

    fn proxy_replies(&self, status: u16, details: &str) {
        self.drive(|stream| stream.local_reply(status, details));
    }

    fn client_leaves(&self) {
        self.drive(tollgate_hostsim::Stream::client_gone);
    }

    fn upstream_resets(&self) {
        self.drive(tollgate_hostsim::Stream::upstream_reset);
    }

    fn seen(&self) -> Seen {
        let record = self.stream.filter_state("wasm.tollgate");
        Seen {
            upstream: self.stream.upstream(),
            client: self.stream.client(),
            details: self.stream.details(),
            record: record.map(|line| String::from_utf8(line).unwrap()),
            held: self.stream.request_flow() == Flow::Held,
            ended: self.stream.ending().is_some_and(|ending| ending != Ending::VmDied),
        }
    }
}

fn run<T>(outcome: Result<T, Trap>) -> T {
    outcome.unwrap_or_else(|trap| panic!("{trap}"))
}
