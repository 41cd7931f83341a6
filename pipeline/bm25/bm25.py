"""The first stage: a baseline run and the first negatives, from Lucene's BM25, another system's texts, or its run.

Java runs in a separate process, through pyserini.
"""

import json
import tempfile
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from pipeline.bm25 import other_systems
from pipeline.bm25.detection import detect
from pipeline.bm25.java_child import check_child
from pipeline.bm25.languages import AUTO, CODES, ENGLISH
from pipeline.bm25.settings import write_settings
from pipeline.config import Config
from pipeline.data import run_files
from pipeline.data.text.text_files import wrong_beginning
from pipeline.notices import noticed, read_notices
from pipeline.runtime.processes import end_child, listen, python, start_child, workers
from pipeline.runtime.work import Metrics, Work


class BM25Config(Config):
    k1: float = Field(ge=0)
    """Saturation of term frequency. Lucene's default is 1.2, Anserini's 0.9."""
    b: float = Field(ge=0, le=1)
    """Share of length normalisation. Lucene's default is 0.75, Anserini's 0.4."""
    titles: int = Field(ge=0, le=10)
    """Number of times that the title precedes the text in the index (a weight on its terms). 0: only the text."""
    language: str | None = ENGLISH
    """Language of passages and questions, an ISO code such as `de` (docs/languages.md has all): Lucene's analyser for
    it stems words and leaves out stop words; Chinese, Japanese and Korean are indexed as pairs of characters. `auto`:
    the language of most words in a sample of the passages; if it is not sure, as null. null: words in lower case,
    without stemming and stop words."""
    stemmer: Literal["porter", "krovetz", "none"]
    """Stemmer of Anserini's English analyser, for passages and questions. Other languages have their analyser's own."""
    split_identifiers: bool
    """Split words at `_`, at camelCase and at the dots of qualified names, in passages and questions. Without it
    Lucene's analyser keeps `numpy.linalg.norm` as one word, which no question contains."""
    depth: int = Field(ge=1, le=10_000)
    """Passages kept for each dev and test question. 1,000 for R@1000."""
    negatives_depth: int = Field(ge=1, le=10_000)
    """Passages kept for each training question. Those that are not judged relevant become its BM25 negatives."""
    run: Path | None
    """Another system's run, used instead of BM25: a file, plain or compressed, with TREC's six columns or MS MARCO's
    three (question, passage, rank), and questions of all splits. It ranks dev and test and provides the training
    questions' negatives. Passages are sorted by score, equal scores in the file's order. It has no index to search."""
    passages: Path | None
    """The collection's passages from another system, in pyserini's JSON (a file, or a folder of .json and .jsonl files,
    plain or compressed), by passage id. `{"id", "contents"}` is text (docT5query, DeepCT), indexed for BM25 instead of
    title and text. `{"id", "vector": {term: integer}}` is weights (DeepImpact, uniCOIL, SPLADE): a passage's score is
    the dot product with the question's weights; k1, b, titles, stemmer and split_identifiers are unused."""
    topics: Path | None
    """The questions from another system, by question id: JSON as for `passages`, or lines of id, tab, text (Anserini's
    topics). For BM25 text, as that of GAR; for weights a vector, or terms separated by white space, whose weights are
    their counts. Questions that it lacks find nothing. None: the collection's questions; for weights their words in
    lower case, which fits systems whose terms are whole words."""

    @field_validator("language")
    @classmethod
    def _known_language(cls, value: str | None) -> str | None:
        if value not in (None, AUTO, *CODES):
            raise ValueError(f"no analyser for this language: use auto, null or one of {', '.join(CODES)}")
        return value

    @model_validator(mode="after")
    def _stemmer_of_the_language(self) -> Self:
        if self.language != AUTO and self.stemmer not in stemmers(self.language):
            raise ValueError(
                f"stemmer: {self.stemmer} is for English, but language is {self.language or 'null'}: set stemmer to "
                "porter, which is unused there"
            )
        return self

    @model_validator(mode="after")
    def _one_first_stage(self) -> Self:
        if self.run and (self.passages or self.topics):
            raise ValueError("run is a complete first stage: passages and topics must be null with it")
        return self


