"""Refusals a client can act on: which limit, how much, and when to come back."""

import hashlib
import json
import math
import re
import time

import pytest

from client import body, chat, error
from gateway import policy, requests, tokens

LIMIT = 10_000

# A window that rolls soon, but not within a test: far enough for headers to have something to say.
WINDOWS = {"fixed": {"fixed": "60s"}, "sliding": {"sliding": "60s"}, "bucket": {"bucket": "60s"}}


def use_up(envoy, tenant, amount=LIMIT):
    assert chat(envoy.url, tenant, prompt_tokens=amount, completion_tokens=0).status_code == 200
    envoy.settled(tenant)


@pytest.mark.parametrize("window", WINDOWS)
def test_a_refusal_names_the_limit_and_the_wait(envoys, stub, tenant, window):
    envoy = envoys(policy(tokens(LIMIT, WINDOWS[window])))
    use_up(envoy, tenant)
    refused = chat(envoy.url, tenant, body(max_tokens=500))
    assert refused.status_code == 429
    why = error(refused)
    assert (why["type"], why["param"], why["code"]) == ("tokens", None, "rate_limit_exceeded")
    assert "tenant-tokens" in why["message"] and str(LIMIT) in why["message"].replace(",", "")
    facts = refused.json()["tollgate"]
    assert set(facts) >= {"limit", "unit", "used", "amount", "requested", "retry_after_ms"}
    assert (facts["limit"], facts["unit"], facts["amount"]) == ("tenant-tokens", "tokens", LIMIT)
    assert 500 < facts["requested"] < 600
    assert 0 < facts["retry_after_ms"] <= 120_000
    if window != "bucket":
        assert facts["used"] == LIMIT
    assert len(stub.received(x_tenant_id=tenant)) == 1, "what is refused never reaches the provider"


def test_the_wait_is_told_alike_in_headers_and_body(envoys, tenant):
    envoy = envoys(policy(tokens(LIMIT, WINDOWS["fixed"])))
    use_up(envoy, tenant)
    refused = chat(envoy.url, tenant)
    wait = refused.json()["tollgate"]["retry_after_ms"]
    assert refused.headers.get_list("retry-after-ms") == [str(wait)]
    assert refused.headers.get_list("retry-after") == [str(math.ceil(wait / 1000))]
    assert "x-should-retry" not in refused.headers or refused.headers["x-should-retry"] == "true"


@pytest.mark.parametrize("window", [{"fixed": "2s"}, {"sliding": "2s"}, {"bucket": "2s"}],
                         ids=["fixed", "sliding", "bucket"])
