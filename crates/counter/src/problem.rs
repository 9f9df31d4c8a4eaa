//! What is told when something cannot be done: RFC 9457 problem details. The one place where errors become
//! words. Nothing of a request's body is repeated in them.

use std::borrow::Cow;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tollgate_budget::wire;

use crate::store::StoreError;

/// What a problem's `type` begins with; a name, not an address.
const TYPES: &str = "tag:tollgate,2026:problem/";

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Problem {
    /// Not JSON, or not this message; what the reader said about where.
    Malformed(String),
    NotJson,
    TooLarge(Cow<'static, str>),
    Unauthenticated,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    /// The body did not come in time.
    TooSlow,
    NotBuilt,
    Store(StoreError),
}

#[derive(Serialize)]
struct Details<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

impl Problem {
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Malformed(_) | Self::Store(StoreError::Cursor) => StatusCode::BAD_REQUEST,
            Self::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::NotBuilt => StatusCode::NOT_IMPLEMENTED,
            Self::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The end of its `type`, and its title.
    fn name(&self) -> (&'static str, &'static str) {
        match self {
            Self::Malformed(_) | Self::Store(StoreError::Cursor) => {
                ("malformed", "The request was not understood")
            }
            Self::NotJson => ("not-json", "The body must be application/json"),
            Self::TooLarge(_) => ("too-large", "The request is larger than is taken"),
            Self::Unauthenticated => ("unauthenticated", "A bearer token is needed"),
            Self::Forbidden => ("forbidden", "This needs the administrator's token"),
            Self::NotFound => ("not-found", "There is nothing here"),
            Self::MethodNotAllowed => ("method-not-allowed", "This path is not used so"),
            Self::TooSlow => ("too-slow", "The body did not come in time"),
            Self::NotBuilt => ("not-built", "This does not exist yet"),
            Self::Store(StoreError::Full(_) | StoreError::Slots) => ("store-full", "The store is full"),
            Self::Store(
                StoreError::Away | StoreError::Slow | StoreError::Unwilling(_) | StoreError::Nonsense,
            ) => ("store-unavailable", "The store cannot answer"),
        }
    }

    fn detail(&self) -> Option<String> {
        match self {
            Self::Malformed(what) => Some(what.clone()),
            Self::TooLarge(what) => Some(what.clone().into_owned()),
            Self::Store(error) => Some(error.to_string()),
            Self::NotBuilt => Some("no window keeps a balance".to_owned()),
            Self::NotJson
            | Self::Unauthenticated
            | Self::Forbidden
            | Self::NotFound
            | Self::MethodNotAllowed
            | Self::TooSlow => None,
        }
    }

    pub(crate) fn body_too_large() -> Self {
        Self::TooLarge(Cow::Owned(format!("a body is at most {} bytes", wire::BODY_MOST)))
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (end, title) = self.name();
        let status = self.status();
        let details = Details {
            r#type: format!("{TYPES}{end}"),
            title,
            status: status.as_u16(),
            detail: self.detail(),
        };
        let body = serde_json::to_vec(&details).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
