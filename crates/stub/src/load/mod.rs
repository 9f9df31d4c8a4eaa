//! Load over HTTP/1.1, for benchmarks.
//!
//! In open loop a request is late by its own fault only: its time counts from when it was due, not
//! from when a connection was free, or a slow proxy would look better the fewer requests it let in.

mod report;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::body::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Method, Request, body::Incoming, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::Instant};

use report::Samples;
pub use report::{Report, Spread};

use crate::clock;

#[derive(Clone, Debug)]
pub struct Options {
    pub address: SocketAddr,
    pub path: String,
    pub headers: Vec<(String, String)>,
    /// Sent in turn.
    pub bodies: Vec<Bytes>,
    /// Each request names one of so many tenants in `x-tenant-id`, in turn.
    pub tenants: u64,
    pub connections: usize,
    pub pace: Pace,
    pub end: End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Each connection asks again once it is answered.
    Closed,
    /// So many requests a second, whatever the answers do.
    Open { per_second: f64 },
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    Requests(u64),
    After(Duration),
}

type Sender = http1::SendRequest<Full<Bytes>>;

pub async fn run(options: Options) -> Report {
    let options = Arc::new(options);
    let turn = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let workers: Vec<_> =
        (0..options.connections).map(|_| tokio::spawn(work(options.clone(), turn.clone(), start))).collect();
    let mut all = Samples::default();
    for worker in workers {
        // A worker that panicked has no samples; its requests are missing from the count.
        all.add(worker.await.unwrap_or_default());
    }
    all.report(start.elapsed())
}

/// One connection's part of the load.
async fn work(options: Arc<Options>, turn: Arc<AtomicU64>, start: Instant) -> Samples {
    let mut samples = Samples::default();
    let mut connection = None;
    while let Some((number, due)) = next(&options, &turn, start).await {
        let sender = match connection.take() {
            Some(sender) => sender,
            None => match connect(options.address).await {
                Some(sender) => sender,
                None => {
                    samples.failed();
                    continue;
                }
            },
        };
        connection = ask(sender, &options, number, due, &mut samples).await;
    }
    samples
}

/// The number of the next request and the time from which it counts.
async fn next(options: &Options, turn: &AtomicU64, start: Instant) -> Option<(u64, Instant)> {
    let number = turn.fetch_add(1, Ordering::Relaxed);
    let due = match options.pace {
        Pace::Closed => Instant::now(),
        Pace::Open { per_second } => {
            #[expect(clippy::cast_precision_loss, reason = "a benchmark ends long before 2^53 requests")]
            let due = start + Duration::from_secs_f64(number as f64 / per_second);
            tokio::time::sleep_until(due).await;
            due
        }
    };
    let goes_on = match options.end {
        End::Requests(count) => number < count,
        End::After(time) => due < start + time,
    };
    goes_on.then_some((number, due))
}

async fn connect(address: SocketAddr) -> Option<Sender> {
    let socket = TcpStream::connect(address).await.ok()?;
    socket.set_nodelay(true).ok()?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await.ok()?;
    tokio::spawn(async move {
        // Its error is also the sender's, which counts it.
        let _ = connection.await;
    });
    sender.ready().await.ok()?;
    Some(sender)
}

/// The connection again, if it can serve another request.
async fn ask(
    mut sender: Sender,
    options: &Options,
    number: u64,
    due: Instant,
    samples: &mut Samples,
) -> Option<Sender> {
    let Some(request) = request(options, number) else {
        samples.failed();
        return Some(sender);
    };
    let answered = match sender.send_request(request).await {
        Ok(response) => {
            let status = response.status().as_u16();
            read(response.into_body(), due, samples).await.map(|()| status)
        }
        Err(_) => None,
    };
    match answered {
        Some(status) => samples.answered(status, due.elapsed()),
        None => samples.failed(),
    }
    let usable = answered.is_some() && sender.ready().await.is_ok();
    usable.then_some(sender)
}

fn request(options: &Options, number: u64) -> Option<Request<Full<Bytes>>> {
    let count = u64::try_from(options.bodies.len()).ok()?;
    let body = options.bodies.get(usize::try_from(number.checked_rem(count)?).ok()?)?;
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(&options.path)
        .header(header::HOST, options.address.to_string())
        .header(header::CONTENT_TYPE, "application/json")
        .header("x-tenant-id", format!("tenant-{}", number % options.tenants.max(1)));
    for (name, value) in &options.headers {
        request = request.header(name, value);
    }
    request.body(Full::new(body.clone())).ok()
}

/// `None`: the answer broke off.
async fn read(mut body: Incoming, due: Instant, samples: &mut Samples) -> Option<()> {
    let mut first = true;
    while let Some(frame) = body.frame().await {
        let data = frame.ok()?.into_data().unwrap_or_default();
        if first && !data.is_empty() {
            samples.first_byte(due.elapsed());
            first = false;
        }
        for sent in stamps(&data) {
            samples.chunk(clock::nanoseconds().saturating_sub(sent));
        }
    }
    Some(())
}

/// The times in the comments that the stub puts before each event.
fn stamps(data: &[u8]) -> impl Iterator<Item = u64> {
    data.split(|byte| *byte == b'\n')
        .filter_map(|line| std::str::from_utf8(line.strip_prefix(b": ")?).ok()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{self, Settings};

    async fn report(pace: Pace, body: &'static str, headers: &[(&str, &str)]) -> Report {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(server::serve(listener, Settings::default()));
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        run(Options {
            address,
            path: "/v1/chat/completions".into(),
            headers: headers.collect(),
            bodies: vec![Bytes::from_static(body.as_bytes())],
            tenants: 3,
            connections: 4,
            pace,
            end: End::Requests(50),
        })
        .await
    }

    #[tokio::test]
    async fn both_paces_send_what_was_asked_for_and_no_more() {
        for pace in [Pace::Closed, Pace::Open { per_second: 10_000.0 }] {
            let report = report(pace, r#"{"messages":[]}"#, &[]).await;
            assert_eq!((report.count, report.errors), (50, 0));
            assert_eq!(report.statuses.get(&200), Some(&50));
            assert_eq!(report.latency_us.count, 50);
        }
    }

    #[tokio::test]
    async fn every_stamped_chunk_of_a_stream_is_timed() {
        let headers = [("x-stub-stamp", "ns"), ("x-stub-chunks", "4")];
        let report = report(Pace::Closed, r#"{"stream":true,"messages":[]}"#, &headers).await;
        // The role, four words, the end.
        assert_eq!(report.chunk_delay_us.count, 50 * 6);
        assert_eq!(report.first_byte_us.count, 50);
    }

    #[tokio::test]
    async fn what_breaks_off_is_counted_as_an_error() {
        let report = report(Pace::Closed, r#"{"messages":[]}"#, &[("x-stub-fault", "reset-before")]).await;
        assert_eq!((report.count, report.errors), (50, 50));
    }
}
