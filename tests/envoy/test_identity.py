"""Who pays, by what filters in front have put into the stream's metadata: here `jwt_authn` with real tokens."""

import base64
import hashlib
import hmac
import itertools
import json

import pytest

from client import CHAT, chat, error
from gateway import eventually, policy, requests, tokens

LIMIT = 10_000
SECRET = b"a secret of the tests that is long enough"


def base64url(content):
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def token(**claims):
    """A token that `jwt_authn` accepts."""
    parts = [{"alg": "HS256", "typ": "JWT"}, {"iss": "idp", "exp": 4_000_000_000, **claims}]
    signed = ".".join(base64url(json.dumps(part).encode()) for part in parts)
    return f"{signed}.{base64url(hmac.digest(SECRET, signed.encode(), hashlib.sha256))}"


def bearer(**claims):
    return {"authorization": f"Bearer {token(**claims)}"}


JWT_AUTHN = {"name": "envoy.filters.http.jwt_authn", "typed_config": {
    "@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
    "providers": {"idp": {
        "issuer": "idp", "payload_in_metadata": "jwt_payload",
        "local_jwks": {"inline_string": json.dumps({"keys": [{"kty": "oct", "alg": "HS256", "k": base64url(SECRET)}]})},
    }},
    "rules": [{"match": {"prefix": "/"}, "requires": {"requires_any": {"requirements": [
        {"provider_name": "idp"}, {"allow_missing": {}}]}}}],
}}


def claim(*keys, **parts):
    return {"metadata": ["envoy.filters.http.jwt_authn", "jwt_payload", *keys], **parts}


@pytest.fixture
def envoy(envoys):
    """The tenant by a claim, else by the header that `tenant` stands in."""
    subject = {"tenant": {"from": [claim("org"), {"header": "x-tenant-id"}], "required": True},
               "user": {"from": [claim("sub", **{"as": "sha256"})], "default": "-"},
               "tier": {"from": [claim("plan", "tier")], "default": "free"}}
    limits = [tokens({"free": LIMIT, "paid": 2 * LIMIT}), requests(1000, per=["user"])]
    return envoys(policy(*limits, subject=subject), in_front=[JWT_AUTHN])


@pytest.fixture
def mark(_numbers=itertools.count()):
    """A path of its own, by which a line of the access log is found whoever pays."""
    return f"/mark-{next(_numbers)}"


def ask(envoy, mark, claims, headers=None):
    return chat(envoy.url + mark, "", headers={**bearer(**claims), **(headers or {})})


def logged_tenant(envoy, mark):
    lines = eventually(lambda: [line for line in envoy.access_log() if f"{mark}{CHAT} 200 " in line], 10)
    return json.loads(lines[0][lines[0].index("{"):])["tenant"]


def test_a_verified_claim_pays_and_a_header_beside_it_does_not(envoy, tenant):
    claims = bearer(org=f"org-{tenant}")
    first = chat(envoy.url, tenant, headers=claims, prompt_tokens=LIMIT, completion_tokens=0)
    assert first.status_code == 200
    others = [chat(envoy.url, f"{tenant}-{other}", headers=claims) for other in "ab"]
    assert [answer.status_code for answer in others] == [429, 429]
    assert error(others[0])["type"] == "tokens"
    assert chat(envoy.url, tenant).status_code == 200, "by its header it is another"


NAMES = {"acme": "acme", "acme-org": "acme-org", "é\n{a}:b": "é\n{a}:b", " spaced ": "spaced",
         42: "42", 0: "0", -7: "-7", 1.5: "1.5", 0.1: "0.1", 1767225600123: "1767225600123"}


@pytest.mark.parametrize("value, name", [*NAMES.items(), (True, "true"), (False, "false")], ids=repr)
def test_text_numbers_and_booleans_are_names(envoy, mark, value, name):
    assert ask(envoy, mark, {"org": value}).status_code == 200
    assert logged_tenant(envoy, mark) == name


@pytest.mark.parametrize("value", [{"a": "b"}, {"a": {"b": 1}}, {}, ["a"], ["a", 1], [], [""], None, "", " "], ids=repr)
def test_what_is_no_name_is_as_good_as_absent(envoy, mark, value):
    assert ask(envoy, mark, {"org": value}).status_code == 401
    assert ask(envoy, mark, {"org": value}, {"x-tenant-id": "by-header"}).status_code == 200
    assert logged_tenant(envoy, mark) == "by-header"


def test_keys_lead_into_maps(envoy, tenant):
    def limit(plan):
        answer = chat(envoy.url, tenant, headers=bearer(org=f"{tenant}-{plan}", plan=plan))
        return int(answer.headers["x-tokenlimit-limit"])
    assert (limit({"tier": "paid"}), limit("paid"), limit({"other": 1})) == (2 * LIMIT, LIMIT, LIMIT)


def test_a_hashed_claim_is_nowhere_to_be_read(envoy, mark):
    secret = "person-4711@example.org"
    answer = ask(envoy, mark, {"org": "hashing", "sub": secret})
    assert answer.status_code == 200 and secret not in str(answer.headers)
    assert logged_tenant(envoy, mark) == "hashing"
    assert secret not in "".join(envoy.access_log()) + envoy.envoy_log()
