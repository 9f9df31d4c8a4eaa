"""Budgets at the counter service: two gateways, one budget, and what is left of it when something breaks."""

import asyncio
import contextlib
import itertools
import json
import signal
import threading
import urllib.error

import pytest

import gateway
from client import Burst, body, chat, prompt_estimate, session, until
from gateway import Counter, Faulty, Redis, eventually, policy, tokens

LIMIT, HOLD, ADMITTED, COST = 90_000, 1_000, 90, 600

_gates = (f"counter-gate-{number}" for number in itertools.count())


def counted(limit=None, **store):
    counter = {"target": "tollgate_counter", "timeout": "5s", "gateways": 2, **store}
    return policy(limit or tokens(LIMIT), store={"counter": counter})


@pytest.fixture
def counters():
    """Services that are stopped, whatever happens."""
    started = []

    def start(store="memory"):
        started.append(Counter(store).wait_until_ready())
        return started[-1]

    def restart(service):
        started.append(service.restarted())
        return started[-1]

    start.again = restart
    yield start
    for service in started:
        service.stop()


@pytest.fixture
def redis():
    servers = [Redis()]
    servers[0].again = lambda: servers.append(servers[0].restarted())
    yield servers[0]
    for each in servers:
        each.stop()


@pytest.fixture
def gateways(envoys):
    """Envoys of their own, since what they know of a service outlives a test."""
    return lambda count, rules, service, **options: [
        envoys(rules, fresh=True, counter_port=service.port, **options) for _ in range(count)]


@pytest.fixture(scope="module")
def content(envoys):
    """A body whose prompt and output are together estimated at HOLD tokens."""
    envoy = envoys(policy(tokens(LIMIT)))
    return json.dumps(body(max_tokens=HOLD - prompt_estimate(envoy.url, "probe"))).encode()


def ask(envoy, tenant, content, **words):
    return chat(envoy.url, tenant, content, prompt_tokens=400, completion_tokens=200, **words)


def together(pair, stub, tenant, total, content):
    """So many requests, an equal part at each gateway, none of them answered before all are decided."""
    gate = next(_gates)

    async def run():
        async with contextlib.AsyncExitStack() as stack:
            bursts = [await stack.enter_async_context(Burst(envoy.url, total)) for envoy in pair]
            tasks = []
            for burst in bursts:
                tasks += await burst.many(total // len(pair), tenant, content, gate=gate, prompt_tokens=400,
                                          completion_tokens=200)
            await until(lambda: sum(task.done() for task in tasks) + stub.waiting(gate) == total)
            stub.open(gate)
            return await asyncio.gather(*tasks)

    return asyncio.run(run())


def statuses(answers):
    return [answer.status_code for answer in answers]


def settles(service, tenant, spent, within=10):
    wanted = {"held": 0, "spent": spent}
    eventually(lambda: account(service, tenant) == wanted, within)
    assert account(service, tenant) == wanted


def account(service, tenant):
    """Nothing while the service or its store is away."""
    try:
        return service.account(tenant)
    except (OSError, urllib.error.URLError):
        return None


@pytest.mark.parametrize("store", ["memory", "redis"])
def test_two_gateways_admit_exactly_what_the_limit_holds(gateways, counters, redis, stub, content, tenant, store):
    service = counters(redis.url if store == "redis" else "memory")
    pair = gateways(2, counted(), service)
    for number in range(3):
        found = statuses(together(pair, stub, f"{tenant}-{number}", 400, content))
        assert (found.count(200), found.count(429)) == (ADMITTED, 400 - ADMITTED), sorted(set(found))
        settles(service, f"{tenant}-{number}", ADMITTED * COST)


def test_no_more_is_admitted_when_every_tenth_call_fails(gateways, counters, redis, stub, content, tenant):
    """Where nothing passes without the service's word, the others still get exactly what there is."""
    service = counters(redis.url)
    faulty = Faulty(service.port)
    try:
        pair = gateways(2, counted(on_outage="deny"), faulty)
        for number in range(3):
            failed = faulty.failed()
            found = statuses(together(pair, stub, f"{tenant}-{number}", 400, content))
            assert found.count(200) == ADMITTED and set(found) == {200, 429, 503}, sorted(set(found))
            assert faulty.failed() > failed
            settles(service, f"{tenant}-{number}", ADMITTED * COST, within=30)
    finally:
        faulty.stop()


def test_a_token_is_asked_for_and_a_wrong_one_is_an_outage(gateways, counters, content, tenant):
    service = counters()
    wrong, = gateways(1, counted(on_outage="deny"), service, token="a-wrong-token-of-the-gateways")
    right, = gateways(1, counted(on_outage="deny"), service)
    assert ask(wrong, tenant, content).status_code == 503
    assert ask(right, tenant, content).status_code == 200


@pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])
def test_an_answer_is_settled_at_the_service_within_a_second(gateways, counters, tenant, stream):
    service = counters()
    envoy, = gateways(1, counted(), service)
    answer = chat(envoy.url, tenant, body(max_tokens=500, stream=stream), prompt_tokens=10, completion_tokens=20)
    assert answer.status_code == 200 and "x-tollgate-outage" not in answer.headers
    assert int(answer.headers["x-tokenlimit-remaining"]) < LIMIT - 500
    settles(service, tenant, 30, within=1)
    assert envoy.budget(tenant)["tenant-tokens"]["spent"] == 30
    calls = ("tollgate_counter_calls_total", (("kind", "holds"), ("outcome", "answered")))
    found = eventually(lambda: envoy.metrics().get(calls))
    assert found == 1, envoy.metrics()
    durations = ("tollgate_counter_call_milliseconds_count", (("kind", "holds"),))
    assert eventually(lambda: envoy.metrics().get(durations)) == 1, envoy.metrics()


@pytest.mark.parametrize("fault", ["gone", "hangs", "redis-hangs"])
def test_a_service_that_breaks_costs_no_client_an_error(gateways, counters, redis, stub, content, tenant, fault):
    """Under `local` each gateway admits its half at most, and all of it is charged when the service is back."""
    service = counters(redis.url)
    pair = gateways(2, counted(timeout="200ms"), service)
    before = statuses(together(pair, stub, tenant, 20, content))
    spent = before.count(200) * COST
    match fault:
        case "gone":
            service.kill()
        case "hangs":
            service.signal(signal.SIGSTOP)
        case "redis-hangs":
            redis.signal(signal.SIGSTOP)
    during = together(pair, stub, tenant, 200, content)
    admitted = [answer for answer in during if answer.status_code == 200]
    assert set(statuses(during)) == {200, 429}, sorted(set(statuses(during)))
    assert len(admitted) == ADMITTED, "half of the limit at each of two gateways"
    assert {answer.headers["x-tollgate-outage"] for answer in admitted} == {"local"}
    match fault:
        case "gone":
            service = counters.again(service)
        case "hangs":
            service.signal(signal.SIGCONT)
        case "redis-hangs":
            redis.signal(signal.SIGCONT)
    settles(service, tenant, spent + len(admitted) * COST, within=30)


def test_redis_killed_under_load_loses_nothing_and_charges_nothing_twice(
        gateways, counters, redis, stub, content, tenant):
    service = counters(redis.url)
    pair = gateways(2, counted(timeout="1s"), service)
    before = statuses(together(pair, stub, tenant, 20, content))
    redis.kill()
    during = statuses(together(pair, stub, tenant, 40, content))
    assert set(before + during) <= {200, 429}
    redis.again()
    settles(service, tenant, (before + during).count(200) * COST, within=30)


def test_a_gateway_that_is_killed_leaves_its_holds_to_their_leases(gateways, counters, redis, stub, content, tenant):
    service = counters(redis.url)
    envoy, = gateways(1, {**counted(), "hold": {"lease": "3s", "on_lease_end": "charge"}}, service)
    gate = next(_gates)

    def orphan():
        # Whoever calls a gateway that is killed gets some error.
        with contextlib.suppress(Exception):
            ask(envoy, tenant, content, gate=gate)

    thread = threading.Thread(target=orphan)
    thread.start()
    assert eventually(lambda: service.account(tenant) == {"held": HOLD, "spent": 0}), service.account(tenant)
    envoy.kill()
    thread.join()
    stub.open(gate)
    settles(service, tenant, HOLD)


def test_a_new_policy_does_not_lose_settlements_of_the_old(gateways, counters, stub, content, tenant):
    service = counters()
    envoy, = gateways(1, counted(), service, updatable=True)
    found = statuses(together([envoy], stub, tenant, 20, content))
    envoy.update(policy=counted(tokens(80_000)))
    settles(service, tenant, found.count(200) * COST)
    assert found.count(200) == 20


def test_an_amount_that_an_administrator_sets_counts_at_every_gateway(gateways, counters, content, tenant):
    service = counters()
    pair = gateways(2, counted(), service)
    assert ask(pair[0], tenant, content).status_code == 200
    set_amount(service, "PUT", tenant, {"amount": 0})
    assert statuses(ask(envoy, tenant, content) for envoy in pair) == [403, 403]
    set_amount(service, "DELETE", tenant)
    assert ask(pair[1], tenant, content).status_code == 200


def set_amount(service, method, tenant, amount=None):
    with session() as http:
        answer = http.request(method, f"{service.url}/v1/amounts/tenant-tokens/tenant%3D{tenant}", json=amount,
                              headers={"authorization": f"Bearer {gateway.ADMIN_TOKEN}"})
    assert answer.status_code in (200, 204), answer.text
