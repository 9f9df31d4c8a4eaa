"""HTTP itself: bodies rewritten in place, trailers, both protocol versions on both sides, upgrades."""

import base64
import json

import pytest

from client import CHAT, body, chat, h2_post, raw, session
from gateway import policy, requests, tokens

LIMIT = 100_000


@pytest.fixture(params=[False, True], ids=["http1-upstream", "http2-upstream"])
def envoy(envoys, request):
    # One worker, so that one request after the other takes the same upstream connection.
    return envoys(policy(tokens(LIMIT), requests(1000)), http2_upstream=request.param, concurrency=1)


def unwrapped(received):
    """The body as sent, with the option that the filter may add taken off again."""
    content = json.loads(received.body)
    assert content.pop("stream_options") == {"include_usage": True}
    return content


def test_a_rewritten_body_leaves_nothing_behind_on_the_connection(envoy, stub, tenant):
    """The length follows the body, or the surplus would be read as the next request."""
    bodies = [body(stream=True), body(stream=True, stream_options=None), body(stream=True, prompt="x" * 5000),
              body(stream=True, stream_options={}), body(stream=True, stream_options={"include_usage": False})]
    for sent in bodies:
        assert chat(envoy.url, tenant, sent).status_code == 200
        assert chat(envoy.url, tenant, body(stream=False)).status_code == 200
    received = stub.received(x_tenant_id=tenant)
    assert len(received) == 2 * len(bodies)
    assert len({entry.connection for entry in received}) == 1, "keep-alive is what this test is about"
    for sent, rewritten, untouched in zip(bodies, received[::2], received[1::2]):
        assert (rewritten.method, rewritten.path, rewritten.complete) == ("POST", CHAT, True)
        assert rewritten.header("content-length") == [str(rewritten.body_bytes)]
        assert rewritten.header("transfer-encoding") == []
        sent.pop("stream_options", None)
        assert unwrapped(rewritten) == sent
        assert untouched.body == json.dumps(body()).encode()
        assert untouched.header("content-length") == [str(untouched.body_bytes)]


def test_a_rewritten_body_keeps_every_other_byte(envoy, stub, tenant):
    sent = b'{ "messages" :[{"role":"user","content":"a\\u00e9 \xf0\x9f\x8c\x8a"}],\n\t"x_unknown": 1.50e+01, "stream":true,"model":"gpt-4o-mini"}'
    assert chat(envoy.url, tenant, sent).status_code == 200
    received, = stub.received(x_tenant_id=tenant)
    assert unwrapped(received) == json.loads(sent)
    start = next(at for at in range(len(sent)) if received.body[at] != sent[at])
    end = len(sent) - start
    assert received.body.endswith(sent[len(sent) - end:]), "one insertion, and the rest as it was"


def test_a_body_that_needs_no_rewriting_is_not_touched(envoy, stub, tenant):
    for sent in [b'{"messages":[], "model" : "gpt-4o-mini"}',
                 b'{"stream":true,"stream_options":{"include_usage" : true},"model":"gpt-4o-mini","messages":[]}']:
        assert chat(envoy.url, tenant, sent).status_code == 200
        assert stub.received(x_tenant_id=tenant)[-1].body == sent


def test_a_chunked_request_is_metered_like_any_other(envoy, stub, tenant):
    sent = json.dumps(body(stream=True)).encode()
    headers = {"content-type": "application/json", "x-tenant-id": tenant, "x-stub-prompt-tokens": "400",
               "x-stub-completion-tokens": "200"}
    with session() as client:
        pieces = (sent[at:at + 10] for at in range(0, len(sent), 10))
        assert client.post(envoy.url + CHAT, content=pieces, headers=headers).status_code == 200
    received, = stub.received(x_tenant_id=tenant)
    assert unwrapped(received) == body(stream=True)
    assert envoy.settled(tenant)["spent"] == 600


