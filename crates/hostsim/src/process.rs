//! One proxy process: its clocks, and what all its VMs share.
//!
//! Two clocks: the wall clock, which the module reads and a test may set back, and a steady one,
//! by which ticks and call time-outs come due.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::{Rc, Weak};

use crate::calls::Cluster;
use crate::error::Trap;
use crate::metrics::{Metric, Metrics};
use crate::module::Module;
use crate::profile::VmOptions;
use crate::shared::{Queues, Ready, SharedData, SharedValue, SharedWrite};
use crate::vm::{Vm, VmInner};

/// 2026-01-01T00:00:00Z: a wall clock at zero hides arithmetic that fails on real times.
pub const START_MS: u64 = 1_767_225_600_000;

const NS_PER_MS: u64 = 1_000_000;

type Interposer = Box<dyn FnMut(&SharedWrite)>;

pub(crate) struct World {
    pub(crate) wall_ns: u64,
    pub(crate) steady_ns: u64,
    pub(crate) seed: u64,
    pub(crate) data: SharedData,
    pub(crate) queues: Queues,
    pub(crate) metrics: Metrics,
    pub(crate) clusters: BTreeMap<String, Cluster>,
    interposer: Option<Interposer>,
    /// Whether an interposer that is running goes back to its place.
    interposing: bool,
    delivery: QueueDelivery,
}

/// When the consumer of a shared queue is woken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QueueDelivery {
    /// After the operation that enqueued, as an idle host does.
    Prompt,
    /// When the test calls [`Process::deliver`].
    OnDemand,
}

/// Cheap to clone; all clones are one process.
#[derive(Clone)]
pub struct Process {
    module: Module,
    pub(crate) world: Rc<RefCell<World>>,
    vms: Rc<RefCell<Vec<Weak<VmInner>>>>,
}

impl Process {
    pub fn new(module: &Module) -> Self {
        let world = World {
            wall_ns: START_MS * NS_PER_MS,
            steady_ns: 0,
            seed: 0,
            data: SharedData::default(),
            queues: Queues::default(),
            metrics: Metrics::new(),
            clusters: BTreeMap::new(),
            interposer: None,
            interposing: false,
            delivery: QueueDelivery::Prompt,
        };
        Self { module: module.clone(), world: Rc::new(RefCell::new(world)), vms: Rc::default() }
    }

    /// Call before the VMs are made.
    #[must_use]
    pub fn seeded(self, seed: u64) -> Self {
        self.world.borrow_mut().seed = seed;
        self
    }

    /// A worker's VM, not started yet.
    pub fn vm(&self, options: VmOptions) -> Vm {
        let vm = Vm::new(self.clone(), self.module.clone(), options, self.vms.borrow().len());
        self.vms.borrow_mut().push(vm.downgrade());
        vm
    }

    pub fn now_ms(&self) -> u64 {
        self.world.borrow().now_ms()
    }

    /// Sets the wall clock, forwards or back. Nothing comes due by it.
    pub fn set_time(&self, now_ms: u64) {
        self.world.borrow_mut().wall_ns = now_ms * NS_PER_MS;
    }

    /// Lets time pass: ticks and call time-outs run in the order in which they come due.
    pub fn advance(&self, ms: u64) -> Result<(), Trap> {
        let target = self.world.borrow().steady_ns + ms * NS_PER_MS;
        while let Some((due, vm)) = self.next_due(target) {
            self.world.borrow_mut().reach(due);
            vm.run_due()?;
        }
        self.world.borrow_mut().reach(target);
        Ok(())
    }

    fn next_due(&self, target: u64) -> Option<(u64, Vm)> {
        let vms: Vec<Vm> = self.vms.borrow().iter().filter_map(Vm::upgrade).collect();
        let due = vms.into_iter().filter_map(|vm| Some((vm.next_due()?, vm)));
        due.min_by_key(|(due, _)| *due).filter(|(due, _)| *due <= target)
    }

