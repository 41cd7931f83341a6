"""Tests that share what they build run in one process (tests/conftest.py)."""

import os

import pytest


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="the tests run in one process")
def test_xdist_knows_the_groups(request: pytest.FixtureRequest) -> None:
    """pytest 9.1 and later ignore the groups silently, and so does a hook that runs after the hook of xdist."""
    assert request.node.nodeid.endswith("@tests/test_groups")
