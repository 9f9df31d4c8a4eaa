//! Error bodies as OpenAI's API sends them, so that its SDKs raise their own errors.

use serde_json::{Value, json};
use tollgate_budget::Unit;

use super::Error;

/// OpenAI names the resource that ran out.
pub(super) const fn kind(unit: Unit) -> &'static str {
    match unit {
        // It has no word for money; `insufficient_quota` would say that waiting does not help.
        Unit::Tokens | Unit::RawTokens | Unit::InputTokens | Unit::OutputTokens | Unit::Usd => "tokens",
        Unit::Requests => "requests",
    }
}

pub(super) fn body(error: &Error) -> Value {
    json!({
        "error": {
            "message": error.message,
            "type": error.kind,
            "param": null,
            "code": error.code,
        }
    })
}
