"""Fixtures of the small collection (tests/support/world.py)."""

from world import world  # noqa: F401
