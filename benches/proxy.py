"""What Tollgate costs beside plain Envoy and beside a module that does nothing.

Only ratios within one run mean anything: the peers take turns, round after round, in rotating
order, and each figure is the median over the rounds of that round's ratio. Nothing here fails on a
figure; the table puts the targets beside what was measured.

    make bench            # 5 rounds
    make bench R=9
"""

import contextlib
import json
import os
import pathlib
import pydoc_data.topics
import random
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import gateway  # noqa: E402

FEWEST_ROUNDS = 4
NOOP = ROOT / "target" / "wasm32-wasip1" / "release" / "tollgate_noop.wasm"
LOAD = ROOT / "target" / "release" / "tollgate-load"
OUT = ROOT / "target" / "bench"

PEERS = {"plain": None, "no-op": NOOP, "tollgate": gateway.MODULE}

PLENTY = 2 * 10**12
"""Tokens: no request of a benchmark is refused."""

POLICY = gateway.policy(
    {"name": "tenant-tokens", "per": ["tenant"], "unit": "tokens", "window": {"sliding": "60s"}, "amount": PLENTY},
    {"name": "tenant-requests", "per": ["tenant"], "unit": "requests", "window": {"fixed": "60s"}, "amount": PLENTY},
)

TENANTS = 100


def main():
    rounds = max(FEWEST_ROUNDS, int(sys.argv[1]) if len(sys.argv) > 1 else 5)
    OUT.mkdir(parents=True, exist_ok=True)
    bodies = Bodies(random.Random(20261130))
    table = Table(rounds)
    with contextlib.ExitStack() as running:
        stub = gateway.Stub("--threads", "1")
        running.callback(stub.stop)
        start_figures(table, stub, rounds)
        envoys = {}
        for name in PEERS:
            envoys[name] = envoy(stub, name)
            running.callback(envoys[name].stop)
        for scenario in scenarios(bodies):
            measured = [one_round(scenario, envoys, number) for number in range(rounds)]
            scenario.tell(table, measured)
            print(f"measured: {scenario.name}", file=sys.stderr, flush=True)
    print(table.markdown())
    (OUT / "proxy.md").write_text(table.markdown() + "\n")


def envoy(stub, peer, concurrency=1):
    process = gateway.Envoy(stub.port, concurrency=concurrency, policy=POLICY, module=PEERS[peer])
    return process.wait_until_ready()


def one_round(scenario, envoys, number):
    """{peer: what was measured}, the peers in an order of this round's own."""
    names = list(envoys)
    names = names[number % len(names):] + names[: number % len(names)]
    return {name: scenario.measure(envoys[name]) for name in names}


# --- the load


