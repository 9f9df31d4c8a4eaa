//! The only file that names hostcalls: every status becomes a [`HostError`].
//!
//! The SDK's own wrappers panic on statuses that a host may well answer (a request header asked for after
//! it went upstream, a value that is not UTF-8), and one panic fails every request of the worker. So the
//! functions are declared here once more, with the status as a plain number.

#![expect(
    unsafe_code,
    reason = "hostcalls are foreign functions; each call passes a slice it holds, or \
    takes over a block that the host allocated through our own allocator"
)]

use std::ptr::null_mut;
use std::time::Duration;

use crate::metrics::Kind;

/// What a host says instead of an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum HostError {
    NotFound,
    CasMismatch,
    /// A status that none of our callers tells apart.
    Status(u32),
}

impl HostError {
    pub(super) const fn status(self) -> u32 {
        match self {
            Self::NotFound => NOT_FOUND,
            Self::CasMismatch => CAS_MISMATCH,
            Self::Status(status) => status,
        }
    }
}

const OK: u32 = 0;
const NOT_FOUND: u32 = 1;
const CAS_MISMATCH: u32 = 8;

fn check(status: u32) -> Result<(), HostError> {
    match status {
        OK => Ok(()),
        NOT_FOUND => Err(HostError::NotFound),
        CAS_MISMATCH => Err(HostError::CasMismatch),
        other => Err(HostError::Status(other)),
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Headers {
    Request = 0,
    Response = 2,
    CallResponse = 6,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Buffer {
    RequestBody = 0,
    ResponseBody = 1,
    CallResponseBody = 4,
    PluginConfiguration = 7,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Level {
    Warn = 3,
    Error = 4,
}

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_log(level: u32, text: *const u8, text_size: usize) -> u32;
    fn proxy_get_current_time_nanoseconds(time: *mut u64) -> u32;
    fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
    fn proxy_set_effective_context(context: u32) -> u32;
    fn proxy_get_buffer_bytes(
        buffer: u32,
        start: usize,
        max: usize,
        data: *mut *mut u8,
        size: *mut usize,
    ) -> u32;
    fn proxy_set_buffer_bytes(buffer: u32, start: usize, length: usize, data: *const u8, size: usize) -> u32;
    fn proxy_get_header_map_pairs(map: u32, data: *mut *mut u8, size: *mut usize) -> u32;
    fn proxy_replace_header_map_value(
        map: u32,
        name: *const u8,
        name_size: usize,
        value: *const u8,
        value_size: usize,
    ) -> u32;
    fn proxy_remove_header_map_value(map: u32, name: *const u8, name_size: usize) -> u32;
    fn proxy_get_property(path: *const u8, path_size: usize, data: *mut *mut u8, size: *mut usize) -> u32;
    fn proxy_set_property(path: *const u8, path_size: usize, value: *const u8, value_size: usize) -> u32;
    fn proxy_get_shared_data(
        key: *const u8,
        key_size: usize,
        data: *mut *mut u8,
        size: *mut usize,
        cas: *mut u32,
    ) -> u32;
    fn proxy_set_shared_data(
        key: *const u8,
        key_size: usize,
        value: *const u8,
        value_size: usize,
        cas: u32,
    ) -> u32;
    fn proxy_continue_stream(stream: u32) -> u32;
    fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_size: usize,
        body: *const u8,
        body_size: usize,
        headers: *const u8,
        headers_size: usize,
        grpc_status: i32,
    ) -> u32;
    fn proxy_define_metric(kind: u32, name: *const u8, name_size: usize, id: *mut u32) -> u32;
    fn proxy_increment_metric(id: u32, by: i64) -> u32;
    fn proxy_record_metric(id: u32, value: u64) -> u32;
    fn proxy_register_shared_queue(name: *const u8, name_size: usize, id: *mut u32) -> u32;
    fn proxy_enqueue_shared_queue(id: u32, data: *const u8, size: usize) -> u32;
    fn proxy_dequeue_shared_queue(id: u32, data: *mut *mut u8, size: *mut usize) -> u32;
    fn proxy_done() -> u32;
}

pub(super) fn log(level: Level, text: &str) {
    // A host that takes no log line leaves nobody to tell.
    let _status = unsafe { proxy_log(level as u32, text.as_ptr(), text.len()) };
}

/// Nanoseconds since the Unix epoch.
pub(super) fn current_time() -> Result<u64, HostError> {
    let mut time = 0;
    check(unsafe { proxy_get_current_time_nanoseconds(&raw mut time) })?;
    Ok(time)
}

pub(super) fn set_tick_period(millis: u32) -> Result<(), HostError> {
    check(unsafe { proxy_set_tick_period_milliseconds(millis) })
}

/// Makes the calls that follow act on another context; fails when that stream is gone.
pub(super) fn set_effective_context(context: u32) -> Result<(), HostError> {
    check(unsafe { proxy_set_effective_context(context) })
}

pub(super) fn buffer(buffer: Buffer, start: usize, max: usize) -> Result<Option<Vec<u8>>, HostError> {
    let (mut data, mut size) = (null_mut(), 0);
    let status = unsafe { proxy_get_buffer_bytes(buffer as u32, start, max, &raw mut data, &raw mut size) };
    match check(status) {
        Ok(()) => Ok(unsafe { adopt(data, size) }),
        Err(HostError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces `length` bytes from `start` on.
pub(super) fn set_buffer(buffer: Buffer, start: usize, length: usize, bytes: &[u8]) -> Result<(), HostError> {
    check(unsafe { proxy_set_buffer_bytes(buffer as u32, start, length, bytes.as_ptr(), bytes.len()) })
}

pub(super) fn headers(map: Headers) -> Result<HeaderBlock, HostError> {
    let (mut data, mut size) = (null_mut(), 0);
    check(unsafe { proxy_get_header_map_pairs(map as u32, &raw mut data, &raw mut size) })?;
    Ok(HeaderBlock(unsafe { adopt(data, size) }.unwrap_or_default()))
}

/// All headers of a message, as the host wrote them.
#[derive(Debug, Default)]
pub(super) struct HeaderBlock(Vec<u8>);

impl HeaderBlock {
    /// Names and values. What cannot be read is left out: a header that we do not see is a header that is
    /// not there.
    pub(super) fn pairs(&self) -> Vec<(&[u8], &[u8])> {
        let Some((count, rest)) = self.0.split_first_chunk::<4>() else { return Vec::new() };
        let count = u32::from_le_bytes(*count) as usize;
        let Some((sizes, mut texts)) = rest.split_at_checked(count.saturating_mul(8)) else {
            return Vec::new();
        };
        let mut take = |size: &[u8; 4]| {
            let (text, rest) = texts.split_at_checked(u32::from_le_bytes(*size) as usize)?;
            texts = rest.get(1..)?;
            Some(text)
        };
        let sizes = sizes.as_chunks().0.as_chunks().0;
        let mut pairs = Vec::with_capacity(count);
        pairs.extend(sizes.iter().map_while(|[name, value]| Some((take(name)?, take(value)?))));
        pairs
    }
}

pub(super) fn set_header(map: Headers, name: &str, value: &str) -> Result<(), HostError> {
    check(unsafe {
        proxy_replace_header_map_value(map as u32, name.as_ptr(), name.len(), value.as_ptr(), value.len())
    })
}

pub(super) fn remove_header(map: Headers, name: &str) -> Result<(), HostError> {
    check(unsafe { proxy_remove_header_map_value(map as u32, name.as_ptr(), name.len()) })
}

/// `path` with a NUL between its parts.
pub(super) fn property(path: &str) -> Result<Option<Vec<u8>>, HostError> {
    let (mut data, mut size) = (null_mut(), 0);
    let status = unsafe { proxy_get_property(path.as_ptr(), path.len(), &raw mut data, &raw mut size) };
    match check(status) {
        Ok(()) => Ok(unsafe { adopt(data, size) }),
        Err(HostError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn set_property(path: &str, value: &[u8]) -> Result<(), HostError> {
    check(unsafe { proxy_set_property(path.as_ptr(), path.len(), value.as_ptr(), value.len()) })
}

/// The value with the number by which a later write proves that nobody wrote between; `None` for a key
/// that was never written.
pub(super) fn shared_data(key: &str) -> Result<Option<(Vec<u8>, u32)>, HostError> {
    let (mut data, mut size, mut cas) = (null_mut(), 0, 0);
    let status =
        unsafe { proxy_get_shared_data(key.as_ptr(), key.len(), &raw mut data, &raw mut size, &raw mut cas) };
    match check(status) {
        Ok(()) => Ok(Some((unsafe { adopt(data, size) }.unwrap_or_default(), cas))),
        Err(HostError::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Zero for `cas` writes unconditionally.
pub(super) fn set_shared_data(key: &str, value: &[u8], cas: u32) -> Result<(), HostError> {
    check(unsafe { proxy_set_shared_data(key.as_ptr(), key.len(), value.as_ptr(), value.len(), cas) })
}

pub(super) fn resume_request() -> Result<(), HostError> {
    const REQUEST: u32 = 0;
    check(unsafe { proxy_continue_stream(REQUEST) })
}

pub(super) fn send_local_response(
    status: u32,
    details: &str,
    headers: &[(&str, String)],
    body: &str,
) -> Result<(), HostError> {
    const NO_GRPC_STATUS: i32 = -1;
    let headers = write_pairs(headers);
    check(unsafe {
        proxy_send_local_response(
            status,
            details.as_ptr(),
            details.len(),
            body.as_ptr(),
            body.len(),
            headers.as_ptr(),
            headers.len(),
            NO_GRPC_STATUS,
        )
    })
}

pub(super) fn define_metric(kind: Kind, name: &str) -> Result<u32, HostError> {
    let mut id = 0;
    check(unsafe { proxy_define_metric(kind as u32, name.as_ptr(), name.len(), &raw mut id) })?;
    Ok(id)
}

/// A gauge can be made smaller.
pub(super) fn increment_metric(id: u32, by: i64) -> Result<(), HostError> {
    check(unsafe { proxy_increment_metric(id, by) })
}

/// One value of a histogram.
pub(super) fn record_metric(id: u32, value: u64) -> Result<(), HostError> {
    check(unsafe { proxy_record_metric(id, value) })
}

/// Starts an HTTP call in the name of the context whose callback runs, and returns its number. The context's
/// `on_http_call_response` is told the end.
///
/// By way of the SDK, whose dispatcher knows of no call that it did not make, and panics at the answer to one.
/// It passes on the two statuses with which hosts refuse a call.
pub(super) fn http_call(
    upstream: &str,
    headers: Vec<(&str, &str)>,
    body: &[u8],
    timeout: Duration,
) -> Result<u32, HostError> {
    proxy_wasm::hostcalls::dispatch_http_call(upstream, headers, Some(body), Vec::new(), timeout)
        .map_err(|status| HostError::Status(status as u32))
}

/// A queue that wakes this VM's root context, whoever of the VM puts something into it.
pub(super) fn register_queue(name: &str) -> Result<u32, HostError> {
    let mut id = 0;
    check(unsafe { proxy_register_shared_queue(name.as_ptr(), name.len(), &raw mut id) })?;
    Ok(id)
}

pub(super) fn enqueue(queue: u32, bytes: &[u8]) -> Result<(), HostError> {
    check(unsafe { proxy_enqueue_shared_queue(queue, bytes.as_ptr(), bytes.len()) })
}

/// Whether there was something in it.
pub(super) fn dequeue(queue: u32) -> bool {
    let (mut data, mut size) = (null_mut(), 0);
    let status = unsafe { proxy_dequeue_shared_queue(queue, &raw mut data, &raw mut size) };
    let _taken = unsafe { adopt(data, size) };
    check(status).is_ok()
}

/// The root context that has said it is not done yet is so now.
pub(super) fn done() -> Result<(), HostError> {
    check(unsafe { proxy_done() })
}

/// Takes over a block that the host filled.
///
/// # Safety
/// The host allocated `data` by way of `proxy_on_memory_allocate`, which hands out the memory of a boxed
/// slice of exactly `size` bytes, and keeps no copy of the pointer.
unsafe fn adopt(data: *mut u8, size: usize) -> Option<Vec<u8>> {
    (!data.is_null()).then(|| unsafe { Vec::from_raw_parts(data, size, size) })
}

/// Count, then the sizes of names and values in turn, then the texts, each with a NUL behind it.
fn write_pairs(pairs: &[(&str, String)]) -> Vec<u8> {
    let size = |bytes: &str| u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes();
    let mut bytes = Vec::with_capacity(64 * pairs.len() + 4);
    bytes.extend(u32::try_from(pairs.len()).unwrap_or(u32::MAX).to_le_bytes());
    for (name, value) in pairs {
        bytes.extend(size(name));
        bytes.extend(size(value));
    }
    for (name, value) in pairs {
        for text in [*name, value] {
            bytes.extend(text.as_bytes());
            bytes.push(0);
        }
    }
    bytes
}
