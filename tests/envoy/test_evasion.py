"""Attacks that once got through: a request that reaches the provider is paid for, whatever ends it and however
it is spelt."""

import contextlib
import json
import socket
import threading

import h2.config
import h2.connection
import h2.errors
import pytest

from client import CHAT, body, chat, raw
from gateway import eventually, policy, requests, tokens

LIMIT = 100_000
LONG = "hello world " * 200
"""A prompt of some 400 tokens."""

AS_WRITTEN = {"normalize_path": False, "merge_slashes": False, "path_with_escaped_slashes_action": "KEEP_UNCHANGED"}
"""A listener that leaves paths as the client wrote them: Envoy's own default."""


@pytest.fixture
def envoy(envoys):
    return envoys(policy(tokens(LIMIT), requests(1000)))


# --- who ended it


def h2_start(port, headers, content):
    """An HTTP/2 request on the wire, its answer not read."""
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    head = [(":method", "POST"), (":scheme", "http"), (":authority", "gateway"), (":path", CHAT)]
    connection.send_headers(1, head + list(headers.items()))
    connection.send_data(1, content, end_stream=True)
    wire = socket.create_connection(("127.0.0.1", port), timeout=10)
    wire.sendall(connection.data_to_send())
    return connection, wire


def reset_with(code):
    def leave(connection):
        connection.reset_stream(1, code)
        return connection.data_to_send()
    return leave


LEAVING = {
    "cancel": reset_with(h2.errors.ErrorCodes.CANCEL),
    "internal error": reset_with(h2.errors.ErrorCodes.INTERNAL_ERROR),
    "refused": reset_with(h2.errors.ErrorCodes.REFUSED_STREAM),
    "bytes that are no frame": lambda connection: b"\xff" * 100,
}


@pytest.mark.parametrize("how", LEAVING)
def test_a_client_that_resets_its_http2_stream_before_the_answer_pays_for_its_prompt(envoy, stub, tenant, how):
    content = json.dumps(body(prompt=LONG)).encode()
    connection, wire = h2_start(envoy.port, {"x-tenant-id": tenant, "x-stub-fault": "hang"}, content)
    with wire:
        assert eventually(lambda: stub.received(x_tenant_id=tenant)), "the provider has the prompt"
        wire.sendall(LEAVING[how](connection))
        account = envoy.settled(tenant)
    assert account["held"] == 0
    assert account["spent"] >= 400, "as over HTTP/1: the provider works on the prompt all the same"
    line = eventually(lambda: [line for line in envoy.access_log() if tenant in line and CHAT in line])
    assert "client_disconnect" in line[0], line


# --- how it is spelt


@pytest.mark.parametrize("method", ["post", "Post"])
def test_a_method_in_lower_case_does_not_walk_past_the_meter(envoy, stub, tenant, method):
    """Over HTTP/2 Envoy passes any method on, and some servers raise it to upper case."""
    content = json.dumps(body()).encode()
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    connection.send_headers(1, [(":method", method), (":scheme", "http"), (":authority", "gateway"), (":path", CHAT),
                                ("x-tenant-id", tenant)])
    connection.send_data(1, content, end_stream=True)
    with socket.create_connection(("127.0.0.1", envoy.port), timeout=10) as wire:
        wire.sendall(connection.data_to_send())
        wire.recv(65536)
        wire.recv(65536)
    if stub.received(x_tenant_id=tenant):
        assert envoy.budget(tenant)["tenant-requests"]["spent"] == 1


@pytest.mark.parametrize("method, header", [("PUT", ""), ("PATCH", ""), ("GET", "x-http-method-override: POST\r\n")])
def test_another_method_with_a_chat_body_does_not_walk_past_the_meter(envoy, stub, tenant, method, header):
    content = json.dumps(body())
    raw(envoy.port, (f"{method} {CHAT} HTTP/1.1\r\nhost: x\r\nx-tenant-id: {tenant}\r\nconnection: close\r\n{header}"
                     f"content-length: {len(content)}\r\n\r\n{content}").encode())
    if any(entry.body_bytes for entry in stub.received(x_tenant_id=tenant)):
        assert envoy.budget(tenant)["tenant-requests"]["spent"] == 1


PATHS = ["/v1/chat//../completions", "/v1/chat/x//../../completions", "/v1/chat;x=y/completions;z",
         "/v1/Chat/Completions"]


@pytest.mark.parametrize("path", PATHS)
def test_a_path_that_some_upstream_reads_as_chat_completions_is_metered(envoys, stub, tenant, path):
    """With the path as the client wrote it: `//..` leaves one segment and not two (RFC 3986, 5.2.4), parameters
    of a segment are dropped by servlet containers, and case says nothing to Express and ASP.NET."""
    envoy = envoys(policy(tokens(LIMIT), requests(1000)), manager=AS_WRITTEN)
    content = json.dumps(body())
    raw(envoy.port, (f"POST {path} HTTP/1.1\r\nhost: x\r\nx-tenant-id: {tenant}\r\nconnection: close\r\n"
                     f"content-length: {len(content)}\r\n\r\n{content}").encode())
    if stub.received(x_tenant_id=tenant):
        assert envoy.budget(tenant)["tenant-requests"]["spent"] == 1


