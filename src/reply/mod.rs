//! What the caller is told when we answer ourselves: one place where an error becomes a reply.
//!
//! A reply names what is wrong in words a person can act on, in the shape that the API's own SDK turns
//! into its own error, and repeats nothing that the caller sent.

mod anthropic;
mod date;
pub mod limits;
mod openai;

use serde_json::{Number, json};
use tollgate_budget::{Amount, Figure, Reason, Span, Standing, Unit};

use crate::config::{Api, LimitRule};
use crate::identity::{Headers, header};
use crate::metrics::BodyReason;

/// Whose errors a caller's SDK understands.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Shape {
    #[default]
    OpenAi,
    Anthropic,
}

impl Shape {
    /// The shape of a route's API.
    pub fn of(api: Api, headers: &Headers<'_>) -> Self {
        match api {
            Api::OpenAiChat | Api::OpenAiCompletions | Api::OpenAiEmbeddings | Api::OpenAiResponses => {
                Self::OpenAi
            }
            Api::AnthropicMessages => Self::Anthropic,
            Api::RequestOnly | Api::Free => Self::spoken_by(headers),
        }
    }

    /// Where the route does not tell what is spoken there. Anthropic's API takes no request without this
    /// header, so all its clients send it.
    pub fn spoken_by(headers: &Headers<'_>) -> Self {
        if header(headers, "anthropic-version").is_some() { Self::Anthropic } else { Self::OpenAi }
    }
}

/// Why we answer instead of the upstream.
#[derive(Clone, Debug)]
pub enum Problem<'a> {
    /// A required attribute of the subject has no value.
    Unidentified {
        attribute: &'a str,
    },
    /// The request's body cannot be metered. `hint` says what is wrong with it, never what is in it.
    Body {
        reason: BodyReason,
        hint: String,
    },
    Refused(Refused<'a>),
    /// The budgets cannot be asked right now.
    StoreUnavailable,
}

/// A limit that says no.
#[derive(Clone, Debug)]
pub struct Refused<'a> {
    pub limit: &'a LimitRule,
    pub reason: Reason,
    /// The refusing account before the request.
    pub standing: Standing,
    pub requested: Requested,
}

/// In the limit's unit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Requested {
    Exactly(Amount),
    /// Counting stopped here, since no more could fit.
    MoreThan(Amount),
}

/// A whole answer of ours.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reply {
    pub status: u32,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
    /// The proxy's response code details: `tollgate_over_limit`. Never a subject.
    pub details: &'static str,
}

/// What every shape tells, each in its own way.
struct Error {
    status: u32,
    /// OpenAI's `type`; Anthropic's goes by the status.
    kind: &'static str,
    code: Option<&'static str>,
    message: String,
}

impl Problem<'_> {
    pub fn reply(&self, shape: Shape) -> Reply {
        let error = self.error();
        let mut headers = vec![("content-type", "application/json".to_owned())];
        headers.extend(self.retry_headers());
        let mut body = match shape {
            Shape::OpenAi => openai::body(&error),
            Shape::Anthropic => anthropic::body(&error),
        };
        if let (Some(facts), Some(members)) = (self.extra(), body.as_object_mut()) {
            members.insert("tollgate".to_owned(), facts);
        }
        Reply { status: error.status, headers, body: body.to_string(), details: self.details() }
    }

    fn error(&self) -> Error {
        match self {
            Self::Unidentified { attribute } => Error {
                status: 401,
                kind: "authentication_error",
                code: Some("missing_identity"),
                message: format!("The request does not say who it is for: no value for `{attribute}`."),
            },
            Self::Body { reason, hint } => Error {
                status: body_status(*reason),
                kind: "invalid_request_error",
                code: Some(reason.label()),
                message: hint.clone(),
            },
            Self::Refused(refused) => refused.error(),
            Self::StoreUnavailable => Error {
                status: 503,
                kind: "server_error",
                code: Some("budget_unavailable"),
                message: "The token budget cannot be checked right now. Please retry.".to_owned(),
            },
        }
    }

    fn retry_headers(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Unidentified { .. } | Self::Body { .. } => Vec::new(),
            Self::Refused(refused) => match refused.reason {
                Reason::NotYet { retry_after: wait } => retry_after(wait),
                Reason::Never { .. } | Reason::Suspended => vec![no_retry()],
            },
            Self::StoreUnavailable => retry_after(Span::from_secs(1)),
        }
    }

    fn extra(&self) -> Option<serde_json::Value> {
        match self {
            Self::Refused(refused) => Some(refused.facts()),
            Self::Unidentified { .. } | Self::Body { .. } | Self::StoreUnavailable => None,
        }
    }

    fn details(&self) -> &'static str {
        match self {
            Self::Unidentified { .. } => "tollgate_unidentified",
            Self::Body { reason, .. } => match reason {
                BodyReason::NotJson => "tollgate_body_not_json",
                BodyReason::Nonsense => "tollgate_body_nonsense",
                BodyReason::TooLarge => "tollgate_body_too_large",
                BodyReason::Compressed => "tollgate_body_compressed",
                BodyReason::Missing => "tollgate_body_missing",
                BodyReason::Unreadable => "tollgate_body_unreadable",
                BodyReason::Upgrade => "tollgate_upgrade",
            },
            Self::Refused(refused) => match refused.reason {
                Reason::NotYet { .. } => "tollgate_over_limit",
                Reason::Never { .. } => "tollgate_never_fits",
                Reason::Suspended => "tollgate_suspended",
            },
            Self::StoreUnavailable => "tollgate_store_unavailable",
        }
    }
}

