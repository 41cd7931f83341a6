"""Documents that every reader cuts into passages: their ids, their judgements, and what stays as it was."""

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from long_documents import write_documents
from own_texts import REST, fields
from pydantic import TypeAdapter, ValidationError
from searched import write_collection
from writing import put

from pipeline.config import Config
from pipeline.data import documents
from pipeline.data.collection import passage_id_array, train_positives
from pipeline.data.ingest import IngestConfig
from pipeline.data.judged import read_questions
from pipeline.data.readers import irdatasets
from pipeline.data.readers.cut import cut_text
from pipeline.errors import InputError
from tasks.keys import without_paths

CONFIG = TypeAdapter(IngestConfig)
LONG, SHORT = "one two three four five six", "seven"
PASSAGES = [("a#0", "a", "A", "one two three"), ("a#1", "a", "A", "four five six"), ("b#0", "b", "", "seven")]


def json_lines(*rows: dict) -> list[str]:
    return [json.dumps(row) for row in rows]


def of_beir(folder: Path) -> dict[str, Any]:
    rows = {"_id": "a", "title": "A", "text": LONG}, {"_id": "b", "text": SHORT}
    put(folder, "corpus.jsonl", *json_lines(*rows))
    put(folder, "queries.jsonl", *json_lines({"_id": "q", "text": "what?"}))
    (folder / "qrels").mkdir()
    put(folder / "qrels", "test.tsv", "q\ta\t1", "q\tb\t0")
    return {"reader": "beir", "folder": folder, "document_key": "", "metadata": []}


def of_msmarco(folder: Path) -> dict[str, Any]:
    no_files = dict.fromkeys(("titles", "train_queries", "train_qrels", "dev_queries", "dev_qrels", "negatives"))
    return {
        "reader": "msmarco",
        "layout": "documents",
        "metadata": [],
        "negatives_per_query": 2,
        **no_files,
        "collection": put(folder, "docs.tsv", f"a\tu\tA\t{LONG}", f"b\tu\t\t{SHORT}"),
        "test_queries": put(folder, "queries.tsv", "q\twhat?"),
        "test_qrels": put(folder, "qrels.txt", "q 0 a 1", "q 0 b 0"),
    }


def of_dpr(folder: Path) -> dict[str, Any]:
    record = {"question": "what?", "answers": ["six"], "positive_ctxs": [{"passage_id": "a"}]}
    (folder / "test.json").write_text(json.dumps([record]))
    passages = put(folder, "psgs.tsv", f"a\t{LONG}\tA", f"b\t{SHORT}\t")
    return {"reader": "dpr", "passages": passages, "train": None, "dev": None, "test": folder / "test.json"}


def of_huggingface(folder: Path) -> dict[str, Any]:
    def table(name: str, split: str, *rows: dict) -> dict[str, Any]:
        (folder / name).mkdir()
        put(folder / name, f"{split}.jsonl", *json_lines(*rows))
        return {"dataset": None, "revision": "main", "folder": folder / name, "name": None, "split": split}

    corpus = {"_id": "a", "title": "A", "text": LONG}, {"_id": "b", "title": "", "text": SHORT}
    judged = {"q": "q", "p": "a", "score": 1}, {"q": "q", "p": "b", "score": 0}
    return {
        "reader": "huggingface",
        "id_column": "_id",
        "document_column": "",
        "title_column": "title",
        "text_column": "text",
        "passage_words": None,
        "metadata": [],
        "answers_column": "",
        "query_id_column": "_id",
        "query_text_column": "text",
        "train_qrels": None,
        "dev_qrels": None,
        "qrels_query_column": "q",
        "qrels_passage_column": "p",
        "qrels_relevance_column": "score",
        "passages": table("corpus", "train", *corpus),
        "queries": table("queries", "train", {"_id": "q", "text": "what?"}),
        "test_qrels": table("qrels", "test", *judged),
    }


def of_ir_datasets(folder: Path) -> dict[str, Any]:
    names = {"train": None, "dev": None, "negatives": None}
    return {"reader": "ir_datasets", "collection": "c", "metadata": [], "negatives_per_query": 1, "test": "t", **names}


SOURCES = {"beir": of_beir, "msmarco": of_msmarco, "dpr": of_dpr, "huggingface": of_huggingface}
SOURCES["ir_datasets"] = of_ir_datasets


class Document(SimpleNamespace):
    _fields = ("doc_id", "title", "text")


