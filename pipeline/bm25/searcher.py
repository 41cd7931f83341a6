"""Searches a bm25 artifact for single questions. Of the stages only `adapt` and `report` import it, so a change here
rebuilds no index.

Shapes: K hits of a question.
"""

import contextlib
import json
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from pipeline.bm25.java_child import check_child
from pipeline.bm25.settings import read_settings
from pipeline.errors import InputError
from pipeline.runtime.host import cores
from pipeline.runtime.processes import end_child, python, start_child

SPARE = 16
"""Hits beyond a list's end: with them, equal scores rarely need a second search."""
WIDER = 4
"""The next search has this many times as many hits if the filter or equal scores have left too few."""

Hits = tuple[np.ndarray, np.ndarray]
"""Passages, int64 [K], and scores, float32 [K]; best first."""


class Searcher:
    """Answers questions from a bm25 artifact in a separate process. Safe to call from several threads.

    `with Searcher(artifact) as searcher: searcher.hits([("how to parse a date", 10, None)])`. Java loads in the
    background (2 s); the first question, or `wait`, waits for it. The process ends with the `with`, or with its caller.
    If passages have weights, the weights of a question are the counts of its words in lower case.
    `once`: Java starts faster and computes more slowly, for one question; the hits are the same.
    Raises InputError for an artifact from a run file. Its methods raise JavaFailed.
    """

    def __init__(self, artifact: Path, once: bool = False) -> None:
        self.settings = settings = read_settings(artifact)
        """See `settings.SETTINGS`."""
        if settings["scores"] == "run":
            raise InputError("the first stage is a run file (bm25.run), which cannot answer single questions")
        self._stderr = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        job = {"index": str((artifact / "index").resolve()), **settings, "threads": min(cores(), 4), "once": once}
        self._child = start_child(python("pipeline.bm25.search_process", json.dumps(job)), stderr=self._stderr)
        self._lock = threading.Lock()
        self._ready = False

    def wait(self) -> None:
        """Waits until Java has loaded and opened the index."""
        with self._lock:
            self._wait()

    def hits(self, questions: Sequence[tuple[str, int, int | None]]) -> list[Hits]:
        """Returns the best k of each (text, k, filter): (passages as Lucene's numbers, int64; scores, float32).

        Best first, equal scores in the index's order. The filter is None or a number from `keep`; it does not change
        scores. `ids` converts numbers to passage ids.
        """
        hits = self._request({"questions": [*questions]})["hits"]
        return [(np.array(numbers, np.int64), np.array(scores, np.float32)) for numbers, scores in hits]

    def ids(self, numbers_K: np.ndarray) -> list[str]:
        """Returns the passage ids of Lucene's numbers."""
        return self._request({"numbers": numbers_K.tolist()})["ids"] if len(numbers_K) else []

    def terms(self, texts: Sequence[str]) -> list[list[str]]:
        """Returns the index's terms of each text: its words after the analyser."""
        return self._request({"texts": [*texts]})["terms"] if texts else []

    def keep(self, ids: Sequence[str]) -> int:
        """Creates a filter for these passages, valid until `drop`. Returns its number."""
        return int(self._request({"keep": [*ids]})["filter"])

    def drop(self, number: int) -> None:
        """Deletes a filter."""
        self._request({"drop": number})

    def _request(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._wait()
            assert self._child.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # the process died: `_read` raises the reason
                self._child.stdin.write(json.dumps(request) + "\n")
                self._child.stdin.flush()
            return self._read()

    def _wait(self) -> None:
        if not self._ready:
            self._ready = bool(self._read()["ready"])

    def _read(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        message = json.loads(line) if line else {}
        if not message.keys() & {"ready", "hits", "ids", "terms", "filter"}:
            self._child.wait()
            check_child(self._child, message, self._stderr)
        return message

    def close(self) -> None:
        """Ends the process."""
        end_child(self._child)
        self._stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def complete_hits(
    search: Callable[[Mapping[int, int]], Iterable[Hits]],
    depths: Sequence[int],
    most: Sequence[int],
    masks: Sequence[np.ndarray | None] | None = None,
) -> list[Hits]:
    """Returns the best `depth` hits of each question and all with the score of the last one, whose order is free.

    Lucene breaks ties in its own order, so a list that ends within equal scores is searched again, with more hits.
    `search({question: k})` gives the best k hits of each question. `most`: maximum number of hits; 0: no search.
    `masks` [N] bool: the passages that count for a question; None: all.
    """
    found: list[Hits] = [(np.zeros(0, np.int64), np.zeros(0, np.float32))] * len(depths)
    width = {n: min(depth + SPARE, most[n]) for n, depth in enumerate(depths) if most[n]}
    while width:
        wider = {}
        for (n, k), (passage_K, score_K) in zip(width.items(), search(width), strict=True):
            last = score_K[-1] if k < most[n] and len(score_K) == k else -np.inf
            mask = masks[n] if masks else None
            found[n] = (passage_K, score_K) if mask is None else (passage_K[mask[passage_K]], score_K[mask[passage_K]])
            if last > -np.inf and (found[n][1] > last).sum() < depths[n]:
                wider[n] = min(WIDER * k, most[n])
        width = wider
    return found
