"""The official anthropic SDK does not notice the filter, except where it is meant to."""

import anthropic
import pytest

from gateway import policy, requests, tokens

LIMIT = 10_000
MODEL = "claude-stub"
MESSAGES = [{"role": "user", "content": "Say hello."}]
TOOLS = [{"name": "weather", "description": "The weather in a city.", "input_schema": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}]


@pytest.fixture
def envoy(envoys):
    return envoys(policy(tokens(LIMIT), requests(1000), response={
        "budget_path": "/tollgate/budget", "headers": ["anthropic"]}))


def client(url, tenant, **options):
    options = {"max_retries": 0, "timeout": 30, **options}
    return anthropic.Anthropic(base_url=url, api_key="sk-ant-test", default_headers={"x-tenant-id": tenant}, **options)


def both(envoy, stub, tenant, ask):
    """What the SDK makes of the answer through the filter, and without it."""
    return ask(client(envoy.url, tenant)), ask(client(stub.url, tenant))


PARTS = {"text": {}, "tools": {"tools": TOOLS}, "system": {"system": [{"type": "text", "text": "Be brief."}]}}


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_a_plain_answer_is_the_same(envoy, stub, tenant, parts):
    def ask(sdk):
        return sdk.messages.create(model=MODEL, messages=MESSAGES, max_tokens=100, **parts).model_dump()
    through, direct = both(envoy, stub, tenant, ask)
    assert through == direct
    assert through["content"]


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_a_stream_is_the_same_event_by_event(envoy, stub, tenant, parts):
    def ask(sdk):
        with sdk.messages.stream(model=MODEL, messages=MESSAGES, max_tokens=100, **parts) as stream:
            return [event.model_dump() for event in stream], stream.get_final_message().model_dump()
    through, direct = both(envoy, stub, tenant, ask)
    assert through == direct
    assert through[1]["usage"]["output_tokens"] > 0


@pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])
def test_usage_is_what_is_charged(envoy, tenant, stream):
    words = {"x-stub-prompt-tokens": "400", "x-stub-completion-tokens": "70"}
    answer = client(envoy.url, tenant).messages.create(
        model=MODEL, messages=MESSAGES, max_tokens=100, stream=stream, extra_headers=words)
    if stream:
        assert list(answer)
    assert envoy.settled(tenant)["spent"] == 470


def test_counting_tokens_is_one_request_and_no_tokens(envoy, tenant):
    counted = client(envoy.url, tenant).messages.count_tokens(model=MODEL, messages=MESSAGES)
    assert counted.input_tokens > 0
    assert envoy.settled(tenant)["spent"] == 0
    assert envoy.budget(tenant)["tenant-requests"]["spent"] == 1


def use_up(envoy, tenant):
    client(envoy.url, tenant).messages.create(
        model=MODEL, messages=MESSAGES, max_tokens=100,
        extra_headers={"x-stub-prompt-tokens": str(LIMIT), "x-stub-completion-tokens": "0"})
    envoy.settled(tenant)


@pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])
def test_a_refusal_is_the_sdks_own_rate_limit_error(envoy, tenant, stream):
    use_up(envoy, tenant)
    with pytest.raises(anthropic.RateLimitError) as raised:
        client(envoy.url, tenant).messages.create(model=MODEL, messages=MESSAGES, max_tokens=100, stream=stream)
    why = raised.value
    assert why.status_code == 429
    assert why.body["type"] == "error" and why.body["error"]["type"] == "rate_limit_error"
    assert "tenant-tokens" in why.body["error"]["message"]
    assert int(why.response.headers["retry-after"]) > 0


def refused(envoy, tenant, kind):
    with pytest.raises(kind) as raised:
        client(envoy.url, tenant, max_retries=2).messages.create(model=MODEL, messages=MESSAGES, max_tokens=100)
    return raised.value


def test_a_suspended_account_is_told_so_and_not_retried(envoys, stub, tenant):
    envoy = envoys(policy(requests(0), response={"headers": ["anthropic"]}))
    why = refused(envoy, tenant, anthropic.PermissionDeniedError)
    assert why.body["error"]["type"] == "permission_error" and why.body["tollgate"]["limit"] == "tenant-requests"
    assert why.response.headers["x-should-retry"] == "false" and "retry-after" not in why.response.headers
    assert why.response.headers["anthropic-ratelimit-requests-remaining"] == "0"
    assert stub.received(x_tenant_id=tenant) == []


def test_who_says_nothing_of_itself_is_not_authenticated(envoys):
    subject = {"tenant": {"from": [{"header": "x-tenant-id"}], "required": True}}
    why = refused(envoys(policy(requests(9), subject=subject)), "", anthropic.AuthenticationError)
    assert why.body["error"]["type"] == "authentication_error"


@pytest.mark.parametrize("window", ["fixed", "sliding", "bucket"])
def test_the_sdks_own_retry_succeeds_after_the_announced_wait(envoys, tenant, window):
    envoy = envoys(policy(tokens(LIMIT, {window: "2s"})))
    use_up(envoy, tenant)
    sdk = client(envoy.url, tenant, max_retries=1)
    answer = sdk.messages.with_raw_response.create(model=MODEL, messages=MESSAGES, max_tokens=LIMIT - 500)
    assert answer.parse().content
    assert answer.retries_taken == 1, "refused once, and right about when to come back"


def test_what_can_never_fit_is_not_retried(envoy, stub, tenant):
    with pytest.raises(anthropic.APIStatusError) as raised:
        client(envoy.url, tenant, max_retries=5).messages.create(
            model=MODEL, messages=MESSAGES, max_tokens=LIMIT + 1)
    assert raised.value.status_code == 413
    assert raised.value.body["error"]["type"] == "request_too_large"
    assert stub.received(x_tenant_id=tenant) == []


def test_the_remaining_budget_is_in_the_raw_answer_and_the_providers_is_not(envoy, tenant):
    raw = client(envoy.url, tenant).messages.with_raw_response.create(model=MODEL, messages=MESSAGES, max_tokens=100)
    assert raw.headers["anthropic-ratelimit-tokens-limit"] == str(LIMIT)
    assert 0 < int(raw.headers["anthropic-ratelimit-tokens-remaining"]) < LIMIT
    assert len(raw.headers.get_list("anthropic-ratelimit-requests-remaining")) == 1
    assert raw.headers["anthropic-ratelimit-requests-limit"] == "1000"


def test_a_providers_error_is_the_error_it_would_be(envoy, stub, tenant):
    def ask(sdk):
        with pytest.raises(anthropic.APIStatusError) as raised:
            sdk.messages.create(model=MODEL, messages=MESSAGES, max_tokens=100, extra_headers={"x-stub-status": "500"})
        return type(raised.value), raised.value.status_code, raised.value.body
    through, direct = both(envoy, stub, tenant, ask)
    assert through == direct
