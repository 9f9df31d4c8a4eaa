//! What the service costs on top of Redis: holds a second through HTTP at 16 connections, against redis-benchmark
//! that calls the same script with the same arguments at 16 connections, in turns within one run. And what
//! a subject takes up in Redis.
//!
//! Ratios are the result; a machine's own figures are not.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::string_slice,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a benchmark that cannot go on has failed"
)]

#[path = "../tests/support/mod.rs"]
mod support;

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use support::RedisServer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate_counter::store::redis::RedisStore;
use tollgate_counter::{Service, Tokens, clock, shutdown};

const CONNECTIONS: u64 = 16;
const TENANTS: u64 = 10_000;
const HOLDS: u64 = 40_000;
const ROUNDS: usize = 3;

fn main() {
    // `cargo test --benches` only wants to know that it compiles.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (address, script) = runtime.block_on(serve(&server));
    let (mut direct, mut through) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS as u64 {
        server.command(&["FLUSHALL"]);
        direct.push(benchmark(&server, &script));
        server.command(&["FLUSHALL"]);
        through.push(runtime.block_on(load(&address, round)));
        println!(
            "round {round}: redis-benchmark {:.0}/s, service {:.0}/s",
            direct[round as usize], through[round as usize].0
        );
    }
    let best = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
    let mut latencies: Vec<Duration> = through.iter().flat_map(|(_, all)| all.clone()).collect();
    latencies.sort_unstable();
    let rates: Vec<f64> = through.iter().map(|(rate, _)| *rate).collect();
    let pairs: Vec<f64> = rates.iter().zip(&direct).map(|(through, direct)| through / direct).collect();
    println!("ratio of the best rounds {:.2}, by round {pairs:.2?}", best(&rates) / best(&direct));
    let at = |share: f64| latencies[(latencies.len() as f64 * share) as usize];
    println!("latency at {CONNECTIONS} connections: p50 {:?}, p99 {:?}", at(0.5), at(0.99));
    println!(
        "bytes a subject, two accounts and an open hold: {}",
        runtime.block_on(bytes(&server, &address))
    );
}

async fn serve(server: &RedisServer) -> (String, String) {
    let store = RedisStore::new(server.target(), Duration::from_secs(5)).unwrap();
    let script = store.reserve_script().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let service = Arc::new(Service::new(store, clock::system));
    let served =
        shutdown::serve(listener, service, Tokens::default(), std::future::pending(), Duration::ZERO);
    tokio::spawn(served);
    // So that Redis knows the script.
    let mut socket = TcpStream::connect(&address).await.unwrap();
    ask(&mut socket, 0, 0).await;
    (address, script)
}

/// One tenant's hold, one account.
fn body(tenant: u64, id: u128) -> String {
    let charge = json!({"account": format!("default/tokens/tenant=t{tenant:012}"), "window": {"sliding": 60_000},
        "amount": 1_000_000_000, "cost": 1500, "largest": 1_000_000_000, "mode": "enforce"});
    json!({"id": format!("{id:032x}"), "lease_ms": 600_000, "on_lease_end": "charge", "charges": [charge]})
        .to_string()
}

async fn ask(socket: &mut TcpStream, tenant: u64, id: u128) {
    send(socket, &body(tenant, id)).await;
}

async fn send(socket: &mut TcpStream, body: &str) {
    let head = format!(
        "POST /v1/holds HTTP/1.1\r\nhost: counter\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + body).as_bytes()).await.unwrap();
    let mut answer = Vec::with_capacity(1024);
    loop {
        socket.read_buf(&mut answer).await.unwrap();
        let text = std::str::from_utf8(&answer).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        if body.len() == length.parse::<usize>().unwrap() {
            assert!(head.starts_with("HTTP/1.1 200") && body.contains("granted"), "{text}");
            return;
        }
    }
}

/// Holds a second, and how long each took.
async fn load(address: &str, round: u64) -> (f64, Vec<Duration>) {
    let began = Instant::now();
    let tasks = (0..CONNECTIONS).map(|connection| {
        let address = address.to_owned();
        tokio::spawn(async move {
            let mut socket = TcpStream::connect(&address).await.unwrap();
            socket.set_nodelay(true).unwrap();
            let mut all = Vec::new();
            let mut random = connection + 1 + round * CONNECTIONS;
            for number in 0..HOLDS / CONNECTIONS {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let id = u128::from(round * 10 + 1) << 64 | u128::from(number * CONNECTIONS + connection);
                let began = Instant::now();
                ask(&mut socket, (random >> 33) % TENANTS, id).await;
                all.push(began.elapsed());
            }
            all
        })
    });
    let mut all = Vec::new();
    for task in tasks.collect::<Vec<_>>() {
        all.extend(task.await.unwrap());
    }
    (HOLDS as f64 / began.elapsed().as_secs_f64(), all)
}

/// Calls a second without the service.
fn benchmark(server: &RedisServer, script: &str) -> f64 {
    let slot = "tg:{default/tenant=t__rand_int__}:";
    let keys = ["book", "due", "done"].map(|part| format!("{slot}{part}"));
    let args = [
        "take",
        "0000__rand_int__",
        "0",
        "600000",
        "0",
        "1",
        "tokens",
        "0",
        "60000",
        "1000000000",
        "-1",
        "1500",
        "1000000000",
        "0",
    ];
    let output = Command::new("redis-benchmark")
        .args(["-p", &server.port.to_string(), "-c", &CONNECTIONS.to_string(), "-n", &HOLDS.to_string()])
        .args(["-r", &TENANTS.to_string(), "--csv", "EVALSHA", script, "3"])
        .args(keys)
        .args(args)
        .output()
        .expect("redis-benchmark is not installed; `make test-redis` says how to get it");
    let text = String::from_utf8(output.stdout).unwrap();
    let last = text.lines().last().unwrap();
    let rate = last.rsplit("\",\"").nth(6).or_else(|| last.split("\",\"").nth(1)).unwrap();
    rate.trim_matches('"').parse().unwrap_or_else(|_| panic!("redis-benchmark said {text}"))
}

/// Two accounts and one open hold each: what Redis' memory grows by, keys and all.
async fn bytes(server: &RedisServer, address: &str) -> u64 {
    server.command(&["FLUSHALL", "SYNC"]);
    let used = || {
        let info: String = redis::from_redis_value(server.command(&["INFO", "memory"])).unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
        line.parse::<u64>().unwrap()
    };
    let before = used();
    let mut socket = TcpStream::connect(address).await.unwrap();
    for tenant in 0..TENANTS {
        let charge = |limit: &str, amount: u64, cost: u64| {
            json!({"account": format!("default/{limit}/tenant=t{tenant:06}"), "window": {"sliding": 60_000},
                "amount": amount, "cost": cost, "largest": amount, "mode": "enforce"})
        };
        let hold = json!({"id": format!("{:032x}", u128::from(tenant) << 100 | 7), "policy": 0xdead_beef_u32,
            "lease_ms": 600_000, "on_lease_end": "charge",
            "charges": [charge("tenant-tokens", 90_000_000, 1_500_000), charge("tenant-requests", 600, 1)]});
        send(&mut socket, &hold.to_string()).await;
    }
    (used() - before) / TENANTS
}
