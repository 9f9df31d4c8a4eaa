"""What each way to end costs: exactly once, what the provider says, else what was seen."""

import json

import httpx
import pytest

from client import CHAT, body, chat, events, prompt_estimate, script, session
from gateway import ROOT, eventually, policy, requests, steady, tokens

LIMIT = 100_000
WORDS = 40
"""Chunks of text in a stream, a token each."""


@pytest.fixture
def envoy(envoys):
    return envoys(policy(tokens(LIMIT), requests(1000)))


def spent(envoy, tenant):
    account = envoy.settled(tenant)
    assert account["held"] == 0, account
    assert account["spent"] + account["remaining"] == LIMIT, account
    return account["spent"]


def requests_spent(envoy, tenant):
    return envoy.budget(tenant)["tenant-requests"]["spent"]


USAGE = {"prompt_tokens": 400, "completion_tokens": 200}

WITH_USAGE = ["none", "usage-then-event", "usage-every-chunk", "no-done", "split-utf8", "trailers", "gzip"]


@pytest.mark.parametrize("http2", [False, True], ids=["http1", "http2"])
@pytest.mark.parametrize("fault", WITH_USAGE)
@pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])
def test_an_answer_with_usage_costs_its_usage(envoys, tenant, stream, fault, http2):
    envoy = envoys(policy(tokens(LIMIT), requests(1000)), http2_upstream=http2)
    answer = chat(envoy.url, tenant, body(max_tokens=1000, stream=stream), fault=fault, chunks=WORDS, **USAGE,
                  headers={"accept-encoding": "gzip"})
    assert answer.status_code == 200, answer.text
    assert spent(envoy, tenant) == 600
    assert requests_spent(envoy, tenant) == 1


def test_a_real_cost_above_the_hold_is_charged_as_debt(envoy, tenant):
    chat(envoy.url, tenant, body(max_tokens=10), prompt_tokens=400, completion_tokens=LIMIT)
    account = envoy.settled(tenant)
    assert (account["spent"], account["held"], account["remaining"]) == (LIMIT + 400, 0, 0)
    assert chat(envoy.url, tenant, body(max_tokens=10)).status_code == 429


def text_cost(envoy, tenant):
    """The band for a prompt and `WORDS` tokens of text: half and twice of what was seen."""
    prompt = prompt_estimate(envoy.url, tenant + "-probe")
    return prompt + WORDS // 2, prompt + WORDS * 2


@pytest.mark.parametrize("fault", ["no-usage", "gzip-always"])
@pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])
def test_an_answer_without_usage_costs_the_prompt_and_the_text_seen(envoy, tenant, stream, fault):
    low, high = text_cost(envoy, tenant)
    answer = chat(envoy.url, tenant, body(max_tokens=1000, stream=stream), fault=fault, chunks=WORDS, **USAGE)
    assert answer.status_code == 200
    if fault == "gzip-always":
        # What cannot be read is charged by what was held or by its size, never at nothing.
        high = low + 1000
    assert low <= spent(envoy, tenant) <= high


def read_events(lines, count):
    """Reads so many events; the first of a stream carries the role alone."""
    while count > 0:
        count -= next(lines).startswith("data:")


def test_a_client_that_leaves_in_the_middle_pays_its_prompt_and_what_it_saw(envoy, tenant):
    low, high = text_cost(envoy, tenant)
    with session() as client:
        headers = {"x-tenant-id": tenant, **script(fault="hang-end", chunks=WORDS)}
        with client.stream("POST", envoy.url + CHAT, json=body(max_tokens=1000, stream=True), headers=headers) as answer:
            # Kept by name: an iterator that is dropped closes the connection.
            lines = answer.iter_lines()
            read_events(lines, WORDS + 1)
            running = envoy.budget(tenant)["tenant-tokens"]
    assert running["held"] > 0, "while the stream runs its hold stands"
    assert low <= spent(envoy, tenant) <= high


