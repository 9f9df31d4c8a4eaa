//! Shared data and shared queues of one proxy process, with the host's own gaps (F24, F37–F40).

use std::collections::{BTreeMap, VecDeque};

use crate::status::Status;

/// A value and the number that a compare-and-swap must name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SharedValue {
    pub value: Vec<u8>,
    pub cas: u32,
}

/// A write the module is about to make; see `Process::interpose`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SharedWrite {
    pub vm_id: String,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    /// 0 writes unconditionally.
    pub cas: u32,
}

#[derive(Debug, Default)]
pub(crate) struct SharedData {
    values: BTreeMap<(String, Vec<u8>), SharedValue>,
    /// One sequence for all keys, so that a recreated key never repeats a number.
    last_cas: u32,
}

impl SharedData {
    pub(crate) fn value(&self, vm_id: &str, key: &[u8]) -> Option<&SharedValue> {
        self.values.get(&(vm_id.to_owned(), key.to_vec()))
    }

    pub(crate) fn keys(&self, vm_id: &str) -> Vec<Vec<u8>> {
        self.values.keys().filter(|(space, _)| space == vm_id).map(|(_, key)| key.clone()).collect()
    }

    /// A missing key takes any number: there is no create-if-absent (F39).
    pub(crate) fn write(&mut self, write: SharedWrite) -> Result<(), Status> {
        let SharedWrite { vm_id, key, value, cas } = write;
        let place = (vm_id, key);
        let stale = self.values.get(&place).is_some_and(|old| cas != 0 && cas != old.cas);
        if stale {
            return Err(Status::CasMismatch);
        }
        // 0 means "unconditional" on the wire and is never handed out.
        self.last_cas = self.last_cas.checked_add(1).unwrap_or(1);
        self.values.insert(place, SharedValue { value, cas: self.last_cas });
        Ok(())
    }
}

#[derive(Debug, Default)]
pub(crate) struct Queues {
    by_name: BTreeMap<(String, Vec<u8>), u32>,
    queues: BTreeMap<u32, Queue>,
    /// Consumers to be woken, one entry for each item enqueued.
    pub(crate) ready: VecDeque<Ready>,
}

#[derive(Debug)]
struct Queue {
    items: VecDeque<Vec<u8>>,
    consumer: Consumer,
}

/// A VM in one of its lives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Consumer {
    pub(crate) vm: usize,
    pub(crate) generation: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) consumer: Consumer,
    pub(crate) queue: u32,
}

impl Queues {
    /// The last registrant becomes the one consumer (F24).
    pub(crate) fn register(&mut self, vm_id: &str, name: Vec<u8>, consumer: Consumer) -> u32 {
        let fresh = self.by_name.len() as u32 + 1;
        let id = *self.by_name.entry((vm_id.to_owned(), name)).or_insert(fresh);
        let queue = self.queues.entry(id).or_insert(Queue { items: VecDeque::new(), consumer });
        queue.consumer = consumer;
        id
    }

    pub(crate) fn resolve(&self, vm_id: &str, name: &[u8]) -> Option<u32> {
        self.by_name.get(&(vm_id.to_owned(), name.to_vec())).copied()
    }

    pub(crate) fn enqueue(&mut self, id: u32, item: Vec<u8>) -> Result<(), Status> {
        let queue = self.queues.get_mut(&id).ok_or(Status::NotFound)?;
        queue.items.push_back(item);
        self.ready.push_back(Ready { consumer: queue.consumer, queue: id });
        Ok(())
    }

    pub(crate) fn dequeue(&mut self, id: u32) -> Result<Vec<u8>, Status> {
        let queue = self.queues.get_mut(&id).ok_or(Status::NotFound)?;
        queue.items.pop_front().ok_or(Status::Empty)
    }

    pub(crate) fn depth(&self, vm_id: &str, name: &[u8]) -> Option<usize> {
        self.queues.get(&self.resolve(vm_id, name)?).map(|queue| queue.items.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(cas: u32, value: &str) -> SharedWrite {
        SharedWrite { vm_id: "v".into(), key: b"k".to_vec(), value: value.into(), cas }
    }

    #[test]
    fn a_swap_needs_the_live_number_except_on_a_missing_key() {
        let mut data = SharedData::default();
        assert_eq!(data.write(write(77, "made")), Ok(()), "no create-if-absent");
        let first = data.value("v", b"k").unwrap().cas;
        assert_eq!(data.write(write(first, "")), Ok(()), "an empty value is a value");
        let second = data.value("v", b"k").unwrap().clone();
        assert_eq!(data.write(write(first, "stale")), Err(Status::CasMismatch));
        assert_eq!(data.write(write(0, "forced")), Ok(()));
        assert!(second.value.is_empty() && second.cas != 0 && second.cas != first);
        assert_eq!(data.value("other", b"k"), None, "the scope is the vm_id");
    }

    #[test]
    fn the_last_registrant_of_a_queue_is_its_only_consumer() {
        let (one, two) = (Consumer { vm: 0, generation: 0 }, Consumer { vm: 1, generation: 0 });
        let mut queues = Queues::default();
        let id = queues.register("v", b"q".to_vec(), one);
        assert_eq!(queues.register("v", b"q".to_vec(), two), id);
        queues.enqueue(id, b"item".to_vec()).unwrap();
        assert_eq!(queues.ready.pop_front().map(|ready| ready.consumer), Some(two));
        assert_eq!(queues.dequeue(id), Ok(b"item".to_vec()));
        assert_eq!(queues.dequeue(id), Err(Status::Empty));
        assert_eq!(queues.dequeue(99), Err(Status::NotFound));
    }
}
