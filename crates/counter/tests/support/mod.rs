//! Real Redis servers for tests: started on a free port, ended with the test.

#![allow(dead_code, reason = "not every test needs all of it")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tollgate_counter::store::redis::{RedisStore, Target};

/// What a test allows a step: it is not what is tested, and machines that run tests are slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Tries to find a port that nobody else takes meanwhile.
const TRIES: u32 = 20;

pub(crate) struct RedisServer {
    child: Child,
    pub(crate) port: u16,
    folder: PathBuf,
    more: Vec<String>,
}

impl RedisServer {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    fn of_cluster(more: &[&str]) -> Self {
        Self::make(more, |port| vec![format!("cluster-port {}", bus_port(port))])
    }

    /// With these lines of configuration as well.
    pub(crate) fn with(more: &[&str]) -> Self {
        Self::make(more, |_| Vec::new())
    }

    fn make(more: &[&str], of_port: impl Fn(u16) -> Vec<String>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tollgate-redis-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let more: Vec<String> = more.iter().map(|line| (*line).to_owned()).collect();
        for _ in 0..TRIES {
            let port = free_port();
            let more: Vec<String> = more.iter().cloned().chain(of_port(port)).collect();
            if let Some(child) = run(&folder, port, &more) {
                return Self { child, port, folder, more };
            }
        }
        panic!("redis-server does not start; `make test-redis` says what it needs");
    }

    pub(crate) fn target(&self) -> Target {
        Target::parse(&format!("redis://127.0.0.1:{}", self.port)).unwrap()
    }

    pub(crate) fn store(&self) -> RedisStore {
        RedisStore::new(self.target(), PATIENCE).unwrap()
    }

    pub(crate) fn store_with_clock_of_test(&self) -> RedisStore {
        RedisStore::with_clock_of_test(self.target(), PATIENCE).unwrap()
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// As the machine would end it.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// On the same port, with what is in its folder.
    pub(crate) fn restart(&mut self) {
        self.child = run(&self.folder, self.port, &self.more).expect("redis-server does not start again");
    }

    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    pub(crate) fn command(&self, words: &[&str]) -> redis::Value {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).unwrap();
        let mut connection = client.get_connection().unwrap();
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(word);
        }
        command.query(&mut connection).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Three masters, a third of the slots each.
pub(crate) struct RedisCluster {
    pub(crate) masters: Vec<RedisServer>,
}

impl RedisCluster {
    pub(crate) fn start() -> Self {
        let more = ["cluster-enabled yes", "cluster-node-timeout 2000", "cluster-require-full-coverage no"];
        let masters: Vec<RedisServer> = (0..3).map(|_| RedisServer::of_cluster(&more)).collect();
        for (master, slots) in masters.iter().zip([("0", "5460"), ("5461", "10922"), ("10923", "16383")]) {
            master.command(&["CLUSTER", "ADDSLOTSRANGE", slots.0, slots.1]);
        }
        for other in &masters[1..] {
            let (port, bus) = (other.port.to_string(), bus_port(other.port).to_string());
            masters[0].command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        let cluster = Self { masters };
        cluster.settle();
        cluster
    }

    /// Until every node knows every slot.
    pub(crate) fn settle(&self) {
        for master in &self.masters {
            let knows_all = || {
                let info: String = redis::from_redis_value(master.command(&["CLUSTER", "INFO"])).unwrap();
                info.contains("cluster_state:ok")
                    && info.contains("cluster_slots_ok:16384")
                    && info.contains("cluster_size:3")
            };
            while !knows_all() {
                std::thread::yield_now();
            }
        }
    }

    pub(crate) fn target(&self) -> Target {
        let nodes: Vec<String> =
            self.masters.iter().map(|master| format!("127.0.0.1:{}", master.port)).collect();
        Target::parse(&format!("redis+cluster://{}", nodes.join(","))).unwrap()
    }

    pub(crate) fn store_with_clock_of_test(&self) -> RedisStore {
        RedisStore::with_clock_of_test(self.target(), PATIENCE).unwrap()
    }
}

/// Of a cluster's node: 10,000 above its own would be out of range for half of all free ports.
fn bus_port(port: u16) -> u16 {
    if port < 55_000 { port + 10_000 } else { port - 10_000 }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// Until it says that it is ready; nothing if it ends before.
fn run(folder: &Path, port: u16, more: &[String]) -> Option<Child> {
    let mut lines = vec![
        format!("port {port}"),
        "bind 127.0.0.1".to_owned(),
        "save \"\"".to_owned(),
        format!("dir {}", folder.display()),
    ];
    lines.extend(more.iter().cloned());
    let file = folder.join("redis.conf");
    fs::write(&file, lines.join("\n")).unwrap();
    let mut child = Command::new("redis-server")
        .arg(&file)
        .stdout(Stdio::piped())
        .spawn()
        .expect("redis-server is not installed; `make test-redis` says how to get it");
    let mut log = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while log.read_line(&mut line).unwrap() > 0 {
        if line.contains("Ready to accept connections") {
            // Nobody reads on, and a full pipe would stop it.
            std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
            return Some(child);
        }
        line.clear();
    }
    child.wait().unwrap();
    None
}