class Bodies:
    """Chat requests of given sizes on English prose, from the documentation that comes with Python."""

    def __init__(self, seeded):
        topics = pydoc_data.topics.topics
        self._paragraphs = [part for name in sorted(topics) for part in topics[name].split("\n\n") if len(part) > 40]
        self._seeded = seeded

    def file(self, name, size, **parts):
        text = ""
        while len(text) < size:
            text += self._seeded.choice(self._paragraphs) + "\n\n"
        chat = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": ""}], "max_tokens": 100, **parts}
        # Escapes count too: cut until the whole body is of the size asked for.
        chat["messages"][0]["content"] = text[: max(0, size - len(json.dumps(chat)))]
        while len(json.dumps(chat)) > size:
            excess = len(json.dumps(chat)) - size
            chat["messages"][0]["content"] = chat["messages"][0]["content"][:-max(1, excess // 2)]
        path = OUT / name
        path.write_text(json.dumps(chat))
        return path


def load(envoy_process, bodies, *flags, script=None):
    """The report of the load generator, with the proxy's CPU time in it."""
    command = [str(LOAD), f"127.0.0.1:{envoy_process.port}", "--tenants", str(TENANTS), *flags]
    for path in bodies:
        command += ["--body", str(path)]
    for name, value in (script or {}).items():
        command += ["--header", f"x-stub-{name}: {value}"]
    before = envoy_process.cpu_seconds()
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    report["cpu"] = envoy_process.cpu_seconds() - before
    bad = {status: count for status, count in report["statuses"].items() if status != "200"}
    if bad or report["errors"]:
        print(f"not all were answered: {bad}, {report['errors']} errors", file=sys.stderr)
    return report


class Scenario:
    """A load, and the figures read from it: (name, how to read it, target or None, unit)."""

    def __init__(self, name, bodies, flags, figures, script=None):
        self.name, self.bodies, self.flags, self.figures, self.script = name, bodies, flags, figures, script

    def measure(self, envoy_process):
        load(envoy_process, self.bodies, "--requests", "50", "--connections", "4", script=self.script)
        return load(envoy_process, self.bodies, *self.flags, script=self.script)

    def tell(self, table, measured):
        for figure in self.figures:
            values = {peer: [figure.read(one[peer]) for one in measured] for peer in PEERS}
            figure.tell(table, self.name, values)


class Ratio:
    """Targets: at most so many times plain Envoy, at most so many times the no-op module."""

    def __init__(self, what, read, unit, plain=None, noop=None):
        self.what, self.read, self.unit, self.targets = what, read, unit, {"plain": plain, "no-op": noop}

    def tell(self, table, scenario, values):
        ratios = {peer: [ours / theirs for ours, theirs in zip(values["tollgate"], values[peer])]
                  for peer in self.targets}
        said = {peer: f"**{statistics.median(of):.2f}** ({min(of):.2f}–{max(of):.2f})" + target(self.targets[peer])
                for peer, of in ratios.items()}
        table.row(f"{scenario}: {self.what}", *(f"{statistics.median(values[peer]):.0f} {self.unit}" for peer in PEERS),
                  said["plain"], said["no-op"])


class Added:
    """Target: at most so much more than plain Envoy."""

    def __init__(self, what, read, unit, plain):
        self.what, self.read, self.unit, self.limit = what, read, unit, plain

    def tell(self, table, scenario, values):
        said = []
        for peer, limit in (("plain", self.limit), ("no-op", None)):
            added = [ours - theirs for ours, theirs in zip(values["tollgate"], values[peer])]
            said.append(f"**{statistics.median(added):+.0f} {self.unit}** ({min(added):+.0f} – {max(added):+.0f})"
                        + target(limit, f" {self.unit}"))
        table.row(f"{scenario}: {self.what}", *(f"{statistics.median(values[peer]):.0f} {self.unit}" for peer in PEERS),
                  *said)


def target(limit, unit=""):
    return "" if limit is None else f", target ≤ {limit}{unit}"


def cpu_per_request(report):
    return report["cpu"] * 1e6 / report["count"]


def cpu_per_chunk(report):
    return report["cpu"] * 1e6 / report["chunk_delay_us"]["count"]


def scenarios(bodies):
    small = [bodies.file("2k.json", 2048)]
    large = [bodies.file(f"128k-{number}.json", 128 * 1024) for number in range(48)]
    stream = [bodies.file("stream.json", 2048, stream=True)]
    busy = ("--connections", "16", "--seconds", "3")
    cpu = lambda **targets: Ratio("CPU a request", cpu_per_request, "µs", **targets)  # noqa: E731
    yield Scenario("2 KB, 16 connections", small, busy, [cpu(plain=1.8, noop=1.6)])
    yield Scenario("2 KB, 100 a second", small, ("--connections", "8", "--rate", "100", "--seconds", "3"), [
        Added("p50", lambda report: report["latency_us"]["p50"], "µs", plain=250),
        Added("p99", lambda report: report["latency_us"]["p99"], "µs", plain=None),
    ])
    yield Scenario("128 KB, the same body", large[:1], busy, [cpu(plain=4)])
    yield Scenario("128 KB, every body different", large, busy, [cpu(plain=4)])
    streaming = [
        Ratio("first byte p50", lambda report: report["first_byte_us"]["p50"], "µs", plain=1.4),
        Ratio("delay of a chunk p50", lambda report: report["chunk_delay_us"]["p50"], "µs", plain=1.2),
        Ratio("delay of a chunk p99", lambda report: report["chunk_delay_us"]["p99"], "µs"),
        Ratio("CPU a chunk", cpu_per_chunk, "µs", plain=1.6),
    ]
    yield Scenario("16 streams, 20 chunks 10 ms apart", stream, busy, streaming,
                   {"stamp": "ns", "chunks": 20, "chunk-delay-ms": 10})
    yield Scenario("4 streams, 200 chunks 1 ms apart", stream, ("--connections", "4", "--seconds", "3"), streaming,
                   {"stamp": "ns", "chunks": 200, "chunk-delay-ms": 1})


# --- starting


MANY = 4
"""Workers, to see what one more costs."""


def start_figures(table, stub, rounds):
    ready, one, many = ({peer: [] for peer in PEERS} for _ in range(3))
    for number in range(rounds):
        names = list(PEERS)
        for peer in names[number % 3:] + names[: number % 3]:
            for workers, resident in ((1, one), (MANY, many)):
                begun = time.monotonic()
                process = envoy(stub, peer, workers)
                if workers == 1:
                    ready[peer].append((time.monotonic() - begun) * 1000)
                warm = [OUT / "warm.json"]
                warm[0].write_text(json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": "hi"}]}))
                load(process, warm, "--requests", "200", "--connections", "32")
                resident[peer].append(process.resident_bytes() / 2**20)
                process.stop()
    Added("until ready", None, "ms", plain=None).tell(table, "start", ready)
    table.note("target for the time until ready: ≤ 100 ms later than with the no-op module")
    extra = {peer: [(b - a) / (MANY - 1) for a, b in zip(one[peer], many[peer])] for peer in PEERS}
    medians = {peer: statistics.median(of) for peer, of in extra.items()}
    table.row("resident memory of one more worker", *(f"{medians[peer]:.1f} MiB" for peer in PEERS),
              f"**{medians['tollgate'] - medians['plain']:+.1f} MiB**, target ≤ 8 MiB",
              f"{medians['tollgate'] - medians['no-op']:+.1f} MiB")
    size = {peer: os.path.getsize(path) / 1e6 if path else 0 for peer, path in PEERS.items()}
    table.row("module", "–", f"{size['no-op']:.2f} MB", f"**{size['tollgate']:.2f} MB**, target ≤ 6 MB", "–", "–")


class Table:
    def __init__(self, rounds):
        self._rounds, self._rows, self._notes = rounds, [], []

    def row(self, *cells):
        self._rows.append(cells)

    def note(self, text):
        self._notes.append(text)

    def markdown(self):
        lines = [f"One worker, {self._rounds} rounds in turn; medians, ratios of the same round (lowest–highest). "
                 f"Load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores.", "",
                 "| | plain | no-op | tollgate | tollgate to plain | tollgate to no-op |", "|" + " --- |" * 6]
        lines += ["| " + " | ".join(cells) + " |" for cells in self._rows]
        return "\n".join([*lines, "", *self._notes])


if __name__ == "__main__":
    main()