@pytest.mark.parametrize("size", [100_000, 2_000_000, 10_000_000])
def test_large_bodies_arrive_whole(envoy, stub, tenant, size):
    sent = json.dumps(body(stream=True, prompt="word " * (size // 5))).encode()
    answer = chat(envoy.url, tenant, sent)
    # Two million tokens do not fit into the budget, and must not hold up anyone either.
    assert answer.status_code == (200 if size == 100_000 else 413)
    if answer.status_code == 200:
        received, = stub.received(x_tenant_id=tenant)
        assert received.body_bytes == len(sent) + len(b',"stream_options":{"include_usage":true}')


def h2_headers(tenant, **words):
    return {"content-type": "application/json", "x-tenant-id": tenant, **words}


def test_request_trailers_do_not_walk_past_the_meter(envoy, stub, tenant):
    content = json.dumps(body(stream=True, max_tokens=10_000)).encode()
    status, headers, _ = h2_post(envoy.port, CHAT, h2_headers(tenant), content, {"x-trailer": "1"})
    assert status == 200
    assert int(headers["x-tokenlimit-remaining"]) < LIMIT - 10_000
    received, = stub.received(x_tenant_id=tenant)
    assert unwrapped(received) == json.loads(content) and received.complete
    assert envoy.settled(tenant)["spent"] > 0


def test_trailers_of_a_chunked_http1_request_do_not_walk_past_the_meter(envoys, stub, tenant):
    trailers = {"http_protocol_options": {"enable_trailers": True}}
    envoy = envoys(policy(tokens(LIMIT), requests(1000)), manager=trailers, concurrency=1)
    content = json.dumps(body(stream=True)).encode()
    request = (f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n"
               f"x-tenant-id: {tenant}\r\nx-stub-prompt-tokens: 400\r\nx-stub-completion-tokens: 200\r\n"
               f"transfer-encoding: chunked\r\n\r\n{len(content):x}\r\n").encode()
    answer = raw(envoy.port, request + content + b"\r\n0\r\nx-trailer: 1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    received, = stub.received(x_tenant_id=tenant)
    assert unwrapped(received) == body(stream=True)
    assert envoy.settled(tenant)["spent"] == 600


def test_request_trailers_do_not_save_from_a_refusal(envoy, stub, tenant):
    chat(envoy.url, tenant, prompt_tokens=LIMIT, completion_tokens=0)
    envoy.settled(tenant)
    content = json.dumps(body(max_tokens=100)).encode()
    status, headers, answer = h2_post(envoy.port, CHAT, h2_headers(tenant), content, {"x-trailer": "1"})
    assert status == 429 and "retry-after" in headers
    assert json.loads(answer)["error"]["code"] == "rate_limit_exceeded"
    assert len(stub.received(x_tenant_id=tenant)) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])
def test_http2_clients_are_metered_and_refused_like_others(envoy, tenant, stream):
    words = {"prompt_tokens": 400, "completion_tokens": 200}
    assert chat(envoy.url, tenant, body(stream=stream), http2=True, **words).status_code == 200
    assert envoy.settled(tenant)["spent"] == 600
    chat(envoy.url, tenant, body(), prompt_tokens=LIMIT, completion_tokens=0)
    envoy.settled(tenant)
    refused = chat(envoy.url, tenant, body(stream=stream), http2=True)
    assert (refused.http_version, refused.status_code) == ("HTTP/2", 429)
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"


# --- what is not a chat request


def test_what_is_not_metered_passes_untouched(envoy, stub, tenant):
    sent = b"\x00\xff not json"
    answer = session().post(envoy.url + "/echo?a=1", content=sent, headers={"x-tenant-id": tenant})
    echo = answer.json()
    assert (echo["method"], echo["path"], base64.b64decode(echo["body_base64"])) == ("POST", "/echo?a=1", sent)
    assert not [name for name in answer.headers if name.startswith(("x-tokenlimit", "x-ratelimit"))]
    assert envoy.budget(tenant)["tenant-requests"]["spent"] == 0


def test_a_get_on_a_metered_path_passes_unmetered(envoy, stub, tenant):
    answer = session().get(envoy.url + CHAT + "?limit=2", headers={"x-tenant-id": tenant})
    received, = stub.received(x_tenant_id=tenant)
    assert (received.method, received.path, received.body_bytes) == ("GET", CHAT + "?limit=2", 0)
    assert answer.status_code == 400, "the stub's own word on a GET"
    assert envoy.budget(tenant)["tenant-tokens"]["spent"] == 0


@pytest.mark.parametrize("path", ["/openai/v1/chat/completions", CHAT + "?api-version=1", "/v1//chat/completions",
                                  "/v1/./chat/completions"])
def test_every_spelling_of_a_metered_path_is_metered(envoy, tenant, path):
    answer = session().post(envoy.url + path, json=body(), headers={"x-tenant-id": tenant, "x-stub-prompt-tokens": "7",
                                                                "x-stub-completion-tokens": "3"})
    assert answer.status_code == 200
    assert envoy.settled(tenant)["spent"] == 10


def upgrade(port, path, tenant):
    request = (f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\n"
               f"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nx-tenant-id: {tenant}\r\n\r\n")
    head, _, content = raw(port, request.encode(), within=2).partition(b"\r\n\r\n")
    return int(head.split()[1]), content


def test_an_upgrade_on_a_metered_path_is_refused_in_clear_words(envoys, stub, tenant):
    envoy = envoys(policy(tokens(LIMIT), requests(1000)), concurrency=1)
    status, content = upgrade(envoy.port, CHAT, tenant)
    assert 400 <= status < 500
    assert json.loads(content)["error"]["message"]
    assert stub.received(x_tenant_id=tenant) == []


def test_an_upgrade_passes_where_the_policy_or_the_path_lets_it(envoys, stub, tenant):
    envoy = envoys(policy(tokens(LIMIT), requests(1000)), concurrency=1)
    assert upgrade(envoy.port, "/echo", tenant)[0] == 200, "the stub's own word on an upgrade"
    envoy = envoys(policy(tokens(LIMIT), requests(1000), upgrades="pass"), concurrency=1)
    assert upgrade(envoy.port, CHAT, tenant)[0] == 400, "the stub's own word on a GET"
    assert [entry.header("upgrade") for entry in stub.received(x_tenant_id=tenant)] == [["websocket"]] * 2


def test_a_post_without_a_body_is_answered_and_never_forwarded(envoy, stub, tenant):
    for headers in [{"content-type": "application/json"}, {}]:
        answer = session().post(envoy.url + CHAT, headers={"x-tenant-id": tenant, **headers})
        assert answer.status_code == 400
        assert answer.json()["error"]["type"] == "invalid_request_error"
    assert stub.received(x_tenant_id=tenant) == []


def test_the_worker_serves_the_next_request_after_a_client_left_in_its_upload(envoy, stub, tenant):
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nx-tenant-id: {tenant}\r\ncontent-length: 1000\r\n\r\n"
    raw(envoy.port, head.encode() + b'{"model"', within=0.2)
    assert chat(envoy.url, tenant).status_code == 200
    assert len(stub.received(x_tenant_id=tenant)) == 1
    assert envoy.settled(tenant)["held"] == 0