def test_stream_options_in_another_case_do_not_keep_usage_from_being_asked_for(envoy, stub, tenant):
    """Most servers tell the cases apart and ignore a field that they do not know: they would report nothing."""
    sent = {**body(stream=True), "Stream_Options": {"include_usage": False}}
    answer = chat(envoy.url, tenant, sent, prompt_tokens=400, completion_tokens=200)
    if answer.status_code == 200:
        received, = stub.received(x_tenant_id=tenant)
        assert json.loads(received.body).get("stream_options") == {"include_usage": True}
        assert envoy.settled(tenant)["spent"] == 600


# --- upstreams that speak as no library does


class Upstream:
    """Answers each connection's one request by a function of its own: `answer(wire, read_body)`."""

    def __init__(self, answer):
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                wire, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(wire,), daemon=True).start()

    def _serve(self, wire):
        with contextlib.suppress(OSError), wire:
            received = b""
            while b"\r\n\r\n" not in received:
                received += wire.recv(65536)
            head, _, content = received.partition(b"\r\n\r\n")
            length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n")
                          if line.startswith(b"content-length:"))

            def read_body():
                left = length - len(content)
                while left > 0:
                    left -= len(wire.recv(left)) or left
            self._answer(wire, read_body)

    def close(self):
        self._listener.close()


def in_chunks(*pieces):
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


EVENT_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
WORDS = b'data: {"choices":[{"index":0,"delta":{"content":"hello world"}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":400,"completion_tokens":200,"total_tokens":600}}\n\n'
DONE = b"data: [DONE]\n\n"


@pytest.fixture
def upstream_envoy():
    """An Envoy before an upstream of the test's own."""
    import gateway
    with contextlib.ExitStack() as stack:
        def start(answer, **options):
            upstream = Upstream(answer)
            stack.callback(upstream.close)
            envoy = gateway.Envoy(upstream.port, **options)
            stack.callback(envoy.stop)
            return envoy.wait_until_ready()
        yield start


def test_an_answer_that_begins_before_the_decision_is_still_followed(upstream_envoy, tenant):
    """Where headers are not held, an upstream may send its own before it has seen the body."""
    def answer(wire, read_body):
        wire.sendall(EVENT_STREAM)
        read_body()
        wire.sendall(in_chunks(*[WORDS] * 200, USAGE, DONE) + b"0\r\n\r\n")

    envoy = upstream_envoy(answer, policy=policy(tokens(LIMIT), host={"header_hold": "none"}))
    content = json.dumps(body(stream=True, max_tokens=1000))
    head = (f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nx-tenant-id: {tenant}\r\nconnection: close\r\n"
            f"content-length: {len(content)}\r\n\r\n")
    with socket.create_connection(("127.0.0.1", envoy.port), timeout=10) as wire:
        wire.sendall(head.encode())
        received = wire.recv(65536)
        assert received.startswith(b"HTTP/1.1 200 OK"), received
        wire.sendall(content.encode())
        while piece := wire.recv(65536):
            received += piece
    assert received.count(b"hello world") == 200
    assert envoy.settled(tenant)["spent"] == 600


@pytest.mark.parametrize("coding", ["Identity", ""])
def test_a_coding_that_changes_nothing_is_no_coding(upstream_envoy, tenant, coding):
    def answer(wire, read_body):
        read_body()
        wire.sendall(EVENT_STREAM.replace(b"chunked", b"chunked\r\ncontent-encoding: " + coding.encode()))
        wire.sendall(in_chunks(WORDS, USAGE, DONE) + b"0\r\n\r\n")

    envoy = upstream_envoy(answer, policy=policy(tokens(LIMIT)))
    content = json.dumps(body(stream=True, max_tokens=1000))
    received = raw(envoy.port, (f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nx-tenant-id: {tenant}\r\nconnection: close\r\n"
                                f"content-length: {len(content)}\r\n\r\n{content}").encode())
    assert b'"usage"' not in received, "the chunk that only the filter asked for"
    assert envoy.settled(tenant)["spent"] == 600


# --- what one client can do to others


def test_one_slow_client_does_not_teach_a_worker_that_its_host_cannot_hold_headers(envoys, stub, tenant):
    """A body that comes just after its headers were let go proves nothing: it may have been sent just then."""
    envoy = envoys(policy(tokens(LIMIT)), fresh=True, concurrency=1)
    content = json.dumps(body(stream=True))
    head = (f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nx-tenant-id: {tenant}\r\nconnection: close\r\n"
            f"content-length: {len(content)}\r\n\r\n")

    def released():
        return any(name.endswith("headers_released_total") for name, _ in envoy.metrics())

    with socket.create_connection(("127.0.0.1", envoy.port), timeout=10) as wire:
        wire.sendall(head.encode())
        assert eventually(released, 10), "the headers are let go after 2 s"
        wire.sendall(content.encode())
        assert wire.recv(65536).startswith(b"HTTP/1.1 200 OK")
    assert chat(envoy.url, tenant + "-next", body(stream=True)).status_code == 200
    received, = stub.received(x_tenant_id=tenant + "-next")
    assert b"include_usage" in received.body, "this host holds headers, and the body can be rewritten"
