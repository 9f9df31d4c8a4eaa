//! `tollgate-stub`: the scripted provider as a process.

use std::{io::Write, net::Ipv4Addr, path::PathBuf, time::Duration};

use clap::Parser;
use tollgate_stub::{
    script::{Fault, Script},
    server::{self, Settings},
};

/// A scripted OpenAI-shaped provider on 127.0.0.1. Each flag is also a request header, `x-stub-…`.
#[derive(Debug, Parser)]
struct Flags {
    /// 0: any free port; the one taken is printed.
    #[arg(long, default_value_t = 10001)]
    port: u16,
    /// Where `x-stub-replay` finds its files.
    #[arg(long)]
    fixtures: Option<PathBuf>,
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Default: the words of the request.
    #[arg(long)]
    prompt_tokens: Option<u64>,
    /// Default: the chunks sent.
    #[arg(long)]
    completion_tokens: Option<u64>,
    #[arg(long, default_value_t = 0)]
    delay_ms: u64,
    #[arg(long, default_value_t = 5)]
    chunks: u64,
    #[arg(long, default_value_t = 0)]
    chunk_delay_ms: u64,
    #[arg(long, default_value = "none")]
    fault: Fault,
}

fn main() -> std::io::Result<()> {
    let flags = Flags::parse();
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(flags.threads.max(1))
        .enable_all()
        .build()?
        .block_on(run(flags))
}

async fn run(flags: Flags) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, flags.port)).await?;
    writeln!(std::io::stdout(), "listening on {}", listener.local_addr()?)?;
    let script = Script {
        prompt_tokens: flags.prompt_tokens,
        completion_tokens: flags.completion_tokens,
        delay: Duration::from_millis(flags.delay_ms),
        chunks: flags.chunks,
        chunk_delay: Duration::from_millis(flags.chunk_delay_ms),
        fault: flags.fault,
        ..Script::default()
    };
    server::serve(listener, Settings { fixtures: flags.fixtures, script }).await
}
