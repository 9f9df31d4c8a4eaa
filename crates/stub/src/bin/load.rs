//! `tollgate-load`: sends load, prints one JSON object with what became of it.

use std::{io::Write, net::SocketAddr, path::PathBuf, time::Duration};

use clap::Parser;
use tollgate_stub::load::{self, End, Options, Pace};

/// Closed loop by default: each connection asks again once it is answered.
#[derive(Debug, Parser)]
struct Flags {
    /// Of the proxy, e.g. 127.0.0.1:10000.
    address: SocketAddr,
    #[arg(long, default_value = "/v1/chat/completions")]
    path: String,
    /// A file, or several to be sent in turn.
    #[arg(long, required = true)]
    body: Vec<PathBuf>,
    /// `name: value`, any number of times.
    #[arg(long, value_parser = header)]
    header: Vec<(String, String)>,
    #[arg(long, default_value_t = 1)]
    tenants: u64,
    #[arg(long, default_value_t = 8)]
    connections: usize,
    /// Open loop: so many requests a second, whatever the answers do.
    #[arg(long)]
    rate: Option<f64>,
    /// Stop after so many requests, and not by time.
    #[arg(long)]
    requests: Option<u64>,
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("a header is `name: value`")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn main() -> std::io::Result<()> {
    let flags = Flags::parse();
    let bodies: Result<Vec<_>, _> =
        flags.body.iter().map(|path| std::fs::read(path).map(Into::into)).collect();
    let options = Options {
        address: flags.address,
        path: flags.path,
        headers: flags.header,
        bodies: bodies?,
        tenants: flags.tenants,
        connections: flags.connections,
        pace: flags.rate.map_or(Pace::Closed, |per_second| Pace::Open { per_second }),
        end: flags.requests.map_or(End::After(Duration::from_secs_f64(flags.seconds)), End::Requests),
    };
    // One thread: the load generator must leave the other cores to what it measures.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(load::run(options));
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&report)?)
}
