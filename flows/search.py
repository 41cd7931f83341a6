"""Answers to a question from the newest run in the store, by what was best on its dev questions."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Literal

from artifacts.runs import Run, runs
from artifacts.store import Store
from flows import layers
from flows.results import read_metrics
from pipeline.bm25 import read_settings
from pipeline.encoder import EncoderConfig
from pipeline.errors import InputError

if TYPE_CHECKING:
    import pyarrow

PRETRAINED = ("cocondenser", "condenser", "ict", "initial")
"""Nodes that may hold the pre-trained model; the first that a run has does."""
EXTRA = 5
"""Passages looked at for each document wanted: several of them may be of one document."""
LINES = 8
"""Lines of a passage that are shown, so that five answers fit a screen or two."""
# fmt: off
COMMON = {
    "a", "an", "and", "are", "as", "at", "be", "by", "can", "do", "does", "for", "from", "how", "i", "if", "in", "into",
    "is", "it", "its", "my", "of", "on", "one", "or", "that", "the", "this", "to", "what", "when", "where", "which",
    "who", "why", "with", "you",
}
# fmt: on


By = Literal["dense", "fusion", "bm25"]


@dataclass(frozen=True)
class Answer:
    rank: int
    score: float
    doc_id: str
    passage_id: str
    title: str
    text: str
    question: str
    """A question of the collection that the passage is judged relevant to; empty where there is none."""


@dataclass(frozen=True)
class Engine:
    """The pieces of a run that answer questions."""

    run: Run
    metrics: dict[str, Any]
    wanted: By | None = None
    """What to ask; None: what was best on dev."""

    @property
    def how(self) -> By:
        return self.wanted or ("dense" if self.instead else self.metrics["winner_on_dev"])

    @cached_property
    def instead(self) -> bool:
        """Whether dense retrieval stands in for what was best on dev: a run file answers no question of its own."""
        bm25 = self.run.nodes.get("bm25")
        if self.wanted or self.metrics["winner_on_dev"] != "fusion" or bm25 is None or not bm25.path.exists():
            return False
        return read_settings(bm25.path)["scores"] == "run"

    @cached_property
    def collection(self) -> Path:
        return self.run.nodes[self.part("ingest")].path

    def part(self, name: str) -> str:
        """The node that answers in the place of `name`: of the whole texts, where questions were cut out of them."""
        whole = f"{name.partition('-')[0]}-whole"
        return whole if whole in self.run.nodes else name

    @property
    def model(self) -> str:
        """The node that holds the model of the dense run."""
        dense = str(self.metrics["dense"])
        return next(name for name in PRETRAINED if name in self.run.nodes) if dense == "pretrained" else dense

    def needed(self) -> list[str]:
        dense = self.metrics["dense"]
        nodes = [] if self.how == "bm25" else [self.model, self.part(f"index-{dense}")]
        return [self.part("ingest"), *nodes, *([] if self.how == "dense" else [self.part("bm25")])]

    def is_there(self) -> bool:
        """Whether the store still holds all that answers."""
        return all(node in self.run.nodes and self.run.nodes[node].path.exists() for node in self.needed())


def newest_engine(store: Store, recipe: str | None, by: By | None = None) -> Engine:
    """Of the newest run (of a recipe) that was evaluated and whose artifacts are still there, to be asked by `by`."""
    for engine in engines(store, recipe, by):
        if engine.how == "fusion" and not engine.metrics["fusion"]:
            raise InputError(f"--by fusion: the run of {engine.run.name} joined no dense run with BM25")
        if engine.how == "dense" and engine.metrics["dense"] is None:
            raise InputError(f"--by dense: the run of {engine.run.name} has no dense run")
        if engine.is_there():
            return engine
    if recipe and not runs(store, recipe):
        layers.read(recipe)  # an unknown recipe is told as such
    of = f" of {recipe}" if recipe else ""
    raise InputError(
        f"{store.root}: no finished run{of} to search in; `cocondenser run {recipe or 'pydocs-small'}` makes one"
    )


def engines(store: Store, recipe: str | None, by: By | None = None) -> Iterator[Engine]:
    """Of all runs (of a recipe) that were evaluated, newest first."""
    for run in runs(store, recipe):
        if "evaluate" in run.nodes and run.nodes["evaluate"].path.exists():
            yield Engine(run, read_metrics(run.nodes) or {}, by)


def search(engine: Engine, question: str, k: int) -> list[Answer]:
    """The best `k` documents, each with its best passage."""
    question = question.encode(errors="replace").decode()  # a terminal's bytes may be no UTF-8
    if not question.strip():
        raise InputError("the question is empty")
    ranked = ranking(engine, question, EXTRA * k)
    rows = passages(engine.collection, [passage_id for passage_id, _ in ranked])
    best: dict[str, tuple[str, float]] = {}
    for passage_id, score in ranked:
        best.setdefault(rows[passage_id]["doc_id"], (passage_id, score))
    shown = list(best.items())[:k]
    known = questions(engine.collection, [passage_id for _, (passage_id, _) in shown])
    return [
        Answer(rank, score, doc, passage, rows[passage]["title"], rows[passage]["text"], known.get(passage, ""))
        for rank, (doc, (passage, score)) in enumerate(shown, 1)
    ]


def ranking(engine: Engine, question: str, depth: int) -> list[tuple[str, float]]:
    """(passage id, score), best first."""
    recipe, how = engine.run.details["recipe"], engine.how
    if how == "dense":
        return dense(engine, question, depth)[:depth]
    from pipeline.bm25 import Searcher

    # Lists as deep as those that the weight was chosen on.
    with Searcher(engine.run.nodes[engine.part("bm25")].path) as searcher:
        vectors = dense(engine, question, recipe["search"]["depth"]) if how == "fusion" else []
        words = searcher.search(question, recipe["bm25"]["depth"])
    if how == "bm25":
        return words[:depth]
    from pipeline.fusion import Choice, fuse_lists

    chosen = engine.metrics["fusion"]
    choice = Choice(chosen["method"], chosen["weight"])
    return fuse_lists(dict(words), dict(vectors), choice, recipe["evaluate"]["reciprocal_k"])[:depth]


def dense(engine: Engine, question: str, depth: int) -> list[tuple[str, float]]:
    from pipeline.search import encode_text, top_k

    name = engine.metrics["dense"]
    index = engine.run.nodes[engine.part(f"index-{name}")].path
    checkpoint = engine.run.nodes[engine.model].path
    vector_1D = encode_text(checkpoint, [question], EncoderConfig(**engine.run.details["recipe"]["encoder"]))
    rows_1K, scores_1K = top_k(vector_1D, index, depth)
    ids = (index / "docid").read_text(encoding="utf-8").split("\n")
    return [(ids[row], float(score)) for row, score in zip(rows_1K[0], scores_1K[0], strict=True)]


def passages(collection: Path, passage_ids: list[str]) -> dict[str, dict[str, str]]:
    """{passage id: its row}."""
    import pyarrow.dataset as dataset

    table = dataset.dataset(collection / "passages.parquet").to_table(
        filter=dataset.field("passage_id").isin(strings(passage_ids))
    )
    return {row["passage_id"]: row for row in table.to_pylist()}


def questions(collection: Path, passage_ids: list[str]) -> dict[str, str]:
    """{passage id: the first question of the collection that it is judged relevant to}."""
    import pyarrow.dataset as dataset

    wanted = dataset.field("passage_id").isin(strings(passage_ids)) & (dataset.field("relevance") > 0)
    qrels = dataset.dataset(collection / "qrels.parquet").to_table(["query_id", "passage_id"], filter=wanted)
    pairs = {row["passage_id"]: row["query_id"] for row in reversed(qrels.to_pylist())}
    asked = dataset.field("query_id").isin(strings(pairs.values()))
    queries = dataset.dataset(collection / "queries.parquet").to_table(["query_id", "text"], filter=asked)
    texts = {row["query_id"]: row["text"] for row in queries.to_pylist()}
    return {passage_id: texts[query_id] for passage_id, query_id in pairs.items()}


def strings(values: Iterable[str]) -> "pyarrow.Array":
    """With their type, which a list that is empty would not tell."""
    import pyarrow

    return pyarrow.array([*values], pyarrow.string())


def words_of(question: str) -> list[str]:
    """The question's words that are worth highlighting."""
    return sorted({w for w in re.findall(r"\w+", question.lower()) if w not in COMMON and len(w) > 1})


def pattern(words: list[str]) -> re.Pattern[str]:
    """Finds the words and what begins with them."""
    return re.compile(rf"(?i)\b({'|'.join(map(re.escape, words))})\w*")


def excerpt(text: str, words: list[str], most: int = LINES) -> str:
    """The first `most` lines in a row that hold the most of the words; an ellipsis where lines are left out."""
    lines = text.split("\n")
    if len(lines) <= most:
        return text
    found = [{hit[1].lower() for hit in pattern(words).finditer(line)} if words else set() for line in lines]
    first = max(range(len(lines) - most + 1), key=lambda n: (len(set().union(*found[n : n + most])), -n))
    kept = dedent("\n".join(lines[first : first + most])).strip("\n")
    return ("…\n" if first else "") + kept + ("\n…" if first + most < len(lines) else "")
