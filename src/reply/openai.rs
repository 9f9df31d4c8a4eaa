//! Error bodies as OpenAI's API sends them, so that its SDKs raise their own errors.

use serde_json::{Value, json};
use tollgate_budget::Unit;

pub(super) struct Error {
    pub(super) status: u32,
    /// OpenAI's `type`.
    pub(super) kind: &'static str,
    pub(super) code: Option<&'static str>,
    pub(super) message: String,
}

/// OpenAI names the resource that ran out.
pub(super) const fn kind(unit: Unit) -> &'static str {
    match unit {
        Unit::Tokens | Unit::RawTokens | Unit::InputTokens | Unit::OutputTokens => "tokens",
        Unit::Requests => "requests",
    }
}

pub(super) fn body(error: &Error, facts: Option<Value>) -> Value {
    let mut body = json!({
        "error": {
            "message": error.message,
            "type": error.kind,
            "param": null,
            "code": error.code,
        }
    });
    if let (Some(facts), Some(members)) = (facts, body.as_object_mut()) {
        members.insert("tollgate".to_owned(), facts);
    }
    body
}
