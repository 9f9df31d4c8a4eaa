"""What an operator meets: start, update, metrics, access log, hosts that cannot hold headers."""

import json
import re

import httpx
import pytest

import gateway
from client import CHAT, body, chat, script, session
from gateway import eventually, policy, requests, tokens

LIMIT = 10_000


def test_the_shipped_configuration_meters_as_it_says(envoys, stub, tenant):
    envoy = envoys(gateway.SHIPPED)
    answer = chat(envoy.url, tenant, headers={"x-tenant-tier": "business"})
    assert answer.status_code == 200
    assert answer.headers["x-tokenlimit-limit"] == "900000"
    assert {account["amount"] for account in envoy.budget(tenant).values()} == {50_000, 60}


BAD = {
    "limits[0].window": policy(tokens(LIMIT, {"sideways": "60s"})),
    "limits[0].window.fixed": policy(tokens(LIMIT, {"fixed": "0s"})),
    "limits[1].per": policy(tokens(LIMIT), requests(5, per=["nobody"])),
    "version": {**policy(tokens(LIMIT)), "version": 2},
    "pressure": policy(tokens(LIMIT, pressure=[])),
    "colour": policy(tokens(LIMIT), colour="red"),
}


@pytest.mark.parametrize("path", BAD)
def test_envoy_refuses_to_start_with_a_bad_policy_and_says_where(stub, path):
    envoy = gateway.Envoy(stub.port, policy=BAD[path])
    try:
        assert eventually(lambda: envoy.ended() is not None, gateway.START_WITHIN), "it started"
        assert envoy.ended() != 0
        assert path in envoy.envoy_log() + envoy.log()
    finally:
        envoy.stop()


def test_all_problems_of_a_policy_are_told_at_once(stub):
    bad = policy(tokens(-1, {"fixed": "0s"}), requests(5, per=["nobody"]))
    envoy = gateway.Envoy(stub.port, policy=bad)
    try:
        assert eventually(lambda: envoy.ended() is not None, gateway.START_WITHIN)
        log = envoy.envoy_log() + envoy.log()
        assert all(path in log for path in ("limits[0].amount", "limits[0].window.fixed", "limits[1].per"))
    finally:
        envoy.stop()


@pytest.fixture
def updatable(envoys):
    return envoys(policy(tokens(LIMIT)), fresh=True, updatable=True)


def test_accounts_outlive_a_change_of_the_policy(updatable, tenant):
    envoy = updatable
    chat(envoy.url, tenant, prompt_tokens=4000, completion_tokens=0)
    assert envoy.settled(tenant)["spent"] == 4000
    envoy.update(policy=policy(tokens(2 * LIMIT), requests(5)))
    assert eventually(lambda: "tenant-requests" in envoy.budget(tenant), 10), "the new policy never came"
    account = envoy.budget(tenant)["tenant-tokens"]
    assert (account["amount"], account["spent"]) == (2 * LIMIT, 4000)
    chat(envoy.url, tenant, prompt_tokens=1000, completion_tokens=0)
    assert envoy.settled(tenant)["spent"] == 5000


def test_a_stream_that_outlives_its_policy_is_settled_into_the_account(updatable, stub, tenant):
    import threading
    envoy = updatable
    answers = []
    words = {"gate": tenant, "prompt_tokens": 400, "completion_tokens": 200}
    running = threading.Thread(target=lambda: answers.append(chat(envoy.url, tenant, body(stream=True), **words)))
    running.start()
    assert eventually(lambda: stub.waiting(tenant) == 1)
    envoy.update(policy=policy(tokens(2 * LIMIT), requests(5)))
    assert eventually(lambda: "tenant-requests" in envoy.budget(tenant), 10), "the new policy never came"
    assert envoy.budget(tenant)["tenant-tokens"]["held"] > 0
    stub.open(tenant)
    running.join()
    assert answers[0].status_code == 200
    account = envoy.settled(tenant)
    assert (account["spent"], account["held"]) == (600, 0)


def test_an_update_with_a_bad_policy_is_rejected_and_the_old_one_serves_on(updatable, tenant):
    envoy = updatable
    envoy.update(policy=policy(tokens(LIMIT, {"fixed": "0s"})))
    assert eventually(lambda: envoy.stat("listener_manager.lds.update_rejected") == 1, 10)
    assert chat(envoy.url, tenant, prompt_tokens=40, completion_tokens=0).status_code == 200
    assert envoy.settled(tenant)["spent"] == 40


@pytest.fixture
def watched(envoys):
    """Counters are of the process: an Envoy of one test's own starts them at nothing."""
    return envoys(policy(tokens(LIMIT), requests(1000)), fresh=True)


