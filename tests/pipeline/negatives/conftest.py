"""Fixtures of the small collection (tests/support/world.py)."""

from world import inline, work  # noqa: F401