def test_a_client_that_leaves_before_the_first_byte_pays_its_prompt(envoy, stub, tenant):
    low, high = text_cost(envoy, tenant)
    with pytest.raises(httpx.ReadTimeout), session(timeout=0.5) as client:
        headers = {"x-tenant-id": tenant, **script(fault="hang")}
        client.post(envoy.url + CHAT, json=body(max_tokens=1000), headers=headers)
    assert low - WORDS // 2 <= spent(envoy, tenant) <= high


@pytest.mark.parametrize("status", [400, 401, 429, 500, 503])
def test_a_provider_that_fails_is_paid_nothing_but_the_request_counts(envoy, tenant, status):
    answer = chat(envoy.url, tenant, body(max_tokens=1000), status=status)
    assert answer.status_code == status
    assert spent(envoy, tenant) == 0
    assert requests_spent(envoy, tenant) == 1


@pytest.mark.parametrize("http2", [False, True], ids=["http1", "http2"])
@pytest.mark.parametrize("fault", ["reset-before", "reset-after-headers"])
def test_a_provider_that_breaks_off_before_any_token_is_paid_nothing(envoys, tenant, fault, http2):
    envoy = envoys(policy(tokens(LIMIT), requests(1000)), http2_upstream=http2)
    try:
        assert chat(envoy.url, tenant, body(max_tokens=1000, stream=True), fault=fault).status_code in (200, 503)
    except httpx.RemoteProtocolError:
        pass
    assert spent(envoy, tenant) == 0
    assert requests_spent(envoy, tenant) == 1


@pytest.mark.parametrize("http2", [False, True], ids=["http1", "http2"])
def test_a_provider_that_breaks_off_in_a_stream_is_paid_what_was_seen(envoys, tenant, http2):
    envoy = envoys(policy(tokens(LIMIT), requests(1000)), http2_upstream=http2)
    low, high = text_cost(envoy, tenant)
    with pytest.raises(httpx.RemoteProtocolError):
        chat(envoy.url, tenant, body(max_tokens=1000, stream=True), fault="reset-mid", chunks=2 * WORDS)
    assert low <= spent(envoy, tenant) <= high


@pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])
def test_an_error_object_behind_status_200_costs_no_output(envoy, tenant, stream):
    prompt = prompt_estimate(envoy.url, tenant + "-probe")
    assert chat(envoy.url, tenant, body(max_tokens=1000, stream=stream), fault="error-200").status_code == 200
    assert spent(envoy, tenant) <= prompt


def test_the_providers_own_429_passes_untouched(envoy, stub, tenant):
    direct = chat(stub.url, tenant, status=429)
    through = chat(envoy.url, tenant, status=429)
    assert through.status_code == 429
    assert through.content == direct.content
    for name in ("retry-after", "retry-after-ms", "x-should-retry", "content-type", "x-request-id"):
        assert through.headers.get_list(name) == direct.headers.get_list(name), name
    limits = [name for name in direct.headers if name.startswith("x-ratelimit-")]
    assert len(limits) == 6
    for name in limits:
        assert through.headers.get_list(name) == direct.headers.get_list(name), name


def test_a_stream_beyond_its_hold_is_charged_while_it_runs_and_finishes(envoy, tenant):
    with session() as client:
        headers = {"x-tenant-id": tenant, **script(fault="hang-end", chunks=3000)}
        with client.stream("POST", envoy.url + CHAT, json=body(max_tokens=100, stream=True), headers=headers) as answer:
            lines = answer.iter_lines()
            read_events(lines, 3000 + 1)

            def taken():
                account = envoy.budget(tenant)["tenant-tokens"]
                return account["held"] + account["spent"] >= 2500
            assert eventually(taken, within=2), envoy.budget(tenant)
    assert 2500 <= spent(envoy, tenant) <= 4000


# --- what the client sees of a stream


def stream_bytes(url, tenant, chat_body, **words):
    answer = chat(url, tenant, chat_body, **words)
    assert answer.status_code == 200, answer.text
    return answer.content


@pytest.mark.parametrize("fault", ["none", "usage-then-event", "split-utf8", "no-done", "trailers"])
def test_a_usage_chunk_that_the_client_did_not_ask_for_is_hidden_and_nothing_else(envoy, stub, tenant, fault):
    assert stream_bytes(envoy.url, tenant, body(stream=True), fault=fault) == hidden(stub, tenant, fault=fault)


