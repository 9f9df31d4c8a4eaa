"""Our refusals are the official anthropic SDK's own errors, and it retries those that say so."""

import pytest

from gateway import policy, requests

anthropic = pytest.importorskip("anthropic")

ROUTES = [{"path": "/v1/messages/count_tokens", "api": "request_only"}]
MESSAGES = [{"role": "user", "content": "Say hello."}]


def counting(envoy, tenant, max_retries=0):
    headers = {"x-tenant-id": tenant} if tenant else {}
    sdk = anthropic.Anthropic(base_url=envoy.url, api_key="sk-test", max_retries=max_retries, timeout=30,
                              default_headers=headers)
    return sdk.messages.with_raw_response.count_tokens


def use_up(envoy, tenant):
    """The stub does not count, but a request is a request."""
    refused(envoy, tenant, anthropic.NotFoundError)


def refused(envoy, tenant, kind):
    with pytest.raises(kind) as raised:
        counting(envoy, tenant)(model="claude-sonnet-4-5", messages=MESSAGES)
    return raised.value


@pytest.mark.parametrize("amount, kind, word, retry", [
    (1, anthropic.RateLimitError, "rate_limit_error", None),
    (0, anthropic.PermissionDeniedError, "permission_error", "false"),
])
def test_a_limit_that_refuses_is_the_sdks_own_error(envoys, tenant, amount, kind, word, retry):
    envoy = envoys(policy(requests(amount), routes=ROUTES, response={"headers": ["anthropic"]}))
    for _ in range(amount):
        use_up(envoy, tenant)
    why = refused(envoy, tenant, kind)
    assert why.body["error"]["type"] == word and "tenant-requests" in str(why)
    assert why.body["tollgate"]["limit"] == "tenant-requests"
    assert why.response.headers.get("x-should-retry") == retry
    assert why.response.headers["anthropic-ratelimit-requests-remaining"] == "0"
    assert ("retry-after" in why.response.headers) == (retry is None)


def test_who_says_nothing_of_itself_is_not_authenticated(envoys):
    subject = {"tenant": {"from": [{"header": "x-tenant-id"}], "required": True}}
    envoy = envoys(policy(requests(9), routes=ROUTES, subject=subject))
    assert refused(envoy, None, anthropic.AuthenticationError).body["error"]["type"] == "authentication_error"


def test_the_sdks_own_retry_succeeds_after_the_announced_wait(envoys, tenant):
    envoy = envoys(policy(requests(1, {"fixed": "2s"}), routes=ROUTES))
    use_up(envoy, tenant)
    refused(envoy, tenant, anthropic.RateLimitError)
    with pytest.raises(anthropic.NotFoundError) as admitted:
        counting(envoy, tenant, max_retries=1)(model="claude-sonnet-4-5", messages=MESSAGES)
    assert admitted.value.request.headers["x-stainless-retry-count"] == "1"
