//! Requests as clients send them, answers as providers give them, and the caller's own accounts.

use serde_json::{Value, json};
use tollgate_hostsim::Headers;

use super::proxy::{Proxy, Stream};

pub const CHAT: &str = "/v1/chat/completions";

/// Tokens of [`Ask::new`]'s prompt: one message, by the rules of the model's family.
pub const PROMPT: u64 = 8;

/// A request about to be sent.
#[derive(Clone, Debug)]
pub struct Ask {
    pub path: String,
    pub method: String,
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
    /// What filters in front have put into the stream's metadata: dotted paths, and values in the host's bytes.
    pub metadata: Vec<(String, Vec<u8>)>,
    /// Announces its length, as SDKs do.
    pub announced: bool,
}

impl Ask {
    /// One short message to a model of an exact tokenizer, with this output cap.
    pub fn new(cap: u64) -> Self {
        let message = json!({"role": "user", "content": "Hello"});
        Self::json(&json!({"model": "gpt-4o", "messages": [message], "max_tokens": cap}))
    }

    pub fn stream(cap: u64) -> Self {
        Self::new(cap).with("stream", json!(true))
    }

    pub fn json(body: &Value) -> Self {
        Self::raw(body.to_string())
    }

    pub fn raw(body: impl Into<Vec<u8>>) -> Self {
        Self {
            path: CHAT.to_owned(),
            method: "POST".to_owned(),
            headers: Vec::new(),
            body: body.into(),
            metadata: Vec::new(),
            announced: true,
        }
    }

    /// A request without a body.
    pub fn get(path: &str) -> Self {
        Self { path: path.to_owned(), method: "GET".to_owned(), announced: false, ..Self::raw("") }
    }

    /// One member of the body more, behind all others.
    pub fn with(mut self, key: &str, value: Value) -> Self {
        let mut body: Value = serde_json::from_slice(&self.body).unwrap();
        body[key] = value;
        self.body = body.to_string().into_bytes();
        self
    }

    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_owned(), value.as_ref().to_vec()));
        self
    }

    pub fn metadata(mut self, path: &str, value: impl AsRef<[u8]>) -> Self {
        self.metadata.push((path.to_owned(), value.as_ref().to_vec()));
        self
    }

    pub fn tenant(self, tenant: impl AsRef<[u8]>) -> Self {
        self.header("x-tenant-id", tenant)
    }

    pub fn path(self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self }
    }

    pub fn unannounced(self) -> Self {
        Self { announced: false, ..self }
    }

    pub fn head(&self) -> Headers {
        let fixed = [(":method", self.method.as_str()), (":path", &self.path), (":authority", "api.test")];
        let mut headers = Headers::from(fixed);
        if self.method == "POST" {
            headers.add("content-type", "application/json");
        }
        if self.announced {
            headers.add("content-length", self.body.len().to_string());
        }
        self.headers.iter().for_each(|(name, value)| headers.add(name, value));
        headers
    }

    /// Its headers only.
    pub fn begin<P: Proxy>(&self, proxy: &P, worker: usize) -> P::Stream {
        proxy.open_with(worker, &self.head(), &self.metadata, self.body.is_empty())
    }

    pub fn send_to<P: Proxy>(&self, proxy: &P, worker: usize) -> P::Stream {
        let stream = self.begin(proxy, worker);
        if !self.body.is_empty() {
            stream.body(&self.body, true);
        }
        stream
    }

    pub fn send<P: Proxy>(&self, proxy: &P) -> P::Stream {
        self.send_to(proxy, 0)
    }
}

/// A whole answer with the provider's counts.
pub fn answer(stream: &impl Stream, input: u64, output: u64) {
    let usage = json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output});
    answer_json(
        stream,
        &json!({"id": "c", "object": "chat.completion", "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}], "usage": usage}),
    );
}

pub fn answer_json(stream: &impl Stream, body: &Value) {
    answer_bytes(stream, 200, &[], body.to_string().as_bytes());
}

pub fn answer_bytes(stream: &impl Stream, status: u16, headers: &[(&str, &str)], body: &[u8]) {
    let mut head = Headers::from([(":status", status.to_string())]);
    head.add("content-type", "application/json");
    head.add("content-length", body.len().to_string());
    headers.iter().for_each(|(name, value)| head.set(name, value));
    stream.answer_headers(&head, body.is_empty());
    if !body.is_empty() {
        stream.answer_chunk(body, true);
    }
}

pub fn begin_events(stream: &impl Stream) {
    stream.answer_headers(&Headers::from([(":status", "200"), ("content-type", "text/event-stream")]), false);
}

/// An event of visible text.
pub fn delta(text: &str) -> String {
    event(&json!({"id": "c", "object": "chat.completion.chunk", "choices": [
        {"index": 0, "delta": {"content": text}, "finish_reason": null}]}))
}

/// The event that `include_usage` asks for.
pub fn usage_event(input: u64, output: u64) -> String {
    let usage = json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output});
    event(&json!({"id": "c", "object": "chat.completion.chunk", "choices": [], "usage": usage}))
}

pub const DONE: &str = "data: [DONE]\n\n";

pub fn event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

pub fn send_events(stream: &impl Stream, events: &[&str]) {
    for event in events {
        stream.answer_chunk(event.as_bytes(), false);
    }
    stream.answer_chunk(b"", true);
}

/// How one account stands, as its owner is told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Standing {
    pub spent: u64,
    pub held: u64,
}

/// Reads an account through the budget path; of the nameless tenant if none is named.
pub fn standing(proxy: &impl Proxy, limit: &str, tenant: &str) -> Standing {
    let mut all = standings(proxy, tenant).into_iter();
    all.find(|(name, _)| name == limit).map(|(_, standing)| standing).expect("an account of this limit")
}

/// All of a tenant's accounts by their limits.
pub fn standings(proxy: &impl Proxy, tenant: &str) -> Vec<(String, Standing)> {
    let ask = Ask::get("/tollgate/budget");
    let ask = if tenant.is_empty() { ask } else { ask.tenant(tenant) };
    let seen = ask.send(proxy).seen();
    assert_eq!(seen.status(), 200);
    let read = |account: &Value| {
        let part = |name: &str| account[name].as_u64().unwrap();
        let standing = Standing { spent: part("spent"), held: part("held") };
        (account["limit"].as_str().unwrap().to_owned(), standing)
    };
    seen.json()["accounts"].as_array().unwrap().iter().map(read).collect()
}