def test_who_waits_as_told_is_admitted(envoys, tenant, window):
    """The one test that waits: for the time announced, and not a moment longer."""
    envoy = envoys(policy(tokens(LIMIT, window)))
    use_up(envoy, tenant)
    wanted = body(max_tokens=LIMIT // 2)
    refused = chat(envoy.url, tenant, wanted)
    assert refused.status_code == 429
    time.sleep(int(refused.headers["retry-after-ms"]) / 1000)
    assert chat(envoy.url, tenant, wanted).status_code == 200


def test_too_many_requests_are_refused_as_requests(envoys, tenant):
    envoy = envoys(policy(requests(2), tokens(LIMIT)))
    assert [chat(envoy.url, tenant).status_code for _ in range(3)] == [200, 200, 429]
    refused = chat(envoy.url, tenant)
    assert (error(refused)["type"], error(refused)["code"]) == ("requests", "rate_limit_exceeded")
    facts = refused.json()["tollgate"]
    assert (facts["limit"], facts["unit"], facts["amount"], facts["requested"]) == ("tenant-requests", "requests", 2, 1)


def test_what_can_never_fit_is_told_so(envoys, stub, tenant):
    envoy = envoys(policy(tokens(LIMIT)))
    refused = chat(envoy.url, tenant, body(max_tokens=LIMIT + 1))
    assert refused.status_code == 413
    assert error(refused)["type"] == "tokens"
    assert refused.headers["x-should-retry"] == "false"
    assert not {"retry-after", "retry-after-ms"} & set(refused.headers)
    assert refused.json()["tollgate"]["amount"] == LIMIT
    assert stub.received(x_tenant_id=tenant) == []
    assert envoy.budget(tenant)["tenant-tokens"]["remaining"] == LIMIT


def test_an_amount_of_zero_suspends(envoys, stub, tenant):
    tiers = {"tenant": {"from": [{"header": "x-tenant-id"}], "default": "anonymous"},
             "tier": {"from": [{"header": "x-tenant-tier"}], "default": "free"}}
    envoy = envoys(policy(tokens({"free": LIMIT, "closed": 0}), subject=tiers))
    refused = chat(envoy.url, tenant, headers={"x-tenant-tier": "closed"})
    assert refused.status_code == 403
    assert error(refused)["type"] == "permission_error"
    assert refused.headers["x-should-retry"] == "false"
    assert not {"retry-after", "retry-after-ms"} & set(refused.headers)
    assert stub.received(x_tenant_id=tenant) == []
    assert chat(envoy.url, tenant, headers={"x-tenant-tier": "unheard-of"}).status_code == 200


def test_a_missing_subject_that_is_required_gets_401(envoys, stub):
    subject = {"tenant": {"from": [{"header": "x-tenant"}], "required": True}}
    envoy = envoys(policy(tokens(LIMIT), subject=subject))
    refused = chat(envoy.url, "no-one")
    assert refused.status_code == 401
    assert error(refused)["type"] == "authentication_error"
    assert stub.received(x_tenant_id="no-one") == []


def test_every_metered_answer_tells_what_is_left(envoys, tenant):
    envoy = envoys(policy(tokens(LIMIT), requests(7)))
    answer = chat(envoy.url, tenant, body(max_tokens=1000))
    held = LIMIT - int(answer.headers["x-tokenlimit-remaining"])
    assert 1000 < held < 1100
    assert answer.headers["x-tokenlimit-limit"] == str(LIMIT)
    assert re.fullmatch(r"\d+", answer.headers["x-tokenlimit-reset"])
    # The provider sends headers of the same names: there must be one of each, and ours.
    for name, value in [("limit-tokens", LIMIT), ("remaining-tokens", LIMIT - held),
                        ("limit-requests", 7), ("remaining-requests", 6)]:
        assert answer.headers.get_list(f"x-ratelimit-{name}") == [str(value)], name
    for unit in ("tokens", "requests"):
        reset, = answer.headers.get_list(f"x-ratelimit-reset-{unit}")
        assert re.fullmatch(r"(\d+h)?(\d+m)?(\d+(\.\d+)?s)?|\d+ms", reset) and reset


def test_without_headers_in_the_policy_an_answer_carries_none_of_ours(envoys, tenant):
    envoy = envoys(policy(tokens(LIMIT), response={"headers": [], "budget_path": "/tollgate/budget"}))
    answer = chat(envoy.url, tenant)
    assert not [name for name in answer.headers if name.startswith("x-tokenlimit")]
    assert answer.headers.get_list("x-ratelimit-limit-tokens") == ["160000"], "the provider's own"


def test_a_tenant_reads_its_own_accounts_uncharged(envoys, stub, tenant):
    envoy = envoys(policy(tokens(LIMIT), requests(7)))
    use_up(envoy, tenant, 1234)
    accounts = envoy.budget(tenant)
    assert set(accounts) == {"tenant-tokens", "tenant-requests"}
    fields = {"limit", "unit", "amount", "spent", "held", "remaining", "reset_ms"}
    assert all(set(account) == fields for account in accounts.values())
    told = {limit: (account["unit"], account["amount"], account["spent"], account["held"], account["remaining"])
            for limit, account in accounts.items()}
    assert told == {"tenant-tokens": ("tokens", LIMIT, 1234, 0, LIMIT - 1234), "tenant-requests": ("requests", 7, 1, 0, 6)}
    assert envoy.budget(tenant + "-other")["tenant-tokens"]["spent"] == 0
    assert [entry.path for entry in stub.received(x_tenant_id=tenant)] == ["/v1/chat/completions"]


ODD = ["a:b", "a{b}", "{a}:b", "a b", "%0a", "a|b;c=d", "x" * 4096, "é", "-"]


def test_odd_tenants_have_accounts_of_their_own(envoys):
    envoy = envoys(policy(tokens(LIMIT)))
    for number, name in enumerate(ODD, start=1):
        assert chat(envoy.url, name.encode(), prompt_tokens=number, completion_tokens=0).status_code == 200
    for number, name in enumerate(ODD, start=1):
        assert envoy.settled(name.encode().decode("latin-1"))["spent"] == number, name[:20]


def test_a_bearer_key_is_a_tenant_and_is_never_shown(envoys, stub, tenant):
    subject = {"tenant": {"from": [{"bearer": "sha256"}], "default": "anonymous"}}
    envoy = envoys(policy(tokens(LIMIT), subject=subject))
    key = f"sk-secret-{tenant}"
    headers = {"authorization": f"Bearer {key}"}
    assert chat(envoy.url, tenant, headers=headers, prompt_tokens=LIMIT, completion_tokens=0).status_code == 200
    assert envoy.budget("-", authorization=f"Bearer {key}")["tenant-tokens"]["amount"] == LIMIT
    refused = chat(envoy.url, tenant, headers=headers)
    assert refused.status_code == 429
    assert chat(envoy.url, tenant, headers={"authorization": "Bearer other"}).status_code == 200
    assert stub.received(x_tenant_id=tenant)[0].header("authorization") == [f"Bearer {key}"]
    shown = json.dumps(refused.json()) + str(refused.headers) + str(envoy.metrics("")) + envoy.envoy_log() + \
        "".join(envoy.access_log())
    assert key not in shown
    assert hashlib.sha256(key.encode()).hexdigest() not in json.dumps(refused.json())


def test_shadow_mode_counts_and_never_refuses(envoys, tenant):
    envoy = envoys(policy(tokens(LIMIT, mode="shadow")))
    use_up(envoy, tenant)
    assert chat(envoy.url, tenant, prompt_tokens=500, completion_tokens=0).status_code == 200
    assert envoy.settled(tenant)["spent"] == LIMIT + 500
