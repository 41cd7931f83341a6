"""Fixtures of the small collection (tests/support/world.py)."""

from world import inline, work, world  # noqa: F401
