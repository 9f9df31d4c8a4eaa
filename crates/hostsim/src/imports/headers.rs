//! Header maps: those of the stream, and those of a call's answer.
//!
//! A map that is not there answers `BadArgument`, on which the SDK panics (F56). While the log is
//! written the stream's maps can be read, not edited, and a missing one is merely empty.

use super::memory::{give, read, read_text};
use super::{Cx, Fault, Outcome};
use crate::headers::Headers;
use crate::state::HostState;
use crate::status::Status;
use crate::stream::StreamState;

const REQUEST_HEADERS: u32 = 0;
const REQUEST_TRAILERS: u32 = 1;
const RESPONSE_HEADERS: u32 = 2;
const RESPONSE_TRAILERS: u32 = 3;
const CALL_RESPONSE_HEADERS: u32 = 6;
const CALL_RESPONSE_TRAILERS: u32 = 7;

pub(super) fn proxy_get_header_map_pairs(cx: &mut Cx<'_>, kind: u32, to: u32, to_size: u32) -> Outcome {
    let wire = map(cx.data(), kind)?.to_wire();
    give(cx, &wire, to, to_size)
}

pub(super) fn proxy_set_header_map_pairs(cx: &mut Cx<'_>, kind: u32, from: u32, size: u32) -> Outcome {
    let wire = read(cx, from, size)?;
    let headers = Headers::from_wire(&wire).ok_or(Status::BadArgument)?;
    for (name, value) in headers.iter() {
        check_value(cx, name, value);
    }
    edit(cx, kind, |map| *map = headers)
}

pub(super) fn proxy_get_header_map_value(
    cx: &mut Cx<'_>,
    kind: u32,
    name: u32,
    name_size: u32,
    to: u32,
    to_size: u32,
) -> Outcome {
    let name = read_text(cx, name, name_size)?;
    let map = map(cx.data(), kind)?;
    let value = map.value(&name).ok_or(Status::NotFound)?;
    give(cx, value, to, to_size)
}

pub(super) fn proxy_add_header_map_value(
    cx: &mut Cx<'_>,
    kind: u32,
    name: u32,
    name_size: u32,
    value: u32,
    value_size: u32,
) -> Outcome {
    let (name, value) = (read_text(cx, name, name_size)?, read(cx, value, value_size)?);
    check_value(cx, &name, &value);
    edit(cx, kind, |map| map.add(&name, value))
}

pub(super) fn proxy_replace_header_map_value(
    cx: &mut Cx<'_>,
    kind: u32,
    name: u32,
    name_size: u32,
    value: u32,
    value_size: u32,
) -> Outcome {
    let (name, value) = (read_text(cx, name, name_size)?, read(cx, value, value_size)?);
    check_value(cx, &name, &value);
    edit(cx, kind, |map| map.set(&name, value))
}

/// Removing what is not there is fine.
pub(super) fn proxy_remove_header_map_value(
    cx: &mut Cx<'_>,
    kind: u32,
    name: u32,
    name_size: u32,
) -> Outcome {
    let name = read_text(cx, name, name_size)?;
    edit(cx, kind, |map| map.remove(&name))
}

/// Envoy's release build writes such a value as it is: header injection towards the peer.
pub(super) fn check_value(cx: &mut Cx<'_>, name: &str, value: &[u8]) {
    let breaks = |byte: &u8| matches!(byte, b'\r' | b'\n' | 0);
    if name.as_bytes().iter().chain(value).any(breaks) {
        cx.data_mut().misuse(format!("header {name:?} carries a line break or a zero"));
    }
}

fn map(host: &HostState, kind: u32) -> Result<Headers, Fault> {
    let missing = Fault::from(Status::BadArgument);
    match kind {
        CALL_RESPONSE_HEADERS => {
            host.call_response.as_ref().map(|response| response.headers.clone()).ok_or(missing)
        }
        CALL_RESPONSE_TRAILERS => {
            host.call_response.as_ref().map(|response| response.trailers.clone()).ok_or(missing)
        }
        _ => {
            let stream = host.stream().ok_or(Status::BadArgument)?;
            readable(&stream.borrow(), kind).ok_or(missing)
        }
    }
}

fn readable(stream: &StreamState, kind: u32) -> Option<Headers> {
    let (request, response) = (&stream.request, &stream.response);
    let (held, readable) = match kind {
        REQUEST_HEADERS => (&request.headers, request.headers_readable),
        REQUEST_TRAILERS => (&request.trailers, request.trailers_readable),
        RESPONSE_HEADERS => (&response.headers, response.headers_readable),
        RESPONSE_TRAILERS => (&response.trailers, response.trailers_readable),
        _ => return None,
    };
    if stream.logging {
        return Some(held.clone().unwrap_or_default());
    }
    held.clone().filter(|_| readable)
}

fn edit(cx: &mut Cx<'_>, kind: u32, change: impl FnOnce(&mut Headers)) -> Outcome {
    let stream = cx.data().stream().ok_or(Status::BadArgument)?;
    let mut stream = stream.borrow_mut();
    let (request, response) = {
        let stream = &mut *stream;
        (&mut stream.request, &mut stream.response)
    };
    let (map, readable) = match kind {
        REQUEST_HEADERS => (&mut request.headers, request.headers_readable),
        REQUEST_TRAILERS => (&mut request.trailers, request.trailers_readable),
        RESPONSE_HEADERS => (&mut response.headers, response.headers_readable),
        RESPONSE_TRAILERS => (&mut response.trailers, response.trailers_readable),
        _ => return Err(Status::BadArgument.into()),
    };
    match map {
        Some(map) if readable => {
            change(map);
            Ok(())
        }
        Some(_) | None => Err(Status::BadArgument.into()),
    }
}
