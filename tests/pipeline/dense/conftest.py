"""Fixtures of the small collection (tests/support/world.py)."""

from world import faiss_searcher, inline, model_writer, work, world  # noqa: F401
