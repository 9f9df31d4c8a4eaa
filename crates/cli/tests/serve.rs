//! `tollgate serve` as a process: it says where it listens, answers, and ends when asked.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

struct Served {
    child: Child,
    address: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command.arg("serve").args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    for name in ["TOLLGATE_TOKEN", "TOLLGATE_ADMIN_TOKEN", "TOLLGATE_STORE", "TOLLGATE_LISTEN"] {
        command.env_remove(name);
    }
    command
}

fn serve(command: &mut Command) -> Served {
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address =
        line.trim().strip_prefix("listening on http://").unwrap_or_else(|| panic!("it said {line:?}"));
    Served { address: address.to_owned(), child }
}

fn ask(address: &str, request: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(request.replace('\n', "\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn it_serves_until_it_is_asked_to_end() {
    for signal in ["-TERM", "-INT"] {
        let mut served = serve(&mut command(&["--listen", "127.0.0.1:0"]));
        let answer = ask(&served.address, "GET /readyz HTTP/1.1\nhost: a\nconnection: close\n\n");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        // A connection that nothing is asked on does not keep it from ending.
        let idle = TcpStream::connect(&served.address).unwrap();
        let sent = Command::new("kill").args([signal, &served.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        assert!(served.child.wait().unwrap().success(), "{signal}");
        drop(idle);
    }
}

#[test]
fn it_asks_for_its_tokens() {
    let mut command = command(&["--listen", "127.0.0.1:0"]);
    let served = serve(command.env("TOLLGATE_TOKEN", "0123456789abcdef"));
    let ask = |token: &str| {
        let head = format!("POST /v1/standings HTTP/1.1\nhost: a\nconnection: close\n{token}");
        ask(
            &served.address,
            &format!("{head}content-type: application/json\ncontent-length: 16\n\n{{\"accounts\": []}}"),
        )
    };
    assert!(ask("").starts_with("HTTP/1.1 401"));
    assert!(ask("authorization: Bearer 0123456789abcdeX\n").starts_with("HTTP/1.1 401"));
    let answer = ask("authorization: Bearer 0123456789abcdef\n");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn what_cannot_be_is_told_before_it_starts() {
    let taken = serve(&mut command(&["--listen", "127.0.0.1:0"]));
    for (args, words) in [
        (
            &["--listen", "0.0.0.0:0"][..],
            &["TOLLGATE_TOKEN: must be set", "TOLLGATE_ADMIN_TOKEN: must be set"][..],
        ),
        (&["--store", "redis://:secret@h:port"], &["--store: "]),
        (&["--listen", &taken.address], &["cannot be listened on"]),
    ] {
        let output = command(args).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success());
        for word in words {
            assert!(said.contains(word), "{word} is not in {said}");
        }
        assert!(!said.contains("secret"));
    }
}

/// A Redis that is away keeps nobody from starting: it may come, and readiness tells.
#[test]
fn it_starts_while_redis_is_away() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let store = format!("redis://127.0.0.1:{port}");
    let served = serve(&mut command(&["--listen", "127.0.0.1:0", "--store", &store]));
    let answer = ask(&served.address, "GET /healthz HTTP/1.1\nhost: a\nconnection: close\n\n");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let answer = ask(&served.address, "GET /readyz HTTP/1.1\nhost: a\nconnection: close\n\n");
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
}
