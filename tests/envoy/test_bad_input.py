"""A clear answer to everything: no trap, no leak, no budget lost, and the worker serves the next request."""

import gzip
import json

import pytest

from client import CHAT, PROMPT, body, chat, error, raw, session
from gateway import ROOT, policy, requests, tokens

LIMIT = 1_000_000
MAX = 65_536
SECRET = "the content that must not come back"


@pytest.fixture
def envoy(envoys):
    # One worker, so that a trap would be seen by the next request.
    return envoys(policy(tokens(LIMIT), requests(10_000), body={"max": MAX}), concurrency=1)


@pytest.fixture(autouse=True)
def unharmed(request, envoy, stub, tenant):
    """Nothing was charged but what was forwarded, and the next request is served."""
    yield
    forwarded = [entry for entry in stub.received(x_tenant_id=tenant) if entry.method == "POST"]
    account = envoy.settled(tenant)
    assert account["held"] == 0
    if not forwarded:
        assert account["spent"] == 0
        assert envoy.budget(tenant)["tenant-requests"]["spent"] == 0
    assert chat(envoy.url, tenant + "-next").status_code == 200
    assert envoy.stat("wasm.envoy.wasm.runtime.v8.active") > 0
    log = envoy.envoy_log()
    assert "panicked" not in log and "proxy_on" not in log, log


BROKEN = {
    "broken": b'{"model":"m","messages":[{"role":"user","content":"%s"}' % SECRET.encode(),
    "no json": SECRET.encode(),
    "array": b"[]",
    "string": b'"x"',
    "null": b"null",
    "nan": b'{"model":"m","messages":[],"max_tokens":NaN}',
    "not utf-8": b'{"model":"\xff\xfe","messages":[]}',
    "deep": b'{"messages":' + b"[" * 30_000 + b"]" * 30_000 + b"}",
    "empty": b" ",
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_json_request_is_answered_with_400(envoy, stub, tenant, name):
    answer = chat(envoy.url, tenant, BROKEN[name])
    assert answer.status_code == 400
    assert error(answer)["type"] == "invalid_request_error"
    assert SECRET not in answer.text
    assert stub.received(x_tenant_id=tenant) == []


STRANGE = {
    "bom": b'\xef\xbb\xbf' + json.dumps(body()).encode(),
    "lone surrogate": b'{"model":"m","messages":[{"role":"user","content":"\\ud800"}]}',
    "wrong types": b'{"model":7,"messages":{"a":1},"max_tokens":"many","stream":"yes"}',
    "no model": b'{"messages":[{"role":"user","content":"hi"}]}',
    "duplicate keys": b'{"model":"m","model":"n","max_tokens":1,"max_tokens":900,"messages":[],"messages":[]}',
    "negative cap": b'{"model":"m","messages":[],"max_tokens":-5}',
    "huge cap": b'{"model":"m","messages":[],"max_tokens":1e400}',
    "trailing object": json.dumps(body()).encode() + b"{}",
}


@pytest.mark.parametrize("name", STRANGE)
def test_what_is_strange_is_metered_or_answered_with_4xx(envoy, stub, tenant, name):
    answer = chat(envoy.url, tenant, STRANGE[name])
    received = stub.received(x_tenant_id=tenant)
    if received:
        assert [entry.body for entry in received] == [STRANGE[name]]
        assert envoy.budget(tenant)["tenant-requests"]["spent"] == 1
    else:
        assert answer.status_code in (400, 413)
        error(answer)


def request_cases():
    manifest = json.loads((ROOT / "tests/cases/manifest.json").read_text())
    for case in manifest["cases"]:
        if case["kind"] == "request" and case["path"] == CHAT and not case.get("inflate"):
            yield pytest.param(case, id=case["id"])


@pytest.mark.parametrize("case", list(request_cases()))
def test_requests_from_public_bug_reports(envoy, stub, tenant, case):
    sent = (ROOT / "tests/cases" / case["file"]).read_bytes()
    answer = chat(envoy.url, tenant, sent, headers=case["headers"])
    received, expected = stub.received(x_tenant_id=tenant), case["expected"]
    if expected["decision"] == "reject":
        assert received == []
    if expected["decision"] == "meter" and len(sent) <= MAX:
        assert len(received) == 1, answer.text
    if received and expected["body_to_upstream"] == "identical":
        assert received[0].body == sent
    if not received:
        assert 400 <= answer.status_code < 500
        error(answer)


def test_a_body_over_the_policys_limit_is_answered_before_it_is_read(envoy, stub, tenant):
    head = (f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nx-tenant-id: {tenant}\r\n"
            f"content-length: {MAX + 1}\r\n\r\n")
    answer = raw(envoy.port, head.encode(), within=2)
    assert answer.startswith(b"HTTP/1.1 413 "), answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["type"] == "invalid_request_error"
    assert stub.received(x_tenant_id=tenant) == []


def test_a_chunked_body_over_the_policys_limit_is_answered(envoy, stub, tenant):
    headers = {"x-tenant-id": tenant, "content-type": "application/json"}
    pieces = (b" " * 1000 for _ in range(100))
    with session() as client:
        answer = client.post(envoy.url + CHAT, content=pieces, headers=headers)
    assert answer.status_code == 413
    assert error(answer)["type"] == "invalid_request_error"
    assert stub.received(x_tenant_id=tenant) == []


def test_a_body_of_exactly_the_policys_limit_passes(envoy, tenant):
    sent = json.dumps(body()).encode()
    assert chat(envoy.url, tenant, sent + b" " * (MAX - len(sent))).status_code == 200


@pytest.mark.parametrize("coding", ["gzip", "zstd", "br", "x-unknown"])
def test_a_compressed_body_is_refused_and_never_passes_free(envoy, stub, tenant, coding):
    answer = chat(envoy.url, tenant, gzip.compress(json.dumps(body()).encode()), headers={"content-encoding": coding})
    assert answer.status_code == 415
    assert error(answer)["type"] == "invalid_request_error"
    assert stub.received(x_tenant_id=tenant) == []


@pytest.mark.parametrize("content_type", ["text/plain", "application/octet-stream", "multipart/form-data"])
def test_another_content_type_does_not_walk_past_the_meter(envoy, stub, tenant, content_type):
    answer = chat(envoy.url, tenant, headers={"content-type": content_type}, prompt_tokens=7, completion_tokens=3)
    if answer.status_code == 200:
        assert envoy.settled(tenant)["spent"] == 10
    else:
        assert answer.status_code in (400, 415)
        assert stub.received(x_tenant_id=tenant) == []


def test_no_answer_of_ours_repeats_what_was_said(envoy, tenant):
    assert chat(envoy.url, tenant, prompt_tokens=LIMIT, completion_tokens=0).status_code == 200
    envoy.settled(tenant)
    answer = chat(envoy.url, tenant, body(prompt=f"{PROMPT} {SECRET}"))
    assert answer.status_code == 429
    assert SECRET not in answer.text + str(answer.headers)
    assert SECRET not in envoy.envoy_log() + "".join(envoy.access_log())
