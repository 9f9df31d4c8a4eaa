"""The official openai SDK on the APIs beside chat: Responses, completions, embeddings."""

import openai
import pytest

from client import MODEL
from gateway import policy, requests, tokens
from test_openai import LIMIT, both, client

TOOLS = [{"type": "function", "name": "weather", "description": "The weather in a city.", "strict": False, "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}]


@pytest.fixture
def envoy(envoys):
    return envoys(policy(tokens(LIMIT), requests(1000)))


ASKS = {
    "response": lambda sdk, **more: sdk.responses.create(model=MODEL, input="Say hello.", max_output_tokens=100, **more),
    "response with tools": lambda sdk, **more: sdk.responses.create(
        model=MODEL, input=[{"role": "user", "content": "Say hello."}], tools=TOOLS, max_output_tokens=100, **more),
    "completion": lambda sdk, **more: sdk.completions.create(model=MODEL, prompt="Say", max_tokens=100, **more),
    "embedding": lambda sdk, **more: sdk.embeddings.create(model=MODEL, input=["one", "two"], **more),
}
STREAMED = [name for name in ASKS if name != "embedding"]


@pytest.mark.parametrize("api", ASKS)
def test_a_plain_answer_is_the_same(envoy, stub, tenant, api):
    through, direct = both(envoy, stub, tenant, lambda sdk: ASKS[api](sdk).model_dump())
    assert through == direct
    assert through["usage"]["total_tokens"] > 0


@pytest.mark.parametrize("api", STREAMED)
def test_a_stream_is_the_same_event_by_event(envoy, stub, tenant, api):
    through, direct = both(envoy, stub, tenant,
                           lambda sdk: [event.model_dump() for event in ASKS[api](sdk, stream=True)])
    assert through == direct and through


@pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])
@pytest.mark.parametrize("api", ASKS)
def test_usage_is_what_is_charged(envoy, tenant, api, stream):
    more = {"stream": True} if stream and api in STREAMED else {}
    answer = ASKS[api](client(envoy.url, tenant), **more,
                       extra_headers={"x-stub-prompt-tokens": "400", "x-stub-completion-tokens": "70"})
    if more:
        assert list(answer)
    assert envoy.settled(tenant)["spent"] == (400 if api == "embedding" else 470)


@pytest.mark.parametrize("api", ASKS)
def test_a_refusal_is_the_sdks_own_rate_limit_error(envoy, tenant, api):
    ASKS["response"](client(envoy.url, tenant), extra_headers={
        "x-stub-prompt-tokens": str(LIMIT), "x-stub-completion-tokens": "0"})
    envoy.settled(tenant)
    with pytest.raises(openai.RateLimitError) as raised:
        ASKS[api](client(envoy.url, tenant))
    assert raised.value.code == "rate_limit_exceeded"


def test_an_answer_that_comes_later_keeps_its_hold(envoy, tenant):
    answer = ASKS["response"](client(envoy.url, tenant), background=True)
    assert answer.status == "queued"
    account = envoy.budget(tenant)["tenant-tokens"]
    assert account["held"] > 100 and account["spent"] == 0
