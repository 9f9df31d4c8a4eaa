//! What has reached the stub, byte for byte, for tests that ask what the upstream saw.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use hyper::{HeaderMap, Version, http::request::Parts};
use serde::Serialize;

/// Requests kept, oldest dropped first: a load test must not grow the stub.
const KEPT: usize = 4096;

/// Bodies beyond this are kept by their length only, for the same reason.
const KEPT_BODY: usize = 64 * 1024;

#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<VecDeque<Received>>>);

#[derive(Clone, Debug, Serialize)]
pub struct Received {
    /// Counts connections from 0: two requests of one number shared a connection.
    pub connection: u64,
    pub http: &'static str,
    pub method: String,
    pub path: String,
    /// In the order of arrival, repeated names repeated.
    pub headers: Vec<(String, String)>,
    /// Base64; empty if longer than the log keeps.
    pub body: String,
    pub body_bytes: usize,
    /// False: the sender went away in the middle of the body.
    pub complete: bool,
    pub trailers: Vec<(String, String)>,
}

impl Received {
    /// `body`: the bytes that came, and whether they were all.
    pub fn new(connection: u64, head: &Parts, body: Result<&[u8], &[u8]>, trailers: &HeaderMap) -> Self {
        let (bytes, complete) = match body {
            Ok(bytes) => (bytes, true),
            Err(bytes) => (bytes, false),
        };
        Self {
            connection,
            http: if head.version == Version::HTTP_2 { "2" } else { "1" },
            method: head.method.to_string(),
            path: head.uri.path_and_query().map_or_else(String::new, ToString::to_string),
            headers: pairs(&head.headers),
            body: if bytes.len() <= KEPT_BODY { STANDARD.encode(bytes) } else { String::new() },
            body_bytes: bytes.len(),
            complete,
            trailers: pairs(trailers),
        }
    }
}

impl Log {
    pub fn push(&self, received: Received) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(received);
    }

    pub fn list(&self) -> Vec<Received> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

fn pairs(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    headers.iter().map(|(name, value)| (name.to_string(), text(value.as_bytes()))).collect()
}
