"""What a budget that gateways share costs through Envoy: the filter, the counter service and Redis together.

As benches/proxy.py: ratios within one run, peers in turn, medians over the rounds. CPU is that of every process
that a request passes: Envoy, and for the shared budget `tollgate serve` and redis-server as well.

    make bench-counter        # 5 rounds
    make bench-counter R=9
"""

import contextlib
import os
import random
import statistics
import sys

import proxy

ROOT = proxy.ROOT
sys.path.insert(0, str(ROOT / "tests"))

import gateway  # noqa: E402

PEERS = ("plain", "local", "shared")

SHARED = {**proxy.POLICY, "store": {"counter": {"target": "tollgate_counter", "timeout": "2s"}}}

BUSY = ("--connections", "16", "--seconds", "3")
ALONE = ("--connections", "1", "--seconds", "3")


def main():
    rounds = max(proxy.FEWEST_ROUNDS, int(sys.argv[1]) if len(sys.argv) > 1 else 5)
    proxy.OUT.mkdir(parents=True, exist_ok=True)
    body = [proxy.Bodies(random.Random(20261130)).file("2k.json", 2048)]
    with contextlib.ExitStack() as running:
        def started(process):
            running.callback(process.stop)
            return process

        stub = started(gateway.Stub("--threads", "1"))
        redis = started(gateway.Redis(fsync="everysec"))
        service = started(gateway.Counter(redis.url)).wait_until_ready()
        peers = {
            "plain": Peer(started(proxy.envoy(stub, "plain"))),
            "local": Peer(started(proxy.envoy(stub, "tollgate"))),
            "shared": Peer(started(gateway.Envoy(stub.port, concurrency=1, policy=SHARED, counter_port=service.port)
                                   .wait_until_ready()), service, redis),
        }
        measured = [one_round(peers, body, number) for number in range(rounds)]
        avoided = sum(value for (name, _), value in peers["shared"].envoy.metrics().items()
                      if name == "tollgate_outage_requests_total")
    table = markdown(measured, rounds, avoided)
    print(table)
    (proxy.OUT / "counter.md").write_text(table + "\n")


class Peer:
    def __init__(self, envoy, *behind):
        self.envoy, self.behind = envoy, behind

    def load(self, body, flags):
        before = [process.cpu_seconds() for process in self.behind]
        report = proxy.load(self.envoy, body, *flags)
        report["behind"] = [process.cpu_seconds() - begun for process, begun in zip(self.behind, before)]
        report["cpu"] += sum(report["behind"])
        return report


def one_round(peers, body, number):
    turn = number % len(PEERS)
    found = {}
    for name in PEERS[turn:] + PEERS[:turn]:
        peers[name].load(body, ("--requests", "50", "--connections", "4"))
        busy, alone = (peers[name].load(body, flags) for flags in (BUSY, ALONE))
        found[name] = {"cpu": proxy.cpu_per_request(busy),
                       "behind": [each * 1e6 / busy["count"] for each in busy["behind"]], "rate": busy["count"] / 3,
                       "p50": alone["latency_us"]["p50"], "p99": alone["latency_us"]["p99"]}
    return found


FIGURES = (
    ("CPU a request, 16 connections", "cpu", "µs", 2.8),
    ("requests a second, 16 connections", "rate", "/s", None),
    ("p50, one connection", "p50", "µs", 2),
    ("p99, one connection", "p99", "µs", None),
)


def markdown(measured, rounds, avoided):
    lines = [f"One worker, 2 KB body, two limits, {rounds} rounds in turn; medians, ratios of the same round "
             f"(lowest–highest). Load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores. "
             f"{avoided:.0f} requests were decided without the service.", "",
             "| | " + " | ".join(PEERS) + " | shared to plain |", "|" + " --- |" * (len(PEERS) + 2)]
    for name, key, unit, limit in FIGURES:
        ratios = [one["shared"][key] / one["plain"][key] for one in measured]
        cells = [f"{statistics.median(one[peer][key] for one in measured):.0f} {unit}" for peer in PEERS]
        said = f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f}–{max(ratios):.2f})" + proxy.target(limit)
        lines.append("| " + " | ".join([name, *cells, said]) + " |")
    service, redis = (statistics.median(one["shared"]["behind"][place] for one in measured) for place in range(2))
    lines += ["", f"Of the CPU of `shared`, the service takes {service:.0f} µs and Redis {redis:.0f} µs a request."]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