def hidden(stub, tenant, **words):
    """What the stub says to a client that asks for usage, without the chunk that carries it alone."""
    asked = body(stream=True, stream_options={"include_usage": True})
    with_usage = stream_bytes(stub.url, tenant, asked, **words).split(b"\n\n")
    without = [event for event in with_usage if not (b'"choices":[]' in event and b"prompt_tokens" in event)]
    assert len(without) == len(with_usage) - 1
    return b"\n\n".join(without)


@pytest.mark.parametrize("fault", ["none", "usage-then-event", "usage-every-chunk", "split-utf8", "no-usage"])
def test_a_stream_whose_client_asked_for_usage_is_the_same_bytes(envoy, stub, tenant, fault):
    asked = body(stream=True, stream_options={"include_usage": True})
    words = {"fault": fault, "chunks": 20, **USAGE}
    assert stream_bytes(envoy.url, tenant, asked, **words) == stream_bytes(stub.url, tenant, asked, **words)


@pytest.mark.parametrize("piece", [1, 7, 100, 1000])
def test_a_stream_cut_anywhere_reads_the_same(envoy, stub, tenant, piece):
    """The usage chunk is hidden though it comes in pieces, and counted though it is hidden."""
    whole = hidden(stub, tenant, chunks=3)
    assert stream_bytes(envoy.url, tenant, body(stream=True), chunks=3, piece=piece, **USAGE) == whole
    assert spent(envoy, tenant) == 600


def test_recorded_streams_pass_unchanged_and_cost_what_they_report(envoy, stub, tenant):
    manifest = json.loads((ROOT / "tests/fixtures/manifest.json").read_text())
    asked = body(stream=True, max_tokens=1000, stream_options={"include_usage": True})
    chats = [fixture for fixture in manifest["fixtures"] if fixture["id"].startswith("openai-chat")]
    assert len(chats) == 2
    total = 0
    for fixture in chats:
        for wire in [*fixture["streams"], fixture["response"]]:
            recorded = stream_bytes(stub.url, tenant, asked, replay=wire["file"])
            assert stream_bytes(envoy.url, tenant, asked, replay=wire["file"]) == recorded
            total += wire["expected"]["usage"]["total"]
            assert spent(envoy, tenant) == total, wire["file"]


def test_chunks_reach_the_client_as_they_come(envoy, tenant):
    """Nothing is held back: with the stub hanging after its text, all of the text has arrived."""
    with session(timeout=10) as client:
        headers = {"x-tenant-id": tenant, **script(fault="hang-end", chunks=3)}
        with client.stream("POST", envoy.url + CHAT, json=body(stream=True), headers=headers) as answer:
            received = b""
            for chunk in answer.iter_raw():
                received += chunk
                if len(events(received)) == 4:
                    break
    assert [json.loads(event)["choices"][0]["delta"]["content"] for event in events(received)] == \
        ["", "The", " water", " in"]


def test_dollars_and_weights_follow_the_providers_usage(envoys, tenant):
    price = {"input": "2.50", "output": "10.00"}
    models = [{"match": "*", "tokenizer": "o200k_base", "weight": 10, "price": price}]
    money = {"name": "tenant-day", "per": ["tenant"], "unit": "usd", "window": steady(), "amount": "0.02"}
    envoy = envoys(policy(tokens(LIMIT), money, models=models))
    assert chat(envoy.url, tenant, body(max_tokens=1000), **USAGE).status_code == 200
    assert spent(envoy, tenant) == 6000
    # 400 in at 2.50 and 200 out at 10.00 a million.
    assert envoy.budget(tenant)["tenant-day"]["spent"] == 0.003
    refused = chat(envoy.url, tenant, body(max_tokens=1750), **USAGE)
    assert (refused.status_code, refused.json()["tollgate"]["limit"]) == (429, "tenant-day")
    assert refused.json()["tollgate"]["used"] == 0.003
