"""Mixed good and hostile traffic on a real Envoy for as long as wanted, and what must hold at the end.

    make soak             # 30 minutes
    make soak TIME=60

No VM is reloaded, memory stays level, every account equals the replay of what the provider answered, and nothing
stays held. What the replay says is known for each request by itself: who was let through pays what the stub was told
to report, who left pays what was held or less.
"""

import collections
import json
import pathlib
import random
import socket
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import gateway  # noqa: E402
from client import session  # noqa: E402

MINUTES_30 = 1800
THREADS = 6
TENANTS = 24
SEED = 20261130
AMOUNT = 4 * 10**12
"""Nobody is refused for budget but the poor, so that what was let through is known."""

WARM = 0.25
"""The part of the time after which memory must be level."""
ROOM = 16 * 2**20
"""Bytes by which it may still grow: fragments of the heap, not a leak of half an hour."""

POLICY = gateway.policy(
    gateway.tokens({"rich": AMOUNT, "poor": 3000}),
    gateway.requests({"rich": AMOUNT, "poor": AMOUNT}),
    subject={"tenant": {"from": [{"header": "x-tenant-id"}], "default": "anonymous"},
             "tier": {"from": [{"header": "x-tier"}], "default": "rich"}},
    body={"max": 262144},
)


class Account:
    """What one tenant must have been charged: exactly where all answers were whole, else between two bounds."""

    def __init__(self):
        self.least = self.most = self.requests = self.requests_unsure = 0

    def pays(self, least, most=None):
        self.least += least
        self.most += least if most is None else most
        self.requests += 1


class Soak:
    def __init__(self, seconds):
        self.until = time.monotonic() + seconds
        self.seconds = seconds
        self.accounts = collections.defaultdict(Account)
        self.counts = collections.Counter()
        self.lock = threading.Lock()
        self.faults = []
        self.stub = gateway.Stub()
        self.envoy = gateway.Envoy(self.stub.port, policy=POLICY).wait_until_ready()

    def run(self):
        threads = [threading.Thread(target=self.client, args=(number,)) for number in range(THREADS)]
        for thread in threads:
            thread.start()
        resident = []
        while any(thread.is_alive() for thread in threads):
            time.sleep(1)
            resident.append(self.envoy.resident_bytes())
            # The stub keeps all that it has seen.
            gateway.get(f"{self.stub.url}/stub/log", method="DELETE")
        for thread in threads:
            thread.join()
        self.check(resident)

    def client(self, number):
        chosen = random.Random(SEED + number)
        with session() as http:
            while time.monotonic() < self.until:
                act = chosen.choice(ACTS)
                # A tenant belongs to one thread, so that its account is this thread's to foretell.
                tenant = f"tenant-{chosen.randrange(TENANTS) * THREADS + number}"
                try:
                    act(self, http, chosen, tenant)
                except Exception as why:  # noqa: BLE001
                    with self.lock:
                        self.faults.append(f"{act.__name__}: {why!r}")
                with self.lock:
                    self.counts[act.__name__] += 1

    # --- what a client does

    def good(self, http, chosen, tenant):
        path, content = chosen.choice(APIS)
        content = {**content, "stream": chosen.random() < 0.5 and path != "/v1/embeddings"}
        paid, output = chosen.randrange(1, 900), chosen.randrange(0, 50)
        fault = chosen.choice(["none", "usage-then-event", "usage-every-chunk", "no-done", "split-utf8", "trailers"])
        answer = http.post(self.envoy.url + path, json=content, headers={
            "x-tenant-id": tenant, "x-stub-prompt-tokens": str(paid), "x-stub-completion-tokens": str(output),
            "x-stub-fault": fault, "x-stub-piece": str(chosen.choice([0, 1, 7, 100]))})
        assert answer.status_code == 200, (path, answer.status_code, answer.text[:200])
        with self.lock:
            # Where usage did not come, or spoke of less than passed, what was seen is charged.
            embeds = path == "/v1/embeddings"
            self.accounts[tenant].pays(paid + (0 if embeds else output), paid + (0 if embeds else max(output, 64)))

    def fails(self, http, chosen, tenant):
        path, content = chosen.choice(APIS)
        status = chosen.choice([400, 429, 500, 503])
        answer = http.post(self.envoy.url + path, json=content,
                           headers={"x-tenant-id": tenant, "x-stub-status": str(status)})
        assert answer.status_code == status, answer.status_code
        with self.lock:
            self.accounts[tenant].pays(0)

    def resets(self, http, chosen, tenant):
        path, content = chosen.choice(APIS)
        fault = chosen.choice(["reset-before", "reset-after-headers"])
        try:
            answer = http.post(self.envoy.url + path, json=content,
                               headers={"x-tenant-id": tenant, "x-stub-fault": fault})
            assert answer.status_code in (200, 502, 503), answer.status_code
        except OSError:
            pass
        except Exception as why:  # noqa: BLE001
            assert "peer closed" in str(why) or "disconnected" in str(why), why
        with self.lock:
            self.accounts[tenant].pays(0, 64)

    def leaves(self, http, chosen, tenant):
        path, content = APIS[0]
        body = json.dumps({**content, "stream": True}).encode()
        with socket.create_connection(("127.0.0.1", self.envoy.port), timeout=10) as wire:
            wire.sendall(f"POST {path} HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n"
                         f"x-tenant-id: {tenant}\r\nx-stub-chunks: 50\r\nx-stub-chunk-delay-ms: 5\r\n"
                         f"content-length: {len(body)}\r\n\r\n".encode() + body)
            assert wire.recv(100).startswith(b"HTTP/1.1 200")
        with self.lock:
            self.accounts[tenant].pays(0, 200)

    def hostile(self, http, chosen, tenant):
        path, _ = chosen.choice(APIS)
        answer = http.post(self.envoy.url + path, content=chosen.choice(HOSTILE)(chosen),
                           headers={"x-tenant-id": f"hostile-{tenant}", "content-type": "application/json"})
        assert answer.status_code in (200, 400, 404, 413, 415, 422), answer.status_code

    def poor(self, http, chosen, tenant):
        path, content = APIS[0]
        answer = http.post(self.envoy.url + path, json=content,
                           headers={"x-tenant-id": f"poor-{chosen.randrange(100_000)}", "x-tier": "poor"})
        assert answer.status_code in (200, 429), answer.status_code

    # --- what must hold

    def check(self, resident):
        wrong = list(self.faults[:20])
        for tenant, expected in sorted(self.accounts.items()):
            account = self.envoy.settled(tenant, within=5)
            if account["held"] or not expected.least <= account["spent"] <= expected.most:
                wrong.append(f"{tenant}: {account} is not between {expected.least} and {expected.most}")
            if self.envoy.budget(tenant)["tenant-requests"]["spent"] != expected.requests:
                wrong.append(f"{tenant}: {self.envoy.budget(tenant)['tenant-requests']}, {expected.requests} were made")
        log = self.envoy.envoy_log()
        for word in ("panicked", "proxy_on", "the host failed", "Plugin configured to fail"):
            if word in log:
                wrong.append(f"Envoy's log says {word!r}")
        reloads = self.envoy.stat("wasm.tollgate.vm_reload_success")
        if reloads:
            wrong.append(f"{reloads} VMs were reloaded")
        level, last = resident[int(len(resident) * WARM)], max(resident[-10:])
        print(f"{sum(self.counts.values())} requests in {self.seconds} s: {dict(self.counts)}")
        print(f"resident memory: {level / 2**20:.1f} MiB once warm, {last / 2**20:.1f} MiB at the end")
        print(f"{len(self.accounts)} accounts compared with their replay")
        if last > level + ROOM:
            wrong.append("memory grew")
        self.envoy.stop()
        self.stub.stop()
        for line in wrong:
            print("WRONG:", line)
        sys.exit(1 if wrong else 0)


