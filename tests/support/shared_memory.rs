//! The host's shared memory as state, with other workers that are faster when told to be.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use tollgate::local::{Cas, SharedData, SharedDataError, Stored};

/// One memory; clones see the same.
#[derive(Clone, Default)]
pub(crate) struct SharedMemory(Rc<State>);

#[derive(Default)]
struct State {
    values: RefCell<BTreeMap<String, (Vec<u8>, u32)>>,
    conflicts: Cell<u64>,
    broken: Cell<bool>,
    interruption: RefCell<Option<Box<dyn FnMut()>>>,
    writes: Cell<u64>,
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.keys())
    }
}

impl SharedMemory {
    /// The next `times` writes with a version find that somebody else was faster.
    pub(crate) fn conflict(&self, times: u64) {
        self.0.conflicts.set(times);
    }

    /// Every call fails from now on.
    pub(crate) fn break_down(&self) {
        self.0.broken.set(true);
    }

    /// What another worker does between a load and the store after it; not within itself.
    pub(crate) fn interrupt(&self, interruption: impl FnMut() + 'static) {
        *self.0.interruption.borrow_mut() = Some(Box::new(interruption));
    }

    pub(crate) fn put(&self, key: &str, value: &[u8]) {
        let mut values = self.0.values.borrow_mut();
        let version = values.get(key).map_or(1, |(_, version)| version + 1);
        values.insert(key.to_owned(), (value.to_vec(), version));
    }

    #[allow(dead_code, reason = "not every test looks at the bytes")]
    pub(crate) fn all(&self) -> BTreeMap<String, Vec<u8>> {
        self.0.values.borrow().iter().map(|(key, (value, _))| (key.clone(), value.clone())).collect()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.values.borrow().values().map(|(value, _)| value.len()).sum()
    }

    pub(crate) fn keys(&self) -> usize {
        self.0.values.borrow().len()
    }

    pub(crate) fn writes(&self) -> u64 {
        self.0.writes.get()
    }

    fn check(&self) -> Result<(), SharedDataError> {
        if self.0.broken.get() { Err(SharedDataError { status: 10 }) } else { Ok(()) }
    }
}

impl SharedData for SharedMemory {
    fn load(&self, key: &str) -> Result<Option<(Vec<u8>, Cas)>, SharedDataError> {
        self.check()?;
        Ok(self.0.values.borrow().get(key).map(|(value, version)| (value.clone(), Cas(*version))))
    }

    fn store(&self, key: &str, value: &[u8], cas: Option<Cas>) -> Result<Stored, SharedDataError> {
        self.check()?;
        let interruption = self.0.interruption.borrow_mut().take();
        if let Some(mut interruption) = interruption {
            interruption();
            *self.0.interruption.borrow_mut() = Some(interruption);
        }
        if let Some(fewer) = self.0.conflicts.get().checked_sub(1).filter(|_| cas.is_some()) {
            self.0.conflicts.set(fewer);
            return Ok(Stored::Conflict);
        }
        // A missing key is written whatever the version: the host has no create-if-absent.
        let version = self.0.values.borrow().get(key).map(|(_, version)| Cas(*version));
        if cas.is_some() && version.is_some() && cas != version {
            return Ok(Stored::Conflict);
        }
        self.put(key, value);
        self.0.writes.set(self.writes() + 1);
        Ok(Stored::Written)
    }
}
