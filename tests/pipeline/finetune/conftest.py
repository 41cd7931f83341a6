"""Fixtures of the small collection (tests/support/world.py)."""

from world import inline, negatives_writer, work, world  # noqa: F401
