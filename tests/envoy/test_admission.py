"""No overshoot, at any concurrency, over all workers; and as little left unused."""

import asyncio
import itertools
import json
import time

import pytest

from client import PROMPT, Burst, body, chat, prompt_estimate, until
from gateway import policy, requests, tokens

LIMIT, HOLD, ADMITTED = 90_000, 1_000, 90

_gates = (f"gate-{number}" for number in itertools.count())


def holding(url, tenant, total, **parts):
    """A body whose prompt and output are together estimated at `total` tokens."""
    output = total - prompt_estimate(url, tenant + "-probe", **parts)
    return json.dumps(body(max_tokens=output, **parts)).encode()


@pytest.mark.parametrize("parallel", [200, 500])
@pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])
def test_parallel_requests_are_admitted_up_to_the_limit_and_settled_at_what_they_cost(
        envoys, stub, tenant, parallel, stream):
    envoy = envoys(policy(tokens(LIMIT)))
    content = holding(envoy.url, tenant, HOLD, stream=stream)

    async def rounds():
        async with Burst(envoy.url, parallel) as burst:
            for number in range(10):
                await one_round(burst, f"{tenant}-{number}", next(_gates))

    async def one_round(burst, fresh, gate):
        tasks = await burst.many(parallel, fresh, content, gate=gate, prompt_tokens=400, completion_tokens=200)
        # Nobody is answered before everybody has been decided on, so no refund lets another one in.
        await until(lambda: sum(task.done() for task in tasks) + stub.waiting(gate) == parallel)
        # One more task may be waiting for its turn than have been counted: all are decided, or this fails.
        admitted = stub.waiting(gate)
        account = await asyncio.to_thread(lambda: envoy.budget(fresh)["tenant-tokens"])
        assert (account["held"], account["spent"], account["remaining"]) == (LIMIT, 0, 0)
        stub.open(gate)
        statuses = [task.status_code for task in await asyncio.gather(*tasks)]
        assert admitted == ADMITTED
        assert statuses.count(200) == ADMITTED and statuses.count(429) == parallel - ADMITTED
        account = await asyncio.to_thread(envoy.settled, fresh)
        assert (account["held"], account["spent"]) == (0, ADMITTED * 600)

    asyncio.run(rounds())


def test_a_thousand_tenants_created_at_once_by_four_workers_each_have_an_exact_account(envoys, tenant):
    envoy = envoys(policy(tokens(LIMIT), requests(1000)), concurrency=4)
    content = json.dumps(body(max_tokens=50)).encode()

    async def create():
        async with Burst(envoy.url, 128) as burst:
            calls = [burst.one(f"{tenant}-{number}", content, prompt_tokens=20, completion_tokens=10)
                     for number in range(1000) for _ in range(3)]
            return [answer.status_code for answer in await asyncio.gather(*calls)]

    assert set(asyncio.run(create())) == {200}
    wrong = {}
    for number in range(1000):
        envoy.settled(f"{tenant}-{number}")
        accounts = envoy.budget(f"{tenant}-{number}")
        read = [(accounts[limit]["spent"], accounts[limit]["held"]) for limit in ("tenant-tokens", "tenant-requests")]
        if read != [(90, 0), (3, 0)]:
            wrong[number] = read
    assert wrong == {}


def test_refunds_reach_the_next_client_until_the_account_is_full(envoys, tenant):
    """With half of each hold given back, one client after the other uses the account up."""
    envoy = envoys(policy(tokens(100_000)))
    content = holding(envoy.url, tenant, 1000)

    async def use_up():
        async with Burst(envoy.url, 1) as burst:
            for count in itertools.count():
                answer = await burst.one(tenant, content, prompt_tokens=400, completion_tokens=100)
                if answer.status_code == 429:
                    # The last settlement may still be on its way.
                    if (await asyncio.to_thread(envoy.settled, tenant))["remaining"] < HOLD:
                        return count
                else:
                    assert answer.status_code == 200

    assert asyncio.run(use_up()) == 199
    assert envoy.settled(tenant)["spent"] == 99_500


@pytest.mark.slow
def test_over_many_short_windows_at_least_99_percent_of_the_limit_is_used(envoys, tenant):
    """Fresh clients are offered all the time, and use half of what they hold.

    Only requests that lie wholly inside the counted windows are counted, which errs against us.
    """
    length, count, limit, clients = 2, 15, 150_000, 4
    envoy = envoys(policy(tokens(limit, {"fixed": f"{length}s"})))
    content = holding(envoy.url, tenant, 1000)
    start = (time.time() // length + 1) * length
    end = start + count * length
    admitted, refused_in = [], set()

    async def client(burst):
        while (sent := time.time()) < end:
            answer = await burst.one(tenant, content, prompt_tokens=400, completion_tokens=100)
            if answer.status_code == 200:
                admitted.append((sent, time.time()))
            else:
                assert answer.status_code == 429
                refused_in.add(int((sent - start) // length))

    async def offer():
        async with Burst(envoy.url, clients) as burst:
            await asyncio.gather(*(client(burst) for _ in range(clients)))

    asyncio.run(offer())
    busy = refused_in & set(range(count))
    assert len(busy) == count, "the machine was too slow to offer more than the limit: nothing was shown"
    used = 500 * sum(start <= sent and done <= end for sent, done in admitted)
    assert 0.99 * limit * count <= used <= limit * count


def test_limits_are_taken_all_or_none(envoys, tenant):
    """What the second limit refuses leaves no trace in the first."""
    envoy = envoys(policy(requests(100), tokens(1000)))
    content = body(max_tokens=900, prompt=PROMPT)
    assert chat(envoy.url, tenant, content, prompt_tokens=100, completion_tokens=500).status_code == 200
    envoy.settled(tenant)
    assert chat(envoy.url, tenant, content).status_code == 429
    accounts = envoy.budget(tenant)
    assert (accounts["tenant-requests"]["spent"], accounts["tenant-tokens"]["spent"]) == (1, 600)
    assert (accounts["tenant-requests"]["held"], accounts["tenant-tokens"]["held"]) == (0, 0)