def test_metrics_count_decisions_and_tokens_under_their_labels(watched, tenant):
    assert chat(watched.url, tenant, prompt_tokens=400, completion_tokens=LIMIT).status_code == 200
    watched.settled(tenant)
    assert chat(watched.url, tenant).status_code == 429
    assert chat(watched.url, tenant, b"no json").status_code == 400

    def counted():
        found = {(name, tuple(labels.items())): watched.metrics().get((name, tuple(sorted(labels.items()))))
                 for name, labels, _ in expected}
        return found == {(name, tuple(labels.items())): value for name, labels, value in expected}

    expected = [
        ("tollgate_decisions_total", {"outcome": "granted"}, 1),
        ("tollgate_decisions_total", {"outcome": "over_limit", "limit": "tenant-tokens"}, 1),
        ("tollgate_tokens_total", {"kind": "input", "model": "gpt-4o*"}, 400),
        ("tollgate_tokens_total", {"kind": "output", "model": "gpt-4o*"}, LIMIT),
        ("tollgate_reported_input_tokens_total", {"model": "gpt-4o*"}, 400),
        ("tollgate_bodies_refused_total", {"reason": "not_json"}, 1),
    ]
    assert eventually(counted, 10), watched.metrics()


def test_metrics_name_no_tenant_and_leave_no_label_in_a_name(watched, tenant):
    assert chat(watched.url, tenant).status_code == 200
    assert eventually(watched.metrics, 10)
    text = gateway.get(f"{watched.admin}/stats/prometheus")
    assert tenant not in text
    ours = [line for line in text.splitlines() if line.startswith("tollgate_")]
    assert ours and all(re.fullmatch(r'tollgate_[a-z_]+\{([a-z]+="[^"]*",?)*\} \S+', line) for line in ours), ours
    assert not [line for line in ours if re.search(r"_(outcome|limit|model|kind|reason)_", line)], ours


def test_the_access_log_tells_each_decision_in_one_field(watched, tenant):
    chat(watched.url, tenant, prompt_tokens=400, completion_tokens=LIMIT)
    watched.settled(tenant)
    assert chat(watched.url, tenant).status_code == 429
    lines = eventually(lambda: (found := [line for line in watched.access_log() if "/chat/" in line])[1:] and found, 10)
    answered, refused = (re.fullmatch(r"\S+ POST \S+ (\d+) (\S+) (\S+) \d+ms (.*)", line) for line in lines)
    assert (answered[1], answered[2]) == ("200", "via_upstream")
    field = json.loads(answered[4])
    told = ("decision", "status", "tenant", "model", "input", "output")
    assert [field[name] for name in told] == ["granted", "ok", tenant, "gpt-4o-mini", 400, LIMIT]
    assert refused[1] == "429" and re.fullmatch(r"tollgate_[a-z_]+", refused[2])
    field = json.loads(refused[4])
    assert (field["decision"], field["status"], field["limit"]) == ("over_limit", "refused", "tenant-tokens")


def test_the_access_log_tells_how_each_exchange_ended(watched, tenant):
    def last_status():
        lines = eventually(lambda: [line for line in watched.access_log() if "/chat/" in line][len(statuses):], 10)
        return json.loads(lines[-1].split("ms ", 1)[1])["status"]

    statuses = []
    chat(watched.url, tenant, status=500)
    statuses.append(last_status())
    with pytest.raises(httpx.RemoteProtocolError):
        chat(watched.url, tenant, body(stream=True), fault="reset-mid")
    statuses.append(last_status())
    with pytest.raises(httpx.ReadTimeout), session(timeout=0.5) as client:
        client.post(watched.url + CHAT, json=body(), headers={"x-tenant-id": tenant, **script(fault="hang")})
    statuses.append(last_status())
    assert statuses == ["upstream_error", "upstream_error", "client_disconnect"]


# --- a host that cannot hold headers while the body is read


@pytest.fixture
def no_hold(envoys):
    return envoys(policy(tokens(LIMIT), requests(1000), host={"header_hold": "none"}), hold_headers=False)


@pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])
def test_without_header_hold_requests_are_metered(no_hold, stub, tenant, stream):
    sent = json.dumps(body(stream=stream)).encode()
    asked = json.dumps(body(stream=stream, stream_options={"include_usage": True})).encode() if stream else sent
    assert chat(no_hold.url, tenant, asked, prompt_tokens=400, completion_tokens=200).status_code == 200
    assert no_hold.settled(tenant)["spent"] == 600
    assert chat(no_hold.url, tenant, sent).status_code == 200
    assert [entry.body for entry in stub.received(x_tenant_id=tenant)] == [asked, sent], "no byte is rewritten"
    assert no_hold.settled(tenant)["held"] == 0


def test_without_header_hold_a_refusal_still_comes(no_hold, tenant):
    assert chat(no_hold.url, tenant, prompt_tokens=LIMIT, completion_tokens=0).status_code == 200
    no_hold.settled(tenant)
    refused = chat(no_hold.url, tenant)
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"


def test_auto_refuses_no_client_on_a_host_that_cannot_hold_headers(envoys, tenant):
    """The first request may have to wait for the filter to notice; then it is served like any other."""
    envoy = envoys(policy(tokens(LIMIT)), hold_headers=False, concurrency=1)
    answers = [chat(envoy.url, tenant, prompt_tokens=10, completion_tokens=0).status_code for _ in range(3)]
    assert answers == [200, 200, 200]
    assert envoy.settled(tenant)["spent"] == 30
