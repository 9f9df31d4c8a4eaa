"""What answers teach of a model that is counted with another one's tokenizer, shared by the workers of a real Envoy."""

import itertools

import pytest

from client import body, chat
from gateway import eventually, policy, tokens

LIMIT = 100_000_000
TEXT = "The keeper climbed the stairs. " * 160
"""Some 1,000 tokens: twenty of them make a model known."""
MARKS = 6
LESSONS = 40
IN_A_ROW = 12
"""So many connections do not all land on one of two workers."""

MODELS = [{"match": "foreign", "tokenizer": {"like": "o200k_base", "factor": 1.0}}]

_names = itertools.count()


@pytest.fixture
def envoy(envoys):
    return envoys(policy(tokens(LIMIT), models=MODELS), fresh=True, updatable=True)


def ask():
    return body(max_tokens=100, prompt=TEXT, model="foreign")


def held(envoy, tenant):
    """What is held for the prompt. The answer reports nothing, so asking teaches nothing."""
    answer = chat(envoy.url, f"{tenant}-{next(_names)}", ask(), fault="no-usage")
    assert answer.status_code == 200, answer.text
    limit, left = (int(answer.headers[f"x-tokenlimit-{name}"]) for name in ("limit", "remaining"))
    return limit - left - 100


def all_hold(envoy, tenant, tokens):
    """Whether every worker holds so many, give or take what is rounded up."""
    return all(0 <= held(envoy, tenant) - tokens <= 2 for _ in range(IN_A_ROW))


def test_all_workers_hold_by_what_a_provider_reports_and_go_on_under_a_new_policy(envoy, tenant):
    first = held(envoy, tenant)
    reported = MARKS + (first - MARKS) * 13 // 10
    for _ in range(LESSONS):
        assert chat(envoy.url, tenant, ask(), prompt_tokens=reported, completion_tokens=1).status_code == 200
    assert eventually(lambda: all_hold(envoy, tenant, reported), 15), (held(envoy, tenant), first, reported)

    labels = (("model", "foreign"), ("outcome", "under"))
    assert eventually(lambda: envoy.metrics().get(("tollgate_input_estimates_total", labels)), 10), envoy.metrics()

    changed = policy(tokens(LIMIT // 2), models=[{"match": "other", "tokenizer": "o200k_base"}, *MODELS])
    envoy.update(policy=changed)
    assert eventually(lambda: envoy.budget(tenant)["tenant-tokens"]["amount"] == LIMIT // 2, 10), "it never came"
    assert all_hold(envoy, tenant, reported), (held(envoy, tenant), first, reported)
