"""The official openai SDK does not notice the filter, except where it is meant to."""

import pytest
import openai

from client import MODEL
from gateway import policy, requests, tokens

LIMIT = 10_000

MESSAGES = [{"role": "user", "content": "Say hello."}]

TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather in a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]


@pytest.fixture
def envoy(envoys):
    return envoys(policy(tokens(LIMIT), requests(1000)))


def client(url, tenant, **options):
    options = {"max_retries": 0, "timeout": 30, **options}
    return openai.OpenAI(base_url=f"{url}/v1", api_key="sk-test", default_headers={"x-tenant-id": tenant}, **options)


def both(envoy, stub, tenant, ask):
    """What the SDK makes of the answer through the filter, and without it."""
    return ask(client(envoy.url, tenant)), ask(client(stub.url, tenant))


@pytest.mark.parametrize("parts", [{}, {"n": 2}, {"tools": TOOLS}], ids=["text", "two choices", "tools"])
def test_a_plain_answer_is_the_same(envoy, stub, tenant, parts):
    def ask(sdk):
        return sdk.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=100, **parts).model_dump()
    through, direct = both(envoy, stub, tenant, ask)
    assert through == direct
    assert through["usage"]["total_tokens"] > 0


@pytest.mark.parametrize("parts", [
    {}, {"n": 2}, {"tools": TOOLS}, {"stream_options": {"include_usage": True}},
    {"stream_options": {"include_usage": True}, "tools": TOOLS},
], ids=["text", "two choices", "tools", "usage", "tools and usage"])
def test_a_stream_is_the_same_chunk_by_chunk(envoy, stub, tenant, parts):
    def ask(sdk):
        stream = sdk.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=100, stream=True, **parts)
        return [chunk.model_dump() for chunk in stream]
    through, direct = both(envoy, stub, tenant, ask)
    assert through == direct
    assert any(chunk["usage"] for chunk in through) == ("stream_options" in parts)


def test_the_streaming_helper_puts_the_same_answer_together(envoy, stub, tenant):
    def ask(sdk):
        with sdk.chat.completions.stream(model=MODEL, messages=MESSAGES, max_tokens=100, tools=TOOLS) as stream:
            return stream.get_final_completion().model_dump()
    through, direct = both(envoy, stub, tenant, ask)
    assert through == direct
    assert through["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "weather"


def test_the_remaining_budget_is_in_the_raw_answer(envoy, tenant):
    raw = client(envoy.url, tenant).chat.completions.with_raw_response.create(
        model=MODEL, messages=MESSAGES, max_tokens=100)
    assert 0 < int(raw.headers["x-ratelimit-remaining-tokens"]) < LIMIT
    assert raw.parse().choices[0].message.content


def use_up(envoy, tenant):
    client(envoy.url, tenant).chat.completions.create(
        model=MODEL, messages=MESSAGES, max_tokens=100,
        extra_headers={"x-stub-prompt-tokens": str(LIMIT), "x-stub-completion-tokens": "0"})
    envoy.settled(tenant)


@pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])
def test_a_refusal_is_the_sdks_own_rate_limit_error(envoy, tenant, stream):
    use_up(envoy, tenant)
    with pytest.raises(openai.RateLimitError) as raised:
        client(envoy.url, tenant).chat.completions.create(
            model=MODEL, messages=MESSAGES, max_tokens=100, stream=stream)
    why = raised.value
    assert (why.status_code, why.code, why.type) == (429, "rate_limit_exceeded", "tokens")
    assert "tenant-tokens" in str(why)
    assert int(why.response.headers["retry-after"]) > 0


@pytest.mark.parametrize("window", ["fixed", "sliding", "bucket"])
def test_the_sdks_own_retry_succeeds_after_the_announced_wait(envoys, tenant, window):
    envoy = envoys(policy(tokens(LIMIT, {window: "2s"})))
    use_up(envoy, tenant)
    sdk = client(envoy.url, tenant, max_retries=1)
    answer = sdk.chat.completions.with_raw_response.create(model=MODEL, messages=MESSAGES, max_tokens=LIMIT - 500)
    assert answer.parse().choices[0].message.content
    assert answer.retries_taken == 1, "refused once, and right about when to come back"


def test_what_can_never_fit_is_not_retried(envoy, stub, tenant):
    with pytest.raises(openai.APIStatusError) as raised:
        client(envoy.url, tenant, max_retries=5).chat.completions.create(
            model=MODEL, messages=MESSAGES, max_tokens=LIMIT + 1)
    assert raised.value.status_code == 413
    assert "x-stainless-retry-count" not in raised.value.request.headers or \
        raised.value.request.headers["x-stainless-retry-count"] == "0"
    assert stub.received(x_tenant_id=tenant) == []


def test_a_providers_error_is_the_error_it_would_be(envoy, stub, tenant):
    def ask(sdk):
        with pytest.raises(openai.APIStatusError) as raised:
            sdk.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=100,
                                        extra_headers={"x-stub-status": "500"})
        return type(raised.value), raised.value.status_code, raised.value.body
    through, direct = both(envoy, stub, tenant, ask)
    assert through == direct
