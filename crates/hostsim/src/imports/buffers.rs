//! Bodies and configurations.

use super::memory::{give, read};
use super::{Cx, Outcome};
use crate::state::HostState;
use crate::status::Status;

const REQUEST_BODY: u32 = 0;
const RESPONSE_BODY: u32 = 1;
const CALL_RESPONSE_BODY: u32 = 4;
const VM_CONFIGURATION: u32 = 6;
const PLUGIN_CONFIGURATION: u32 = 7;
const LAST_KIND: u32 = 8;

pub(super) fn proxy_get_buffer_bytes(
    cx: &mut Cx<'_>,
    kind: u32,
    start: u32,
    most: u32,
    to: u32,
    to_size: u32,
) -> Outcome {
    if kind > LAST_KIND {
        return Err(Status::BadArgument.into());
    }
    let bytes = contents(cx.data(), kind).ok_or(Status::NotFound)?;
    let start = start as usize;
    let rest = bytes.get(start..).ok_or(Status::BadArgument)?;
    let part = &rest[..rest.len().min(most as usize)];
    // Nothing to give leaves the pointers alone.
    if part.is_empty() { Ok(()) } else { give(cx, part, to, to_size) }
}

/// Replaces the whole, or adds at either end; the real host refuses to replace a part.
pub(super) fn proxy_set_buffer_bytes(
    cx: &mut Cx<'_>,
    kind: u32,
    start: u32,
    replaced: u32,
    from: u32,
    size: u32,
) -> Outcome {
    let bytes = read(cx, from, size)?;
    let stream = cx.data().stream().ok_or(Status::NotFound)?;
    let mut stream = stream.borrow_mut();
    let direction = match kind {
        REQUEST_BODY => &mut stream.request,
        RESPONSE_BODY => &mut stream.response,
        _ => return Err(Status::NotFound.into()),
    };
    if !direction.body_readable {
        return Err(Status::BadArgument.into());
    }
    let body = &mut direction.body;
    match (start as usize, replaced as usize) {
        (0, 0) => drop(body.splice(..0, bytes)),
        (0, replaced) if replaced >= body.len() => *body = bytes,
        (start, _) if start > 0 && start >= body.len() => body.extend(bytes),
        _ => return Err(Status::BadArgument.into()),
    }
    Ok(())
}

fn contents(host: &HostState, kind: u32) -> Option<Vec<u8>> {
    match kind {
        REQUEST_BODY => {
            let stream = host.stream()?;
            let stream = stream.borrow();
            stream.request.body_readable.then(|| stream.request.body.clone())
        }
        RESPONSE_BODY => {
            let stream = host.stream()?;
            let stream = stream.borrow();
            stream.response.body_readable.then(|| stream.response.body.clone())
        }
        CALL_RESPONSE_BODY => host.call_response.as_ref().map(|response| response.body.clone()),
        VM_CONFIGURATION => Some(host.options.vm_config.clone()),
        PLUGIN_CONFIGURATION => host.configuring.then(|| host.options.config.clone()),
        _ => None,
    }
}