    pub fn queue_delivery(&self, delivery: QueueDelivery) {
        self.world.borrow_mut().delivery = delivery;
    }

    /// Wakes the consumers of shared queues, until none is left to wake.
    pub fn deliver(&self) -> Result<(), Trap> {
        loop {
            let ready = self.world.borrow_mut().queues.ready.pop_front();
            let Some(Ready { consumer, queue }) = ready else { return Ok(()) };
            let vm = self.vms.borrow().get(consumer.vm).and_then(Vm::upgrade);
            // A consumer that has died is not replaced: its items stay where they are.
            if let Some(vm) = vm.filter(|vm| vm.is_living(consumer)) {
                vm.queue_ready(queue)?;
            }
        }
    }

    pub(crate) fn deliver_promptly(&self) -> Result<(), Trap> {
        let delivery = self.world.borrow().delivery;
        match delivery {
            QueueDelivery::Prompt => self.deliver(),
            QueueDelivery::OnDemand => Ok(()),
        }
    }

    pub fn queue_depth(&self, vm_id: &str, name: &str) -> Option<usize> {
        self.world.borrow().queues.depth(vm_id, name.as_bytes())
    }

    /// Names a cluster that calls may go to; a call to any other is refused at once (F16).
    pub fn cluster(&self, name: &str, state: Cluster) {
        self.world.borrow_mut().clusters.insert(name.into(), state);
    }

    pub fn shared_data(&self, vm_id: &str, key: impl AsRef<[u8]>) -> Option<SharedValue> {
        self.world.borrow().data.value(vm_id, key.as_ref()).cloned()
    }

    pub fn shared_keys(&self, vm_id: &str) -> Vec<Vec<u8>> {
        self.world.borrow().data.keys(vm_id)
    }

    /// Writes as some other VM would, unconditionally.
    pub fn set_shared_data(&self, vm_id: &str, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let (key, value) = (key.as_ref().to_vec(), value.as_ref().to_vec());
        let write = SharedWrite { vm_id: vm_id.into(), key, value, cas: 0 };
        let written = self.world.borrow_mut().data.write(write);
        assert_eq!(written, Ok(()), "an unconditional write always succeeds");
    }

    /// Runs between a VM's read and its write: what another worker does in that gap.
    ///
    /// The closure is called before every `proxy_set_shared_data` of any VM. It may write through a
    /// clone of the process or drive another VM; calls that it causes itself are not interposed.
    pub fn interpose(&self, between: impl FnMut(&SharedWrite) + 'static) {
        let mut world = self.world.borrow_mut();
        world.interposer = Some(Box::new(between));
        world.interposing = true;
    }

    /// May be called by the closure itself, which then has run for the last time.
    pub fn stop_interposing(&self) {
        let mut world = self.world.borrow_mut();
        world.interposer = None;
        world.interposing = false;
    }

    /// A counter's or a gauge's value.
    pub fn metric(&self, name: &str) -> Option<u64> {
        self.world.borrow().metrics.get(name).map(|metric| metric.value)
    }

    pub fn metrics(&self) -> BTreeMap<String, Metric> {
        self.world.borrow().metrics.clone()
    }
}

impl World {
    pub(crate) fn now_ms(&self) -> u64 {
        self.wall_ns / NS_PER_MS
    }

    fn reach(&mut self, steady_ns: u64) {
        let passed = steady_ns.saturating_sub(self.steady_ns);
        self.steady_ns += passed;
        self.wall_ns += passed;
    }
}

/// Runs the interposer outside its place and outside the borrow: it may reach back into the process.
pub(crate) fn run_interposer(world: &Rc<RefCell<World>>, write: &SharedWrite) {
    let interposer = world.borrow_mut().interposer.take();
    let Some(mut between) = interposer else { return };
    between(write);
    let mut world = world.borrow_mut();
    if world.interposing {
        world.interposer.get_or_insert(between);
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Process").field("now_ms", &self.now_ms()).finish_non_exhaustive()
    }
}
