"""A question to a search session, and what the session has open to answer it."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from flows.serving.engine import By, Engine
from flows.serving.rankings import Dense, Lexical
from pipeline.data.filter import Where
from pipeline.data.passages import Passages

LONGEST = 10_000
"""Characters of a question: fewer than BM25 reads (lucene.QUERY_CHARACTERS), so that it cuts none."""


class Question(NamedTuple):
    text: str
    k: int
    """Documents wanted."""
    by: By
    where: str | None = None
    """A filter on the collection's further columns."""


@dataclass(frozen=True)
class Opened:
    """What a run needs to answer."""

    engine: Engine
    passages: Passages
    where: Where
    known: Callable[[Sequence[str]], Mapping[str, str]]
    """Passage ids -> {passage id: a question that it is judged relevant to}, at least of those that have one."""
    dense: Dense | None
    lexical: Lexical | None
    beside: ThreadPoolExecutor
    """One thread that waits for BM25 while another encodes."""
    problems: Mapping[By, str]
    """Why the run cannot be asked so."""

    @property
    def collection(self) -> Path:
        return self.engine.collection

    @property
    def ways(self) -> list[By]:
        """How it can be asked."""
        ready = {"dense": self.dense is not None, "bm25": self.lexical is not None}
        ready["fusion"] = all(ready.values()) and bool(self.engine.metrics["fusion"])
        return [way for way in WAYS if ready[way]]


WAYS: tuple[By, ...] = ("fusion", "dense", "bm25")
