//! The interpreter under a VM: one instance, its store, its fuel, and its death.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use wasmi::{Instance, Store, StoreLimitsBuilder, Val};

use crate::error::Trap;
use crate::imports::Imports;
use crate::metrics::Ids;
use crate::module::Module;
use crate::process::Process;
use crate::profile::VmOptions;
use crate::random::Random;
use crate::shared::Consumer;
use crate::state::{HostState, ROOT, Records, Shutdown};
use crate::status::LogLevel;

/// Without a limit of its own a callback may burn this: more than any test can wait for.
const UNBOUNDED_FUEL: u64 = u64::MAX / 2;

pub(crate) struct Machine {
    pub(crate) store: Store<HostState>,
    instance: Option<Instance>,
    pub(crate) generation: u32,
    pub(crate) last_context: u32,
    pub(crate) dead: Option<Trap>,
}

impl Machine {
    pub(crate) fn new(store: Store<HostState>, generation: u32) -> Self {
        Self { store, instance: None, generation, last_context: ROOT, dead: None }
    }

    /// A fresh life; what a test reads afterwards is kept.
    pub(crate) fn replace(&mut self, fresh: impl FnOnce(u32) -> Store<HostState>) {
        let generation = self.generation + 1;
        let records = std::mem::take(&mut self.store.data_mut().records);
        *self = Self::new(fresh(generation), generation);
        self.store.data_mut().records = records;
    }

    pub(crate) fn instantiate(&mut self, module: &Module) -> Result<(), Trap> {
        let imports = Imports::new(&module.engine);
        self.store.set_fuel(UNBOUNDED_FUEL).expect("fuel metering is on");
        match imports.linker.instantiate_and_start(&mut self.store, &module.code) {
            Ok(instance) => {
                self.instance = Some(instance);
                Ok(())
            }
            Err(why) => Err(self.die("start", &why, 0)),
        }
    }

    /// Runs one export; a missing one answers nothing.
    pub(crate) fn call(
        &mut self,
        context: u32,
        export: &'static str,
        arguments: &[u32],
    ) -> Result<Option<u32>, Trap> {
        let instance = self.instance.expect("the VM has not been started");
        let Some(function) = instance.get_func(&self.store, export) else { return Ok(None) };
        let fuel = self.store.data().options.fuel_limit.unwrap_or(UNBOUNDED_FUEL);
        self.store.set_fuel(fuel).expect("fuel metering is on");
        let outer = self.store.data().current;
        let logged = self.store.data().records.log.len();
        self.store.data_mut().current = context;
        self.store.data_mut().effective = None;

        let arguments: Vec<Val> = arguments.iter().map(|word| Val::I32(word.cast_signed())).collect();
        let mut results = vec![Val::I32(0); function.ty(&self.store).results().len()];
        let outcome = function.call(&mut self.store, &arguments, &mut results);

        let left = self.store.get_fuel().expect("fuel metering is on");
        self.store.data_mut().records.fuel += fuel.saturating_sub(left);
        self.store.data_mut().current = outer;
        self.store.data_mut().effective = None;
        match outcome {
            Ok(()) => Ok(results.first().and_then(Val::i32).map(i32::cast_unsigned)),
            Err(why) => Err(self.die(export, &why, logged)),
        }
    }

    /// The panic's text is among the lines logged since the callback began.
    fn die(&mut self, callback: &'static str, why: &wasmi::Error, logged: usize) -> Trap {
        let host = self.store.data_mut();
        host.deferred.clear();
        host.calls.clear();
        host.tick = None;
        let panic = host.records.log.iter().skip(logged).rfind(|line| line.level == LogLevel::Critical);
        let trap = Trap { callback, message: why.to_string(), panic: panic.map(|line| line.message.clone()) };
        self.dead = Some(trap.clone());
        trap
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let memory = self.instance.and_then(|instance| instance.get_memory(&self.store, "memory"));
        memory.map_or(0, |memory| memory.data_size(&self.store))
    }
}

pub(crate) fn new_store(
    process: &Process,
    module: &Module,
    options: &Rc<VmOptions>,
    number: usize,
    generation: u32,
) -> Store<HostState> {
    let seed = process.world.borrow().seed;
    let host = HostState {
        world: Rc::clone(&process.world),
        me: Consumer { vm: number, generation },
        options: Rc::clone(options),
        limits: StoreLimitsBuilder::new().memory_size(options.memory_limit).build(),
        random: Random::new(seed, number, generation),
        current: ROOT,
        effective: None,
        streams: BTreeMap::new(),
        deferred: VecDeque::new(),
        configuring: false,
        calls: BTreeMap::new(),
        last_token: 0,
        call_response: None,
        metric_ids: Ids::default(),
        tick: None,
        shutdown: Shutdown::Running,
        records: Records::default(),
    };
    let mut store = Store::new(&module.engine, host);
    store.limiter(|host| &mut host.limits);
    store
}
