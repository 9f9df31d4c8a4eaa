//! Error bodies as Anthropic's API sends them (<https://docs.claude.com/en/api/errors>).

use serde_json::{Value, json};

use super::Error;

/// Its API has one type for each status. Our 503 stays one, where Anthropic itself sends 529: every proxy,
/// mesh and alert on the way knows 503, 529 is in no registry, and its SDK retries both alike.
const fn kind(status: u32) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        // Also of every other 4xx, as its reference has it.
        _ => "invalid_request_error",
    }
}

pub(super) fn body(error: &Error) -> Value {
    json!({"type": "error", "error": {"type": kind(error.status), "message": error.message}})
}
