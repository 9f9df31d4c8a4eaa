"""Clients: one request at a time for most tests, asyncio for bursts, raw sockets for what no library sends."""

import asyncio
import json
import socket
import time

import h2.config
import h2.connection
import h2.events
import httpx

CHAT = "/v1/chat/completions"
MODEL = "gpt-4o-mini"
PROMPT = "Say hello."


def body(max_tokens=100, stream=False, prompt=PROMPT, **parts):
    chat = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], "max_tokens": max_tokens, **parts}
    return {**chat, "stream": True} if stream else chat


def script(**words):
    """`script(prompt_tokens=400)` as the headers that tell the stub."""
    return {f"x-stub-{name.replace('_', '-')}": str(value) for name, value in words.items()}


def chat(url, tenant, chat_body=None, headers=None, http2=False, **words):
    """One chat request, its answer read whole. `words` are the stub's script."""
    content = chat_body if isinstance(chat_body, bytes) else json.dumps(chat_body or body()).encode()
    sent = {"content-type": "application/json", "x-tenant-id": tenant, **script(**words), **(headers or {})}
    with session(http1=not http2, http2=http2) as client:
        return client.post(url + CHAT, content=content, headers=sent)


def session(**options):
    """A client of its own. Without `verify` it would load certificates, which takes longer than the request."""
    return httpx.Client(verify=False, **{"timeout": 30, **options})


def error(answer):
    """The `error` member, after checking that the answer is an OpenAI error at all."""
    assert answer.headers["content-type"].startswith("application/json"), answer.headers
    content = answer.json()
    assert {"message", "type", "param", "code"} <= set(content["error"]), content
    assert content["error"]["message"], content
    return content["error"]


def events(content):
    """The data of each SSE event, in order."""
    text = content if isinstance(content, str) else content.decode()
    return [line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:")]


def prompt_estimate(url, tenant, **parts):
    """What the filter holds for the prompt of `body(**parts)`: the hold of a probe, less its output."""
    answer = chat(url, tenant, body(max_tokens=100, **parts))
    assert answer.status_code == 200, answer.text
    limit, left = (int(answer.headers[f"x-tokenlimit-{name}"]) for name in ("limit", "remaining"))
    return limit - left - 100


# --- bursts


class Answer:
    def __init__(self, status_code, headers, content):
        self.status_code, self.headers, self.content = status_code, headers, content


class Burst:
    """Many requests at once over connections that are kept between rounds.

    By hand, since the pools of the libraries cost more than the proxy under test from a few hundred
    connections on, and what is tested is that requests meet.
    """

    def __init__(self, url, connections):
        self._address = url.removeprefix("http://").split(":")
        self._free = asyncio.Semaphore(connections)
        self._idle = []

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        for _, writer in self._idle:
            writer.close()

    async def one(self, tenant, content, **words):
        headers = {"host": "gateway", "content-type": "application/json", "x-tenant-id": tenant,
                   "content-length": len(content), **script(**words)}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        async with self._free:
            reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection(*self._address)
            writer.write(f"POST {CHAT} HTTP/1.1\r\n{head}\r\n".encode() + content)
            answer = await read_answer(reader)
            self._idle.append((reader, writer))
            return answer

    async def many(self, count, tenant, content, **words):
        """Tasks, not answers: some may be waiting behind a gate."""
        return [asyncio.create_task(self.one(tenant, content, **words)) for _ in range(count)]


async def read_answer(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    if "content-length" in headers:
        content = await reader.readexactly(int(headers["content-length"]))
    else:
        assert headers["transfer-encoding"] == "chunked", headers
        content = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            content += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
    return Answer(int(head[0].split()[1]), headers, content)


async def until(probe, within=60):
    """Polls like `gateway.eventually`, without holding up the other tasks."""
    deadline = time.monotonic() + within
    while not (result := probe()) and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    return result


# --- what no library sends


def raw(port, request, within=10):
    """Bytes out, and all bytes that come back until the other side closes or is silent for `within` seconds."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=within) as connection:
        connection.sendall(request)
        try:
            while chunk := connection.recv(65536):
                received += chunk
        except TimeoutError:
            pass
    return received


def h2_post(port, path, headers, content, trailers):
    """A POST over HTTP/2 with trailers after its body. Returns (status, headers, body)."""
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    connection.initiate_connection()
    stream = connection.get_next_available_stream_id()
    head = [(":method", "POST"), (":scheme", "http"), (":authority", f"127.0.0.1:{port}"), (":path", path)]
    connection.send_headers(stream, head + list(headers.items()))
    connection.send_data(stream, content)
    connection.send_headers(stream, list(trailers.items()), end_stream=True)
    with socket.create_connection(("127.0.0.1", port), timeout=15) as wire:
        wire.sendall(connection.data_to_send())
        answer, received = {}, b""
        while True:
            data = wire.recv(65536)
            assert data, "the connection was closed in the middle of an answer"
            for event in connection.receive_data(data):
                if isinstance(event, h2.events.ResponseReceived):
                    answer = {name.decode(): value.decode() for name, value in event.headers}
                elif isinstance(event, h2.events.DataReceived):
                    received += event.data
                    connection.acknowledge_received_data(event.flow_controlled_length, stream)
                elif isinstance(event, h2.events.StreamReset):
                    raise AssertionError(f"the stream was reset: {event.error_code}")
                elif isinstance(event, h2.events.StreamEnded):
                    return int(answer[":status"]), answer, received
            wire.sendall(connection.data_to_send())