CHAT = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 100}
APIS = [
    ("/v1/chat/completions", CHAT),
    ("/v1/completions", {"model": "gpt-4o-mini", "prompt": "Say hello.", "max_tokens": 100}),
    ("/v1/embeddings", {"model": "gpt-4o-mini", "input": ["one", "two"]}),
    ("/v1/responses", {"model": "gpt-4o-mini", "input": "Say hello.", "max_output_tokens": 100}),
    ("/v1/messages", {**CHAT, "model": "claude-stub"}),
]

HOSTILE = [
    lambda chosen: chosen.randbytes(chosen.randrange(2000)),
    lambda chosen: b"[" * chosen.randrange(1, 100_000),
    lambda chosen: b'{"messages":' + b'[{"content":' * chosen.randrange(1, 10_000),
    lambda chosen: json.dumps({**CHAT, "max_tokens": chosen.choice([-1, 0, 1e300, "many", None, [], 2**64])}).encode(),
    lambda chosen: json.dumps({**CHAT, "messages": [{"role": "user", "content": " " * 200_000}]}).encode(),
    lambda chosen: json.dumps({**CHAT, "messages": [{"role": "user", "content": "a" * 200_000}]}).encode(),
    lambda chosen: b" " * 300_000,
    lambda chosen: b'{"model":"m","model":"n","messages":[],"messages":7}',
    lambda chosen: json.dumps(CHAT).encode()[: chosen.randrange(1, 90)],
]

ACTS = [Soak.good] * 8 + [Soak.fails, Soak.resets, Soak.leaves, Soak.hostile, Soak.hostile, Soak.poor]


if __name__ == "__main__":
    Soak(int(sys.argv[1]) if len(sys.argv) > 1 else MINUTES_30).run()
