//! Shared data.

use super::memory::{give, read, write_u32};
use super::{Cx, Outcome};
use crate::process::run_interposer;
use crate::shared::SharedWrite;
use crate::status::Status;

pub(super) fn proxy_get_shared_data(
    cx: &mut Cx<'_>,
    key: u32,
    key_size: u32,
    to: u32,
    to_size: u32,
    to_cas: u32,
) -> Outcome {
    let key = read(cx, key, key_size)?;
    let host = cx.data();
    let found = host.world.borrow().data.value(&host.options.vm_id, &key).cloned();
    let found = found.ok_or(Status::NotFound)?;
    give(cx, &found.value, to, to_size)?;
    write_u32(cx, to_cas, found.cas)
}

pub(super) fn proxy_set_shared_data(
    cx: &mut Cx<'_>,
    key: u32,
    key_size: u32,
    value: u32,
    value_size: u32,
    cas: u32,
) -> Outcome {
    let (key, value) = (read(cx, key, key_size)?, read(cx, value, value_size)?);
    let host = cx.data();
    let write = SharedWrite { vm_id: host.options.vm_id.clone(), key, value, cas };
    let world = host.world.clone();
    run_interposer(&world, &write);
    Ok(world.borrow_mut().data.write(write)?)
}
