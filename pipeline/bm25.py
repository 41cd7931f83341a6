"""Lucene's BM25 through pyserini: the baseline run and the first negatives. Java lives in a process of its own."""

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Literal, Self

from pydantic import Field

from pipeline.config import Config
from pipeline.errors import InputError
from pipeline.processes import ending, environment, listen, workers
from pipeline.work import Metrics, Work

SETTINGS = "bm25.json"
"""Beside `index/`: what a search in it must know."""


class BM25Config(Config):
    k1: float = Field(ge=0)
    """Saturation of term frequency. Lucene's default is 1.2, Anserini's 0.9."""
    b: float = Field(ge=0, le=1)
    """Share of length normalisation. Lucene's default is 0.75, Anserini's 0.4."""
    titles: int = Field(ge=0, le=10)
    """Times that the title stands before the text in what is indexed (a weight on its terms). 0: text alone."""
    stemmer: Literal["porter", "krovetz", "none"]
    """Stemmer of Anserini's English analyser, for passages and questions alike."""
    split_identifiers: bool
    """Split words at `_`, at camelCase and at the dots of qualified names, in passages and questions alike. Lucene's
    analyser keeps `numpy.linalg.norm` one word, which no question holds."""
    depth: int = Field(ge=1, le=10_000)
    """Passages kept for each dev and test question. 1,000 for R@1000."""
    negatives_depth: int = Field(ge=1, le=10_000)
    """Passages kept for each training question. What is not judged relevant becomes its BM25 negatives."""


def bm25(config: BM25Config, collection: Path, work: Work) -> Metrics:
    """Index the collection, search all questions, keep the training questions' negatives.

    Writes `index/`, `bm25.json`, `run.parquet`, `run.trec` and `negatives.parquet`. Equal scores stand in passage
    order, so that all but the index's bytes is a function of the inputs. Training questions without a judged passage
    are not searched: nothing would be trained on them. Questions longer than 20,000 characters are cut, those without
    a term in the index find nothing; both are counted.
    """
    settings = config.model_dump(include={"k1", "b", "titles", "stemmer", "split_identifiers"})
    (work.out / SETTINGS).write_text(json.dumps(settings, indent=1, sort_keys=True) + "\n")
    paths = {"collection": str(collection.resolve()), "out": str(work.out.resolve())}
    job = {"do": "build", **config.model_dump(), **paths, "threads": workers(work.machine)}
    with tempfile.TemporaryFile("w+", errors="replace") as stderr:
        child = start(job, stderr)
        try:
            answer = listen(child, work.progress)
            child.wait()
        finally:
            child.kill()
            child.wait()
        check(child, answer, stderr)
    return answer["result"]


def start(job: Mapping[str, Any], stderr: IO[str], stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    """The Java process, in a session of its own so that a terminal's Ctrl-C reaches the caller alone."""
    return subprocess.Popen(
        [sys.executable, "-m", "pipeline.bm25_process", json.dumps(job)],
        env=environment(),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,
    )


def check(child: subprocess.Popen[str], answer: Mapping[str, Any], stderr: IO[str]) -> None:
    """Raise what a finished process has to say in one line, if it failed."""
    if "input_error" in answer:
        raise InputError(answer["input_error"])
    if "error" in answer:
        raise RuntimeError(f"BM25 failed: {answer['error']}")
    if "result" not in answer:
        raise RuntimeError(f"BM25 failed in its Java process, {ending(child.returncode)}: {last_line(stderr)}")


def last_line(stderr: IO[str]) -> str:
    stderr.seek(0)
    lines = [line.strip() for line in stderr if line.strip()]
    return lines[-1] if lines else "it left no message"


class Searcher:
    """Answers single questions from a bm25 artifact, in a process of its own. Safe to call from several threads.

    `with Searcher(artifact) as searcher: searcher.search("how to parse a date", 10)`. Java loads in the background
    (2 s); the first `search` waits for it. The process ends with the `with`, or with the caller's process.
    """

    def __init__(self, artifact: Path) -> None:
        self._stderr = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        settings = json.loads((artifact / SETTINGS).read_text())
        job = {"do": "answer", "index": str((artifact / "index").resolve()), **settings}
        self._child = start(job, self._stderr, stdin=subprocess.PIPE)
        self._lock = threading.Lock()
        self._ready = False

    def search(self, text: str, k: int) -> list[tuple[str, float]]:
        """The best `k` as (passage id, BM25 score), best first; equal scores in the index's order."""
        with self._lock:
            if not self._ready:
                self._ready = bool(self._read()["ready"])
            assert self._child.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it died: reading tells why
                self._child.stdin.write(json.dumps({"text": text, "k": k}) + "\n")
                self._child.stdin.flush()
            found = self._read()
        return list(zip(found["ids"], found["scores"], strict=True))

    def _read(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        message = json.loads(line) if line else {}
        if "ready" not in message and "ids" not in message:
            self._child.wait()
            check(self._child, message, self._stderr)
        return message

    def close(self) -> None:
        """End the process."""
        self._child.kill()
        self._child.wait()
        for file in (self._child.stdin, self._child.stdout, self._stderr):
            if file is not None:
                file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