@pytest.fixture(autouse=True)
def catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `ir_datasets` would read."""
    rows = {
        "docs": [Document(doc_id="a", title="A", text=LONG), Document(doc_id="b", title="", text=SHORT)],
        "queries": [SimpleNamespace(query_id="q", default_text=lambda: "what?")],
        "qrels": [SimpleNamespace(query_id="q", doc_id=name, relevance=grade) for name, grade in (("a", 1), ("b", 0))],
    }
    monkeypatch.setattr(
        irdatasets, "_rows", lambda name, kind: ((f"{kind} {n}", row) for n, row in enumerate(rows[kind]))
    )


@pytest.mark.parametrize("reader", list(SOURCES))
def test_passages_of_documents_and_judgements_of_documents(reader: str, tmp_path: Path, ingested) -> None:
    result = ingested(**SOURCES[reader](tmp_path) | {"passage_words": 3})
    assert result.passages == PASSAGES
    assert pq.read_table(result.folder / "passages.parquet")["document"].to_pylist() == ["a", "a", "b"]
    assert next(iter(result.qrels.values()))["a"] == 1
    assert result.counts["unknown_qrels"] == result.counts["missing_qrels"] == 0
    assert result.counts["documents"] == 2


@pytest.mark.parametrize("reader", list(SOURCES))
def test_whole_documents_have_no_further_column(reader: str, tmp_path: Path, ingested) -> None:
    result = ingested(**SOURCES[reader](tmp_path))
    assert [row[0] for row in result.passages] == ["a", "b"]
    assert pq.read_schema(result.folder / "passages.parquet").names == ["passage_id", "doc_id", "title", "text"]


@pytest.mark.parametrize("reader", list(SOURCES))
def test_an_overlap_repeats_the_end_of_a_passage(reader: str, tmp_path: Path, ingested) -> None:
    result = ingested(**SOURCES[reader](tmp_path) | {"passage_words": 4, "passage_overlap": 2})
    assert [row[3] for row in result.passages] == ["one two three four", "three four five six", "seven"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"passage_overlap": 2}, "passage_overlap needs passage_words"),
        ({"passage_overlap": 4, "passage_words": 4}, r"passage_overlap \(4\) must be smaller than passage_words \(4\)"),
        ({"passage_overlap": -1, "passage_words": 4}, "greater than or equal to 0"),
        ({"passage_words": 0}, "greater than or equal to 1"),
    ],
)
def test_other_lengths_are_refused(changed: dict, message: str, tmp_path: Path) -> None:
    for reader, source in SOURCES.items():
        (tmp_path / reader).mkdir()
        with pytest.raises(ValidationError, match=message):
            CONFIG.validate_python(source(tmp_path / reader) | changed)


@pytest.mark.parametrize("overlap", [0, 1, 7, 19])
@pytest.mark.parametrize("words", [20, 33])
def test_the_new_words_of_all_passages_are_the_text(words: int, overlap: int) -> None:
    rng = np.random.default_rng(words + overlap)
    tokens = [f"w{n}" for n in range(500)]
    text = "".join(token + rng.choice([" ", "\n", "\n\n"], p=[0.8, 0.1, 0.1]) for token in tokens)
    pieces = [piece.split() for piece in cut_text(text, words, overlap)]
    assert sum((piece[overlap:] for piece in pieces[1:]), pieces[0]) == tokens
    assert all(before[-overlap:] == after[:overlap] for before, after in itertools.pairwise(pieces) if overlap)
    assert np.mean([len(piece) for piece in pieces]) == pytest.approx(words, rel=0.1)


def test_a_text_shorter_than_the_overlap_is_one_passage() -> None:
    assert cut_text("one two", 10, 9) == ["one two"]


def test_a_document_without_text_is_dropped_with_its_judgements(tmp_path: Path, ingested) -> None:
    config = of_beir(tmp_path)
    put(tmp_path, "corpus.jsonl", *json_lines({"_id": "a", "text": LONG}, {"_id": "b", "text": " "}))
    result = ingested(**config | {"passage_words": 3})
    assert [row[0] for row in result.passages] == ["a#0", "a#1"]
    assert (result.counts["empty_passages"], result.counts["unknown_qrels"]) == (1, 0)


def test_a_document_that_the_corpus_lacks_is_named(tmp_path: Path, ingested) -> None:
    config = of_beir(tmp_path) | {"passage_words": 3}
    put(tmp_path / "qrels", "test.tsv", "q\ta\t1", "q\tzz\t1")
    result = ingested(**config)
    assert result.counts["missing_qrels"] == 1
    put(tmp_path / "qrels", "train.tsv", "q\ta#0\t1")
    (tmp_path / "qrels" / "test.tsv").unlink()
    with pytest.raises(InputError, match=r"train.tsv:1: unknown passage id 'a#0'"):  # judgements name documents
        ingested(**config)


def test_a_repeated_document_is_refused(tmp_path: Path, ingested) -> None:
    config = of_beir(tmp_path)
    put(
        tmp_path,
        "corpus.jsonl",
        *json_lines({"_id": "a", "text": LONG}, {"_id": "b", "text": "x"}, {"_id": "a", "text": "y"}),
    )
    with pytest.raises(InputError, match=r"corpus.jsonl:3: passage id 'a#0' is already at .*corpus.jsonl:1"):
        ingested(**config | {"passage_words": 3})


def test_negatives_of_a_source_are_first_passages(tmp_path: Path, ingested) -> None:
    config = of_msmarco(tmp_path) | {
        "train_queries": put(tmp_path, "train.tsv", "t\twho?"),
        "train_qrels": put(tmp_path, "train-qrels.txt", "t 0 b 1"),
        "negatives": put(tmp_path, "triples.tsv", "t\tb\ta", "t\tb\tb"),
    }
    result = ingested(**config | {"passage_words": 3})
    assert result.negatives == {"t": ["a#0"]}
    assert result.counts["dropped_judged"] == 1


def test_a_collection_for_pretraining_has_no_documents_to_judge(tmp_path: Path, ingested) -> None:
    tables = {"queries": None, "test_qrels": None}
    result = ingested(**of_huggingface(tmp_path) | tables | {"passage_words": 3})
    assert result.passages == PASSAGES
    assert not documents.are_cut(result.folder)


def test_own_texts_judge_passages_or_documents(tmp_path: Path, ingested) -> None:
    sections = "\n\n".join(f"## Part {n} of it\n\n{REST} {n}." for n in range(3))
    texts = tmp_path / "texts"
    put(texts, "a.md", "# A clear title\n\n" + sections)
    put(texts, "b.md", "# Another clear title\n\n" + sections.replace("it", "this"))
    asked = {"questions": ["titles"], "passage_words": 5, "dev_share": 0.5, "seed": 3}
    passages = ingested(**fields(texts, **asked))
    whole = ingested(**fields(texts, **asked, judgements="documents"))
    assert passages.passages == whole.passages
    assert all(len(judged) > 1 for judged in passages.qrels.values())
    assert {tuple(judged) for judged in whole.qrels.values()} <= {("a.md",), ("b.md",)}
    assert not documents.are_cut(passages.folder)
    assert read_documents(whole.folder).ids.to_pylist() == ["a.md", "b.md"]


def test_crops_are_asked_without_an_overlap(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="passage_overlap must be 0 for crops"):
        CONFIG.validate_python(fields(tmp_path, questions=["crops"], passage_words=9, passage_overlap=2))


@pytest.mark.parametrize("reader", list(SOURCES))
def test_a_field_at_its_default_enters_no_key(reader: str, tmp_path: Path) -> None:
    source = SOURCES[reader](tmp_path)
    plain, cut = (CONFIG.validate_python(source | more) for more in ({}, {"passage_words": 3, "passage_overlap": 1}))
    assert {"passage_words", "passage_overlap"} & {*without_paths(plain)} == {*source} & {"passage_words"}
    assert (without_paths(cut)["passage_words"], without_paths(cut)["passage_overlap"]) == (3, 1)


def test_a_default_is_left_out_at_any_depth() -> None:
    class Part(Config):
        old: int
        new: int | None = None

    class Whole(Config):
        parts: list[Part]

    config = Whole(parts=[Part(old=1), Part(old=1, new=2)])
    assert without_paths(config) == {"parts": [{"old": 1}, {"old": 1, "new": 2}]}


# What later stages read


def read_documents(collection: Path) -> documents.Documents:
    return documents.read_documents(collection, passage_id_array(collection))


DOCUMENTS = {"a": ["a0", "a1", "a2"], "b": ["b0"], "c": ["c0", "c1"]}
QUERIES = [("q", "train", "who?"), ("r", "train", "when?")]
JUDGED = [("train", "q", "c", 1), ("train", "q", "a", 2), ("train", "r", "b", 1), ("train", "r", "a", 0)]


@pytest.fixture
def cut(tmp_path: Path) -> Path:
    return write_documents(tmp_path / "cut", DOCUMENTS, QUERIES, JUDGED)


def test_rows_and_documents(cut: Path) -> None:
    found = read_documents(cut)
    assert found.are_cut
    assert (found.ids.to_pylist(), found.first_D.tolist()) == (["a", "b", "c"], [0, 3, 4, 6])
    assert found.of_P.tolist() == [0, 0, 0, 1, 2, 2]
    pairs = found.passages(np.array([7, 8, 9]), np.array([2, -1, 1]))
    assert [column.tolist() for column in pairs] == [[7, 7, 9], [4, 5, 3]]


def test_whole_documents_are_their_own(tmp_path: Path) -> None:
    rows = [("p0", "d", "", "x"), ("p1", "d", "", "y")]
    found = read_documents(write_collection(tmp_path / "whole", rows, [], []))
    assert not found.are_cut
    assert (found.ids.to_pylist(), found.of_P.tolist(), found.first_D.tolist()) == (["p0", "p1"], [0, 1], [0, 1, 2])


def test_all_passages_of_a_relevant_document_are_judged(cut: Path) -> None:
    lists = read_questions(cut, "train").lists
    assert [lists[0].tolist(), lists[1].tolist()] == [[4, 5, 0, 1, 2], [3]]
    assert train_positives(cut) == {"q": ("c#0", "c#1", "a#0", "a#1", "a#2"), "r": ("b#0",)}


def test_ids_of_passages_name_their_documents(cut: Path) -> None:
    assert documents.document_id(documents.passage_id("x#1", 2)) == "x#1"
    assert documents.judged_id(cut)("a#1") == "a"
