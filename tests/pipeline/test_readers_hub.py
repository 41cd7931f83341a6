"""Readers of catalogues: ir_datasets and Hugging Face datasets, on data made here."""

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import TypeAdapter, ValidationError

from pipeline import hub
from pipeline.errors import InputError
from pipeline.ingest import IngestConfig, missing
from pipeline.readers import irdatasets

CONFIG = TypeAdapter(IngestConfig)


class Paper(NamedTuple):
    """A document without a field called text."""

    doc_id: str
    title: str
    abstract: str

    def default_text(self) -> str:
        return f"{self.title} {self.abstract}"


class Clip(NamedTuple):
    """A document that only says itself what its text is."""

    doc_id: str
    subtitles: str

    def default_text(self) -> str:
        return self.subtitles


@pytest.fixture
def catalogue(tmp_path, monkeypatch):
    """`house` and `house/clips`, registered as a user would register datasets of their own."""
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "home"))
    ir_datasets = pytest.importorskip("ir_datasets")
    from ir_datasets.formats import (
        BaseDocPairs,
        BaseDocs,
        BaseQrels,
        BaseQueries,
        GenericDocPair,
        GenericQuery,
        TrecQrel,
    )

    class Docs(BaseDocs):
        def __init__(self, rows):
            self.rows = rows

        def docs_iter(self):
            return iter(self.rows)

        def docs_cls(self):
            return type(self.rows[0])

    class Queries(BaseQueries):
        def queries_iter(self):
            return iter([GenericQuery("q1", "first?"), GenericQuery("q2", "not judged")])

        def queries_cls(self):
            return GenericQuery

    class Qrels(BaseQrels):
        def qrels_iter(self):
            return iter([TrecQrel("q1", "a", 2, "0"), TrecQrel("q1", "b", 0, "0")])

        def qrels_cls(self):
            return TrecQrel

        def qrels_defs(self):
            return {}

    class Pairs(BaseDocPairs):
        def docpairs_iter(self):
            return iter([GenericDocPair("q1", "a", "b"), GenericDocPair("q1", "a", "b")])

        def docpairs_cls(self):
            return GenericDocPair

    papers = [Paper("a", "Title", "an abstract"), Paper("b", "Other", "another")]
    whole = ir_datasets.Dataset(Docs(papers), Queries(), Qrels(), Pairs())
    made = {"house": whole, "house/clips": ir_datasets.Dataset(Docs([Clip("c", "words heard")]))}
    for name, dataset in made.items():
        ir_datasets.registry.register(name, dataset)
    yield made
    for name in made:
        ir_datasets.registry._registered.pop(name)


def house(**changed) -> dict:
    fields = {"reader": "ir_datasets", "collection": "house", "train": None, "dev": None, "test": "house"}
    return fields | {"negatives": "house", "negatives_per_query": 5, "metadata": []} | changed


def test_ir_datasets(catalogue, ingested):
    made = ingested(**house())
    assert made.passages == [("a", "a", "Title", "an abstract"), ("b", "b", "Other", "another")]
    assert made.queries == [("q1", "test", "first?", [])]
    assert made.qrels == {"q1": {"a": 2, "b": 0}}
    assert made.negatives == {"q1": ["b"]}
    assert made.counts["unjudged_queries"] == 1
    clips = ingested(**house(collection="house/clips", test=None, negatives=None))
    assert clips.passages == [("c", "c", "", "words heard")]


def test_ir_datasets_fields(catalogue, ingested):
    made = ingested(**house(metadata=["abstract"]))
    assert made.metadata == [{"abstract": "an abstract"}, {"abstract": "another"}]
    with pytest.raises(InputError, match=r"house: docs 1: ingest.metadata: no column 'url' among abstract, doc_id, "):
        ingested(**house(metadata=["url"]))


def test_ir_datasets_unknown_id_and_absent_part(catalogue, ingested):
    with pytest.raises(InputError, match="ir_datasets has no dataset 'hose'"):
        ingested(**house(collection="hose"))
    with pytest.raises(InputError, match="ir_datasets house/clips has no qrels"):
        ingested(**house(test="house/clips", negatives=None))


def test_ir_datasets_missing_only_without_copy_and_host(tmp_path, monkeypatch):
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path))
    monkeypatch.setattr(irdatasets, "answers", lambda address, seconds: False)
    config = CONFIG.validate_python(house(collection="antique", test="beir/scifact/test", negatives=None))
    first, second = missing(config)
    assert "ir_datasets antique is not on this machine and ciir.cs.umass.edu does not answer" in first
    assert "ir_datasets beir" in second
    (tmp_path / "antique").mkdir()
    assert missing(config) == [second]
    monkeypatch.setattr(irdatasets, "answers", lambda address, seconds: True)
    assert missing(config) == []
    monkeypatch.setattr(irdatasets, "answers", lambda address, seconds: False)
    assert missing(CONFIG.validate_python(house())) == []


def table(folder: Path, split: str = "train") -> dict:
    return {"dataset": None, "revision": "main", "folder": folder, "name": None, "split": split}


@pytest.fixture
def folders(tmp_path) -> dict:
    """Three folders of files, as they come from the hub."""
    for name, text in {
        "corpus/train.jsonl": '{"_id": "p1", "title": "T", "text": "one two three four"}\n'
        '{"_id": "p2", "text": "five"}\n',
        "queries/train.jsonl": '{"_id": "1", "text": "q?", "answers": ["five"]}\n{"_id": "2", "text": "r?"}\n',
        "qrels/test.tsv": "query-id\tcorpus-id\tscore\n1\tp2\t1\n1\tp1\t0\n",
    }.items():
        path = tmp_path / "hub" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return {
        "reader": "huggingface",
        "passages": table(tmp_path / "hub" / "corpus"),
        "id_column": "_id",
        "document_column": "",
        "title_column": "title",
        "text_column": "text",
        "passage_words": 0,
        "metadata": [],
        "queries": table(tmp_path / "hub" / "queries"),
        "query_id_column": "_id",
        "query_text_column": "text",
        "answers_column": "answers",
        "train_qrels": None,
        "dev_qrels": None,
        "test_qrels": table(tmp_path / "hub" / "qrels", "test"),
        "qrels_query_column": "query-id",
        "qrels_passage_column": "corpus-id",
        "qrels_relevance_column": "score",
    }


