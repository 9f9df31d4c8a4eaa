//! Reading from and writing to the module's memory.

use wasmi::{Extern, Memory};

use super::{Cx, Fault};
use crate::status::Status;

/// The SDK's allocator; the older name is what other languages' SDKs export.
const ALLOCATORS: [&str; 2] = ["proxy_on_memory_allocate", "malloc"];

pub(super) fn read(cx: &Cx<'_>, at: u32, size: u32) -> Result<Vec<u8>, Fault> {
    let memory = memory(cx)?;
    // Before making room for it: the size is the guest's word.
    if size as usize > memory.data_size(cx) {
        return Err(Status::InvalidMemoryAccess.into());
    }
    let mut bytes = vec![0; size as usize];
    memory.read(cx, at as usize, &mut bytes).map_err(|_| Status::InvalidMemoryAccess)?;
    Ok(bytes)
}

pub(super) fn read_text(cx: &Cx<'_>, at: u32, size: u32) -> Result<String, Fault> {
    read(cx, at, size).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

pub(super) fn write(cx: &mut Cx<'_>, at: u32, bytes: &[u8]) -> Result<(), Fault> {
    let memory = memory(cx)?;
    memory.write(cx, at as usize, bytes).map_err(|_| Status::InvalidMemoryAccess.into())
}

pub(super) fn write_u32(cx: &mut Cx<'_>, at: u32, word: u32) -> Result<(), Fault> {
    write(cx, at, &word.to_le_bytes())
}

pub(super) fn write_u64(cx: &mut Cx<'_>, at: u32, word: u64) -> Result<(), Fault> {
    write(cx, at, &word.to_le_bytes())
}

/// Hands bytes over in memory that the module allocates and owns. Nothing is a null pointer, as in the real host.
pub(super) fn give(cx: &mut Cx<'_>, bytes: &[u8], to: u32, to_size: u32) -> Result<(), Fault> {
    let mut place = 0;
    if !bytes.is_empty() {
        let allocator = ALLOCATORS.iter().find_map(|name| cx.get_export(name).and_then(Extern::into_func));
        let allocator = allocator.ok_or_else(|| wasmi::Error::new("the module exports no allocator"))?;
        place = allocator.typed::<u32, u32>(&*cx)?.call(&mut *cx, bytes.len() as u32)?;
        write(cx, place, bytes)?;
    }
    write_u32(cx, to, place)?;
    write_u32(cx, to_size, bytes.len() as u32)
}

fn memory(cx: &Cx<'_>) -> Result<Memory, Fault> {
    let memory = cx.get_export("memory").and_then(Extern::into_memory);
    memory.ok_or_else(|| wasmi::Error::new("the module exports no memory").into())
}
