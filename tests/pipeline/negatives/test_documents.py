"""Of a relevant document that was cut into passages one is trained on, and none is a negative of the question."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from long_documents import write_documents

from pipeline.bm25 import first_stage
from pipeline.data import barred
from pipeline.data.collection import passage_ids, read_queries, write_table
from pipeline.data.judged import read_questions
from pipeline.data.runs import NEGATIVES, SCHEMA, writer
from pipeline.finetune import examples
from pipeline.finetune.pools import read_pools
from pipeline.finetune.positives import best_positives
from pipeline.finetune.validation import ValidationConfig, read_candidates
from pipeline.negatives.from_file import NegativesFileConfig, negatives_file
from pipeline.negatives.mine import MineConfig, mine

DOCUMENTS = {
    "a": ["first", "second", "third", "a line of all documents"],
    "b": ["other", "a line of all documents", "more"],
    "c": ["far", "off"],
    "q2": ["the second question as a document", "and its end"],
}
QUERIES = [("q1", "train", "who?"), ("q2", "train", "when?"), ("q3", "dev", "where?")]
JUDGED = [("train", "q1", "a", 1), ("train", "q2", "c", 1), ("dev", "q3", "b", 1), ("dev", "q3", "a", 1)]
FREE = {"q1": {"b#0", "b#2", "c#0", "c#1", "q2#0", "q2#1"}, "q2": {"a#0", "a#1", "a#2", "a#3", "b#0", "b#1", "b#2"}}
"""What may be a negative: for q1 not the copy in b, for q2 not the document with its id."""


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    return write_documents(tmp_path / "collection", DOCUMENTS, QUERIES, JUDGED)


@pytest.fixture
def bm25(collection: Path, tmp_path: Path) -> Path:
    """A first stage that ranks a#2 first of the passages of a, and none of c."""
    folder = tmp_path / "bm25"
    folder.mkdir()
    ranked = {"q1": ["b#0", "a#2", "a#0"], "q2": ["a#1", "b#1"], "q3": ["c#0", "b#1", "a#3", "b#0"]}
    splits = {query_id: split for query_id, split, _ in QUERIES}
    rows = [(splits[q], q, p, n, 9.0 - n) for q, ids in ranked.items() for n, p in enumerate(ids, 1)]
    write_table(folder / "run.parquet", SCHEMA, rows)
    every = [(q, p, "bm25", n, 1.0) for q in ("q1", "q2") for n, p in enumerate(passage_ids(collection), 1)]
    write_table(folder / "negatives.parquet", NEGATIVES, every)
    return folder


def taken(folder: Path) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in pq.read_table(folder / "negatives.parquet").to_pylist():
        found.setdefault(row["query_id"], set()).add(row["passage_id"])
    return found


def test_all_passages_of_relevant_documents_are_barred_and_the_counts_are_exact(collection: Path) -> None:
    rule, ids = barred.by_id(collection), passage_ids(collection)
    for query_id, free in FREE.items():
        assert {ids[n] for n in barred.free(rule.of(query_id, ids))} == free
    numbers = barred.numbers_barred(barred.of_training(collection))
    assert numbers.tolist() == [len(ids) - len(FREE[query_id]) for query_id in ("q1", "q2")]


def test_negatives_of_the_first_stage(collection: Path, work) -> None:
    done, dropped, ids = work(), barred.Dropped(), passage_ids(collection)
    questions = [q for q in read_queries(collection) if q.split == "train"]
    hits = ids, [float(-n) for n in range(len(ids))]
    first_stage.write_first_stage(
        done.out,
        questions,
        barred.by_id(collection),
        dropped,
        {"train": 100},
        lambda piece, depth: [hits] * len(piece),
        done.progress,
        cut=True,
    )
    assert taken(done.out) == FREE