def test_huggingface(folders, ingested):
    made = ingested(**folders)
    assert made.passages == [("p1", "p1", "T", "one two three four"), ("p2", "p2", "", "five")]
    assert made.queries == [("1", "test", "q?", ["five"])]
    assert made.qrels == {"1": {"p2": 1, "p1": 0}}
    assert made.counts["unjudged_queries"] == 1


def test_huggingface_cuts_documents(folders, ingested):
    alone = {"queries": None, "test_qrels": None, "passage_words": 2, "id_column": ""}
    made = ingested(**folders | alone)
    assert made.passages == [
        ("0#0", "0", "T", "one two"),
        ("0#1", "0", "T", "three four"),
        ("1#0", "1", "", "five"),
    ]


@pytest.mark.parametrize(
    ("ending", "content", "row"),
    [
        ("csv", "_id,text,n\na,x,9007199254740993\nb,y,\n", 1),  # a gap
        ("jsonl", '{"_id": "a", "text": "x", "n": 0.5}\n{"_id": "b", "text": "y", "n": 9007199254740993}\n', 2),
        ("jsonl", '{"_id": "a", "text": "x", "n": 1}\n{"_id": "b", "text": "y", "n": 18446744073709551617}\n', 2),
    ],
)
def test_huggingface_integers_that_the_library_rounds_are_refused(folders, tmp_path, ingested, ending, content, row):
    corpus = tmp_path / "hub" / "corpus"
    (corpus / "train.jsonl").unlink()
    (corpus / f"train.{ending}").write_text(content)
    given = folders | {"queries": None, "test_qrels": None, "title_column": "", "metadata": ["n"]}
    line = rf"corpus, row {row}: ingest\.metadata: 'n' was read as \S+, which may be another integer rounded: "
    with pytest.raises(InputError, match=line):
        ingested(**given)


def test_huggingface_integers_of_64_bits(folders, tmp_path, ingested):
    corpus = tmp_path / "hub" / "corpus"
    (corpus / "train.jsonl").write_text(
        '{"_id": "a", "text": "x", "n": 9007199254740993}\n{"_id": "b", "text": "y", "n": null}\n'
    )
    given = folders | {"queries": None, "test_qrels": None, "title_column": "", "metadata": ["n"]}
    assert ingested(**given).metadata == [{"n": 2**53 + 1}, {"n": None}]
    (corpus / "train.jsonl").unlink()
    numbers = pa.table({"_id": ["a", "b"], "text": ["x", "y"], "n": [1e300, 2.0**53]})
    pq.write_table(numbers, corpus / "train.parquet")
    assert ingested(**given).metadata == [{"n": 1e300}, {"n": 2.0**53}]


def test_huggingface_columns(folders, tmp_path, ingested):
    (tmp_path / "hub" / "corpus" / "train.jsonl").write_text(
        '{"_id": "p1", "title": "T", "text": "one two three four", "year": 2020, "when": "2024-01-02T03:04:05"}\n'
        '{"_id": "p2", "title": "", "text": "five", "year": null, "when": null, "tags": ["a"]}\n'
    )
    alone = {"queries": None, "test_qrels": None, "passage_words": 2, "metadata": ["year", "when"]}
    first = {"year": 2020, "when": "2024-01-02T03:04:05"}
    assert ingested(**folders | alone).metadata == [first, first, {"year": None, "when": None}]
    with pytest.raises(InputError, match=r"corpus, row 1: ingest.metadata: no column 'source' among _id, tags, text, "):
        ingested(**folders | alone | {"metadata": ["source"]})
    with pytest.raises(InputError, match=r"corpus, row 2: ingest.metadata: 'tags' is neither .* but a list"):
        ingested(**folders | alone | {"metadata": ["tags"]})


def test_huggingface_bad_tables(folders, ingested):
    with pytest.raises(InputError, match=r"corpus, row 1: no column 'body' among _id, title, text"):
        ingested(**folders | {"text_column": "body"})
    with pytest.raises(InputError, match=r"queries, row 1: no column 'answer' among _id, text, answers"):
        ingested(**folders | {"answers_column": "answer"})
    with pytest.raises(InputError, match=r"corpus \(default, dev\): .*dev"):
        ingested(**folders | {"passages": folders["passages"] | {"split": "dev"}})
    with pytest.raises(InputError, match=r"ingest.queries and .*set both or neither"):
        ingested(**folders | {"queries": None})
    with pytest.raises(ValidationError, match="set one of dataset and folder"):
        CONFIG.validate_python(folders | {"passages": folders["passages"] | {"dataset": "a/b"}})


def test_huggingface_missing(folders, tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "reachable", lambda seconds: False)
    assert missing(CONFIG.validate_python(folders)) == []
    remote = table(tmp_path) | {"dataset": "BeIR/scifact", "folder": None}
    (said,) = missing(CONFIG.validate_python(folders | {"queries": remote}))
    assert "hf download BeIR/scifact --repo-type dataset" in said
    assert "ingest.queries.folder" in said
    gone = CONFIG.validate_python(folders | {"passages": table(tmp_path / "gone")})
    assert missing(gone) == [f"{tmp_path / 'gone'} does not exist"]
