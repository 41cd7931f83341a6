"""Small collections and their first stage. Used by several test files."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
from machines import make_machine

from pipeline.bm25.bm25 import BM25Config, bm25
from pipeline.bm25.searcher import Searcher
from pipeline.data.collection import schemas, write_table
from pipeline.runtime.work import Machine, Metrics, Progress, Work, silent

CONFIG = BM25Config(
    k1=0.9,
    b=0.4,
    titles=1,
    language="en",
    stemmer="porter",
    split_identifiers=False,
    depth=10,
    negatives_depth=6,
    run=None,
    passages=None,
    topics=None,
)


def machine(workers: int) -> Machine:
    return make_machine(workers=workers, token_budget=1, checkpoint_minutes=1)


def write_collection(folder: Path, passages: Sequence, queries: Sequence, judged: Sequence) -> Path:
    """Rows as in the tables, questions without their answers. Passages with a fifth column are cut from documents."""
    folder.mkdir()
    tables = schemas(judges_documents=len(passages[0]) == 5)
    write_table(folder / "passages.parquet", tables["passages"], passages)
    write_table(folder / "queries.parquet", tables["queries"], [(*query, []) for query in queries])
    write_table(folder / "qrels.parquet", tables["qrels"], judged)
    (folder / "ingest.json").write_text(json.dumps({"passages": len(passages)}))
    return folder


def build(
    collection: Path, out: Path, config: BM25Config = CONFIG, workers: int = 2, progress: Progress = silent
) -> Metrics:
    out.mkdir()
    return bm25(config, collection, Work(out, out.parent, machine(workers), progress))


def rows(out: Path) -> list[dict]:
    """Of the run, in its order."""
    return pq.read_table(out / "run.parquet").to_pylist()


def hits_of(searcher: Searcher, text: str, k: int) -> list[tuple[str, float]]:
    """The best `k` as (passage id, BM25 score), best first."""
    numbers_K, scores_K = searcher.hits([(text, k, None)])[0]
    return list(zip(searcher.ids(numbers_K), scores_K.tolist(), strict=True))
