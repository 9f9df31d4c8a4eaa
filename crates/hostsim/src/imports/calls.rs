//! HTTP calls.

use super::memory::{read, read_text, write_u32};
use super::{Cx, Outcome};
use crate::calls::{Call, Cluster};
use crate::headers::Headers;
use crate::status::Status;

/// Without these the host refuses at once (F16).
const REQUIRED: [&str; 3] = [":path", ":method", ":authority"];

#[allow(clippy::too_many_arguments, reason = "the ABI's own signature")]
pub(super) fn proxy_http_call(
    cx: &mut Cx<'_>,
    cluster: u32,
    cluster_size: u32,
    headers: u32,
    headers_size: u32,
    body: u32,
    body_size: u32,
    trailers: u32,
    trailers_size: u32,
    timeout: u32,
    to: u32,
) -> Outcome {
    let cluster = read_text(cx, cluster, cluster_size)?;
    let mut headers = map(cx, headers, headers_size)?;
    let body = read(cx, body, body_size)?;
    let trailers = map(cx, trailers, trailers_size)?;

    let state = cx.data().world.borrow().clusters.get(&cluster).copied();
    if state.is_none() || !REQUIRED.iter().all(|name| headers.contains(name)) {
        return Err(Status::BadArgument.into());
    }
    if state == Some(Cluster::Unavailable) {
        return Err(Status::InternalFailure.into());
    }
    if !body.is_empty() {
        headers.set("content-length", body.len().to_string());
    }
    let host = cx.data_mut();
    host.last_token += 1;
    let token = host.last_token;
    let (made_at_ms, now_ns) = {
        let world = host.world.borrow();
        (world.now_ms(), world.steady_ns)
    };
    let deadline_ns = (timeout > 0).then(|| now_ns + u64::from(timeout) * 1_000_000);
    let call = Call { token, cluster, headers, body, trailers, timeout_ms: timeout, made_at_ms, deadline_ns };
    host.calls.insert(token, call);
    write_u32(cx, to, token)
}

fn map(cx: &Cx<'_>, from: u32, size: u32) -> Result<Headers, super::Fault> {
    let wire = read(cx, from, size)?;
    Headers::from_wire(&wire).ok_or_else(|| Status::BadArgument.into())
}