def stemmers(language: str | None) -> tuple[str, ...]:
    """Returns the values of `stemmer` that say what the analyser does; `porter` is the default and says nothing."""
    return {None: ("porter", "none"), ENGLISH: ("porter", "krovetz", "none")}.get(language, ("porter",))


def libraries(config: BM25Config) -> tuple[str, ...]:
    """Returns the libraries whose versions change the artifact."""
    return ("pyserini", "py3langid") if config.language == AUTO else ("pyserini",)


def missing(config: BM25Config) -> list[str]:
    """Returns a line for each configured file whose beginning is invalid. Fast."""
    files = {
        "run": (config.run, run_files.run_file_rows),
        "passages": (config.passages, other_systems.passages),
        "topics": (config.topics, other_systems.topics),
    }
    return [
        line
        for name, (path, read) in files.items()
        if path is not None
        for line in wrong_beginning(f"bm25.{name}", path, read, folder=name == "passages")
    ]


def bm25(config: BM25Config, collection: Path, work: Work) -> Metrics:
    """Indexes the collection, searches all questions, and keeps the training questions' negatives.

    Writes `index/` (not for a `run`), `bm25.json`, `run.parquet`, `run.trec` and `negatives.parquet`; for languages
    other than English also `stop_words.txt`, if the analyser has such words. Equal scores are in passage order, so
    that all files except the index depend only on the inputs. Training questions without a judged passage are not
    searched: they are not trained on. Counted are: questions longer than 20,000 characters (cut; weights: 4,000
    terms), with control characters (replaced by spaces), without terms, and without hits; hits that are barred
    (data/barred.py); and missing and unknown ids in the configured files. `language` is what `auto` found.
    Raises InputError, with file and line, for a faulty file.
    """
    depths = {"train": config.negatives_depth, "dev": config.depth, "test": config.depth}
    if config.run:
        write_settings(work.out, {"scores": "run"})
        from pipeline.bm25.first_stage import from_run

        return from_run(config.run, depths, collection, work)
    settings = config.model_dump(include={"k1", "b", "titles", "stemmer", "split_identifiers", "depth"})
    settings["scores"] = scores(config)
    found = detect(collection) if config.language == AUTO and settings["scores"] == "bm25" else None
    if config.language != ENGLISH and settings["scores"] == "bm25":
        settings["language"] = found.language if found else config.language
    write_settings(work.out, settings)
    paths = {"collection": collection.resolve(), "out": work.out.resolve()}
    files = {"passages": config.passages, "topics": config.topics}
    job = {
        **settings,
        "depths": depths,
        "threads": workers(work.machine),
        **{name: path and str(path) for name, path in {**paths, **files}.items()},
    }
    with tempfile.TemporaryFile("w+", errors="replace") as stderr:
        child = start_child(python("pipeline.bm25.index_process", json.dumps(job)), stderr=stderr)
        try:
            answer = listen(child, work.progress)
            child.wait()
        finally:
            end_child(child)
        check_child(child, answer, stderr)
    if found is None:
        return answer["result"]
    unused = (
        "" if config.stemmer in stemmers(found.language) else f"bm25.stemmer: {config.stemmer} is for English: unused"
    )
    lines = noticed([found.notice, unused, *read_notices(answer["result"])])
    return {**answer["result"], "language": found.language, **lines}


def scores(config: BM25Config) -> str:
    """Returns `weights` if the configured passages hold them, otherwise `bm25`. Raises InputError."""
    first = next(other_systems.passages(config.passages), None) if config.passages else None
    return "weights" if first and isinstance(first[2], dict) else "bm25"
