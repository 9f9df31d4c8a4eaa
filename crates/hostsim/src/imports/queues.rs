//! Shared queues.

use super::memory::{give, read, read_text, write_u32};
use super::{Cx, Outcome};
use crate::status::Status;

pub(super) fn proxy_register_shared_queue(cx: &mut Cx<'_>, name: u32, name_size: u32, to: u32) -> Outcome {
    let name = read(cx, name, name_size)?;
    let host = cx.data();
    let queue = host.world.borrow_mut().queues.register(&host.options.vm_id, name, host.me);
    write_u32(cx, to, queue)
}

pub(super) fn proxy_resolve_shared_queue(
    cx: &mut Cx<'_>,
    vm_id: u32,
    vm_id_size: u32,
    name: u32,
    name_size: u32,
    to: u32,
) -> Outcome {
    let (vm_id, name) = (read_text(cx, vm_id, vm_id_size)?, read(cx, name, name_size)?);
    let queue = cx.data().world.borrow().queues.resolve(&vm_id, &name);
    write_u32(cx, to, queue.ok_or(Status::NotFound)?)
}

pub(super) fn proxy_enqueue_shared_queue(cx: &mut Cx<'_>, queue: u32, item: u32, item_size: u32) -> Outcome {
    let item = read(cx, item, item_size)?;
    Ok(cx.data().world.borrow_mut().queues.enqueue(queue, item)?)
}

pub(super) fn proxy_dequeue_shared_queue(cx: &mut Cx<'_>, queue: u32, to: u32, to_size: u32) -> Outcome {
    let item = cx.data().world.borrow_mut().queues.dequeue(queue)?;
    give(cx, &item, to, to_size)
}