def test_mined_negatives(collection: Path, work, tmp_path: Path) -> None:
    ids, done = passage_ids(collection), work()
    (tmp_path / "run").mkdir()
    with writer(tmp_path / "run", cut=True) as write:
        for query_id in FREE:
            write("train", [query_id] * len(ids), ids, 99.0 - np.arange(len(ids)))
    config = MineConfig(depth=100, number=50, margin_absolute=None, margin_relative=None, seed=0, page_questions=1)
    metrics = mine(config, collection, tmp_path / "run", done)
    assert taken(done.out) == FREE
    assert metrics["negatives_above_positive"] == 7  # a, b come before c; a is at the top
    assert (done.out / "negatives.html").stat().st_size > 1000


def test_negatives_of_a_file_name_passages_or_documents(collection: Path, work, tmp_path: Path) -> None:
    (tmp_path / "n.tsv").write_text("q1\ta\nq1\ta#3\nq1\tb\nq1\tc#1\nq1\tb#0\nq2\tb\n")
    done = work()
    config = NegativesFileConfig(file=tmp_path / "n.tsv", number=None, seed=0, page_questions=0)
    metrics = negatives_file(config, collection, done)
    assert taken(done.out) == {"q1": {"b#0", "c#1"}, "q2": {"b#0"}}
    assert (metrics["dropped_judged"], metrics["dropped_repeated"]) == (2, 1)


def test_a_positive_is_the_best_passage_of_bm25_or_the_first(collection: Path, bm25: Path) -> None:
    known, ids = read_questions(collection, "train"), passage_ids(collection)
    assert [[ids[row] for row in best_positives(known, collection, bm25)[n]] for n in range(2)] == [["a#2"], ["c#0"]]
    dev = best_positives(read_questions(collection, "dev"), collection, bm25)
    assert [ids[row] for row in dev[0]] == ["b#1", "a#3"]  # one of each document, in the order of the judgements


def test_pools_and_batches_of_a_training(collection: Path, bm25: Path) -> None:
    pools, ids = read_pools(collection, bm25), passage_ids(collection)
    assert [[ids[row] for row in pools.judged[n]] for n in range(2)] == [["a#2"], ["c#0"]]
    assert [{ids[row] for row in pools.negatives[0][n]} for n in range(2)] == [*FREE.values()]
    batch = examples.draw_batch(pools, 0, np.arange(2), examples.Draw(negatives=4, positives_considered=None, seed=0))
    for question, excluded_P in zip(FREE, batch.excluded_QP, strict=True):
        passages = [ids[row] for row in batch.passages_QN.ravel()]
        compared = {name for name, left_out in zip(passages, excluded_P, strict=True) if not left_out}
        positive = ids[batch.passages_QN[0 if question == "q1" else 1, 0]]
        assert compared - {positive} <= FREE[question]


def test_pseudo_labels_name_passages(collection: Path, bm25: Path, tmp_path: Path) -> None:
    """Other passages of a labelled one's document are not negatives either."""
    table = pq.read_table(collection / "qrels.parquet")
    pq.write_table(
        table.filter(np.array([row["query_id"] != "q2" for row in table.to_pylist()])), collection / "qrels.parquet"
    )
    pseudo = tmp_path / "pseudo"
    pseudo.mkdir()
    write_table(pseudo / "qrels.parquet", table.schema, [("train", "q2", "b#1", 1)])
    every = [("q2", p, "pseudo", n, 1.0) for n, p in enumerate(passage_ids(collection), 1)]
    write_table(pseudo / "negatives.parquet", NEGATIVES, every)
    pools, ids = read_pools(collection, bm25, pseudo_labels=pseudo), passage_ids(collection)
    assert [[ids[row] for row in pools.judged[n]] for n in range(2)] == [["a#2"], ["b#1"]]
    assert not {"b#0", "b#1", "b#2"} & {ids[row] for row in pools.negatives[0][1]}


def test_validation_compares_the_best_passage(collection: Path, bm25: Path) -> None:
    ids = passage_ids(collection)
    config = ValidationConfig(questions=1, candidates=3, keep="last")
    found = [ids[row] for row in read_candidates(config, collection, bm25, seed=0).passages_VC[0]]
    assert found[0] == "b#1"
    assert {*found[1:]} <= {"c#0", "c#1", "q2#0", "q2#1"}