/// In seconds, as every client reads it, and as exactly as it is known.
fn retry_after(wait: Span) -> Vec<(&'static str, String)> {
    vec![
        ("retry-after", wait.as_secs_ceil().max(1).to_string()),
        ("retry-after-ms", wait.as_millis().max(1).to_string()),
    ]
}

/// The official SDKs obey this before they look at the status.
fn no_retry() -> (&'static str, String) {
    ("x-should-retry", "false".to_owned())
}

const fn body_status(reason: BodyReason) -> u32 {
    match reason {
        BodyReason::NotJson | BodyReason::Nonsense | BodyReason::Missing | BodyReason::Upgrade => 400,
        BodyReason::TooLarge | BodyReason::Unreadable => 413,
        BodyReason::Compressed => 415,
    }
}

impl Refused<'_> {
    fn error(&self) -> Error {
        let name = &self.limit.name;
        let unit = words(self.limit.unit);
        let amount = self.limit.unit.floor(self.standing.capacity);
        let used = self.limit.unit.ceil(self.standing.used());
        let (than, asked) = self.asked();
        match self.reason {
            Reason::NotYet { retry_after } => Error {
                status: 429,
                kind: openai::kind(self.limit.unit),
                code: Some("rate_limit_exceeded"),
                message: format!(
                    "Limit `{name}` reached: {used} of {amount} {unit} in use, {than}{asked} requested. \
                     Please try again in {wait}.",
                    wait = limits::duration(retry_after),
                ),
            },
            Reason::Never { largest } => Error {
                status: 413,
                kind: openai::kind(self.limit.unit),
                code: Some("request_never_fits"),
                message: format!(
                    "The request asks for {than}{asked} {unit}; limit `{name}` never grants more than {largest} at \
                     once. Shorten the prompt or lower the output cap.",
                    largest = self.limit.unit.floor(largest),
                ),
            },
            Reason::Suspended => Error {
                status: 403,
                kind: "permission_error",
                code: Some("budget_suspended"),
                message: format!("Limit `{name}` is suspended: its amount is 0."),
            },
        }
    }

    /// What is only known to be exceeded is rounded down, or it might not be.
    fn asked(&self) -> (&'static str, Figure) {
        match self.requested {
            Requested::Exactly(cost) => ("", self.limit.unit.ceil(cost)),
            Requested::MoreThan(cost) => ("more than ", self.limit.unit.floor(cost)),
        }
    }

    /// The member that tells programs what the message tells people.
    fn facts(&self) -> serde_json::Value {
        let unit = self.limit.unit;
        let retry_after_ms = match self.reason {
            Reason::NotYet { retry_after } => Some(retry_after.as_millis()),
            Reason::Never { .. } | Reason::Suspended => None,
        };
        json!({
            "limit": self.limit.name,
            "unit": unit.name(),
            "used": number(unit.ceil(self.standing.used())),
            "amount": number(unit.floor(self.standing.capacity)),
            "requested": number(self.asked().1),
            "retry_after_ms": retry_after_ms,
        })
    }
}

/// As JSON: a number, in whatever unit.
pub fn number(figure: Figure) -> Option<Number> {
    figure.to_string().parse().ok()
}

const fn words(unit: Unit) -> &'static str {
    match unit {
        Unit::Tokens | Unit::RawTokens => "tokens",
        Unit::InputTokens => "input tokens",
        Unit::OutputTokens => "output tokens",
        Unit::Requests => "requests",
        Unit::Usd => "dollars",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn body(reason: BodyReason) -> Problem<'static> {
        Problem::Body { reason, hint: "Something is wrong with it.".to_owned() }
    }

    #[test]
    fn each_status_has_the_type_of_the_api_called() {
        let table = [
            (body(BodyReason::NotJson), 400, "invalid_request_error", "invalid_request_error"),
            (body(BodyReason::TooLarge), 413, "invalid_request_error", "request_too_large"),
            (body(BodyReason::Compressed), 415, "invalid_request_error", "invalid_request_error"),
            (
                Problem::Unidentified { attribute: "tenant" },
                401,
                "authentication_error",
                "authentication_error",
            ),
            (Problem::StoreUnavailable, 503, "server_error", "overloaded_error"),
        ];
        for (problem, status, openai, anthropic) in table {
            for (shape, kind) in [(Shape::OpenAi, openai), (Shape::Anthropic, anthropic)] {
                let reply = problem.reply(shape);
                let body: Value = serde_json::from_str(&reply.body).unwrap();
                assert_eq!((reply.status, &body["error"]["type"]), (status, &json!(kind)));
                assert!(body["error"]["message"].as_str().is_some_and(|text| !text.is_empty()));
                assert_eq!(body.get("type"), (shape == Shape::Anthropic).then(|| json!("error")).as_ref());
                assert_eq!(body.get("tollgate"), None);
            }
        }
    }

    #[test]
    fn who_may_come_back_is_told_when() {
        let headers = Problem::StoreUnavailable.reply(Shape::Anthropic).headers;
        assert!(headers.contains(&("retry-after", "1".to_owned())));
        assert!(headers.contains(&("retry-after-ms", "1000".to_owned())));
    }
}
