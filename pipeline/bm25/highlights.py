"""Which words of a text are highlighted for a question, by the analyser of a bm25 artifact.

With Java the artifact's own analyser decides, otherwise `matches.plain_analyser`.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.bm25.matches import Analyse, Matcher, kept, matchers, plain_analyser
from pipeline.bm25.searcher import Searcher
from pipeline.bm25.settings import read_settings, read_stop_words
from pipeline.errors import InputError, JavaFailed

Request = tuple[str, Sequence[str]]
"""A question, and the texts that are shown for it."""


@dataclass(frozen=True)
class Highlighter:
    """Returns a matcher for each question and its texts."""

    job: dict[str, Any]
    """The settings of bm25.json."""
    plain: Analyse
    analyse: Analyse | None = None
    """The artifact's own analyser, in Java."""

    def __call__(self, requests: Sequence[Request]) -> list[Matcher]:
        if self.analyse is not None:
            with contextlib.suppress(JavaFailed):  # the words are highlighted all the same
                return matchers(self.analyse, self.job, requests)
        return matchers(self.plain, self.job, requests)


def highlighter(artifact: Path | None, terms: Callable[[Sequence[str]], list[list[str]]] | None = None) -> Highlighter:
    """Returns the highlighter of a bm25 artifact; of English words if there is none. `terms`: see `Searcher.terms`."""
    job = {"scores": "run", "stemmer": "porter", "split_identifiers": False}
    stop_words: frozenset[str] = frozenset()
    if artifact is not None:
        with contextlib.suppress(InputError):  # whoever searches the artifact reports the damage
            job |= read_settings(artifact)
            stop_words = read_stop_words(artifact)
    own = terms if job["scores"] == "bm25" else None  # other systems' terms are not those of the passages' words
    return Highlighter(job, kept(plain_analyser(job, stop_words)), kept(own) if own else None)


@contextmanager
def open_highlighter(artifact: Path | None) -> Iterator[Highlighter]:
    """Returns the highlighter of a bm25 artifact, with its own analyser in Java if it has an index."""
    if artifact is None or not (artifact / "index").is_dir() or read_settings(artifact)["scores"] != "bm25":
        yield highlighter(artifact)
        return
    with Searcher(artifact, once=True) as searcher:
        yield highlighter(artifact, searcher.terms)
