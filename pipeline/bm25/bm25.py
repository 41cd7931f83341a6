"""The first stage: a baseline run and the first negatives, by Lucene's BM25 or in another system's words or ranking.

Java, through pyserini, lives in a process of its own.
"""

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Literal, Self

from pydantic import Field, model_validator

from pipeline.bm25 import other_systems
from pipeline.bm25.settings import write_settings
from pipeline.config import Config
from pipeline.data import run_files
from pipeline.data.text_files import wrong_beginning
from pipeline.errors import InputError
from pipeline.runtime.processes import ending, environment, listen, python, workers
from pipeline.runtime.work import Metrics, Work


class Ended(RuntimeError):
    """The Java process failed or was killed. One line."""


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
    run: Path | None
    """Another system's run in the place of BM25's: a file, plain or compressed, of TREC's six columns or MS MARCO's
    three (question, passage, rank), with the questions of all splits: what ranks dev and test, and whence the training
    questions' negatives come. Passages stand by score, then passage order. It leaves no index to search in."""
    passages: Path | None
    """The collection's passages as another system writes them, in pyserini's JSON (a file, or a folder of .json and
    .jsonl files, plain or compressed), by passage id. `{"id", "contents"}` is text (docT5query, DeepCT), indexed for
    BM25 in the place of title and text. `{"id", "vector": {term: integer}}` is weights (DeepImpact, uniCOIL, SPLADE):
    a passage scores the sum of its weights times the question's; k1, b, titles, stemmer, split_identifiers are of no
    account."""
    topics: Path | None
    """The questions as another system writes them, by question id: such JSON, or lines of id, tab, text (Anserini's
    topics). For BM25 text (as GAR's); for weights a vector, or terms between white space, each weighing as often as
    it stands there. Questions that it lacks find nothing. None: the collection's questions; for weights their words,
    in lower case, which fits a system whose terms are whole words."""

    @model_validator(mode="after")
    def _one_first_stage(self) -> Self:
        if self.run and (self.passages or self.topics):
            raise ValueError("run is a whole first stage: passages and topics must be null beside it")
        return self


def missing(config: BM25Config) -> list[str]:
    """What is wrong with the beginning of each file that is given, a line each. Quick."""
    given = {
        "run": (config.run, run_files.rows),
        "passages": (config.passages, other_systems.passages),
        "topics": (config.topics, other_systems.topics),
    }
    return [
        line
        for name, (path, read) in given.items()
        if path is not None
        for line in wrong_beginning(f"bm25.{name}", path, read, folder=name == "passages")
    ]


def bm25(config: BM25Config, collection: Path, work: Work) -> Metrics:
    """Index the collection, search all questions, keep the training questions' negatives.

    Writes `index/` (not for a `run`), `bm25.json`, `run.parquet`, `run.trec` and `negatives.parquet`. Equal scores
    stand in passage order, so that all but the index's bytes is a function of the inputs. Training questions without
    a judged passage are not searched: nothing would be trained on them. Counted are questions that are longer than
    20,000 characters (cut; weights: 4,000 terms), that hold control characters (made spaces), that no term is left of
    and that find nothing; hits that are no negatives (data/barred.py); of files given, what they lack and what they
    have too much.
    Raises InputError, by file and line, for what such a file has wrong.
    """
    depths = {"train": config.negatives_depth, "dev": config.depth, "test": config.depth}
    if config.run:
        write_settings(work.out, {"scores": "run"})
        from pipeline.bm25.first_stage import from_run

        return from_run(config.run, depths, collection, work)
    settings = config.model_dump(include={"k1", "b", "titles", "stemmer", "split_identifiers", "depth"})
    settings["scores"] = scores(config)
    write_settings(work.out, settings)
    paths = {"collection": collection.resolve(), "out": work.out.resolve()}
    given = {"passages": config.passages, "topics": config.topics}
    job = {
        **settings,
        "depths": depths,
        "threads": workers(work.machine),
        **{name: path and str(path) for name, path in {**paths, **given}.items()},
    }
    with tempfile.TemporaryFile("w+", errors="replace") as stderr:
        child = start("pipeline.bm25.index_process", job, stderr)
        try:
            answer = listen(child, work.progress)
            child.wait()
        finally:
            child.kill()
            child.wait()
        check(child, answer, stderr)
    return answer["result"]


def scores(config: BM25Config) -> str:
    """`bm25`, or `weights` where the passages given hold them. Raises InputError."""
    first = next(other_systems.passages(config.passages), None) if config.passages else None
    return "weights" if first and isinstance(first[2], dict) else "bm25"


def start(
    module: str, job: Mapping[str, Any], stderr: IO[str], stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[str]:
    """The process of `module`, in a session of its own so that a terminal's Ctrl-C reaches the caller alone."""
    return subprocess.Popen(
        python(module, json.dumps(job)),
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
        raise Ended(f"BM25 failed: {answer['error']}")
    if "result" not in answer:
        raise Ended(f"BM25 failed in its Java process, {ending(child.returncode)}: {last_line(stderr)}")


def last_line(stderr: IO[str]) -> str:
    stderr.seek(0)
    lines = [line.strip() for line in stderr if line.strip()]
    return lines[-1] if lines else "it left no message"
