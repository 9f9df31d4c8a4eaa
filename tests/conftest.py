"""Fixtures: one stub for the whole run, and Envoys that are shared by the tests of one file."""

import itertools
import json

import pytest

import gateway


@pytest.fixture(scope="session")
def stub():
    process = gateway.Stub()
    yield process
    process.stop()


@pytest.fixture(scope="module")
def envoys(stub):
    """Starts an Envoy for the options given, or hands out the one that already runs with them."""
    running = {}

    def start(policy, fresh=False, **options):
        key = json.dumps([policy, options], sort_keys=True) if not fresh else object()
        if key not in running:
            running[key] = gateway.Envoy(stub.port, policy=policy, **options)
            running[key].wait_until_ready()
        return running[key]

    yield start
    for process in running.values():
        process.stop()


@pytest.fixture
def tenant(request, _names=itertools.count()):
    """A tenant that no other test has used."""
    return f"t{next(_names)}-{request.node.name[:40]}"
