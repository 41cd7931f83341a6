"""Fixtures of the small collection (tests/support/world.py)."""

from world import inline, pair_start, work, world  # noqa: F401
