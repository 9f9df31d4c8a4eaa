//! The door: HTTP/1.1 and HTTP/2 with prior knowledge on one port.

use std::{
    future::Future,
    path::PathBuf,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{Path, Request, State},
    response::{IntoResponse, Response},
    routing::get,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use http_body_util::BodyExt;
use hyper::{HeaderMap, StatusCode, header, http::request::Parts, service::Service};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
    service::TowerToHyperService,
};
use serde_json::json;
use tokio::net::TcpListener;

use crate::{
    answer::Answer,
    ask::Ask,
    body::{self, Cut},
    chat, completions, embeddings,
    gate::Gates,
    log::{Log, Received},
    messages, replay, responses,
    script::{Fault, Script},
};

/// How an API answers.
type Speak = fn(&Ask, &Script, StatusCode) -> Answer;

/// By the end of the path.
const APIS: [(&str, Speak); 6] = [
    ("/chat/completions", chat::answer),
    ("/completions", completions::answer),
    ("/embeddings", embeddings::answer),
    ("/responses", responses::answer),
    ("/messages", messages::answer),
    ("/messages/count_tokens", messages::count),
];

#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Where `x-stub-replay` finds its files.
    pub fixtures: Option<PathBuf>,
    /// What a request without script gets.
    pub script: Script,
}

#[derive(Clone, Copy, Debug)]
struct Connection(u64);

/// Put on a response that must never be sent.
#[derive(Clone, Copy, Debug)]
struct NoAnswer;

#[derive(Clone, Debug)]
struct Stub {
    settings: Arc<Settings>,
    log: Log,
    gates: Gates,
}

/// Serves until the process ends.
pub async fn serve(listener: TcpListener, settings: Settings) -> std::io::Result<()> {
    let router = router(settings);
    let connections = AtomicU64::new(0);
    loop {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let number = Connection(connections.fetch_add(1, Ordering::Relaxed));
        let service = Door { router: TowerToHyperService::new(router.clone()), number };
        tokio::spawn(async move {
            // An error is a peer that left, or a cut of our own; neither concerns anyone else.
            let _ = auto::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(socket), service)
                .await;
        });
    }
}

/// Numbers the connection's requests, and turns [`NoAnswer`] into the one thing that a router cannot say.
#[derive(Clone, Debug)]
struct Door {
    router: TowerToHyperService<Router>,
    number: Connection,
}

impl Service<hyper::Request<hyper::body::Incoming>> for Door {
    type Response = Response;
    type Error = Cut;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Cut>> + Send>>;

    fn call(&self, mut request: hyper::Request<hyper::body::Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.number);
        let answer = self.router.call(request);
        Box::pin(async move {
            match answer.await {
                Ok(response) if response.extensions().get::<NoAnswer>().is_none() => Ok(response),
                Ok(_) => Err(Cut),
            }
        })
    }
}

fn router(settings: Settings) -> Router {
    let stub = Stub { settings: Arc::new(settings), log: Log::default(), gates: Gates::default() };
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/stub/log", get(list).delete(clear))
        .route("/stub/gate/{name}", get(waiting).post(open))
        .fallback(answer)
        .with_state(stub)
}

async fn list(State(stub): State<Stub>) -> Json<Vec<Received>> {
    Json(stub.log.list())
}

async fn clear(State(stub): State<Stub>) -> StatusCode {
    stub.log.clear();
    StatusCode::NO_CONTENT
}

async fn waiting(State(stub): State<Stub>, Path(name): Path<String>) -> String {
    stub.gates.waiting(&name).to_string()
}

async fn open(State(stub): State<Stub>, Path(name): Path<String>) -> StatusCode {
    stub.gates.open(&name);
    StatusCode::NO_CONTENT
}

async fn answer(State(stub): State<Stub>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let number = head.extensions.get().copied().unwrap_or(Connection(0));
    let body = match read(body).await {
        Ok((bytes, trailers)) => {
            stub.log.push(Received::new(number.0, &head, Ok(&bytes), &trailers));
            bytes
        }
        Err(partial) => {
            stub.log.push(Received::new(number.0, &head, Err(&partial), &HeaderMap::new()));
            return StatusCode::BAD_REQUEST.into_response();
        }
    };
    if head.uri.path() == "/echo" {
        return echo(&head, &body).into_response();
    }
    match stub.settings.script.told_by(&head.headers) {
        Ok(script) => act(&stub, &script, &head, &body).await,
        Err(why) => respond(Answer::error(StatusCode::BAD_REQUEST, &why.to_string())),
    }
}

/// The body and its trailers, or what had come when the sender left.
async fn read(mut body: Body) -> Result<(Bytes, HeaderMap), Bytes> {
    let (mut bytes, mut trailers) = (Vec::new(), HeaderMap::new());
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Err(bytes.into()) };
        match frame.into_data() {
            Ok(data) => bytes.extend_from_slice(&data),
            Err(other) => trailers.extend(other.into_trailers().unwrap_or_default()),
        }
    }
    Ok((bytes.into(), trailers))
}

async fn act(stub: &Stub, script: &Script, head: &Parts, body: &[u8]) -> Response {
    if let Some(gate) = &script.gate {
        stub.gates.pass(gate).await;
    }
    tokio::time::sleep(script.delay).await;
    if script.fault == Fault::ResetBefore {
        return no_answer();
    }
    if script.fault == Fault::Hang {
        std::future::pending::<()>().await;
    }
    let Ok(status) = StatusCode::from_u16(script.status) else {
        return respond(Answer::error(StatusCode::BAD_REQUEST, "x-stub-status: no such status"));
    };
    let answer = if let Some(file) = &script.replay {
        replay::answer(stub.settings.fixtures.as_deref(), file, status)
    } else if status.is_client_error() || status.is_server_error() {
        Answer::error(status, "The stub was told to fail.")
    } else if let Some(speak) = api(head.uri.path()) {
        match Ask::read(body) {
            Some(ask) => speak(&ask, script, status),
            None => {
                Answer::error(StatusCode::BAD_REQUEST, "We could not parse the JSON body of your request.")
            }
        }
    } else {
        Answer::error(StatusCode::NOT_FOUND, "The stub does not know this path.")
    };
    let accepts_gzip = head
        .headers
        .get(header::ACCEPT_ENCODING)
        .is_some_and(|value| String::from_utf8_lossy(value.as_bytes()).contains("gzip"));
    respond(answer.spoiled(script, accepts_gzip))
}

fn api(path: &str) -> Option<Speak> {
    APIS.iter().find(|(end, _)| path.ends_with(end)).map(|(_, speak)| *speak)
}

fn no_answer() -> Response {
    let mut response = Response::default();
    response.extensions_mut().insert(NoAnswer);
    response
}

fn respond(answer: Answer) -> Response {
    let Answer { status, mut headers, steps } = answer;
    headers.insert("x-request-id", header::HeaderValue::from_static("req_stub"));
    // A whole body carries its length by itself; a body in steps has one only where it lies.
    let mut response = Response::new(body::play(steps));
    *response.status_mut() = status;
    response.headers_mut().extend(headers);
    response
}

fn echo(head: &Parts, body: &[u8]) -> Json<serde_json::Value> {
    let headers: Vec<(&str, String)> = head
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    Json(json!({
        "method": head.method.as_str(), "path": head.uri.path_and_query().map(|path| path.as_str()),
        "headers": headers, "body": String::from_utf8_lossy(body), "body_base64": STANDARD.encode(body),
    }))
}
