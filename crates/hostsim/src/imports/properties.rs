//! Properties: what the test set first, then what the host knows of the stream (F48, F49).

use super::memory::{give, read, read_text};
use super::{Cx, Outcome};
use crate::headers::Headers;
use crate::state::HostState;
use crate::status::Status;
use crate::stream::StreamState;

/// What the filter writes stands under this prefix in the filter state.
const WRITTEN: &str = "wasm.";

pub(super) fn proxy_get_property(
    cx: &mut Cx<'_>,
    path: u32,
    path_size: u32,
    to: u32,
    to_size: u32,
) -> Outcome {
    let path = read_text(cx, path, path_size)?.replace('\0', ".");
    let value = find(cx.data(), &path)?;
    give(cx, &value, to, to_size)
}

/// Only a stream has filter state to write to.
pub(super) fn proxy_set_property(
    cx: &mut Cx<'_>,
    path: u32,
    path_size: u32,
    value: u32,
    value_size: u32,
) -> Outcome {
    let path = read_text(cx, path, path_size)?.replace('\0', ".");
    let value = read(cx, value, value_size)?;
    let stream = cx.data().stream().ok_or(Status::NotFound)?;
    stream.borrow_mut().filter_state.insert(format!("{WRITTEN}{path}"), value);
    Ok(())
}

fn find(host: &HostState, path: &str) -> Result<Vec<u8>, Status> {
    let stream = host.stream();
    if let Some(stream) = &stream
        && let Some(value) = stream.borrow().properties.get(path)
    {
        return Ok(value.clone());
    }
    let options = &host.options;
    if let Some((_, value)) = options.properties.iter().find(|(known, _)| known == path) {
        return Ok(value.clone());
    }
    match path {
        "plugin_name" => return Ok(options.plugin_name.clone().into()),
        "plugin_root_id" => return Ok(options.root_id.clone().into()),
        "plugin_vm_id" => return Ok(options.vm_id.clone().into()),
        // Seen on the real host: it exists and cannot be put into bytes.
        "xds.upstream_host_metadata" => return Err(Status::SerializationFailure),
        _ => {}
    }
    let stream = stream.ok_or(Status::NotFound)?;
    let stream = stream.borrow();
    let steady_ns = host.world.borrow().steady_ns;
    of_stream(&stream, path, steady_ns).ok_or(Status::NotFound)
}

fn of_stream(stream: &StreamState, path: &str, steady_ns: u64) -> Option<Vec<u8>> {
    match path.split_once('.') {
        Some(("request", rest)) => of_request(stream, rest, steady_ns),
        Some(("response", rest)) => of_response(stream, rest),
        Some(("upstream", "request_attempt_count")) => {
            stream.request.peer.headers.as_ref().map(|_| number(stream.attempts))
        }
        Some(("filter_state", name)) => stream.filter_state.get(name).cloned(),
        Some(_) | None => stream.filter_state.get(&format!("{WRITTEN}{path}")).cloned(),
    }
}

/// There while the headers are, and again in the log.
fn of_request(stream: &StreamState, name: &str, steady_ns: u64) -> Option<Vec<u8>> {
    let request = &stream.request;
    let headers = request.headers.as_ref().filter(|_| request.headers_readable || stream.logging)?;
    let ended = |value: u64| stream.logging.then(|| number(value));
    let path = || headers.text(":path");
    match name {
        "path" => header(headers, ":path"),
        "url_path" => path().map(|path| path.split('?').next().unwrap_or_default().into()),
        "query" => path().and_then(|path| path.split_once('?').map(|(_, query)| query.into())),
        "host" => header(headers, ":authority"),
        "method" => header(headers, ":method"),
        "scheme" => header(headers, ":scheme"),
        "id" => header(headers, "x-request-id"),
        "referer" => header(headers, "referer"),
        "useragent" => header(headers, "user-agent"),
        "protocol" => Some(b"HTTP/1.1".to_vec()),
        "duration" => ended(steady_ns.saturating_sub(stream.opened_ns)),
        "total_size" => ended(request.peer.body().len() as u64),
        _ => name.strip_prefix("headers.").and_then(|name| header(headers, name)),
    }
}

fn of_response(stream: &StreamState, name: &str) -> Option<Vec<u8>> {
    let response = &stream.response;
    match name {
        "code" => stream.code().map(|code| number(code.into())),
        "code_details" => stream.details.clone().map(String::into_bytes),
        "flags" => Some(number(stream.flags)),
        "total_size" => stream.logging.then(|| number(response.peer.body().len() as u64)),
        _ => {
            let name = name.strip_prefix("headers.")?;
            let headers = response.headers.as_ref()?;
            (response.headers_readable || stream.logging).then(|| header(headers, name)).flatten()
        }
    }
}

fn header(headers: &Headers, name: &str) -> Option<Vec<u8>> {
    headers.value(name).map(<[u8]>::to_vec)
}

/// Numbers are eight bytes, little end first.
fn number(value: u64) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}
